"""Brownian motion on the three-sphere S³ of unit quaternions, and what rotations share with it.

A point is a unit quaternion q = (w, x, y, z), ``(n, 4)``. The fields qi, qj, qk (products of
quaternions) are an orthonormal frame of the tangent space, so the diffusion with generator L = gΔ,
Δ the Laplacian of the unit sphere, is

    dX = -3g X dt + √(2g) (Xi dW₁ + Xj dW₂ + Xk dW₃),    G = g (I - XXᵀ),    π uniform.

On S³ g = 1; rotations have g = ¼ (``oism.process._rotations``). With s = gt and the distance θ of
x and y, ⟨x, y⟩ = cos θ, the transition density relative to π is both a series over degrees and, by
Poisson summation, a sum over the geodesics from x to y,

    k_s(θ) = Σ_{l≥0} (l + 1) e^{-l(l+2)s} sin((l + 1)θ)/sin θ
           = √π e^s / (4 s^{3/2} sin θ) Σ_{k∈ℤ} (θ + 2πk) e^{-(θ+2πk)²/4s}.

The first is used for s ≥ ½, the second below; with 16 degrees and 3 pairs of geodesics both have
relative truncation errors below 1e-15. Terms that cancel at θ = 0 or π are combined.

*Samples are exact*, by rejection. For s < ½ the proposal is e^v with v ~ N(0, 2sI) in ℝ³, whose
density is Σ (u_k/sin θ)² N(u_k), u_k = θ + 2πk, N the normal density: the ratio
e^s sin θ Σ u_k N(u_k)/Σ u_k² N(u_k) is at most e^s, because |sin u| ≤ |u|. For s ≥ ½ the proposal
is uniform, and k_s(θ) ≤ k_s(0). At least 0.48 of the proposals are accepted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from oism._core import checks, quadrature
from oism._core.draws import normal, uniform_like
from oism.process._base import Nodes
from oism.process._domain import Domain
from oism.process._measure import Measure
from oism.process._reversible import Reversible, ReversibleTransition
from oism.storage import storable

CROSSING = 0.5
DEGREES = 16
GEODESICS = 3

TOLERANCE = 1e-4
"""The largest difference from 1 of the norm of a unit quaternion."""

VOLUME = 2 * math.pi**2
"""The volume of the unit sphere S³."""


def left_invariant_frame(q: Tensor) -> Tensor:
    """Return qi, qj and qk at quaternions ``(n, 4)``, the columns of ``(n, 4, 3)``."""
    w, x, y, z = q.unbind(dim=1)
    i, j, k = (-x, w, z, -y), (-y, -z, w, x), (-z, y, -x, w)
    return torch.stack([torch.stack(field, dim=1) for field in (i, j, k)], dim=2)


def unit(x: Tensor) -> Tensor:
    """Return vectors ``(n, 4)`` divided by their norms."""
    found: Tensor = x / x.norm(dim=1, keepdim=True)
    return found


def is_unit(x: Tensor) -> Tensor:
    """Return whether the norms of ``(n, 4)`` are 1 up to 1e-4: ``(n,)``."""
    inside: Tensor = (x.norm(dim=1) - 1).abs() <= TOLERANCE
    return inside


def quaternions(x: Tensor, name: str = "x") -> Tensor:
    """Return checked points ``(n, 4)``, not zero; their norm need not be 1."""
    x = checks.points(x, name, dim=4)
    if not checks.holds(x.norm(dim=1) > 0):
        raise ValueError(f"{name} must have no row of zeros: rows are quaternions (w, x, y, z)")
    return x


@dataclass(frozen=True)
class UnitQuaternions(Domain):
    """The unit vectors of ℝ⁴: `wrap` divides by the norm.

    >>> UnitQuaternions().wrap(torch.tensor([[0.0, 2.0, 0.0, 0.0]]))
    tensor([[0., 1., 0., 0.]])
    """

    def wrap(self, x: Tensor) -> Tensor:
        """Return x/‖x‖."""
        return unit(quaternions(x))

    def _wrap(self, x: Tensor) -> Tensor:
        return unit(x)

    def contains(self, x: Tensor) -> Tensor:
        """Return whether the norm is 1 up to 1e-4."""
        return is_unit(checks.points(x, dim=4))


@dataclass(frozen=True)
class UniformQuaternions(Measure):
    """The uniform distribution, with density 1/``volume``.

    ``even`` is whether the rule needs to be exact for even functions only.
    """

    volume: float = VOLUME
    even: bool = False

    def score(self, x: Tensor) -> Tensor:
        """Return zero."""
        return torch.zeros_like(checks.points(x, dim=4))

    def log_density(self, x: Tensor) -> Tensor:
        """Return -log volume."""
        x = checks.points(x, dim=4)
        return x.new_full((len(x),), -math.log(self.volume))

    def _fill(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        if x.ndim != 2 or x.shape[1] != 4:
            raise ValueError(f"shape must be (n, 4), got {tuple(x.shape)}")
        return unit(x.normal_(generator=generator))

    def quadrature(self, dim: int, nodes: int) -> tuple[Tensor, Tensor]:
        """Return the product rule in Euler angles, with ``nodes`` values of two of the angles.

        Exact for polynomials of degree below ``nodes``, and for even ones, with ``even``, below
        2 ``nodes``. Points are sorted by β, then by γ, then by α; without ``even`` by β, then by
        the arguments of z₂ = y - ix and z₁ = w + iz, of modulus sin(β/2) and cos(β/2).
        """
        if dim != 4:
            raise ValueError(f"dim must be 4, got {dim}")
        nodes = checks.integer(nodes, "nodes", minimum=1)
        height, mass = quadrature.gauss_legendre((nodes - 1) // (2 if self.even else 4) + 1)
        steps = torch.arange(nodes, dtype=torch.float64) * (2 * math.pi / nodes)
        half = torch.asin(height.sqrt())  # sin²(β/2) is uniform on [0, 1]
        half, second, first = (
            part.flatten() for part in torch.meshgrid(half, steps, steps, indexing="ij")
        )
        if self.even:
            first, second = 0.5 * (first + second), 0.5 * (first - second)
        one, two = torch.polar(half.cos(), first), torch.polar(half.sin(), second)
        points = torch.stack((one.real, -two.imag, two.real, one.imag), dim=1)
        return points, (mass / nodes**2).repeat_interleave(nodes**2)


def _per_unit(u: Tensor) -> Tensor:
    """Return (1 - e^{-u})/u, 1 at u = 0."""
    safe = u.where(u > 1e-30, 1.0)
    return torch.where(u > 1e-30, -torch.expm1(-safe) / safe, 1.0)


def _early(theta: Tensor, away: Tensor, s: Tensor) -> Tensor:
    """Return log k_s by geodesics, for θ ≤ π/2 around x and otherwise around -x, away = π - θ."""
    common = 0.5 * math.log(math.pi) + s - math.log(4) - 1.5 * s.log() - theta.square() / (4 * s)
    near = torch.ones_like(theta)
    far = torch.zeros_like(theta)
    for k in range(1, GEODESICS + 1):
        v = math.pi * k * theta / s
        size = torch.exp(v - (math.pi * k) ** 2 / s)
        near = near + size * (1 + torch.exp(-2 * v) - (2 * math.pi * k) ** 2 / s * _per_unit(2 * v))
        m = 2 * k - 1
        y = m * math.pi * away / (2 * s)
        size = torch.exp((m - 1) * math.pi * away / (2 * s) - (m * m - 1) * math.pi**2 / (4 * s))
        far = far + size * ((m * math.pi) ** 2 / s * _per_unit(2 * y) - 1 - torch.exp(-2 * y))
    closer = theta <= math.pi / 2
    ratio = torch.where(closer, near, far).clamp(min=torch.finfo(theta.dtype).tiny)
    angle = torch.where(closer, theta, away)
    return common + ratio.log() - torch.sinc(angle / math.pi).log()


def _late(cosine: Tensor, s: Tensor) -> Tensor:
    """Return k_s by degrees: Chebyshev polynomials of the second kind."""
    before, current, total = (
        torch.zeros_like(cosine),
        torch.ones_like(cosine),
        torch.ones_like(cosine),
    )
    for degree in range(1, DEGREES + 1):
        current, before = 2 * cosine * current - before, current
        total = total + (degree + 1) * torch.exp(-degree * (degree + 2) * s) * current
    return total


def log_kernel(x: Tensor, y: Tensor, s: Tensor) -> Tensor:
    """Return log k_s at unit quaternions for s > 0, one number or one per row: ``(n,)``."""
    apart, together = (x - y).norm(dim=1), (x + y).norm(dim=1)
    theta, away = 2 * torch.atan2(apart, together), 2 * torch.atan2(together, apart)
    early = _early(theta, away, s.clamp(max=CROSSING))
    late = _late(1 - 0.5 * apart.square(), s.clamp(min=CROSSING)).log()
    return torch.where(s < CROSSING, early, late)


@dataclass(frozen=True, eq=False)
class QuaternionTransition(ReversibleTransition):
    """X_t given X_0 = x on S³, at the time s = gt of the unit sphere."""

    s: Tensor

    def mean(self, x: Tensor) -> Tensor:
        """Return e^{-3s} x: the coordinates are eigenfunctions."""
        return torch.exp(-3 * self._times(x))[:, None] * checks.points(x, dim=4)

    def _times(self, x: Tensor) -> Tensor:
        """Return s for each row, ``(n,)``."""
        s = self.s.to(x)
        if s.ndim and len(s) != len(x):
            raise ValueError(f"t must be one number or one per row: {len(x)} rows, {len(s)} values")
        return s.expand(len(x))

    def sample(self, x: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Return one exact sample of X_t per row."""
        x = unit(quaternions(x))
        s, out = self._times(x), torch.empty_like(x)
        rows = torch.arange(len(x), device=x.device)
        while len(rows):
            found, accepted = self._propose(x[rows], s[rows], generator)
            out[rows[accepted]] = found[accepted]
            rows = rows[~accepted]
        return out

    @staticmethod
    def _propose(x: Tensor, s: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """Return proposals, and which of them are accepted."""
        draws = normal((len(x), 4), generator, dtype=x.dtype, device=x.device)
        level = uniform_like(x[:, 0], generator)
        v = draws[:, 1:] * (2 * s).sqrt()[:, None]
        u = v.norm(dim=1)
        step = torch.cat((u.cos()[:, None], torch.sinc(u / math.pi)[:, None] * v), dim=1)
        near = torch.cat((x[..., None], left_invariant_frame(x)), dim=2) @ step[..., None]
        turns = torch.arange(-GEODESICS, GEODESICS + 1, device=x.device)
        lengths = u.remainder(2 * math.pi)[:, None] + 2 * math.pi * turns
        tiny = torch.finfo(x.dtype).tiny
        weights = torch.softmax(-lengths.square() / (4 * s[:, None]).clamp(min=tiny), dim=1)
        top, bottom = (weights * lengths).sum(dim=1), (weights * lengths.square()).sum(dim=1)
        ratio = torch.where(bottom > 0, u.sin() * top / bottom.clamp(min=tiny), 1.0)
        wide = unit(draws)
        late = s.clamp(min=CROSSING)
        even = _late((x * wide).sum(dim=1), late) / _late(torch.ones_like(s), late)
        early = s < CROSSING
        found = torch.where(early[:, None], near[..., 0], wide)
        return unit(found), level < torch.where(early, ratio, even)

    def log_density(self, y: Tensor, x: Tensor) -> Tensor:
        """Return log ρ_t(y|x) with respect to volume, ``(n,)``; every time must be positive."""
        return self._relative(y, x) - math.log(VOLUME)

    def _relative(self, y: Tensor, x: Tensor) -> Tensor:
        """Return log k_s(x, y)."""
        x, y = unit(quaternions(x)), unit(quaternions(checks.like(y, x), "y"))
        s = self._times(x)
        if not checks.holds(s > 0):
            raise ValueError("t must be positive for a density: at t = 0 it is a point mass")
        return log_kernel(x, y, s)

    def nodes(self, x: Tensor, count: int) -> Nodes:
        """Return points ``(m, n, 4)`` and weights ``(m,)``: distances × directions on S².

        ``count`` directions around x, ⌈count/2⌉ heights and ⌊count/2⌋ distances: exact to rounding
        for polynomials of degree ≤ count - 22 at every time.
        """
        x, count = unit(quaternions(x)), checks.integer(count, "count", minimum=2)
        if self.s.ndim:
            raise ValueError(f"t must be one number, got shape {tuple(self.s.shape)}")
        theta, mass = self._distances(count)
        height, ring = quadrature.gauss_legendre(math.ceil(count / 2))
        phi, _ = quadrature.equispaced(count)
        z = (2 * height - 1)[:, None].expand(-1, count)
        r = (1 - z.square()).sqrt()
        directions = torch.stack((r * phi.cos(), r * phi.sin(), z), dim=2).flatten(0, 1)
        weights = (ring / count).repeat_interleave(count)
        theta, mass = theta.to(directions), mass.to(directions)
        turn = torch.cat(
            (
                theta.cos()[:, None, None].expand(-1, len(directions), 1),
                theta.sin()[:, None, None] * directions,
            ),
            dim=2,
        ).flatten(0, 1)
        around = torch.cat((x[..., None], left_invariant_frame(x)), dim=2)
        points = torch.einsum("nij,mj->mni", around, turn.to(x))
        return points, (mass[:, None] * weights).flatten().to(x)

    def _distances(self, count: int) -> tuple[Tensor, Tensor]:
        """Return distances θ > 0 and weights of E f(θ) for even functions f of period 2π."""
        s = self.s.double().cpu()
        sigma = (2 * s).sqrt()
        if quadrature.REACH * float(sigma) < math.pi:
            # k_s on the line: E f = e^s E[f(u) u sin u]/2s with u ~ N(0, 2s)
            z, mass = quadrature.normal_trapezoid(count)
            theta = sigma * z
            mass = mass * z.square() * torch.sinc(theta / math.pi)
        else:
            theta, mass = quadrature.equispaced(count)
            points = torch.stack((theta.cos(), theta.sin(), 0 * theta, 0 * theta), dim=1)
            origin = torch.tensor([[1.0, 0.0, 0.0, 0.0]]).to(points).expand_as(points)
            kernel = log_kernel(origin, points, s.expand(count)).exp()
            mass = mass * theta.sin().square() * kernel
        half = slice((count + 1) // 2, None)
        return theta[half], mass[half] / mass[half].sum()


class QuaternionProcess(Reversible):
    """dX = -3gX dt + √(2g) (Xi dW₁ + Xj dW₂ + Xk dW₃) for a number g, ``rate``."""

    domain: ClassVar[Domain]
    invariant: ClassVar[Measure]
    rate: ClassVar[float]

    def drift(self, x: Tensor) -> Tensor:
        """Return -3gx."""
        return -3 * self.rate * checks.points(x, dim=4)

    def flow_drift(self, x: Tensor) -> Tensor:
        """Return zero: π is uniform."""
        return torch.zeros_like(checks.points(x, dim=4))

    def _flow_drift_divergence(self, x: Tensor) -> float:  # noqa: ARG002
        return 0.0

    def noise_at(self, x: Tensor) -> Tensor:
        """Return √(2g) (xi, xj, xk): ``(n, 4, 3)``."""
        return math.sqrt(2 * self.rate) * left_invariant_frame(checks.points(x, dim=4))

    def _diffuse(self, v: Tensor, x: Tensor) -> Tensor:
        # G = g(I - xxᵀ) for unit x
        return self.rate * (v - (v * x).sum(dim=1, keepdim=True) * x)

    def _retract(self, x: Tensor) -> Tensor:
        return unit(x)


@storable
@dataclass(frozen=True)
class ThreeSphere(QuaternionProcess):
    """Brownian motion on S³ with L = Δ: λ_l = -l(l + 2), densities with respect to volume 2π².

    >>> x = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    >>> ThreeSphere().transition(0.1).mean(x)
    tensor([[0.7408, 0.0000, 0.0000, 0.0000]])
    """

    domain = UnitQuaternions()
    invariant = UniformQuaternions()
    rate = 1.0

    def _transition(self, t: Tensor) -> QuaternionTransition:
        return QuaternionTransition(t)
