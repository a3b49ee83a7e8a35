"""Polynomial scores: a Gaussian part, and a polynomial part limited to the range of the data.

In frame coordinates z, in units of the invariant distribution, log ρ_t is modelled as

    log N(Vz; m_t, s_t²) + f(u_t),    u_t = (V c(z) - m_t)/s_t,    f = Σ α_m(t) φ_m.

Outside of the range of the data a fitted polynomial is arbitrary and unbounded: a cubic f fitted to
skewed data sends points to infinity. So z enters f through a soft clamp c, the identity within the
range of the noised data and bounded outside,

    c(z) = h + w tanh((z - h)/w)  for z > h = e^{-θt} high + 3σ_t,  likewise below,

with w half of the standard deviation of that coordinate. c is twice continuously differentiable,
the score is the gradient of a function, and far outside of the range it is that of the Gaussian
part.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

from oism._core.transforms import matmul
from oism.basis import HermiteFamily, Standardised, TensorHermite, recurrence
from oism.basis._hermite import series
from oism.process import Clock
from oism.score._base import OperatorScore, System
from oism.score._coordinates import Coordinates
from oism.score._table import Table
from oism.storage import storable

NOISE_REACH = 3.0
"""By how many standard deviations of the noise the range of the data is widened."""

WIDTH = 0.5
"""The width w of the clamp, in standard deviations of the noised coordinate."""


def soft_clamp(
    z: Tensor, low: Tensor, high: Tensor, width: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return c(z), c'(z) and c''(z): the identity within [low, high], bounded outside.

    >>> z = torch.tensor([0.5, 1.0, 9.0])
    >>> soft_clamp(z, torch.tensor(-1.0), torch.tensor(1.0), torch.tensor(0.5))[0]
    tensor([0.5000, 1.0000, 1.5000])
    """
    inside = torch.minimum(torch.maximum(z, low), high)
    bend = torch.tanh((z - inside) / width)
    slope = 1 - bend.square()
    return inside + width * bend, slope, -2 * bend * slope / width


