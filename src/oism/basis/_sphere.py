"""Spherical harmonics: eigenfunctions of Brownian motion on the sphere, λ = -l(l + 1).

Real and orthonormal under the uniform probability, in the order (l, m), m = -l, …, l, from l = 1;
see ``oism.basis._sphere_legendre`` for their definition. Points are unit vectors ``(n, 3)``; a
function of other vectors is that of their direction, so gradients are tangent.

Gradients without poles. The generators of rotations, R = x × ∇, are skew matrices on the harmonics
of one degree, with two entries per row, and ∇f = -x × Rf: a gradient is three series.

Single functions are homogeneous polynomials, P̄_lm(z)/sin^m θ times powers of x + iy, and can be
differentiated. For many points on the CPU, series are summed by FINUFFT.
"""

from __future__ import annotations

import importlib.util
import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor

from oism._core import checks
from oism._core.transforms import is_differentiated
from oism.basis._base import Basis
from oism.basis._sphere_grid import SphereTransform, grid_of
from oism.basis._sphere_legendre import MOST_DEGREE, degrees_of
from oism.basis._sphere_scattered import scattered_of
from oism.process import Clock, Sphere, VarianceExploding
from oism.storage import storable

LARGEST_DEGREE = 256
"""The largest degree of a fit: products have twice that."""

SIGMA_MAX = 3.2
"""The noise √(2t) at which a distribution counts as uniform: e^{-2t} is 4e-5."""

SIGMA_MIN = 0.4
"""The smallest noise of the default clock, divided by the degree."""

STEP = 8
"""Series are summed up to a multiple of this degree."""

FAST_DEGREE = 10
"""The degree from which a transform is faster than single functions, for any number of points."""


