"""The contract of a basis: eigenpairs (λ, φ) of a process's generator, Lφ = λφ with λ ≤ 0.

The constant function (λ = 0) is left out: its average is 1 for every density. Functions are sorted
by eigenvalue, slowest decay first, so a prefix of the basis is a truncation of the spectrum.
Values, gradients and Laplacians share one table of elementary functions (Hermite polynomials of
each coordinate, sines and cosines), computed once per batch: `Jet`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, Self

import torch
from torch import Tensor

from oism._core import checks
from oism.basis._transform import Transform
from oism.process import Clock, Process, SymmetricPart, VariancePreserving

BLOCK = 2**22
"""The number of values per block of rows."""


class Jet:
    """Values, gradients and Laplacians of all functions at points, computed on access."""

    def __init__(self, basis: Functions, table: Tensor) -> None:
        self._basis, self._table = basis, table

    @property
    def values(self) -> Tensor:
        """φ_k(x_i): ``(n, size)``."""
        return self._basis._values(self._table)

    @property
    def gradients(self) -> Tensor:
        """∇φ_k(x_i): ``(n, size, dim)``."""
        return self._basis._gradients(self._table)

    @property
    def laplacians(self) -> Tensor:
        """Δφ_k(x_i): ``(n, size)``."""
        return self._basis._laplacians(self._table)


class Functions(ABC):
    """Finitely many functions on ℝ^dim or the torus whose span is invariant under P_t.

    For example a `Basis` of eigenfunctions. An asymmetric process may have no eigenfunctions, but
    invariant spans.
    """

    process: Process
    dim: int

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of functions."""

    def facts(self) -> dict[str, Any]:
        """Return kind, number and resolution of the functions as JSON values."""
        return {"kind": type(self).__name__, "count": self.size}

    @abstractmethod
    def _table(self, x: Tensor) -> Tensor:
        """Return the elementary functions at checked points ``(n, dim)``."""

    @abstractmethod
    def _values(self, table: Tensor) -> Tensor:
        """Return φ_k(x_i) from the table."""

    @abstractmethod
    def _gradients(self, table: Tensor) -> Tensor:
        """Return ∇φ_k(x_i) from the table."""

    def _laplacians(self, table: Tensor) -> Tensor:  # noqa: ARG002
        """Return Δφ_k(x_i) from the table; not needed if the noise depends on the point."""
        raise TypeError(
            f"{type(self).__name__} has no Laplacians: under {type(self.process).__name__} the "
            "generator is Lφ = λφ with its eigenvalues"
        )

    def _series(self, x: Tensor, alpha: Tensor, derivative: int) -> Tensor:
        """Return f = Σ α_k φ_k, its gradient or its Laplacian for checked arguments.

        The default sums all terms.
        """
        terms = (self._values, self._gradients, self._laplacians)[derivative](self._table(x))
        rows = alpha[None] if alpha.ndim == 1 else alpha  # not einsum, which autocast would change
        return (rows.reshape(*rows.shape, *[1] * (terms.ndim - 2)) * terms).sum(dim=1)

    def series(self, x: Tensor, alpha: Tensor, derivative: int = 0) -> Tensor:
        """Return f = Σ α_k φ_k at points ``(n, dim)``, or its derivatives.

        Coefficients are shared, ``(size,)``, or one set per row, ``(n, size)``. ``derivative`` 0
        gives f, ``(n,)``; 1 its gradient, ``(n, dim)``; 2 its Laplacian, ``(n,)``.
        """
        x, alpha = checks.points(x, dim=self.dim), checks.floating(alpha, "alpha").to(x)
        if alpha.shape not in ((self.size,), (len(x), self.size)):
            raise ValueError(
                f"alpha must have shape ({self.size},) or ({len(x)}, {self.size}), got "
                f"{tuple(alpha.shape)}"
            )
        if isinstance(derivative, bool) or derivative not in (0, 1, 2):
            raise ValueError(f"derivative must be 0, 1 or 2, got {derivative!r}")
        return self._series(x, alpha, derivative)

    def jet(self, x: Tensor) -> Jet:
        """Return values, gradients and Laplacians at points ``(n, dim)`` from one table."""
        return Jet(self, self._table(checks.points(x, dim=self.dim)))

    def values(self, x: Tensor) -> Tensor:
        """Return φ_k(x_i): ``(n, size)``."""
        return self.jet(x).values

    def gradients(self, x: Tensor) -> Tensor:
        """Return ∇φ_k(x_i): ``(n, size, dim)``."""
        return self.jet(x).gradients

    def laplacians(self, x: Tensor) -> Tensor:
        """Return Δφ_k(x_i): ``(n, size)``."""
        return self.jet(x).laplacians

    def generated(self, x: Tensor) -> Tensor:
        """Return ½(L + L*)φ_k(x_i), which is Lφ_k if L is symmetric: ``(n, size)``.

        By differentiation of the values.
        """
        return SymmetricPart(self.process)(self)(x)

    def limits(self, t: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:  # noqa: ARG002
        """Return ends and width of a soft clamp of the argument at times t, or None.

        A fitted series of unbounded functions is arbitrary outside of the range of the data: there
        a score evaluates it at the end of the range, see `oism.score.soft_clamp`.
        """
        return None

    def __call__(self, x: Tensor) -> Tensor:
        """Return the values: a basis is a function to which operators apply."""
        return self.values(x)


class Basis(Functions):
    """Finitely many eigenfunctions of a process on ℝ^dim or the torus, in order of eigenvalue."""

    @property
    @abstractmethod
    def eigenvalues(self) -> Tensor:
        """The eigenvalues λ_k < 0, not increasing: ``(size,)``, float64."""

    @property
    def size(self) -> int:
        """The number of eigenfunctions."""
        return len(self.eigenvalues)

    def generated(self, x: Tensor) -> Tensor:
        """Return Lφ_k(x_i) = λ_kφ_k(x_i): ``(n, size)``."""
        return self.eigenvalues.to(x) * self.values(x)

    def doubled(self) -> Basis:
        """Return the basis that spans, with the constant, all products of two functions.

        The default accumulator averages these functions over the data.
        """
        raise TypeError(
            f"{type(self).__name__} has no method doubled(), which returns a basis for the "
            "products of its functions"
        )

    def rule(self) -> tuple[Tensor, Tensor]:
        """Return points ``(m, dim)`` and weights of a rule for π, exact for φ_kφ_ℓψ.

        φ_k and φ_ℓ are functions of the basis or constant, ψ is one of `doubled` or constant.
        """
        raise TypeError(
            f"{type(self).__name__} has no method rule(), which returns a quadrature rule for the "
            "products of its functions"
        )

    def truncated(self, max_rate: float) -> Basis:  # noqa: ARG002
        """Return the functions with -λ ≤ max_rate, at least those of the first eigenvalue."""
        raise TypeError(f"{type(self).__name__} has no method truncated()")

    def transforms(self, max_rate: float = math.inf) -> tuple[Transform, Transform]:  # noqa: ARG002
        """Return fast transforms of this basis and of ``doubled().truncated(max_rate)``.

        On common points, exact for products of two functions of this basis and one of the other.
        """
        raise TypeError(f"{type(self).__name__} has no fast transforms")

    def averages(self, x: Tensor, weights: Tensor) -> Tensor:
        """Return Σ_i w_i φ_k(x_i) for weights ``(f, n)``: ``(f, size)``, float64."""
        total = torch.zeros(len(weights), self.size, dtype=torch.float64)
        step = max(1, BLOCK // self.size)
        pairs = zip(torch.split(x, step), torch.split(weights.double(), step, dim=1), strict=True)
        for part, own in pairs:
            total += own @ self.values(part.double())
        return total

    def _gradient_and_generated(self, x: Tensor, alpha: Tensor) -> Tensor:
        """Return Σ α_k ∇φ_k and Σ α_k Lφ_k: ``(n, dim + 1)``."""
        generated = self._series(x, self.eigenvalues.to(alpha) * alpha, 0)
        return torch.cat((self._series(x, alpha, 1), generated[:, None]), dim=1)

    def _is_fast(self, x: Tensor, alpha: Tensor) -> bool:  # noqa: ARG002
        """Return whether series at these points are summed by a fast transform."""
        return False

    def default_clock(self) -> Clock:
        """Return the default noise levels of a fit."""
        return VariancePreserving()

    def within(self, low: Tensor, high: Tensor) -> Self:  # noqa: ARG002
        """Return the basis for data between two points ``(dim,)``; the same by default."""
        return self