class HermiteFamilyScore(OperatorScore):
    """Base class of the Hermite scores: coordinates at time t, the Gaussian part and the clamp."""

    basis: HermiteFamily
    shift: Tensor
    scale: Tensor
    low: Tensor
    high: Tensor
    rotation: Tensor | None
    directions: Tensor | None
    spectral = (*OperatorScore.spectral, "shift", "scale", "low", "high")

    def __init__(
        self,
        basis: HermiteFamily,
        clock: Clock,
        table: Table,
        system: System,
        standard: Standardised,
    ) -> None:
        super().__init__(basis, clock, table, system)
        for name in ("shift", "scale", "low", "high", "rotation"):
            self.register_buffer(name, getattr(standard, name))
        # A buffer, so that they move with the module: frames are on the CPU and may be large.
        self.register_buffer("directions", basis.frame.stored_directions(), persistent=False)

    def _standardise(self, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return z, u of the Gaussian part, m_t and s_t, in the dtype of ``x``."""
        if self.directions is None:
            z = self.basis.scale * self.basis.frame._analyse(x)
        else:
            z = self.basis.scale * matmul(x, self.directions.to(x).mT)
        # In the dtype of the points: nothing cancels, and float64 would cost memory.
        shift, scale = Coordinates(self.basis.process, self.shift.to(z), self.scale.to(z)).at(t)
        return z, (self._rotate(z) - shift) / scale, shift, scale

    def _back(self, z: Tensor) -> Tensor:
        """Return vectors in data units, given their frame coordinates."""
        if self.directions is None:
            return self.basis.scale * self.basis.frame._synthesise(z)
        return self.basis.scale * matmul(z, self.directions.to(z))

    def _rotate(self, z: Tensor) -> Tensor:
        return z if self.rotation is None else matmul(z, self.rotation.to(z).mT)

    def _unrotate(self, u: Tensor) -> Tensor:
        return u if self.rotation is None else matmul(u, self.rotation.to(u))

    def _clamped(
        self, z: Tensor, t: Tensor, shift: Tensor, scale: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return u of the polynomial part, and c' and c''."""
        theta = self.basis.process.theta
        decay = torch.exp(-theta * t)[..., None].to(z)
        reach = (NOISE_REACH * (-torch.expm1(-2 * theta * t)).sqrt())[..., None].to(z)
        low, high = decay * self.low.to(z) - reach, decay * self.high.to(z) + reach
        if self.rotation is None:
            spread = scale
        else:
            spread = matmul(scale.square(), self.rotation.to(z).square()).sqrt()
        inner, slope, bend = soft_clamp(z, low, high, WIDTH * spread)
        return (self._rotate(inner) - shift) / scale, slope, bend

    def _gaussian_log_ratio(self, z: Tensor, u: Tensor, scale: Tensor) -> Tensor:
        parts = 0.5 * (z.square() - u.square()) - scale.log()
        return parts.sum(dim=1)


@storable
class HermiteScore(HermiteFamilyScore):
    """One polynomial for each frame coordinate: α is ``(dim, order)``, or empty for a Gaussian."""

    def _series(self, u: Tensor, alpha: Tensor, derivative: int) -> Tensor:
        return series(u, alpha.mT, derivative)

    def _score(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:
        z, u, shift, scale = self._standardise(x, t)
        if not alpha.shape[-1]:
            return self._back(-u / scale)
        inner, slope, _ = self._clamped(z, t, shift, scale)
        total = (slope * self._series(inner, alpha, 1) - u) / scale
        return self._back(total)

    def _divergence(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:
        z, _, shift, scale = self._standardise(x, t)
        gaussian = scale.pow(-2).sum(dim=-1).expand(len(z))
        if not alpha.shape[-1]:
            return -(self.basis.scale**2) * gaussian
        _, curvature = self.potential(z, t, alpha, shift, scale)
        return self.basis.scale**2 * (curvature.sum(dim=1) - gaussian)

    def potential(
        self, z: Tensor, t: Tensor, alpha: Tensor, shift: Tensor, scale: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return ∂f/∂z and ∂²f/∂z² of the polynomial part, given m_t and s_t: like ``z`` each."""
        inner, slope, bend = self._clamped(z, t, shift, scale)
        first = self._series(inner, alpha, 1) / scale
        second = slope.square() * self._series(inner, alpha, 2) / scale.square()
        return slope * first, second + bend * first

    def _log_ratio(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:
        z, u, shift, scale = self._standardise(x, t)
        gaussian = self._gaussian_log_ratio(z, u, scale)
        if not alpha.shape[-1]:
            return gaussian
        inner, _, _ = self._clamped(z, t, shift, scale)
        return gaussian + self._series(inner, alpha, 0).sum(dim=1)


@storable
class TensorHermiteScore(HermiteFamilyScore):
    """Products of polynomials in principal coordinates: α is ``(size,)``, empty for order two."""

    basis: TensorHermite
    indices: Tensor

    def __init__(
        self,
        basis: TensorHermite,
        clock: Clock,
        table: Table,
        system: System,
        standard: Standardised,
    ) -> None:
        super().__init__(basis, clock, table, system, standard)
        # Listed now, for torch.compile cannot; a Gaussian of any dimension has none.
        has_functions = table.curve.values.numel() > 0
        indices = basis.indices if has_functions else torch.zeros(0, basis.dim, dtype=torch.int64)
        self.register_buffer("indices", indices, persistent=False)

    def _series(self, u: Tensor, alpha: Tensor, derivative: tuple[int, ...]) -> Tensor:
        """Return Σ α_m Π_i d^{k_i}φ_{m_i}/du_i^{k_i} for derivatives k: ``(n,)``."""
        table = torch.stack(list(recurrence(u, self.basis.order)), dim=1)
        indices = self.indices.to(u.device)
        terms: Tensor | None = None
        for i, k in enumerate(derivative):
            degree = indices[:, i]
            roots = [math.sqrt(math.perm(n, k)) for n in range(self.basis.order + 1)]
            factors = torch.tensor(roots, dtype=torch.float64).to(u)[degree]
            own = factors * table[:, (degree - k).clamp(min=0), i]
            terms = own if terms is None else terms * own
        assert terms is not None
        return (terms * alpha).sum(dim=1)

    def _unit(self, *axes: int) -> tuple[int, ...]:
        return tuple(axes.count(i) for i in range(self.basis.dim))

    def _potential_gradient(self, inner: Tensor, alpha: Tensor, scale: Tensor) -> Tensor:
        """Return ∂f/∂c in frame coordinates."""
        axes = range(self.basis.dim)
        slopes = [self._series(inner, alpha, self._unit(i)) for i in axes]
        return self._unrotate(torch.stack(slopes, dim=1) / scale)

    def _score(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:
        z, u, shift, scale = self._standardise(x, t)
        total = -self._unrotate(u / scale)
        if alpha.shape[-1]:
            inner, slope, _ = self._clamped(z, t, shift, scale)
            total = total + slope * self._potential_gradient(inner, alpha, scale)
        return self._back(total)

    def _divergence(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:
        z, u, shift, scale = self._standardise(x, t)
        total = -scale.pow(-2).sum(dim=-1).expand(len(u))
        if alpha.shape[-1]:
            inner, slope, bend = self._clamped(z, t, shift, scale)
            total = total + (bend * self._potential_gradient(inner, alpha, scale)).sum(dim=1)
            # Σ_j c_j'² ∂²f/∂c_j² with ∂²/∂c_j² = Σ_{ik} V_ij V_kj (s_i s_k)⁻¹ ∂²/∂u_i∂u_k
            rotation = (
                torch.eye(self.basis.dim).to(z) if self.rotation is None else self.rotation.to(z)
            )
            weights = matmul(slope.square(), (rotation[:, None] * rotation).flatten(0, 1).mT)
            for i, k in itertools.product(range(self.basis.dim), repeat=2):
                mixed = self._series(inner, alpha, self._unit(i, k))
                factor = weights[:, i * self.basis.dim + k] / (scale[..., i] * scale[..., k])
                total = total + factor * mixed
        return self.basis.scale**2 * total

    def _log_ratio(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:
        z, u, shift, scale = self._standardise(x, t)
        total = self._gaussian_log_ratio(z, u, scale)
        if alpha.shape[-1]:
            inner, _, _ = self._clamped(z, t, shift, scale)
            total = total + self._series(inner, alpha, self._unit())
        return total