@storable
@dataclass(frozen=True)
class SphericalHarmonics(Basis):
    """The (degree + 1)² - 1 harmonics of degree 1 to ``degree``.

    >>> SphericalHarmonics(2).eigenvalues
    tensor([-2., -2., -2., -6., -6., -6., -6., -6.], dtype=torch.float64)
    >>> SphericalHarmonics(1).values(torch.tensor([[0.0, 0.0, 1.0]]).double())  # y, z, x times √3
    tensor([[0.0000, 1.7321, 0.0000]], dtype=torch.float64)
    """

    degree: int
    process = Sphere()
    dim = 3

    def __post_init__(self) -> None:
        degree = checks.integer(self.degree, "degree", minimum=1)
        if degree > MOST_DEGREE:
            raise ValueError(f"degree must be at most {MOST_DEGREE}, got {degree}")
        checks.assign(self, degree=degree)

    @property
    def size(self) -> int:
        """(degree + 1)² - 1."""
        return (self.degree + 1) ** 2 - 1

    @cached_property
    def eigenvalues(self) -> Tensor:
        """-l(l + 1), 2l + 1 times."""
        l = degrees_of(self.degree)[0].double()  # noqa: E741
        return -l * (l + 1)

    def _table(self, x: Tensor) -> Tensor:
        """Return the points and the values, computed in float64: float32 would overflow."""
        dtype, x = x.dtype, x.double()
        x = x / x.norm(dim=1, keepdim=True)
        planar = _powers(x[:, 0], x[:, 1], self.degree)  # Re and Im (x + iy)^m: (n, 2, L + 1)
        z = x[:, 2:]
        columns, before = [], z.new_zeros(len(x), 0)
        current = torch.ones_like(z)  # l = 0
        top = 1.0
        for l in range(1, self.degree + 1):  # noqa: E741
            m = torch.arange(l, dtype=torch.float64)
            a = ((4 * l * l - 1) / (l * l - m * m)).sqrt()
            lower = (((l - 1) ** 2 - m * m) / max(4 * (l - 1) ** 2 - 1, 1)).clamp(min=0).sqrt()
            padded = torch.cat((before, before.new_zeros(len(x), l - before.shape[1])), dim=1)
            top *= math.sqrt(1 + 0.5 / l)
            edge = torch.full_like(z, top)
            inner = a.to(z) * (z * current - lower.to(z) * padded)
            before, current = current, torch.cat((inner, edge), dim=1)
            waves = math.sqrt(2) * current[:, None, 1:] * planar[:, :, 1 : l + 1]
            columns += [waves[:, 1].flip(1), current[:, :1], waves[:, 0]]
        return torch.cat((x, *columns), dim=1).to(dtype)

    def _values(self, table: Tensor) -> Tensor:
        return table[:, 3:]

    def _gradients(self, table: Tensor) -> Tensor:
        # R is skew: Rφ_k = -(R applied to the vector of all values)_k, and ∇φ_k = -x × Rφ_k.
        x, turned = table[:, None, :3], self.rotated(table[:, 3:])
        found: Tensor = torch.linalg.cross(x.expand(-1, self.size, -1), turned.movedim(0, -1))
        return found

    def _laplacians(self, table: Tensor) -> Tensor:
        return self.eigenvalues.to(table) * table[:, 3:]

    def rotated(self, coefficients: Tensor) -> Tensor:
        """Return the coefficients of Rf = x × ∇f: ``(3, ..., size)`` for ``(..., size)``."""
        return _rotation(self.degree)(coefficients)

    def _is_fast(self, x: Tensor, alpha: Tensor) -> bool:
        return (
            x.device.type == "cpu"
            and alpha.ndim == 1
            and self.degree >= FAST_DEGREE
            and len(x) > 0
            and not is_differentiated(x)
            and not is_differentiated(alpha)
            and _has_finufft()
        )

    def _fields(self, x: Tensor, coefficients: Tensor) -> Tensor:
        # Late, coefficients of high degrees are zero.
        used = coefficients.abs().amax(dim=0).nonzero()
        highest = math.isqrt(int(used[-1]) + 1) if len(used) else 1
        degree = min(self.degree, STEP * -(-highest // STEP))
        full = torch.nn.functional.pad(coefficients.double()[:, : (degree + 1) ** 2 - 1], (1, 0))
        return scattered_of(degree).sums(x, full)

    def _series(self, x: Tensor, alpha: Tensor, derivative: int) -> Tensor:
        if not self._is_fast(x, alpha):
            return super()._series(x, alpha, derivative)
        alpha = alpha.double()
        if derivative == 1:
            turned = self._fields(x, self.rotated(alpha)).mT
            found: Tensor = torch.linalg.cross(turned, _unit(x))
        else:
            found = self._fields(x, (self.eigenvalues * alpha if derivative else alpha)[None])[0]
        return found.to(x.dtype)

    def _gradient_and_generated(self, x: Tensor, alpha: Tensor) -> Tensor:
        """Return Σ α_k ∇φ_k and Σ α_k Lφ_k from one table: ``(n, 4)``."""
        if self._is_fast(x, alpha):
            alpha = alpha.double()
            parts = torch.cat((self.rotated(alpha), (self.eigenvalues * alpha)[None]))
            fields = self._fields(x, parts).mT
            gradient, laplacian = torch.linalg.cross(fields[:, :3], _unit(x)), fields[:, 3:]
        else:
            table = self._table(x)
            values, rows = table[:, 3:], alpha.to(table)
            rows = rows[None] if rows.ndim == 1 else rows
            turned = (self.rotated(rows) * values).sum(dim=-1).movedim(0, -1)
            gradient = torch.linalg.cross(turned, table[:, :3])
            laplacian = (self.eigenvalues.to(table) * rows * values).sum(dim=1, keepdim=True)
        return torch.cat((gradient, laplacian), dim=1).to(x.dtype)

    def averages(self, x: Tensor, weights: Tensor) -> Tensor:
        """Return Σ_i w_i φ_k(x_i) for weights ``(f, n)``: ``(f, size)``, float64."""
        if _has_finufft():
            return scattered_of(self.degree).averages(x, weights)[:, 1:]
        return super().averages(x, weights)

    def truncated(self, max_rate: float) -> SphericalHarmonics:
        """Return the harmonics with l(l + 1) ≤ max_rate, at least those of degree 1."""
        if max_rate >= self.degree * (self.degree + 1):
            return self
        return SphericalHarmonics(max(1, math.floor(math.sqrt(max_rate + 0.25) - 0.5 + 1e-9)))

    def doubled(self) -> SphericalHarmonics:
        """Return the harmonics of twice the degree."""
        return SphericalHarmonics(2 * self.degree)

    def rule(self) -> tuple[Tensor, Tensor]:
        """Return the product of Gauss-Legendre and trapezoidal rules, exact to degree 4L."""
        return grid_of(4 * self.degree).rule()

    def transforms(self, max_rate: float = math.inf) -> tuple[SphereTransform, SphereTransform]:
        """Return the transforms of this basis and of ``doubled().truncated(max_rate)``.

        On common points, exact for products of two functions of this basis and one of the other.
        """
        wide = self.doubled().truncated(max_rate).degree
        exact = 2 * self.degree + wide
        return SphereTransform(self.degree, exact), SphereTransform(wide, exact)

    def facts(self) -> dict[str, Any]:
        """Return the number of harmonics and their largest degree."""
        return {"kind": "spherical harmonics", "count": self.size, "finest": self.degree}

    def default_clock(self) -> Clock:
        """Return noise from a share of the finest wave length to a uniform distribution."""
        return VarianceExploding(SIGMA_MIN / self.degree, SIGMA_MAX)


def _unit(x: Tensor) -> Tensor:
    x = x.double()
    found: Tensor = x / x.norm(dim=1, keepdim=True)
    return found


def _powers(x: Tensor, y: Tensor, degree: int) -> Tensor:
    """Return real and imaginary parts of (x + iy)^m, m = 0, …, degree: ``(n, 2, degree + 1)``."""
    real, imaginary = [torch.ones_like(x)], [torch.zeros_like(x)]
    for _ in range(degree):
        a, b = real[-1], imaginary[-1]
        real.append(a * x - b * y)
        imaginary.append(a * y + b * x)
    return torch.stack((torch.stack(real, dim=1), torch.stack(imaginary, dim=1)), dim=1)


class _Rotation:
    """R = x × ∇ on real coefficients of degree 1 to L.

    With h_m = (a_m - i a_-m)/√2 for m > 0 and h_0 = a_0, the ladder operators are
    (L₊f)_m = -√((l - m + 1)(l + m)) h_{m-1}, (L₋f)_m = -√((l + m + 1)(l - m)) h_{m+1}, with
    h_-1 = -conj(h_1), and R = (i(L₊ + L₋)/2, (L₊ - L₋)/2, im).
    """

    def __init__(self, degree: int) -> None:
        l, m = degrees_of(degree)  # noqa: E741
        here = (m >= 0).nonzero()[:, 0]
        l, m = l[here], m[here]  # noqa: E741
        self.cosine, self.sine = here, here - 2 * m
        self.order = m.double()
        self.first = m == 0
        # Neighbours in m; those outside have the factor 0 or are replaced.
        self.above = (torch.arange(len(m)) + 1).clamp(max=len(m) - 1)
        self.below = (torch.arange(len(m)) - 1).clamp(min=0)
        self.up = -((l - m + 1) * (l + m)).double().sqrt()
        self.down = -((l + m + 1) * (l - m)).double().sqrt()
        self.scale = torch.full_like(self.order, 1 / math.sqrt(2))
        self.scale[self.first] = 1.0
        self.size = (degree + 1) ** 2 - 1

    def __call__(self, a: Tensor) -> Tensor:
        """Return the three sets of coefficients: ``(3, ..., size)``."""
        scale, first = self.scale.to(a), self.first.to(a.device)
        real = scale * a[..., self.cosine]
        imaginary = torch.where(first, 0.0, -scale * a[..., self.sine])
        above = (real[..., self.above], imaginary[..., self.above])
        below = (
            torch.where(first, -above[0], real[..., self.below]),
            torch.where(first, above[1], imaginary[..., self.below]),
        )
        plus = tuple(self.up.to(a) * part for part in below)
        minus = tuple(self.down.to(a) * part for part in above)
        order = self.order.to(a)
        turned = (
            (-0.5 * (plus[1] + minus[1]), 0.5 * (plus[0] + minus[0])),
            (0.5 * (plus[0] - minus[0]), 0.5 * (plus[1] - minus[1])),
            (-order * imaginary, order * real),
        )
        return torch.stack([self._real(*pair) for pair in turned])

    def _real(self, real: Tensor, imaginary: Tensor) -> Tensor:
        out = real.new_zeros(*real.shape[:-1], self.size)
        scale = self.scale.to(real)
        # The sine first: for m = 0 both have the same place.
        out[..., self.sine] = -imaginary / scale
        out[..., self.cosine] = real / scale
        return out


@lru_cache(maxsize=16)
def _rotation(degree: int) -> _Rotation:
    return _Rotation(degree)


@lru_cache(maxsize=1)
def _has_finufft() -> bool:
    return importlib.util.find_spec("finufft") is not None
