"""A mixture of Gaussians in one frame: classes of contrast and colour, in closed form.

P_t acts linearly on distributions, so a mixture remains one, component by component:

    ρ_t = Σ_c w_c N(α m_c, α² v_c + σ²),    ∇log ρ_t = -Σ_c r_c(z, t) (z - α m_c)/(α² v_c + σ²)

with variances along the frame and responsibilities r_c ∝ w_c N(z; …). Images differ in contrast by
far more than one Gaussian, or any distribution with independent coordinates, can represent: an
image of low contrast has small coordinates along all fine directions at once. A few dozen
components in the principal frame represent that. Their weights, means and variances are found by
expectation maximisation on standardised coordinates, two matrix products a round, starting from
classes of equal size by energy. (scikit-learn's `GaussianMixture` has no device, no float32 and no
prior on variances.) Densities are exact, without a flow.
"""

from __future__ import annotations

import math
from typing import Any, Self

import torch
from torch import Tensor

from oism._core.draws import multinomial, normal_like
from oism._core.transforms import matmul
from oism.basis import Frame
from oism.flow import TensorSpec
from oism.images._framed import FramedPrior
from oism.process import Clock
from oism.score import FLOOR, Curve
from oism.storage import storable

PSEUDO_ROWS = 20.0
"""How many rows of the whole data count along with those of a component, for its variances."""

ROUNDS = 10
"""The number of rounds of expectation maximisation."""

ENTRIES = 2**24
"""The number of entries that are processed at a time."""


class Components:
    """Weights ``(K,)``, means and variances ``(K, k)`` in standardised coordinates."""

    def __init__(self, log_weights: Tensor, means: Tensor, variances: Tensor) -> None:
        self.log_weights, self.means, self.variances = log_weights, means, variances

    def check(self, count: int) -> None:
        """Raise unless there are components, all of them of ``count`` coordinates."""
        weights, means, variances = (
            tuple(part.shape) for part in (self.log_weights, self.means, self.variances)
        )
        if len(weights) != 1 or not weights[0] or {means, variances} != {(*weights, count)}:
            raise ValueError(
                f"components must have weights (K,), means and variances (K, {count}), got "
                f"{weights}, {means} and {variances}"
            )

    def log_joint(self, u: Tensor) -> Tensor:
        """Return log w_c + log N(u; m_c, v_c): ``(n, K)``."""
        return log_joint(u, self.log_weights, self.means, self.variances)


def log_joint(u: Tensor, log_weights: Tensor, means: Tensor, variances: Tensor) -> Tensor:
    """Return log w_c + log N(u; m_c, v_c) at rows ``(n, k)`` by three products: ``(n, K)``."""
    precision = 1 / variances
    constant = (means.square() * precision + variances.log()).sum(dim=1)
    square = matmul(u.square(), precision.mT) - 2 * matmul(u, (means * precision).mT)
    return log_weights - 0.5 * (square + constant + u.shape[1] * math.log(2 * math.pi))


