"""Normalised Hermite polynomials φₙ = Heₙ/√n!: eigenfunctions of the Ornstein-Uhlenbeck process.

In one dimension, with u = x/√v and v = σ²/2θ the variance of the invariant distribution:

    λₙ = -θn,    φₙ' = √n φₙ₋₁,    φₙ₊₁ = (u φₙ - √n φₙ₋₁)/√(n+1)  for n ≥ 1,  φ₀ = 1,  φ₁ = u.

The φₙ are orthonormal under N(0, 1), and a product is a finite sum of them,

    φ_k φ_ℓ = Σ_h β_h φ_h,  0 ≤ h ≤ k+ℓ,    β_h = √(k! ℓ! h!) / ((s-k)! (s-ℓ)! (s-h)!),  2s = k+ℓ+h,

where β_h = 0 unless 2s is even and k, ℓ, h satisfy the triangle inequality. The only loop is the
recurrence over the degree; everything is vectorised over points and directions.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement
from typing import Any

import torch
from torch import Tensor

from oism._core import checks, quadrature
from oism._core.transforms import output_like
from oism.basis._base import Basis
from oism.basis._frame import Frame, IdentityFrame
from oism.process import OrnsteinUhlenbeck
from oism.storage import storable

BLOCK = 2**17
"""The number of entries per block of a table (measured by benchmarks/hermite.py)."""

MOST_FUNCTIONS = 2**18
"""The largest number of tensor products."""

MOST_PRODUCTS = 85
"""The largest order of a table of product coefficients: 170! is the largest in float64."""


def recurrence(
    u: Tensor, order: int, table: Tensor | Sequence[Tensor] | None = None
) -> Iterator[Tensor]:
    """Yield φ₀(u), …, φ_order(u), each of the shape of ``u``; only two are in memory at a time.

    With ``table``, of shape ``(order + 1, *u.shape)`` or as many tensors, they are written there.
    """
    rows = [None] * (order + 1) if table is None else list(table)
    before = torch.ones_like(u) if rows[0] is None else rows[0].fill_(1)
    yield before
    if order == 0:
        return
    now = u if rows[1] is None else rows[1].copy_(u)
    yield now
    for n in range(1, order):
        scaled = torch.mul(before, -math.sqrt(n / (n + 1)), out=rows[n + 1])
        after = torch.addcmul(scaled, u, now, value=1 / math.sqrt(n + 1), out=rows[n + 1])
        before, now = now, after
        yield now


def tabulate(u: Tensor, order: int) -> Tensor:
    """Return φ₀, …, φ_order at the entries of a batch ``(n, *shape)``: ``(n, order + 1, *shape)``.

    >>> tabulate(torch.tensor([2.0]), 3)  # 1, u, (u² - 1)/√2, (u³ - 3u)/√6
    tensor([[1.0000, 2.0000, 2.1213, 0.8165]])
    """
    if checks.floating(u, "u").ndim < 1:
        raise ValueError("u must be a batch of shape (n, *shape), got shape ()")
    return _tabulate(u, checks.integer(order, "order", minimum=0))


def _tabulate(u: Tensor, order: int) -> Tensor:
    """Return the table for checked arguments.

    On the CPU it is filled in blocks of rows: the recurrence runs in a small buffer that fits into
    the cache, in which each degree is contiguous; the block is then copied to the table, batch
    first. With one coordinate per row the table has the layout of the buffer, and needs none.
    """
    table = _memory(u, order + 1, u.shape[1:])
    if table is None or u.device.type != "cpu":
        return torch.stack(list(recurrence(u, order)), dim=1)
    entries = u.shape[1:].numel()
    if entries == 1:
        deque(recurrence(u, order, table.movedim(1, 0)), maxlen=0)
        return table
    rows = max(1, BLOCK // max(1, entries))
    buffer = u.new_empty(order + 1, min(rows, len(u)), *u.shape[1:])
    for start in range(0, len(u), rows):
        block = u[start : start + rows]
        deque(recurrence(block, order, buffer[:, : len(block)]), maxlen=0)
        table[start : start + rows] = buffer[:, : len(block)].movedim(0, 1)
    return table


def _memory(x: Tensor, degrees: int, shape: Sequence[int]) -> Tensor | None:
    """Return memory of shape ``(n, degrees, *shape)``, or None if ``x`` is differentiated.

    With one coordinate per row each degree is contiguous, otherwise each row.
    """
    if torch.Size(shape).numel() > 1:
        return output_like(x, (len(x), degrees, *shape))
    out = output_like(x, (degrees, len(x), *shape))
    return None if out is None else out.movedim(0, 1)


def series(u: Tensor, alpha: Tensor, derivative: int = 0) -> Tensor:
    """Return Σₙ αₙ dᵏφₙ/duᵏ, n = 1, …, order, at the entries of ``(n, d)``: of the shape of ``u``.

    Coefficients are ``(order, d)``, shared by the rows, or ``(n, order, d)``. Terms are added
    during the recurrence, dᵏφₙ/duᵏ = √(n!/(n-k)!) φₙ₋ₖ, without a table.
    """
    order, total = alpha.shape[-2], torch.zeros_like(u)
    for h, phi in enumerate(recurrence(u, max(0, order - derivative))):
        n = h + derivative
        if 1 <= n <= order:
            factor = math.sqrt(math.perm(n, derivative))
            total = torch.addcmul(total, alpha[..., n - 1, :], phi, value=factor)
    return total


def affine(gamma: Tensor, delta: Tensor, order: int) -> Tensor:
    """Return T with φ_k(γu + δ) = Σ_j T[k, j] φ_j(u): ``(*shape, order+1, order+1)``, float64.

    The recurrence of φ_k at γu + δ, with u φ_j = √(j+1) φ_{j+1} + √j φ_{j-1} on the right, reads

        √(k+1) T[k+1, j] = γ(√j T[k, j-1] + √(j+1) T[k, j+1]) + δ T[k, j] - √k T[k-1, j].

    Each entry has a small relative error, unlike by quadrature. This is needed because T maps sums
    of φ_k from one standardisation to another, and γᵏ may multiply sums of the size γ⁻ᵏ.

    >>> affine(torch.tensor(2.0), torch.tensor(1.0), 1)  # 2u + 1
    tensor([[1., 0.],
            [1., 2.]], dtype=torch.float64)
    """
    gamma, delta = gamma.double()[..., None], delta.double()[..., None]
    roots = torch.arange(1, order + 1, dtype=torch.float64).sqrt()
    table = gamma.new_zeros(*gamma.shape[:-1], order + 1, order + 1)
    table[..., 0, 0] = 1
    for k in range(order):
        now = table[..., k, :]
        after = delta * now
        after[..., 1:] += gamma * roots * now[..., :-1]
        after[..., :-1] += gamma * roots * now[..., 1:]
        if k:
            after -= math.sqrt(k) * table[..., k - 1, :]
        table[..., k + 1, :] = after / math.sqrt(k + 1)
    return table


def product_coefficients(order: int) -> Tensor:
    """Return β with φ_k φ_ℓ = Σ_h β[k, ℓ, h] φ_h: ``(order+1, order+1, 2·order+1)``, float64.

    The coefficients are exact to rounding, but large: by cancellation the sum over h has an
    absolute error of about 1e-11 at order 12 and 3e-8 at order 20 (for u of order one), and no
    correct digits beyond order 30.

    >>> product_coefficients(1)[1, 1]  # u² = φ₀ + √2 φ₂
    tensor([1.0000, 0.0000, 1.4142], dtype=torch.float64)
    """
    checks.integer(order, "order", minimum=0)
    if order > MOST_PRODUCTS:
        raise ValueError(
            f"order must be at most {MOST_PRODUCTS}, so that (2·order)! fits float64, got {order}"
        )
    k, l, h = torch.meshgrid(  # noqa: E741 (the paper's letter)
        *(torch.arange(n + 1) for n in (order, order, 2 * order)), indexing="ij"
    )
    s = (k + l + h) // 2
    allowed = ((k + l + h) % 2 == 0) & (s >= k) & (s >= l) & (s >= h)
    factorial = torch.arange(2 * order + 1, dtype=torch.float64).clamp(min=1).cumprod(dim=0)

    def ratio(i: Tensor) -> Tensor:
        """Return √i! / (s-i)!; finite also where the coefficient is zero."""
        return factorial[i].sqrt() / factorial[(s - i).clamp(min=0)]

    return torch.where(allowed, ratio(k) * ratio(l) * ratio(h), 0.0)


def multi_indices(dim: int, order: int) -> Tensor:
    """Return the m ∈ ℕ^dim with 1 ≤ |m| ≤ order by total degree: ``(size, dim)``, int64.

    >>> multi_indices(2, 2).tolist()
    [[1, 0], [0, 1], [2, 0], [1, 1], [0, 2]]
    """
    checks.integer(dim, "dim", minimum=1)
    checks.integer(order, "order", minimum=1)
    blocks = []
    for degree in range(1, order + 1):
        chosen = torch.tensor(list(combinations_with_replacement(range(dim), degree)))
        block = torch.zeros(len(chosen), dim, dtype=torch.int64)
        blocks.append(block.scatter_add(1, chosen, torch.ones_like(chosen)))
    return torch.cat(blocks)


def check_few(dim: int, order: int) -> None:
    """Raise if there are too many multi-indices."""
    size = math.comb(dim + order, dim) - 1
    if size > MOST_FUNCTIONS:
        raise ValueError(
            f"order must be smaller for dim = {dim}, got {order}: {size} functions, allowed "
            f"{MOST_FUNCTIONS} (Hermite is for high dimensions)"
        )


def with_constant(dim: int, degree: int) -> Tensor:
    """Return all m ∈ ℕ^dim with |m| ≤ degree, 0 first: ``(size, dim)``, int64."""
    constant = torch.zeros(1, dim, dtype=torch.int64)
    return constant if degree == 0 else torch.cat((constant, multi_indices(dim, degree)))


def lowered(indices: Tensor) -> tuple[Tensor, Tensor]:
    """Return the position of m - eᵢ among the multi-indices, and √mᵢ: ``(size, dim)`` each.

    For derivatives, ∂φ_m/∂uᵢ = √mᵢ φ_{m-eᵢ}. With every m the list must contain all m - eᵢ; for
    mᵢ = 0 the position is 0.

    >>> lowered(with_constant(dim=2, degree=2))[0].tolist()
    [[0, 0], [0, 0], [0, 0], [1, 0], [2, 1], [0, 2]]
    """
    size, dim = indices.shape
    down = (indices[:, None] - torch.eye(dim, dtype=torch.int64)).flatten(0, 1)
    _, kind = torch.unique(torch.cat((indices, down)), dim=0, return_inverse=True)
    place = torch.zeros(len(kind), dtype=torch.int64)
    place[kind[:size]] = torch.arange(size)
    return place[kind[size:]].reshape(size, dim), indices.double().sqrt()


def products(u: Tensor, indices: Tensor, degree: int | None = None) -> Tensor:
    """Return Πᵢ φ_{mᵢ}(uᵢ) at points ``(n, dim)`` for multi-indices ``(size, dim)``.

    ``degree`` is at least the largest mᵢ; by default it is read from the indices, which
    synchronises with a GPU.
    """
    table = tabulate(u, int(indices.max()) if degree is None else degree)
    result = table[:, indices[:, 0], 0]
    for i in range(1, u.shape[1]):
        result = result * table[:, indices[:, i], i]
    return result


def gram(means: Tensor, order: int) -> Tensor:
    """Return E[φ_kφ_ℓ] for k, ℓ ≤ order from E[φ_h], h ≤ 2·order, on the last axis."""
    coefficients = product_coefficients(order).to(means.device)
    flat = means[..., : 2 * order + 1] @ coefficients.flatten(0, 1).mT
    return flat.reshape(*flat.shape[:-1], order + 1, order + 1)


class TensorGram:
    """E[φ_kφ_ℓ] for |k|, |ℓ| ≤ order from E[φ_h], |h| ≤ degree, on the last axis.

    By Gauss quadrature with the polynomial r = Σ_h E[φ_h] φ_h for the density ratio:
    E[φ_kφ_ℓ] = Σ_q w_q r(u_q) φ_k(u_q) φ_ℓ(u_q), exactly for degree ≥ 2·order.
    """

    def __init__(self, dim: int, order: int, degree: int) -> None:
        rule = quadrature.gauss_hermite(order + (degree + 1) // 2 + 1)
        points, self._weights = quadrature.product(*rule, dim)
        self._all = products(points, with_constant(dim, degree))
        self._few = self._all[:, : math.comb(dim + order, dim)]

    def __call__(self, means: Tensor) -> Tensor:
        """Return the Gram matrices."""
        ratio = (means @ self._all.mT) * self._weights
        return (ratio[..., None, :] * self._few.mT) @ self._few


@dataclass(frozen=True, eq=False)
class HermiteFamily(Basis):
    """Base class of the Hermite bases: a process, a frame, and the table of one-dimensional φₙ."""

    dim: int
    order: int
    process: OrnsteinUhlenbeck = OrnsteinUhlenbeck()  # noqa: RUF009 (frozen)
    frame: Frame = IdentityFrame()  # noqa: RUF009 (frozen)

    def __post_init__(self) -> None:
        dim = checks.integer(self.dim, "dim", minimum=1)
        order = checks.integer(self.order, "order", minimum=1)
        checks.instance(self.process, OrnsteinUhlenbeck, "process")
        checks.instance(self.frame, Frame, "frame")
        checks.assign(self, dim=dim, order=order)
        if self.frame.dim not in (None, self.dim):
            raise ValueError(
                f"frame must be for points of dim = {self.dim} entries, got one for "
                f"{self.frame.dim}"
            )

    @property
    def scale(self) -> float:
        """The factor √(2θ)/σ that makes the invariant distribution standard normal."""
        return 1 / math.sqrt(self.process.stationary_variance)

    def facts(self) -> dict[str, Any]:
        """Return the number of polynomials and their largest degree."""
        return {"kind": "polynomials", "count": self.size, "degree": self.order}

    def _table(self, x: Tensor) -> Tensor:
        """Return φₙ of each scaled frame coordinate: ``(n, order + 1, dim)``."""
        return _tabulate(self.scale * self.frame.analyse(x), self.order)

    @property
    def _degrees(self) -> Tensor:
        return torch.arange(self.order + 1, dtype=torch.float64)

    def _slope_factors(self, table: Tensor) -> Tensor:
        """Return scale √n for n = 1, …, order: dφₙ/dz = scale √n φₙ₋₁ in z = u/scale."""
        return self.scale * self._degrees[1:].sqrt().to(table)

    def _slopes(self, table: Tensor) -> Tensor:
        """Return dφₙ/dz for n = 0, …, order from φₙ, or any derivative from the one before it."""
        slopes = self._slope_factors(table)[:, None] * table[:, :-1]
        return torch.cat((torch.zeros_like(table[:, :1]), slopes), dim=1)


@storable
@dataclass(frozen=True, eq=False)
class Hermite(HermiteFamily):
    """φₙ(scale ⟨vᵢ, x⟩) for n = 1, …, order and each direction vᵢ of the frame: order · dim in all.

    Sorted by degree (λ = -θn), then by direction. Sums of them are the coordinatewise estimate of
    the paper; their number grows linearly with the dimension.

    >>> Hermite(dim=2, order=2).eigenvalues
    tensor([-1., -1., -2., -2.], dtype=torch.float64)
    """

    @property
    def eigenvalues(self) -> Tensor:
        """-θn, once per direction."""
        return -self.process.theta * self._degrees[1:].repeat_interleave(self.dim)

    def _values(self, table: Tensor) -> Tensor:
        return table[:, 1:].flatten(1)

    def _gradients(self, table: Tensor) -> Tensor:
        # Function (n, i) varies along vᵢ only: ∇φ = scale √n φₙ₋₁(uᵢ) vᵢ.
        directions = self.frame.directions(self.dim).to(table)
        factors = self._slope_factors(table)[:, None, None] * directions
        out = _memory(table, self.order, (self.dim, self.dim))
        return torch.mul(table[:, :-1, :, None], factors, out=out).flatten(1, 2)

    def _laplacians(self, table: Tensor) -> Tensor:
        return self._slopes(self._slopes(table))[:, 1:].flatten(1)

    def _series(self, x: Tensor, alpha: Tensor, derivative: int) -> Tensor:
        u = self.scale * self.frame.analyse(x)
        alpha = alpha.reshape(*alpha.shape[:-1], self.order, self.dim)
        terms = self.scale**derivative * series(u, alpha, derivative)
        return self.frame.synthesise(terms) if derivative == 1 else terms.sum(dim=1)


@storable
@dataclass(frozen=True, eq=False)
class TensorHermite(HermiteFamily):
    """Products φ_{m₁}(u₁) ⋯ φ_{m_d}(u_d) of total degree 1 ≤ |m| ≤ order: all interactions.

    λ = -θ|m|. With order 2 they span the logarithms of all Gaussians. There are C(d + order, d) - 1
    of them, so orders above 2 are for small dimensions. ``indices`` holds the m, computed on first
    access, see `multi_indices`.

    >>> TensorHermite(dim=2, order=2).size
    5
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        # Order 2 is the Gaussian, whose estimate needs no list of functions, in any dimension.
        if self.order > 2:
            check_few(self.dim, self.order)

    @property
    def size(self) -> int:
        """The number of functions, C(d + order, d) - 1."""
        return math.comb(self.dim + self.order, self.dim) - 1

    @cached_property
    def indices(self) -> Tensor:
        """The multi-indices m: ``(size, dim)``, int64."""
        check_few(self.dim, self.order)
        return multi_indices(self.dim, self.order)

    @property
    def eigenvalues(self) -> Tensor:
        """-θ|m|."""
        return -self.process.theta * self.indices.sum(dim=1).double()

    def _factors(self, table: Tensor) -> Tensor:
        """Return the factor of each function in each coordinate: ``(n, size, dim)``."""
        return table[:, self.indices, torch.arange(self.dim)]

    def _replaced(self, table: Tensor, derivative: Tensor) -> Tensor:
        """Return the products with factor j replaced by its derivative: ``(n, size, j)``."""
        factors, slopes = self._factors(table), self._factors(derivative)
        own = torch.eye(self.dim, dtype=torch.bool, device=table.device)
        return torch.where(own, slopes[:, :, None], factors[:, :, None]).prod(dim=3)

    def _values(self, table: Tensor) -> Tensor:
        return self._factors(table).prod(dim=2)

    def _gradients(self, table: Tensor) -> Tensor:
        # ∂/∂z_j in the frame, then back to x: synthesis acts on the last axis.
        return self.frame.synthesise(self._replaced(table, self._slopes(table)))

    def _laplacians(self, table: Tensor) -> Tensor:
        return self._replaced(table, self._slopes(self._slopes(table))).sum(dim=2)

    def doubled(self) -> TensorHermite:
        """Return the products of twice the total degree."""
        return TensorHermite(self.dim, 2 * self.order, self.process, self.frame)

    def rule(self) -> tuple[Tensor, Tensor]:
        """Return the Gauss-Hermite rule, exact up to four times the order in each coordinate."""
        return self.process.invariant.quadrature(self.dim, 2 * self.order + 1)
