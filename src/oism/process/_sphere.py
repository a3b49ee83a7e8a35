"""Brownian motion on the sphere S²: L = Δ, π uniform, eigenvalues -l(l + 1).

Points are unit vectors ``(n, 3)``. In the space around the sphere dX = -2X dt + √2 (I - XXᵀ) dW:
the noise is tangent, and the drift compensates the second derivative of the norm. Densities are
with respect to area, so π = 1/4π.

The transition density depends on the angle γ between the points only. For late times it is
summed as a series of Legendre polynomials,

    4π ρ_t(γ) = Σ_l (2l + 1) e^{-l(l+1)t} P_l(cos γ).

For t < 0.25 the terms cancel, and the integral

    ρ_t(γ) = √2 e^{t/4} (4πt)^{-3/2} ∫_γ^{2π-γ} s e^{-s²/4t} (cos γ - cos s)^{-½} ds,

exact up to e^{-π²/t}, has positive terms only. With s² = γ² + 4tv² the integrand is e^{-v²} times a
smooth function, for Gauss-Hermite quadrature; close to the antipode, where both ends of the
integral matter, sin((s - π)/2) = cos(γ/2) sin χ makes it periodic in χ, for the midpoint rule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from oism._core import checks, quadrature
from oism._core.draws import uniform_like
from oism._core.transforms import per_row
from oism.process._base import Nodes
from oism.process._domain import Domain
from oism.process._measure import Measure
from oism.process._reversible import Reversible, ReversibleTransition
from oism.storage import storable

CROSSING = 0.25
"""The time from which the series is summed."""

TERMS = 16
"""The number of terms of the series: e^{-16·17·0.25} is 3e-30."""

ANTIPODE = 16.0
"""The integral near the antipode is used for π - γ < 16t."""

HERMITE, MIDPOINTS = 40, 128
"""The numbers of points of the two rules."""

ENVELOPE = 1.1
"""An upper bound of the early density divided by that of the proposal of `_sample_angles`."""

UNIT = 1e-3
"""The largest distance of the norm of a point from 1."""


def normalised(x: Tensor) -> Tensor:
    """Return vectors ``(n, d)`` divided by their norms."""
    found: Tensor = x / x.norm(dim=-1, keepdim=True)
    return found


@dataclass(frozen=True)
class UnitSphere(Domain):
    """The unit vectors of ℝ^d.

    >>> UnitSphere().wrap(torch.tensor([[0.0, 3.0, 4.0]]))
    tensor([[0.0000, 0.6000, 0.8000]])
    """

    def wrap(self, x: Tensor) -> Tensor:
        """Return the directions of vectors that are not zero."""
        return normalised(checks.points(x))

    def _wrap(self, x: Tensor) -> Tensor:
        return normalised(x)

    def contains(self, x: Tensor) -> Tensor:
        """Return whether the norm is 1 up to 0.001."""
        inside: Tensor = (checks.points(x).norm(dim=1) - 1).abs() <= UNIT
        return inside


@dataclass(frozen=True)
class UniformOnSphere(Measure):
    """The uniform distribution on S², with the density 1/4π with respect to area."""

    def score(self, x: Tensor) -> Tensor:
        """Return zero."""
        return torch.zeros_like(checks.points(x))

    def log_density(self, x: Tensor) -> Tensor:
        """Return -log 4π."""
        return checks.points(x).new_full((len(x),), -math.log(4 * math.pi))

    def _fill(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        return normalised(x.normal_(generator=generator))

    def quadrature(self, dim: int, nodes: int) -> tuple[Tensor, Tensor]:
        """Return ``nodes`` rings of 2 ``nodes`` points: exact for degrees below 2 ``nodes``."""
        checks.integer(dim, "dim", minimum=3)
        z, weights = quadrature.gauss_legendre(nodes)
        z = 2 * z - 1
        phi = quadrature.equispaced(2 * nodes)[0]
        s = (1 - z.square()).sqrt()[:, None]
        parts = (s * phi.cos(), s * phi.sin(), z[:, None].expand(-1, len(phi)))
        mass = (weights / len(phi))[:, None].expand(-1, len(phi))
        return torch.stack(parts, dim=-1).flatten(0, 1), mass.flatten()


def heat_log_density(angle: Tensor, t: Tensor) -> Tensor:
    """Return log ρ_t for angles γ in [0, π] and t > 0 that broadcast, with respect to area."""
    angle, t = torch.broadcast_tensors(angle, t)  # type: ignore[no-untyped-call]
    early, late = t.clamp(max=CROSSING), t.clamp(min=CROSSING)
    found = torch.where(t < CROSSING, _early(angle, early), _series(angle.cos(), late))
    return found - math.log(4 * math.pi)


def _series(z: Tensor, t: Tensor) -> Tensor:
    """Return log Σ_l (2l + 1) e^{-l(l+1)t} P_l(z)."""
    before, current, total = torch.ones_like(z), z, torch.zeros_like(z)
    for l in range(1, TERMS):  # noqa: E741
        total = total + (2 * l + 1) * torch.exp(-l * (l + 1) * t) * current
        before, current = current, ((2 * l + 1) * z * current - l * before) / (l + 1)
    return torch.log1p(total.clamp(min=-1 + 1e-12))


def _early(angle: Tensor, t: Tensor) -> Tensor:
    """Return log 4πρ_t by the integral."""
    v, weights = (part.to(angle) for part in _half_hermite())
    near, wide = angle[..., None], t[..., None]
    far = near > math.pi - ANTIPODE * wide
    inside = torch.where(far, 0.0, near)  # each rule at its own angles, for finite gradients
    s = (inside.square() + 4 * wide * v.square()).sqrt()
    apart = 4 * wide * v.square() / (s + inside)
    shape = _sinc((s + inside) / 2) * _sinc(apart / 2)
    # ∫_0^∞ e^{-v²} (H)^{-½} dv with H = shape/2; the weights are those of N(0, ½)
    bulk = (weights * (shape.clamp(min=1e-12)).rsqrt()).sum(dim=-1)
    exponent = -near.square() / (4 * wide)
    # √2 e^{t/4} (4πt)^{-3/2} 2√t √2 (√π/2) = e^{t/4}/(4πt)
    first = exponent[..., 0] + torch.log(bulk)
    chi = (torch.arange(MIDPOINTS).to(angle) + 0.5) * (math.pi / MIDPOINTS) - math.pi / 2
    opposite = torch.where(far, math.pi - near, 0.5)
    s = math.pi + 2 * torch.asin(torch.sin(opposite / 2) * torch.sin(chi))
    start = math.pi - opposite
    terms = torch.exp(-(s.square() - start.square()) / (4 * wide)) * s / torch.sin(s / 2)
    # √2 √2 π/M (4πt)^{-3/2} relative to 1/(4πt)
    integral = terms.sum(dim=-1) * (2 * math.pi / MIDPOINTS) / torch.sqrt(4 * math.pi * t)
    second = exponent[..., 0] + torch.log(integral)
    return torch.where(far[..., 0], second, first) + t / 4 - torch.log(t)


@lru_cache(maxsize=1)
def _half_hermite() -> tuple[Tensor, Tensor]:
    """Return the positive nodes of the rule for N(0, ½), with weights of sum 1."""
    points, weights = quadrature.gauss_hermite(HERMITE)
    right = points > 0
    return points[right] / math.sqrt(2), 2 * weights[right]


def _sinc(x: Tensor) -> Tensor:
    return torch.sinc(x / math.pi)


def angle_between(x: Tensor, y: Tensor) -> Tensor:
    """Return the angles in [0, π] between unit vectors ``(n, 3)``, accurate at both ends."""
    sine = torch.linalg.cross(x, y).square().sum(dim=-1).clamp(min=1e-300).sqrt()
    return torch.atan2(sine, (x * y).sum(dim=-1))


def tangent_frame(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return two unit vectors orthogonal to ``x`` and to each other, ``(n, 3)`` each."""
    axis = torch.zeros_like(x).scatter_(1, x.detach().abs().argmin(dim=1, keepdim=True), 1.0)
    first = normalised(torch.linalg.cross(x, axis))
    return first, torch.linalg.cross(x, first)


