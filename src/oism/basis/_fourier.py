"""Fourier functions √2 cos(ξ·x), √2 sin(ξ·x): eigenfunctions of Brownian motion, λ = -‖ξ‖².

On the torus ξ must be an integer vector, and then the functions over a *half lattice* (one of ±ξ,
without 0) are orthonormal under the uniform distribution. On ℝ^d every real ξ gives a formal
eigenfunction: P_tφ = e^{λt}φ, but φ is not square integrable. (The paper's √2 e^{iξ·x} is not
normalised.)

cos and sin of one frequency are neighbours, so a prefix of even length is a set of whole
frequencies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from oism._core import checks
from oism._core.transforms import matmul
from oism.basis._base import Basis
from oism.process import Brownian, Clock, Torus, VarianceExploding
from oism.storage import storable

MOST_POINTS = 2**24


def half_lattice(dim: int, max_eigenvalue: float) -> Tensor:
    """Return the integer ξ with 0 < ‖ξ‖² ≤ max_eigenvalue, one of each ±ξ: ``(m, dim)``, float64.

    Of ±ξ the one whose first non-zero entry is positive. Sorted by ‖ξ‖², then lexicographically.

    >>> len(half_lattice(2, 125)), len(half_lattice(2, 500))
    (200, 790)
    """
    checks.integer(dim, "dim", minimum=1)
    bound = checks.number(max_eigenvalue, "max_eigenvalue", "a finite number >= 1")
    if bound < 1:
        raise ValueError(f"max_eigenvalue must be a finite number >= 1, got {bound!r}")
    reach = math.isqrt(math.floor(bound))
    side = torch.arange(-reach, reach + 1)
    lattice = torch.zeros(1, 0, dtype=torch.int64)
    most = min(dim, math.floor(bound), MOST_POINTS.bit_length())
    units = sum(math.comb(dim, k) * 2**k for k in range(most + 1))
    for _ in range(dim):  # coordinate by coordinate, so that points outside the ball are dropped
        # Even the points with entries -1, 0 and 1 may be too many: check before computing.
        if max(units, len(lattice) * len(side)) > MOST_POINTS:
            raise ValueError(
                f"max_eigenvalue must be smaller for dim = {dim}, got {bound:g}: the lattice has "
                f"more than {MOST_POINTS} points"
            )
        rows, entries = len(lattice), len(side)
        lattice = torch.cat((lattice.repeat_interleave(entries, 0), side.repeat(rows)[:, None]), 1)
        lattice = lattice[lattice.square().sum(dim=1) <= bound]
    lattice = lattice[leading(lattice) > 0]
    order = torch.argsort(lattice.square().sum(dim=1), stable=True)  # lexicographic already
    return lattice[order].double()


def leading(xi: Tensor) -> Tensor:
    """Return the first non-zero entry of each row, or 0."""
    return xi.gather(1, (xi != 0).int().argmax(dim=1, keepdim=True)).squeeze(1)


@storable
@dataclass(frozen=True, eq=False)
class Fourier(Basis):
    """√2 cos(ξ·x) and √2 sin(ξ·x) for the rows ξ of ``frequencies``, sorted by ‖ξ‖².

    ``process`` is `Torus` (integer frequencies) or `Brownian` (any real ones).

    >>> Fourier(torch.tensor([[1.0], [2.0]])).eigenvalues
    tensor([-1., -1., -4., -4.], dtype=torch.float64)
    """

    frequencies: Tensor
    process: Brownian = Torus()  # noqa: RUF009 (a frozen process without state)

    def __post_init__(self) -> None:
        xi = checks.floating(self.frequencies, "frequencies").detach().double().clone()
        if xi.ndim != 2 or 0 in xi.shape:
            raise ValueError(
                f"frequencies must have shape (m, d) with m, d >= 1, got {tuple(xi.shape)}"
            )
        checks.instance(self.process, Brownian, "process")
        norms, first = xi.square().sum(dim=1), leading(xi)
        self._check(xi, first != 0, "not be zero")
        rising = torch.cat((norms[:1], norms)).diff() >= -1e-12 * norms  # equal up to rounding
        self._check(xi, rising, "be sorted by norm")
        if self.process.domain.period is not None:
            whole = (xi == xi.round()).all(dim=1)
            self._check(xi, whole, "be integers on the torus, for functions of period 2π")
        twins = torch.unique(first.sign()[:, None] * xi, dim=0, return_inverse=True)[1]
        order = twins.argsort(stable=True)
        single = torch.ones(len(xi), dtype=torch.bool)
        single[order[1:][twins[order].diff() == 0]] = False
        self._check(xi, single, "differ from each other and from their opposites")
        checks.assign(self, frequencies=xi)

    @staticmethod
    def _check(xi: Tensor, allowed: Tensor, requirement: str) -> None:
        """Raise unless every frequency is allowed, with the first other one in the message."""
        if not bool(allowed.all()):
            row = int((~allowed).nonzero()[0])
            raise ValueError(
                f"frequencies must {requirement}, but frequencies[{row}] = {xi[row].tolist()}"
            )

    @classmethod
    def lattice(cls, dim: int, max_eigenvalue: float) -> Fourier:
        """Return all eigenfunctions of the torus with 0 < -λ ≤ max_eigenvalue.

        >>> Fourier.lattice(dim=2, max_eigenvalue=125).size
        400
        """
        return cls(half_lattice(dim, max_eigenvalue))

    @property
    def dim(self) -> int:  # type: ignore[override]  # read-only, as a frozen field is
        """The dimension of the frequencies."""
        return self.frequencies.shape[1]

    @cached_property
    def is_integral(self) -> bool:
        """Whether all frequencies are integers: the functions have period 2π."""
        return bool((self.frequencies == self.frequencies.round()).all())

    @property
    def eigenvalues(self) -> Tensor:
        """-‖ξ‖², twice for each frequency."""
        return -self.frequencies.square().sum(dim=1).repeat_interleave(2)

    def _table(self, x: Tensor) -> Tensor:
        """Return √2 (cos, sin)(ξ·x): ``(n, m, 2)``."""
        # Not a matrix product, which may be computed in half precision or TF32.
        xi = self.frequencies.to(x)
        phase = x[:, :1] * xi[:, 0]
        for j in range(1, self.dim):
            phase = torch.addcmul(phase, x[:, j : j + 1], xi[:, j])
        return math.sqrt(2) * torch.stack((phase.cos(), phase.sin()), dim=-1)

    def _values(self, table: Tensor) -> Tensor:
        return table.flatten(1)

    def _gradients(self, table: Tensor) -> Tensor:
        # ∇cos(ξ·x) = -ξ sin(ξ·x), ∇sin(ξ·x) = ξ cos(ξ·x)
        slope = torch.stack((-table[..., 1], table[..., 0]), dim=-1)
        return (slope[..., None] * self.frequencies.to(table)[:, None]).flatten(1, 2)

    def _laplacians(self, table: Tensor) -> Tensor:
        return self.eigenvalues.to(table) * table.flatten(1)

    def _gradient_and_laplacian(self, x: Tensor, alpha: Tensor) -> Tensor:
        """Return Σ α_k ∇φ_k and Σ α_k Δφ_k from one table: ``(n, dim + 1)``."""
        table, alpha = self._table(x), alpha.reshape(*alpha.shape[:-1], -1, 2)
        slope = table[..., 0] * alpha[..., 1] - table[..., 1] * alpha[..., 0]
        values = (table * alpha).sum(dim=-1)
        gradient = matmul(slope, self.frequencies.to(table))
        laplacian = matmul(values, self.eigenvalues[::2].to(table))
        return torch.cat((gradient, laplacian[:, None]), dim=1)

    def _series(self, x: Tensor, alpha: Tensor, derivative: int) -> Tensor:
        table, alpha = self._table(x), alpha.reshape(*alpha.shape[:-1], -1, 2)
        if derivative == 1:
            slope = table[..., 0] * alpha[..., 1] - table[..., 1] * alpha[..., 0]
            return matmul(slope, self.frequencies.to(table))
        values = (table * alpha).sum(dim=-1)
        if derivative == 0:
            return values.sum(dim=1)
        return matmul(values, self.eigenvalues[::2].to(table))

    def doubled(self) -> Fourier:
        """Return the waves of all sums and differences of frequencies, on the torus."""
        checks.instance(self.process, Torus, "process")
        return Fourier(product_lattice(self))

    def rule(self) -> tuple[Tensor, Tensor]:
        """Return the trapezoidal rule, exact below four times the largest frequency."""
        reach = int(self.frequencies.abs().max())
        return self.process.invariant.quadrature(self.dim, 4 * reach + 1)

    def facts(self) -> dict[str, Any]:
        """Return the number of waves and the largest norm of a frequency."""
        finest = float(self.frequencies.norm(dim=1).max())
        return {"kind": "waves", "count": self.size, "finest": finest}

    def default_clock(self) -> Clock:
        """Return the variance exploding clock, as usual for Brownian motion."""
        return VarianceExploding()


def product_lattice(basis: Fourier) -> Tensor:
    """Return the half lattice of all ζ with ‖ζ‖ ≤ 2 max‖ξ‖: ``(m, dim)``, float64.

    >>> len(product_lattice(Fourier.lattice(2, 125)))
    790
    """
    return half_lattice(basis.dim, 4 * float(basis.frequencies.square().sum(dim=1).max()))
