"""Scores of linear SDEs: a Gaussian part with the moments of X_t, and a polynomial part.

    log ρ_t = log N(x; m_t, C_t) + f(u),    u = W_t(c(x) - m_t),    f = Σ α_m(t) φ_m,

in the coordinates of ``oism.score._linear_law``. As for the Ornstein-Uhlenbeck process, x enters f
through a soft clamp c, the identity within the range of the noised data
(``oism.score._hermite``).

Derivatives of f are polynomials of lower degree, ∂ᵢf = Σ_j (aᵢᵀα)_j φ_j: the gradient is one
product with a table of functions up to degree n - 1, the second derivatives up to n - 2.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from oism._core.transforms import matmul
from oism.basis import Ladder, Polynomials
from oism.basis._hermite import products
from oism.process import Clock
from oism.score._base import OperatorScore, System
from oism.score._hermite import NOISE_REACH, WIDTH, soft_clamp
from oism.score._linear_law import LinearLaw, Metric
from oism.score._table import Table
from oism.storage import storable

LAW = ("shift", "factor", "noise", "low", "high")
"""The tensors of a `LinearLaw`."""


class Whitened(NamedTuple):
    """Points in the coordinates of a time, and derivatives of the clamp."""

    whiten: Tensor  # W_t
    u: Tensor  # W_t(x - m_t)
    inner: Tensor  # W_t(c(x) - m_t)
    slope: Tensor  # c'
    bend: Tensor  # c''


@storable
class LinearScore(OperatorScore):
    """The estimate for a linear process; α is ``(size,)``, empty for order two, the Gaussian.

    The fit matches R^{½}∇ log ρ_t for the metric R. If R is singular, like the diffusion matrix G
    of a damped process, the score is projected onto its range: the derivatives along velocities,
    and 0 along positions. The flow needs no more.
    """

    basis: Polynomials
    law_noise: Tensor
    law_low: Tensor
    metric: Tensor
    functions: Tensor
    lower: Tensor
    steps: Tensor
    more_steps: Tensor
    spectral = (*OperatorScore.spectral, *(f"law_{name}" for name in LAW), "metric")

    def __init__(
        self,
        basis: Polynomials,
        clock: Clock,
        table: Table,
        system: System,
        law: LinearLaw,
        metric: Tensor,
    ) -> None:
        super().__init__(basis, clock, table, system)
        for name in LAW:
            self.register_buffer(f"law_{name}", getattr(law, name))
        self.register_buffer("metric", metric)
        self._metric = Metric(metric)
        if basis.order > 2:
            self._register_derivatives(Ladder(basis.dim, basis.order))

    def _register_derivatives(self, ladder: Ladder) -> None:
        """Register the matrices of first and second derivatives as buffers."""
        steps = ladder.slopes(torch.eye(ladder.dim, dtype=torch.float64))
        kept = (ladder.indices[:, self._metric.hidden :] > 0).any(dim=1)
        lower, below = steps.shape[-1], ladder.count(ladder.degree - 2)
        parts = {
            "functions": ladder.indices[kept],
            "lower": ladder.indices[:lower],
            "steps": steps[:, kept],
            "more_steps": steps[:, :lower, :below],
        }
        for name, part in parts.items():
            self.register_buffer(name, part, persistent=False)

    def law(self) -> LinearLaw:
        """Return the mean and the covariance of X_t as functions of time."""
        parts = (getattr(self, f"law_{name}").double() for name in LAW)
        return LinearLaw(self.basis.process, *parts)

    @property
    def velocity_variance(self) -> float | None:
        """The variance γ of the added velocities; None if all entries are data."""
        hidden = len(self.law_noise) - len(self.law_low)
        return float(self.law_noise[-1, -1]) if hidden else None

    def _whitened(self, x: Tensor, t: Tensor, alpha: Tensor) -> Whitened:
        """Return points in the coordinates of time t, in the dtype of ``x``."""
        law = self.law()
        moment = law.at(t)
        whiten = self._metric.whiten(moment.covariance)[0].to(x)
        u = _along(whiten, x - moment.mean.to(x))
        if not alpha.shape[-1]:
            return Whitened(whiten, u, u, x, x)
        low, high = (end.to(x) for end in law.range(moment, NOISE_REACH))
        deviations = moment.covariance.diagonal(dim1=-2, dim2=-1).sqrt().to(x)
        inner, slope, bend = soft_clamp(x, low, high, WIDTH * deviations)
        return Whitened(whiten, u, _along(whiten, inner - moment.mean.to(x)), slope, bend)

    def _values(self, u: Tensor) -> Tensor:
        return products(u, self.functions, self.basis.order)

    def _derivatives(self, u: Tensor, alpha: Tensor, times: int) -> Tensor:
        """Return ∇f, ``(n, d)``, or the matrix of second derivatives, ``(n, d, d)``, in u."""
        weights = matmul(alpha[..., None, None, :], self.steps.to(alpha))[..., 0, :]
        if times == 2:
            weights = matmul(weights[..., None, :, :], self.more_steps.to(alpha))
        weights = weights.movedim(-1, -1 - times)
        few = weights.shape[-1 - times]
        table = products(u, self.lower[:few], self.basis.order - times)
        return matmul(table[:, None], weights.flatten(-times)).reshape(
            len(u), *[u.shape[1]] * times
        )

    def _score(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:
        return self._first(self._whitened(x, t, alpha), alpha)

    def _first(self, at: Whitened, alpha: Tensor) -> Tensor:
        """Return the score in the range of the metric."""
        total = -_along(at.whiten.mT, at.u)
        if alpha.shape[-1]:
            slopes = self._derivatives(at.inner, alpha, 1)
            total = total + at.slope * _along(at.whiten.mT, slopes)
        if not self._metric.hidden:
            return total
        return matmul(total, self._metric.projection.to(total))

    def _second(self, at: Whitened, alpha: Tensor) -> Tensor:
        """Return all second derivatives of log ρ_t: ``(n, d, d)``."""
        whiten = at.whiten
        total = -matmul(whiten.mT, whiten).expand(len(at.u), -1, -1)
        if alpha.shape[-1]:
            first = _along(whiten.mT, self._derivatives(at.inner, alpha, 1))
            second = matmul(matmul(whiten.mT, self._derivatives(at.inner, alpha, 2)), whiten)
            second = at.slope[:, :, None] * second * at.slope[:, None, :]
            total = total + second + torch.diag_embed(at.bend * first)
        return total

    def _traced(self, x: Tensor, t: Tensor, alpha: Tensor, matrix: Tensor) -> Tensor:
        """Return the score s and Σ Mᵢⱼ∂ᵢ∂ⱼ log ρ_t, ``(n, d + 1)``."""
        at = self._whitened(x, t, alpha)
        trace = (matrix.to(x) * self._second(at, alpha)).sum(dim=(1, 2))
        return torch.cat((self._first(at, alpha), trace[:, None]), dim=1)

    def _joint(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:
        return self._traced(x, t, alpha, self._metric.projection)

    def _divergence(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:
        return self._joint(x, t, alpha)[:, -1]

    def _diffused(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:
        """Return the score and ∇·G∇ log ρ_t, ``(n, d + 1)``."""
        return self._traced(x, t, alpha, self.basis.process.diffusion(self.basis.dim))

    def score_and_diffused_divergence(self, x: Tensor, t: Tensor | float) -> tuple[Tensor, Tensor]:
        """Return the score and ∇·G∇ log ρ_t, ``(n,)``, in closed form, for log-densities."""
        both = self._evaluate(self._diffused, x, t)
        return both[:, :-1].reshape(x.shape), both[:, -1]

    def _log_ratio(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:
        if self._metric.hidden:
            raise ValueError(
                "metric must be definite for log(ρ_t/π): the metric G does not determine its "
                f"dependence on {self._metric.hidden} coordinates; fit with whole=True"
            )
        at = self._whitened(x, t, alpha)
        total: Tensor = torch.linalg.slogdet(at.whiten)[1] - 0.5 * at.u.square().sum(dim=1)
        if alpha.shape[-1]:
            total = total + (self._values(at.inner) * alpha).sum(dim=1)
        return total - self.basis.process.invariant.log_density(x)


def _along(matrix: Tensor, x: Tensor) -> Tensor:
    """Return Wx for W ``(d, d)``, or one per row."""
    return matmul(x[:, None], matrix.mT)[:, 0] if matrix.ndim == 3 else matmul(x, matrix.mT)
