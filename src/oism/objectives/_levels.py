"""Noise levels: the distribution of the clock times that a network is trained on.

A distribution of τ on [first, horizon] is given by a function of uniform numbers, in most cases its
quantile function: times are τ(u) for u uniform on [0, 1]. A batch takes *low-discrepancy* u, one in
each n-th of the interval and all shifted by the same draw, u_i = (u + i/n) mod 1 (Kingma et al.,
2021): every batch covers the whole range, and the loss varies less.

Uniform in the logarithm of the signal-to-noise ratio ℓ is the importance sampling for likelihood
weighting, because -dℓ/dτ = g²/σ², with g² = 2t' × diffusivity the squared noise of the SDE in τ:
for the variance preserving process β/σ².
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor

from oism._core import checks
from oism._core.draws import uniform_like
from oism.flow import FIRST
from oism.process import Noising, first_time


class NoiseLevels(ABC):
    """A distribution of clock times on [first, horizon]."""

    is_uniform_in_log_snr: ClassVar[bool] = False
    """Whether the logarithm of the signal-to-noise ratio is uniform."""

    def __init__(self, noising: Noising, first: float = FIRST) -> None:
        checks.instance(noising, Noising, "noising")
        self.noising, self.first = noising, first_time(first, noising.clock)

    @property
    def last(self) -> float:
        """The last clock time."""
        return self.noising.clock.horizon

    def to_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor; a class with others adds its own."""
        return {"noising": self.noising, "first": self.first}

    def settings(self) -> dict[str, Any]:
        """Return the arguments besides the noising, as plain values for JSON."""
        return {name: value for name, value in self.to_config().items() if name != "noising"}

    @abstractmethod
    def at(self, u: Tensor) -> Tensor:
        """Return τ(u), whose distribution is this one for u uniform on [0, 1]; float64."""

    @abstractmethod
    def density(self, tau: Tensor) -> Tensor:
        """Return the density of the distribution, with respect to dτ."""

    def draw(
        self,
        n: int,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
    ) -> Tensor:
        """Return n times of low discrepancy, in float64."""
        return self.at(low_discrepancy(n, generator, device))


class UniformTime(NoiseLevels):
    """τ uniform."""

    def at(self, u: Tensor) -> Tensor:
        """Return first + u (last - first)."""
        return self.first + u.double() * (self.last - self.first)

    def density(self, tau: Tensor) -> Tensor:
        """Return 1/(last - first)."""
        return torch.full_like(tau, 1 / (self.last - self.first))


class UniformLogSNR(NoiseLevels):
    """ℓ = log(α²/σ²) uniform."""

    is_uniform_in_log_snr = True

    def __init__(self, noising: Noising, first: float = FIRST) -> None:
        super().__init__(noising, first)
        self.highest, self.lowest = noising.log_snr_range(self.first)
        if not math.isfinite(self.width):
            raise ValueError(
                f"noising must leave some signal at the horizon {self.last:g} of its clock: the "
                f"logarithms of the signal-to-noise ratio range from {self.lowest:g} to "
                f"{self.highest:g}"
            )

    @property
    def width(self) -> float:
        """The length of the interval of ℓ."""
        return self.highest - self.lowest

    def at(self, u: Tensor) -> Tensor:
        """Return the τ of ℓ = highest - u·width: noise grows with u."""
        tau = self.noising.tau_of_log_snr(self.highest - u.double() * self.width)
        return tau.clamp(self.first, self.last)

    def density(self, tau: Tensor) -> Tensor:
        """Return -ℓ'(τ)/width."""
        return likelihood_rate(self.noising, tau) / self.width

    def bins(self, count: int) -> list[tuple[float, float]]:
        """Return intervals of τ of equal length in ℓ, low noise first."""
        ends = self.at(torch.linspace(0, 1, count + 1, dtype=torch.float64)).tolist()
        return list(itertools.pairwise(ends))