@dataclass(frozen=True, eq=False)
class SphereTransition(ReversibleTransition):
    """The distribution of X_t given X_0 = x, at times () or ``(n,)``."""

    t: Tensor

    def mean(self, x: Tensor) -> Tensor:
        """Return e^{-2t} x, the mean in the space around the sphere."""
        return per_row(torch.exp(-2 * self.t), checks.points(x)) * x

    def log_density(self, y: Tensor, x: Tensor) -> Tensor:
        """Return log ρ_t(y|x) with respect to area; points are projected to the sphere."""
        y = checks.like(y, checks.points(x))
        t = self.t
        if bool((t <= 0).any()):
            raise ValueError("t must be positive: X_0 has no transition density")
        angle = angle_between(normalised(x.double()), normalised(y.double()))
        return heat_log_density(angle, t.to(angle)).to(x.dtype)

    def sample(self, x: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Return one sample per row, exact: the angle by rejection, the direction uniform."""
        start = normalised(checks.points(x).double())
        t = self.t.to(start).expand(len(start))
        angle = _sample_angles(t, generator)[:, None]
        turn = 2 * math.pi * uniform_like(start[:, :1], generator)
        first, second = tangent_frame(start)
        direction = turn.cos() * first + turn.sin() * second
        return normalised(angle.cos() * start + angle.sin() * direction).to(x.dtype)

    def nodes(self, x: Tensor, count: int) -> Nodes:
        """Return ``count`` angles with 2 ``count`` directions each: exact below degree 2 count.

        The angles are the Gauss rule of cos γ under the transition.
        """
        if self.t.ndim:
            raise ValueError(f"t must be one number for nodes, got {len(self.t)}")
        start = normalised(checks.points(x).double())
        depth, mass = _angle_rule(float(self.t), checks.integer(count, "count", minimum=1))
        psi = quadrature.equispaced(2 * count)[0]
        first, second = tangent_frame(start)
        directions = psi.cos()[:, None, None] * first + psi.sin()[:, None, None] * second
        cosine, sine = 1 - 2 * depth, 2 * (depth * (1 - depth)).sqrt()
        points = cosine[:, None, None, None] * start + sine[:, None, None, None] * directions
        weights = (mass / len(psi))[:, None].expand(-1, len(psi))
        return points.flatten(0, 1).to(x.dtype), weights.flatten()


def _sample_angles(t: Tensor, generator: torch.Generator | None) -> Tensor:
    """Return samples of the angle between X_0 and X_t: ``(n,)``.

    By rejection. Early, the proposal has the density ∝ γ e^{-γ²/4t} on [0, π], as in the plane;
    late, it is uniform on the sphere. Both ratios are largest at or close to γ = 0.
    """
    angle = torch.zeros_like(t)
    pending = (t > 0).nonzero()[:, 0]
    while len(pending):
        own = t[pending]
        first, second = (uniform_like(own, generator) for _ in range(2))
        early = own < CROSSING
        reach = -torch.expm1(-(math.pi**2) / (4 * own))
        planar = (-4 * own * torch.log1p(-first * reach)).sqrt()
        spherical = torch.acos(1 - 2 * first)
        tried = torch.where(early, planar, spherical)
        log = heat_log_density(tried, own) + math.log(4 * math.pi)
        close = log + own.log() + tried.square() / (4 * own) + _sinc(tried).log()
        top = heat_log_density(torch.zeros_like(own), own) + math.log(4 * math.pi)
        limit = torch.where(early, close - math.log(ENVELOPE), log - top)
        kept = second.log() < limit
        angle[pending[kept]] = tried[kept]
        pending = pending[~kept]
    return angle


@lru_cache(maxsize=64)
def _angle_rule(t: float, count: int) -> tuple[Tensor, Tensor]:
    """Return nodes y = (1 - cos γ)/2 and weights of the Gauss rule of a transition.

    By the Lanczos recurrence for a fine discretisation of the distribution of y.
    """
    if t == 0:
        return torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    place, mass = quadrature.gauss_legendre(16 * count + 128)
    angle = place * min(math.pi, math.sqrt(4 * t * 60))
    density = heat_log_density(angle, torch.tensor(t, dtype=torch.float64))
    start = (mass * angle.sin() * (density - density.max()).exp()).sqrt()
    y = torch.sin(angle / 2).square()
    vectors = [start / start.norm()]
    diagonal, beside = [], []
    for _ in range(count):
        image = y * vectors[-1]
        diagonal.append(image @ vectors[-1])
        known = torch.stack(vectors)
        for _ in range(2):  # orthogonal to all before, to rounding
            image = image - known.mT @ (known @ image)
        beside.append(image.norm())
        vectors.append(image / beside[-1])
    matrix = torch.diag(torch.stack(diagonal))
    if count > 1:
        off = torch.stack(beside[:-1])
        matrix = matrix + torch.diag(off, 1) + torch.diag(off, -1)
    values, modes = torch.linalg.eigh(matrix)
    return values.clamp(0, 1), modes[0].square()


@storable
@dataclass(frozen=True)
class Sphere(Reversible):
    """Brownian motion on S²: dX = -2X dt + √2 (I - XXᵀ) dW for unit vectors X.

    >>> Sphere().transition(0.5).mean(torch.tensor([[0.0, 0.0, 1.0]]))
    tensor([[0.0000, 0.0000, 0.3679]])
    """

    domain = UnitSphere()
    invariant = UniformOnSphere()

    def drift(self, x: Tensor) -> Tensor:
        """Return -2x."""
        return -2 * checks.points(x)

    def noise_at(self, x: Tensor) -> Tensor:
        """Return √2 (I - xxᵀ): ``(n, 3, 3)``."""
        identity = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
        return math.sqrt(2) * (identity - x[:, :, None] * x[:, None])

    def _diffuse(self, v: Tensor, x: Tensor) -> Tensor:
        """Return the tangent part of v."""
        return v - (v * x).sum(dim=1, keepdim=True) * x

    def flow_drift(self, x: Tensor) -> Tensor:
        """Return zero."""
        return torch.zeros_like(x)

    def _flow_drift_divergence(self, x: Tensor) -> float:  # noqa: ARG002
        return 0.0

    def _transition(self, t: Tensor) -> SphereTransition:
        return SphereTransition(t)