def maximise(u: Tensor, count: int, extra: Tensor, rounds: int = ROUNDS) -> Components:
    """Return the components of rows ``(n, k)`` by expectation maximisation.

    ``extra`` ``(k,)`` is a variance that the rows are to be spread by (dequantisation). Variances
    are drawn towards one, that of all rows, by `PSEUDO_ROWS`.
    """
    energy = u.square().mean(dim=1)
    place = energy.argsort().argsort()  # ranks: classes of equal size
    share = torch.nn.functional.one_hot(place * count // len(u), count).to(u)
    pieces = torch.split(torch.arange(len(u)), max(1, ENTRIES // u.shape[1]))
    components: Components | None = None
    for _ in range(rounds):
        if components is not None:
            share = torch.cat([components.log_joint(u[rows]).softmax(dim=1) for rows in pieces])
        weight = share.sum(dim=0).clamp(min=1e-6)
        first, second = u.new_zeros(count, u.shape[1]), u.new_zeros(count, u.shape[1])
        for rows in pieces:
            first += share[rows].mT @ u[rows]
            second += share[rows].mT @ u[rows].square()
        means = first / weight[:, None]
        spread = (second / weight[:, None] - means.square()).clamp(min=0) + extra
        own = weight[:, None] / (weight[:, None] + PSEUDO_ROWS)
        variances = own * spread + (1 - own)
        components = Components((weight / weight.sum()).log(), means, variances)
    assert components is not None
    return components


@storable
class MixturePrior(FramedPrior):
    """Gaussian components with variances of their own along one frame: ``(K, k)``.

    ``centre`` ``(k,)`` is the mean in coordinates; ``means`` are about it.
    """

    centre: Tensor
    log_weights: Tensor
    means: Tensor
    variances: Tensor

    def __init__(  # noqa: PLR0913, PLR0917
        self,
        spec: TensorSpec,
        table_clock: Clock,
        error: Curve,
        frame: Frame,
        mean: Tensor,
        rest: float | None,
        components: Components,
    ) -> None:
        super().__init__(spec, table_clock, error, frame, mean, rest)
        components.check(self.count)
        self.register_buffer("centre", self.analyse(self.mean[None])[0])
        self.register_buffer("log_weights", components.log_weights.float())
        self.register_buffer("means", components.means.float())
        self.register_buffer("variances", components.variances.float().clamp(min=FLOOR))

    def to_config(self) -> dict[str, Any]:
        """Return the arguments of `from_config`."""
        parts = {name: getattr(self, name) for name in ("log_weights", "means", "variances")}
        return {**super().to_config(), **parts}

    @classmethod
    def from_config(  # noqa: PLR0913
        cls,
        *,
        spec: TensorSpec,
        table_clock: Clock,
        error: Curve,
        frame: Frame,
        mean: Tensor,
        rest: float | None,
        log_weights: Tensor,
        means: Tensor,
        variances: Tensor,
    ) -> Self:
        """Return the prior with these components."""
        components = Components(log_weights, means, variances)
        return cls(spec, table_clock, error, frame, mean, rest, components)

    def facts(self) -> dict[str, Any]:
        """Return kind, shape, frame, number of components and clock."""
        return {
            "kind": "mixture of Gaussians",
            "shape": list(self.shape),
            "frame": self.frame_name,
            "components": len(self.log_weights),
            "clock": repr(self.clock),
        }

    @property
    def is_gaussian(self) -> bool:
        """Whether there is one component."""
        return len(self.log_weights) == 1

    def _at(self, z: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return centred coordinates, and the means and variances of the components at t.

        Of shape ``(K, k)``, or ``(n, K, k)`` where every row has a time of its own.
        """
        shape = (*t.shape, 1, 1)
        alpha = self.process._alpha(t).to(z).reshape(shape)
        variance = self.process._variance(t).to(z).reshape(shape)
        centred = z - alpha[..., 0] * self.centre.to(z)
        spread = alpha.square() * self.variances.to(z) + variance
        return centred, alpha * self.means.to(z), spread

    def _responsibilities(self, z: Tensor, means: Tensor, variances: Tensor) -> Tensor:
        weights = self.log_weights.to(z)
        if means.ndim == 2:
            return log_joint(z, weights, means, variances).softmax(dim=1)
        square = ((z[:, None] - means).square() / variances + variances.log()).sum(dim=2)
        return (weights - 0.5 * square).softmax(dim=1)

    def _line_score(self, z: Tensor, t: Tensor) -> Tensor:
        pieces = [self._parts(z[rows], own)[0] for rows, own in self._pieces(z, t)]
        return torch.cat(pieces) if pieces else torch.zeros_like(z)

    def _line_divergence(self, z: Tensor, t: Tensor) -> Tensor:
        pieces = [self._curvature(z[rows], own) for rows, own in self._pieces(z, t)]
        return torch.cat(pieces) if pieces else z.new_zeros(0)

    def _pieces(self, z: Tensor, t: Tensor) -> list[tuple[slice, Tensor]]:
        """Return rows with their times, a bounded number at a time."""
        step = max(1, ENTRIES // self.means.numel()) if t.ndim else max(1, len(z))
        starts = range(0, len(z), step)
        return [(slice(i, i + step), t[i : i + step] if t.ndim else t) for i in starts]

    def _parts(self, z: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the score, the responsibilities, and means and precisions of the components."""
        z, means, variances = self._at(z, t)
        share, precision = self._responsibilities(z, means, variances), 1 / variances
        if means.ndim == 2:
            slope, pull = matmul(share, precision), matmul(share, means * precision)
        else:
            slope = (share[..., None] * precision).sum(dim=1)
            pull = (share[..., None] * means * precision).sum(dim=1)
        return pull - z * slope, share, means, precision

    def _curvature(self, z: Tensor, t: Tensor) -> Tensor:
        """Return Σ_c r_c (‖s_c‖² - Σ 1/v_c) - ‖s‖², s_c the score of a component."""
        score, share, means, precision = self._parts(z, t)
        z = self._at(z, t)[0]
        if means.ndim == 2:
            square = precision.square()
            norm = matmul(z.square(), square.mT) - 2 * matmul(z, (means * square).mT)
            norm = norm + (means.square() * square).sum(dim=1)
        else:
            norm = ((z[:, None] - means) * precision).square().sum(dim=2)
        inner = (share * (norm - precision.sum(dim=-1))).sum(dim=1)
        return inner - score.square().sum(dim=1)

    def _line_log_density(self, z: Tensor) -> Tensor:
        z, means, variances = self._at(z, torch.zeros((), dtype=torch.float64, device=z.device))
        joint = log_joint(z, self.log_weights.to(z), means, variances)
        return joint.logsumexp(dim=1)

    def _line_moments(self) -> tuple[Tensor, Tensor]:
        share, means = self.log_weights.double().softmax(dim=0)[:, None], self.means.double()
        mean = (share * means).sum(dim=0)
        square = (share * (self.variances.double() + means.square())).sum(dim=0)
        return self.centre.double() + mean, square - mean.square()

    def _line_sample(self, n: int, generator: torch.Generator | None) -> Tensor:
        """Return coordinates by drawing a component and then from its Gaussian."""
        chosen = multinomial(self.log_weights.exp(), n, generator)
        noise = normal_like(self.means[chosen], generator)
        return self.centre + self.means[chosen] + self.variances[chosen].sqrt() * noise
