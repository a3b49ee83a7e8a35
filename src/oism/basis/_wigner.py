"""Wigner functions, eigenfunctions of Brownian motion on rotations, and their like on S³.

Real and orthonormal under the uniform probability; see ``oism.basis._wigner_functions`` for their
definition. Points are unit quaternions ``(n, 4)``, in the order (w, x, y, z). A function of other
vectors is that of their direction, so gradients are tangent.

`Wigner` functions of degree ℓ, λ = -ℓ(ℓ + 1), (2ℓ + 1)² of them, have the same value at q and -q.
`Hyperspherical` harmonics of degree l, λ = -l(l + 2), (l + 1)² of them, include those that change
the sign: l = 2ℓ for integers and half-integers ℓ.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from oism._core import checks
from oism._core.transforms import is_differentiated
from oism.basis._base import Basis
from oism.basis._transform import Transform
from oism.basis._wigner_functions import Harmonics, harmonics
from oism.basis._wigner_transform import GridTransform, ScatteredWigner, WignerGrid
from oism.process import Clock, Rotations, ThreeSphere, VarianceExploding, left_invariant_frame
from oism.storage import storable

BLOCK = 2**22
"""The number of values per block of rows."""

FAST = 2**20
"""The number of values of single functions from which FINUFFT is faster, for series."""

SIGMA_MIN = 0.4
"""The smallest noise √(2t) of the default clock, times the largest frequency."""

MIXED = 10.0
"""The largest |λ|t of the default clock for the smallest |λ|: a distribution counts as uniform."""

MOST_DEGREE = 128
"""The largest degree on S³: powers of |z| stay within the range of float64."""


class QuaternionBasis(Basis):
    """Functions of unit quaternions up to a degree; a subclass states which, and their process."""

    process: Rotations | ThreeSphere
    degree: int
    dim = 4
    even: ClassVar[bool]
    """Whether only functions with f(q) = f(-q) are included."""

    def __post_init__(self) -> None:
        degree, most = checks.integer(self.degree, "degree", minimum=1), MOST_DEGREE // self._step
        if degree > most:
            raise ValueError(f"degree must be at most {most}, got {degree}")
        checks.assign(self, degree=degree)

    @property
    def _step(self) -> int:
        return 2 if self.even else 1

    @property
    def _functions(self) -> Harmonics:
        return harmonics(self._step * self.degree, self.even)

    @property
    def size(self) -> int:
        """The number of functions."""
        return self._functions.size

    @property
    def eigenvalues(self) -> Tensor:
        """-ℓ(ℓ + 1), or -l(l + 2) on S³."""
        return _eigenvalues(self._functions.degree, self.even)

    def _table(self, x: Tensor) -> Tensor:
        """Return unit quaternions and the values of all functions: ``(n, 4 + size)``."""
        q = x / x.norm(dim=1, keepdim=True)
        return torch.cat((q, self._functions.values(q)), dim=1)

    def _values(self, table: Tensor) -> Tensor:
        return table[:, 4:]

    def _gradients(self, table: Tensor) -> Tensor:
        return self._functions.gradients(table[:, 4:], table[:, :4])

    def _laplacians(self, table: Tensor) -> Tensor:
        """Return the Laplacians of the unit sphere: 4λφ for rotations, λφ on S³."""
        return self.eigenvalues.to(table) * table[:, 4:] * self._step**2

    def _is_fast(self, x: Tensor, alpha: Tensor) -> bool:
        return (
            x.device.type == "cpu"
            and alpha.ndim == 1
            and self.size * len(x) > FAST
            and not is_differentiated(x)
            and not is_differentiated(alpha)
            and _has_finufft()
        )

    def _fields(self, x: Tensor, coefficients: Tensor) -> Tensor:
        """Return series with coefficients ``(k, *rows, size)`` at points: ``(k, n)``."""
        if coefficients.ndim == 2 and self._is_fast(x, coefficients[0]):
            return _scattered(self._functions).series(x, coefficients).to(x)
        values = self._values(self._table(x))
        return (
            (coefficients.to(values) * values).sum(dim=-1)
            if coefficients.ndim == 3
            else (_product(coefficients.to(values), values))
        )

    def _series(self, x: Tensor, alpha: Tensor, derivative: int) -> Tensor:
        if derivative == 1:
            return self._tangent(x, self._fields(x, self._functions.derivatives(alpha)))
        rates = self.eigenvalues.to(alpha) * self._step**2
        return self._fields(x, (alpha if derivative == 0 else rates * alpha)[None])[0]

    @staticmethod
    def _tangent(x: Tensor, along: Tensor) -> Tensor:
        """Return Σ_a E_a f · qa from the derivatives ``(3, n)`` along the frame: ``(n, 4)``."""
        frame = left_invariant_frame(x / x.norm(dim=1, keepdim=True))
        return (frame * along.mT[:, None]).sum(dim=2)

    def _gradient_and_generated(self, x: Tensor, alpha: Tensor) -> Tensor:
        """Return Σ α_k ∇φ_k and Σ α_k λ_k φ_k from one table: ``(n, 5)``."""
        generated = (self.eigenvalues.to(alpha) * alpha)[None]
        fields = self._fields(x, torch.cat((self._functions.derivatives(alpha), generated)))
        return torch.cat((self._tangent(x, fields[:3]), fields[3][:, None]), dim=1)

    def averages(self, x: Tensor, weights: Tensor) -> Tensor:
        """Return Σ_i w_fi φ_k(x_i) for weights ``(f, n)``: ``(f, size)``, float64."""
        x, weights = checks.points(x, dim=4).double().cpu(), weights.double().cpu()
        if self.size * len(x) > FAST and _has_finufft():
            return _scattered(self._functions).averages(x, weights)
        total = torch.zeros(len(weights), self.size, dtype=torch.float64)
        step = max(1, BLOCK // self.size)
        for part, own in zip(torch.split(x, step), torch.split(weights, step, dim=1), strict=True):
            total += own @ self._values(self._table(part))
        return total

    @abstractmethod
    def truncated(self, max_rate: float) -> Self:
        """Return the functions with |λ| ≤ max_rate, at least those of degree 1."""

    def doubled(self) -> Self:
        """Return the functions of twice the degree, which span all products."""
        return type(self)(2 * self.degree)  # type: ignore[call-arg]

    def rule(self) -> tuple[Tensor, Tensor]:
        """Return the rule in Euler angles, exact to four times the degree."""
        grid = WignerGrid(4 * self._step * self.degree, even=self.even)
        return self.process.invariant.quadrature(4, grid.angles)

    def transform(self) -> Transform:
        """Return the transform on the points of `rule`."""
        return self.transforms()[0]

    def transforms(self, max_rate: float = math.inf) -> tuple[Transform, Transform]:
        """Return the transforms of this basis and of ``doubled().truncated(max_rate)``.

        On common points, exact for products of two functions of this basis and one of the other.
        """
        wide = self.doubled().truncated(max_rate)
        exact = self._step * (2 * self.degree + wide.degree)
        return _transform(self._functions, exact), _transform(wide._functions, exact)

    def facts(self) -> dict[str, Any]:
        """Return the number of functions and their largest degree."""
        return {"kind": type(self).__name__, "count": self.size, "finest": self.degree}

    def default_clock(self) -> Clock:
        """Return noise from a share of the finest wave length to a uniform distribution."""
        rates = self.eigenvalues
        last = math.sqrt(2 * MIXED / -float(rates[0]))
        return VarianceExploding(SIGMA_MIN / self.degree, last)


@storable
@dataclass(frozen=True)
class Wigner(QuaternionBasis):
    """The Wigner functions of rotations of degree 1 to ``degree``, Σ(2ℓ + 1)² of them.

    >>> Wigner(1).eigenvalues
    tensor([-2., -2., -2., -2., -2., -2., -2., -2., -2.], dtype=torch.float64)
    >>> Wigner(16).size
    6544
    """

    degree: int
    process = Rotations()
    even = True

    def truncated(self, max_rate: float) -> Wigner:
        """Return the functions with ℓ(ℓ + 1) ≤ max_rate, at least those of degree 1."""
        if max_rate >= self.degree * (self.degree + 1):
            return self
        return Wigner(max(1, math.floor(math.sqrt(max_rate + 0.25) - 0.5 + 1e-9)))


@storable
@dataclass(frozen=True)
class Hyperspherical(QuaternionBasis):
    """The harmonics of S³ of degree 1 to ``degree``, Σ(l + 1)² of them.

    >>> Hyperspherical(2).eigenvalues  # the first are 2y, -2x, 2w, 2z
    tensor([-3., -3., -3., -3., -8., -8., -8., -8., -8., -8., -8., -8., -8.],
           dtype=torch.float64)
    """

    degree: int
    process = ThreeSphere()
    even = False

    def truncated(self, max_rate: float) -> Hyperspherical:
        """Return the functions with l(l + 2) ≤ max_rate, at least those of degree 1."""
        if max_rate >= self.degree * (self.degree + 2):
            return self
        return Hyperspherical(max(1, math.floor(math.sqrt(max_rate + 1) - 1 + 1e-9)))


def _product(coefficients: Tensor, values: Tensor) -> Tensor:
    """Return ``(k, n)`` for ``(k, size)`` and ``(n, size)``, in the dtype of the values."""
    with torch.autocast(values.device.type, enabled=False):
        return coefficients @ values.mT


@functools.lru_cache(maxsize=16)
def _eigenvalues(degree: int, even: bool) -> Tensor:
    degrees = torch.from_numpy(harmonics(degree, even).degrees).double()
    return -degrees * (degrees + 2) / (4 if even else 1)


@functools.lru_cache(maxsize=12)
def _transform(functions: Harmonics, exact: int) -> GridTransform:
    return GridTransform(functions, WignerGrid(exact, even=functions.even))


@functools.lru_cache(maxsize=4)
def _scattered(functions: Harmonics) -> ScatteredWigner:
    return ScatteredWigner(functions)


@functools.lru_cache(maxsize=1)
def _has_finufft() -> bool:
    return importlib.util.find_spec("finufft") is not None
