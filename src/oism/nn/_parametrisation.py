"""What a network predicts: the noise, the velocity, the clean tensor, or a standardised residual.

With x = αx₀ + σε every parametrisation of a noise predictor by the output F of a network is

    ε̂(x, τ) = a·y + b·F(c·y, τ),    y = x - αm,

                    m      a                b                 c
    noise           0      0                1                 1
    velocity        0      σ                α                 1
    clean           0      1/σ              -α/σ              1
    EDM             0      σ/(α²s + σ²)     -α√(s/(α²s+σ²))   1/√(α²s + σ²)
    operator        mean   the same, with the covariance C in place of s
    Gaussian        mean   as operator      as EDM            as EDM, s the mean variance

Velocity is v = αε - σx₀, for α² + σ² = 1. EDM (Karras et al., 2022) is stated there for x/α: its
c_skip, c_out and c_in are those of the normal distribution N(0, sI). If the data had it, ay would
be the best prediction; the input cy has variance 1, and so has the output that is missing,

    F* = b⁻¹(ε - ay).

*Operator preconditioning* has the covariance matrix of the data instead of one variance: a, b and c
are functions of C, diagonal along the directions of a Gaussian prior. So a network without weights
is the prior, data that are Gaussian are learned by it, and a network is given standardised inputs
along every direction and learns a standardised residual. With C = sI and m = 0 it is EDM, and with
s = 1 the velocity but for a sign. Its own loss, below, has the same weight along all directions,
also along those with little variance, which contribute little to an image. The *Gaussian skip* has
the covariance in a only: a network without weights is the prior too, but inputs, outputs and the
loss are scaled as in EDM.

The loss of the outputs, E‖F - F*‖²/d = E‖b⁻¹(ε̂ - ε)‖²/d, is each one's own: 1/α² of that of the
noise for the velocity, σ²/α² for clean tensors (`oism.objectives.OutputMatching`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from oism._core import checks
from oism._core.transforms import one_per_row
from oism.images import GaussianPart, Prior
from oism.nn._contexts import full_precision
from oism.nn._informed import described
from oism.nn._labels import classes_of, with_labels
from oism.process import Clock, OrnsteinUhlenbeck
from oism.storage import External, storable

Factors = tuple[Tensor, Tensor, Tensor]
"""a, b and c."""

SIGMA_DATA = 0.5
"""The standard deviation of images from -1 to 1 that EDM assumes."""


class Parametrisation(ABC):
    """How the output of a network becomes predicted noise; see the table above.

    ``is_scaled`` states that the output that is missing has variance one at every noise level, for
    some Gaussian; then its own loss has the same size at all of them. ``needs_prior`` states that
    this Gaussian is that of a prior, the argument of the constructor.
    """

    name: ClassVar[str]
    is_scaled: ClassVar[bool] = False
    needs_prior: ClassVar[bool] = False

    @property
    def known(self) -> Prior | None:
        """The prior that it is made from, if there is one."""
        return None

    @abstractmethod
    def factors(self, alpha: Tensor, sigma: Tensor) -> Factors:
        """Return a, b and c for α and σ ``(n, 1)``: numbers of coordinates, ``(n, 1 or K)``."""

    def coordinates(self, dim: int, device: torch.device) -> GaussianPart:
        """Return the coordinates in which a, b and c are diagonal, with the mean m."""
        return GaussianPart.isotropic(dim, 0.0, device)


@storable
@dataclass(frozen=True)
class Noise(Parametrisation):
    """The network predicts ε."""

    name = "noise"

    def factors(self, alpha: Tensor, sigma: Tensor) -> Factors:  # noqa: ARG002
        """Return 0, 1 and 1."""
        one = torch.ones_like(alpha)
        return torch.zeros_like(alpha), one, one


@storable
@dataclass(frozen=True)
class Velocity(Parametrisation):
    """The network predicts v = αε - σx₀."""

    name = "v"

    def factors(self, alpha: Tensor, sigma: Tensor) -> Factors:
        """Return σ, α and 1."""
        return sigma, alpha, torch.ones_like(alpha)


@storable
@dataclass(frozen=True)
class Clean(Parametrisation):
    """The network predicts x₀, which does not give the noise at τ = 0."""

    name = "x0"

    def factors(self, alpha: Tensor, sigma: Tensor) -> Factors:
        """Return 1/σ, -α/σ and 1."""
        return 1 / sigma, -alpha / sigma, torch.ones_like(alpha)


@storable
@dataclass(frozen=True)
class EDM(Parametrisation):
    """The network predicts what a normal distribution with one variance leaves, standardised."""

    deviation: float = SIGMA_DATA

    name = "edm"
    is_scaled = True

    def __post_init__(self) -> None:
        checks.assign(self, deviation=checks.positive(self.deviation, "deviation"))

    def factors(self, alpha: Tensor, sigma: Tensor) -> Factors:
        """Return the factors for the variance ``deviation``²."""
        return gaussian_factors(alpha, sigma, torch.full_like(alpha, self.deviation**2))


class OfPrior(nn.Module, Parametrisation):
    """A parametrisation by the Gaussian part of a prior, in the coordinates of its directions."""

    is_scaled = needs_prior = True

    def __init__(self, prior: Prior) -> None:
        super().__init__()
        checks.instance(prior, Prior, "prior")
        self.prior = prior

    @property
    def known(self) -> Prior:
        """The prior."""
        return self.prior

    def to_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {"prior": self.prior}

    def coordinates(self, dim: int, device: torch.device) -> GaussianPart:  # noqa: ARG002
        """Return the Gaussian part of the prior."""
        return self.prior.gaussian_part()


@storable
class OperatorPreconditioning(OfPrior):
    """The network predicts what the Gaussian part of a prior leaves, standardised."""

    name = "operator"

    def factors(self, alpha: Tensor, sigma: Tensor) -> Factors:
        """Return the factors for the variances along the directions of the prior."""
        variances = self.prior.gaussian_part().variances
        return gaussian_factors(alpha, sigma, variances.to(alpha.device))


@storable
class GaussianSkip(OfPrior):
    """The network predicts what the Gaussian part of a prior leaves, scaled as in EDM."""

    name = "gaussian"

    def factors(self, alpha: Tensor, sigma: Tensor) -> Factors:
        """Return a for the variances along the directions, b and c for their mean."""
        part = self.prior.gaussian_part()
        mean = (part.variances * part.dimensions).sum() / part.dim
        a, _, _ = gaussian_factors(alpha, sigma, part.variances.to(alpha.device))
        _, b, c = gaussian_factors(alpha, sigma, mean.to(alpha).expand_as(alpha))
        return a, b, c


def gaussian_factors(alpha: Tensor, sigma: Tensor, variances: Tensor) -> Factors:
    """Return a, b and c of a normal distribution with variances along its directions."""
    total = alpha.square() * variances + sigma.square()
    return sigma / total, -alpha * (variances / total).sqrt(), total.rsqrt()


@storable
class Parametrised(nn.Module):
    """A noise predictor ε̂(x, τ) from a network that predicts something else.

    Parameters
    ----------
    net
        Any module ``net(x, tau)`` of tensors and clock times.
    parametrisation
        What the network predicts: `Noise`, `Velocity`, `Clean`, `EDM`, `OperatorPreconditioning`
        or `GaussianSkip`.
    clock
        The noise levels; for the last two they are the prior's.

    Examples
    --------
    >>> from oism import VariancePreserving
    >>> from oism.nn import MLP
    >>> predictor = Parametrised(MLP(2), Velocity(), VariancePreserving())
    >>> predictor(torch.zeros(5, 2), torch.rand(5)).shape
    torch.Size([5, 2])
    """

    process: ClassVar[OrnsteinUhlenbeck] = OrnsteinUhlenbeck()

    def __init__(
        self, net: nn.Module, parametrisation: Parametrisation, clock: Clock | None = None
    ) -> None:
        super().__init__()
        checks.instance(net, nn.Module, "net")
        checks.instance(parametrisation, Parametrisation, "parametrisation")
        prior = parametrisation.known
        if clock is None and prior is None:
            raise TypeError("clock must be given for a parametrisation without a prior")
        found = prior.clock if clock is None and prior is not None else clock
        checks.instance(found, Clock, "clock")
        if prior is not None and found != prior.clock:
            raise ValueError(f"clock must be that of the prior, {prior.clock!r}, got {clock!r}")
        assert found is not None
        self.net, self.parametrisation, self.clock = net, parametrisation, found

    @property
    def prior(self) -> Prior | None:
        """The prior by which a network is preconditioned."""
        return self.parametrisation.known

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of the tensors, if the network or the prior states it."""
        found: tuple[int, ...] | None = getattr(self.net, "shape", None)
        return found if self.prior is None else self.prior.shape

    def to_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            "net": External(self.net),
            "parametrisation": External(self.parametrisation),
            "clock": self.clock,
        }

    def facts(self) -> dict[str, Any]:
        """Return the settings of the network, and what it predicts."""
        return {**described(self.net), "predicts": self.parametrisation.name}

    @property
    def classes(self) -> int | None:
        """The number of classes of a network that takes labels."""
        return classes_of(self.net)

    def forward(self, x: Tensor, tau: Tensor | float, labels: Tensor | None = None) -> Tensor:
        """Return the predicted noise, in float32 or float64 as ``x`` is.

        ``tau`` is one per row or one number; the network gets one per row. ``labels`` ``(n,)`` are
        those of a network that takes them.
        """
        with full_precision(x.device):
            flat = (x if x.dtype == torch.float64 else x.float()).flatten(1)
            part, (a, b, c), alpha = self._factors(flat, tau)
            y = part.analyse(flat) - alpha * part.mean.to(flat)
            inputs = part.synthesise(c * y).reshape(x.shape)
        output: Tensor = self.net(inputs, one_per_row(tau, x), *with_labels(labels))
        with full_precision(x.device):
            found = part.analyse(output.to(flat.dtype).flatten(1))
            return part.synthesise(a * y + b * found).reshape(x.shape)

    def output(self, residual: Tensor, tau: Tensor) -> Tensor:
        """Return b⁻¹(ε̂ - ε), by which the output is wrong if the noise is by ``residual``."""
        with full_precision(residual.device):
            flat = residual.flatten(1)
            part, (_, b, _), _ = self._factors(flat, tau)
            return part.synthesise(part.analyse(flat) / b).reshape(residual.shape)

    def _factors(self, flat: Tensor, tau: Tensor | float) -> tuple[GaussianPart, Factors, Tensor]:
        """Return the coordinates, a, b and c, and α, in the dtype of flat tensors."""
        t = self.clock._time(one_per_row(tau, flat).double())[:, None]
        alpha, sigma = self.process._alpha(t), self.process._variance(t).sqrt()
        part = self.parametrisation.coordinates(flat.shape[1], flat.device)
        found = self.parametrisation.factors(alpha, sigma)
        a, b, c = (one.to(flat) for one in found)
        return part, (a, b, c), alpha.to(flat)


PREDICTIONS: Mapping[str, type[Parametrisation]] = MappingProxyType(
    {one.name: one for one in (Noise, Velocity, Clean, EDM, OperatorPreconditioning, GaussianSkip)}
)
"""What a network can predict, by name."""


def predicting(
    net: nn.Module, name: str, *, prior: Prior | None = None, clock: Clock | None = None
) -> nn.Module:
    """Return a noise predictor from a network that predicts what is named.

    The names are "noise", "v", "x0", "edm", and with a prior "operator" and "gaussian". A network
    that predicts the noise is returned as it is.
    """
    if name not in PREDICTIONS:
        raise ValueError(f"name must be one of {', '.join(PREDICTIONS)}, got {name!r}")
    kind = PREDICTIONS[name]
    if kind is Noise:
        return net
    if issubclass(kind, OfPrior):
        if prior is None:
            raise ValueError("prior must be given: it is that by which a network is preconditioned")
        return Parametrised(net, kind(prior), clock)
    if clock is None and prior is not None:
        clock = prior.clock
    return Parametrised(net, kind(), clock)
