"""Langevin diffusions on a box of the line or the plane, given by their potential.

    dX = -∇V(X) dt + √2 dW, reflected at the faces,    π = e^{-V},    Lf = Δf - ⟨∇V, ∇f⟩.

The potential is a spline (``oism._core.splines``) of degree p over cells of width h: it
interpolates a function to O(h^{p+1}), and the process of that spline is the one defined here. Its
eigenpairs Lφ = -μφ are those of the weak form

    ∫ ∇φ·∇ψ dπ = μ ∫ φψ dπ    for all ψ,

with φ and ψ in the same space of splines. The reflecting condition is the natural one of this form.
Eigenvalues converge with order 2p and eigenfunctions with order p + 1 in h; they are accurate for
wavelengths above about four cells. With the reference measure π the B-splines of cells of small
probability are tiny, so both matrices are scaled to a unit diagonal of the second first: their
condition does not depend on the range of V then.

P_t has the kernel k_t(x, y) = 1 + Σ e^{-μt} φ(x)φ(y) with respect to π. The series of the computed
pairs is used for times at which the next terms are below e^{-16}; samples of shorter times are
simulated (``oism.process._simulated``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import scipy.linalg
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import eigsh, splu
from torch import Tensor

from oism._core import checks
from oism._core.splines import Splines
from oism._core.transforms import matmul
from oism.process._base import Nodes
from oism.process._box import Box, SplineGibbs
from oism.process._reversible import Reversible
from oism.process._simulated import SimulatedTransition
from oism.storage import storable

CELLS = {1: 400, 2: 48}
"""The default number of cells per axis."""

DENSE = 1500
"""The largest number of splines for which all eigenpairs are computed by dense algebra."""

PAIRS = 300
"""The number of eigenpairs in the kernel of P_t on the plane."""

DECAYED = 16.0
"""The series of P_t is used from t = 16/μ on, for the last μ."""

STEP = 0.1
"""The step of simulations times the largest curvature |ΔV|."""


@storable
@dataclass(frozen=True, eq=False, repr=False)
class Langevin(Reversible):
    """dX = -∇V dt + √2 dW on a box ``(d, 2)`` with d = 1 or 2, reflected at its faces.

    ``potential`` ``(size,)`` are the coefficients of V in splines of degree ``degree`` over
    ``cells``; a constant is added so that e^{-V} is a density. `of` computes them from a function.

    >>> process = Langevin.of(lambda x: 0.5 * x.square().sum(dim=1), [(-7.0, 7.0)])
    >>> process.eigenpairs(3)[0]  # the Ornstein-Uhlenbeck process: 1, 2, 3
    tensor([1.0000, 2.0000, 3.0000], dtype=torch.float64)
    """

    box: Tensor
    cells: tuple[int, ...]
    degree: int
    potential: Tensor

    has_constant_noise = True

    def __post_init__(self) -> None:
        splines = Splines(self.box, self.cells, self.degree)
        if splines.dim > 2:
            raise ValueError(f"box must have one or two axes, got {splines.dim}")
        potential = checks.floating(self.potential, "potential").detach().double().clone()
        if potential.shape != (splines.size,):
            raise ValueError(
                f"potential must hold the {splines.size} coefficients of a spline, got shape "
                f"{tuple(potential.shape)}: Langevin.of(function, box) computes them"
            )
        checks.assign(self, box=splines.box, cells=splines.cells, degree=splines.degree)
        points, weights = splines.rule()
        values = splines.evaluate(points, potential, (0,) * splines.dim)
        mass = torch.logsumexp(weights.log() - values, dim=0)
        checks.assign(self, potential=potential + mass)

    @classmethod
    def of(
        cls,
        potential: Callable[[Tensor], Tensor],
        box: Tensor | Sequence[tuple[float, float]],
        *,
        cells: int | Sequence[int] | None = None,
        degree: int = 5,
    ) -> Self:
        """Return the process of a function V of points ``(n, d)``, up to a constant: ``(n,)``.

        For a density p, V = -log p. ``cells`` is the number of cells, of all axes or of each.
        """
        ends = torch.as_tensor(box, dtype=torch.float64)
        if cells is None:
            cells = CELLS.get(len(ends), 1)
        counts = (cells,) * len(ends) if isinstance(cells, int) else tuple(cells)
        splines = Splines(ends, counts, degree)
        points = torch.cartesian_prod(*splines.greville).reshape(-1, splines.dim)
        values: object = potential(points)
        if not isinstance(values, Tensor) or values.shape != (len(points),):
            got = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise ValueError(
                f"potential must map points {tuple(points.shape)} to a tensor of shape "
                f"({len(points)},), got {got}"
            )
        if not bool(values.isfinite().all()):
            row = int((~values.isfinite()).nonzero()[0])
            raise ValueError(
                f"potential must be finite on the box, but it is {float(values[row])} at "
                f"{points[row].tolist()}: where a density vanishes, add a background"
            )
        return cls(splines.box, counts, degree, splines.interpolate(values.detach()))

    def __repr__(self) -> str:
        """Return box, cells and degree: the potential has one number per spline."""
        box = [[round(end, 4) for end in ends] for ends in self.box.tolist()]
        return f"Langevin(box={box}, cells={self.cells}, degree={self.degree})"

    @cached_property
    def splines(self) -> Splines:
        """The space of splines of the potential and the eigenfunctions."""
        return Splines(self.box, self.cells, self.degree)

    @property
    def dim(self) -> int:
        """The dimension of the box."""
        return len(self.box)

    @cached_property
    def domain(self) -> Box:
        """The box."""
        return Box(self.box)

    @cached_property
    def invariant(self) -> SplineGibbs:
        """π = e^{-V}."""
        return SplineGibbs(self.splines, self.potential)

    @property
    def diffusivity(self) -> float:
        """1."""
        return 1.0

    def noise(self, dim: int) -> Tensor:  # type: ignore[override]
        """Return √2 I."""
        return math.sqrt(2) * torch.eye(dim, dtype=torch.float64)

    def noise_at(self, x: Tensor) -> Tensor:
        """Return √2 I at every point: ``(n, d, d)``."""
        noise = self.noise(x.shape[1:].numel()).to(x)
        return noise.expand(len(x), *noise.shape)

    def drift(self, x: Tensor) -> Tensor:
        """Return -∇V."""
        return self.invariant.score(x)

    def flow_drift(self, x: Tensor) -> Tensor:
        """Return -∇V."""
        return self.invariant.score(x)

    def _diffuse(self, v: Tensor, x: Tensor) -> Tensor:  # noqa: ARG002
        return v

    def _flow_drift_divergence(self, x: Tensor) -> Tensor:
        return self.invariant.score_divergence(x)

    def _transition(self, t: Tensor) -> LangevinTransition:
        steps = max(1, math.ceil(float(t.max()) / self.step)) if t.numel() else 1
        return LangevinTransition(self, t, steps)

    @cached_property
    def step(self) -> float:
        """The time step of simulations."""
        points, _ = self.splines.rule(1)
        bend = float(self.invariant.score_divergence(points).abs().max())
        width = float((self.box[:, 1] - self.box[:, 0]).min())
        return min(STEP / max(bend, 1e-300), 0.01 * width**2)

    @cached_property
    def forms(self) -> tuple[sparse.csc_array, sparse.csc_array, NDArray[np.float64]]:
        """The matrices of ∫∇φ·∇ψ dπ and ∫φψ dπ in scaled B-splines c_k B_k, and the scales c_k."""
        points, _ = self.splines.rule()
        density = self.invariant.log_density(points).exp().numpy()
        stiffness, mass = self.splines.forms(density)
        scale = 1 / np.sqrt(mass.diagonal())
        both = sparse.diags_array(scale)
        return (
            sparse.csc_array(both @ stiffness @ both),
            sparse.csc_array(both @ mass @ both),
            scale,
        )

    @cached_property
    def _all_pairs(self) -> tuple[Tensor, Tensor]:
        stiffness, mass, scale = self.forms
        rates, vectors = scipy.linalg.eigh(stiffness.toarray(), mass.toarray())
        return torch.from_numpy(rates[1:]), torch.from_numpy(scale[:, None] * vectors[:, 1:])

    @cached_property
    def _known_pairs(self) -> dict[int, tuple[Tensor, Tensor]]:
        return {}

    def eigenpairs(self, count: int) -> tuple[Tensor, Tensor]:
        """Return the rates μ > 0 ``(count,)`` and coefficients ``(size, count)`` of eigenfunctions.

        The slowest first, without the constant, orthonormal in L²(π). At most half as many as there
        are splines: the others are not accurate.
        """
        count = checks.integer(count, "count", minimum=1)
        if 2 * count > self.splines.size:
            raise ValueError(
                f"count must be at most half the number of splines, {self.splines.size}, got "
                f"{count}: give more cells"
            )
        if self.splines.size <= DENSE:
            rates, vectors = (part[..., :count] for part in self._all_pairs)
            return rates, _signed(vectors)
        if count not in self._known_pairs:
            self._known_pairs[count] = self._sparse_pairs(count)
        return self._known_pairs[count]

    def _sparse_pairs(self, count: int) -> tuple[Tensor, Tensor]:
        """Return eigenpairs by shifted inverse iterations in a Krylov space."""
        stiffness, mass, scale = self.forms
        width = float((self.box[:, 1] - self.box[:, 0]).max())
        shift = (math.pi / width) ** 2  # of the size of the first rates without a potential
        start = np.cos(np.arange(len(scale)) * math.sqrt(2))  # any vector, always the same
        inverse = splu(sparse.csc_matrix(stiffness + shift * mass), permc_spec="MMD_AT_PLUS_A")
        solve = sparse.linalg.LinearOperator(mass.shape, matvec=inverse.solve, dtype=np.float64)
        rates, vectors = eigsh(
            stiffness, count + 1, M=mass, sigma=-shift, v0=start, OPinv=solve, tol=1e-12
        )
        order = np.argsort(rates)[1:]
        vectors = torch.from_numpy(scale[:, None] * vectors[:, order])
        return torch.from_numpy(rates[order].copy()), _signed(vectors)

    @cached_property
    def _kernel_pairs(self) -> tuple[Tensor, Tensor]:
        half = self.splines.size // 2
        return self.eigenpairs(half if self.splines.size <= DENSE else min(half, PAIRS))


def _signed(vectors: Tensor) -> Tensor:
    """Return vectors with a positive product with a fixed one: their signs are arbitrary."""
    fixed = torch.cos(math.sqrt(2) * torch.arange(len(vectors), dtype=torch.float64) + 1)
    signs = torch.sign(fixed @ (vectors / vectors.abs().amax(dim=0)))
    return vectors * torch.where(signs == 0, torch.ones_like(signs), signs)


@dataclass(frozen=True, eq=False)
class LangevinTransition(SimulatedTransition):
    """Samples by simulation; densities and nodes by the series of P_t, from `first_time` on."""

    process: Langevin

    @property
    def first_time(self) -> float:
        """The smallest time at which the series is used."""
        return DECAYED / float(self.process._kernel_pairs[0][-1])

    def _kernel(self, x: Tensor, y: Tensor, *, pairs: bool) -> Tensor:
        """Return k_t(x_i, y_i), ``(n,)``, or with ``pairs`` k_t(x_i, y_j), ``(n, m)``."""
        early = float(self.t.min()) if self.t.numel() else math.inf
        if early < self.first_time:
            raise ValueError(
                f"t must be at least {self.first_time:.3g} for densities and quadrature of this "
                f"process, got {early:.3g}: give more cells, or use MonteCarlo(samples, generator)"
            )
        rates, vectors = self.process._kernel_pairs
        zero, splines = (0,) * self.process.dim, self.process.splines
        decay = torch.exp(-self.t[..., None] * rates).to(x)
        start = splines.evaluate(x, vectors, zero) * decay
        ends = splines.evaluate(y, vectors, zero)
        sums = matmul(start, ends.mT) if pairs else (start * ends).sum(dim=1)
        return (1 + sums).clamp(min=0)

    def log_density(self, y: Tensor, x: Tensor) -> Tensor:
        """Return log ρ_t(y|x) = log π(y) + log k_t(x, y); -∞ where the series rounds to 0."""
        y = checks.like(y, checks.points(x, dim=self.process.dim))
        return self._kernel(x, y, pairs=False).log() + self.process.invariant.log_density(y)

    def nodes(self, x: Tensor, count: int) -> Nodes:
        """Return the points of the rule of π, the same for every start, and weights ``(m, n)``."""
        x = checks.points(x, dim=self.process.dim)
        points, weights = self.process.invariant.quadrature(self.process.dim, count)
        kernel = self._kernel(x, points.to(x), pairs=True)
        mass = kernel.mT * weights.to(x)[:, None]
        return points.to(x)[:, None].expand(-1, *x.shape), mass / mass.sum(dim=0)