class NormalLogSNR(NoiseLevels):
    """log(σ/α) = -ℓ/2 normal, within the range of the times.

    ``mean`` and ``deviation`` are by default those of EDM (Karras et al., 2022).
    """

    def __init__(
        self, noising: Noising, first: float = FIRST, *, mean: float = -1.2, deviation: float = 1.2
    ) -> None:
        super().__init__(noising, first)
        self.mean = checks.number(mean, "mean")
        self.deviation = checks.positive(deviation, "deviation")
        ends = torch.tensor(noising.log_snr_range(self.first), dtype=torch.float64)
        self._ends = torch.special.ndtr(self._standardised(ends)).tolist()
        if self._ends[0] == self._ends[1]:
            raise ValueError(
                f"mean must be within reach of the noise levels, got {mean:g} ± {deviation:g}"
            )

    def to_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {**super().to_config(), "mean": self.mean, "deviation": self.deviation}

    def _standardised(self, log_snr: Tensor) -> Tensor:
        return (-0.5 * log_snr - self.mean) / self.deviation

    def at(self, u: Tensor) -> Tensor:
        """Return the τ of the quantile u of the normal distribution between its ends."""
        low, high = self._ends
        z = torch.special.ndtri(low + u.double() * (high - low))
        log_snr = -2 * (self.mean + self.deviation * z)
        return self.noising.tau_of_log_snr(log_snr).clamp(self.first, self.last)

    def density(self, tau: Tensor) -> Tensor:
        """Return the density of -ℓ/2, times its derivative, divided by that of the range."""
        z = self._standardised(self.noising.log_snr(tau))
        normal = (-0.5 * z.square()).exp() / (math.sqrt(2 * math.pi) * self.deviation)
        low, high = self._ends
        found: Tensor = 0.5 * likelihood_rate(self.noising, tau) * normal / (high - low)
        return found


class MixedLevels(NoiseLevels):
    """A share of the times from one distribution, the others from another.

    In every batch both have low discrepancy. The function `at` is not the quantile function of the
    mixture: u below the share gives times of the first distribution, other u times of the second.

    Parameters
    ----------
    one, other
        The distributions, of the same noising and the same first time.
    share
        The probability of the first, between 0 and 1.

    Examples
    --------
    >>> from oism.process import Noising, OrnsteinUhlenbeck, VariancePreserving
    >>> noising = Noising(OrnsteinUhlenbeck(), VariancePreserving())
    >>> MixedLevels(UniformLogSNR(noising), NormalLogSNR(noising)).draw(8).shape
    torch.Size([8])
    """

    def __init__(self, one: NoiseLevels, other: NoiseLevels, share: float = 0.5) -> None:
        for name, part in (("one", one), ("other", other)):
            checks.instance(part, NoiseLevels, name)
        if one.noising != other.noising or one.first != other.first:
            raise ValueError(
                f"other must have the same noising and first time as one, {one.noising!r} and "
                f"{one.first:g}, got {other.noising!r} and {other.first:g}"
            )
        self.share = checks.number(share, "share")
        if not 0 < self.share < 1:
            raise ValueError(f"share must be between 0 and 1, got {share!r}")
        super().__init__(one.noising, one.first)
        self.one, self.other = one, other

    def to_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {"one": self.one, "other": self.other, "share": self.share}

    def settings(self) -> dict[str, Any]:
        """Return the names of both distributions with their arguments, and the share."""
        parts = {"one": self.one, "other": self.other}
        named = {
            name: {"levels": type(part).__name__, **part.settings()} for name, part in parts.items()
        }
        return {**named, "share": self.share}

    def at(self, u: Tensor) -> Tensor:
        """Return times of the first distribution for u below the share, of the second above."""
        u, share = u.double(), self.share
        below = (u / share).clamp(max=1)
        above = ((u - share) / (1 - share)).clamp(min=0)
        return torch.where(u < share, self.one.at(below), self.other.at(above))

    def density(self, tau: Tensor) -> Tensor:
        """Return the sum of both densities with their shares."""
        return self.share * self.one.density(tau) + (1 - self.share) * self.other.density(tau)


def likelihood_rate(noising: Noising, tau: Tensor) -> Tensor:
    """Return g²/σ² = -dℓ/dτ: β/σ² for the variance preserving process."""
    clock, process = noising.clock, noising.process
    squared_noise = 2 * clock._rate(tau) * process.diffusivity
    return squared_noise / process._variance(clock._time(tau))


def low_discrepancy(
    n: int,
    generator: torch.Generator | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """Return (u + i/n) mod 1 for i < n and one uniform u; float64.

    >>> (low_discrepancy(4).sort().values * 4).floor()
    tensor([0., 1., 2., 3.], dtype=torch.float64)
    """
    n = checks.integer(n, "n", minimum=1)
    even = torch.arange(n, dtype=torch.float64, device=device) / n
    return (uniform_like(even[0], generator) + even) % 1
