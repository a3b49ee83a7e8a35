"""Transforms on the torus, compared with sums of exponentials."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oism.basis import Fourier, TorusGrid, TorusTransform, half_lattice

GRIDS = [(1, 5, 2), (1, 12, 4), (2, 8, 3), (2, 9, 2), (2, 15, 6), (3, 6, 2), (3, 9, 4)]
grids = pytest.mark.parametrize(("dim", "points", "reach"), GRIDS)


def box(dim: int, reach: int) -> Tensor:
    """One of each ±ξ in the cube |ξ_j| ≤ reach."""
    lattice = half_lattice(dim, dim * reach**2)
    return lattice[(lattice.abs() <= reach).all(dim=1)]


def waves(dim: int, points: int, xi: Tensor) -> Tensor:
    """e^{iξ·x} on the grid x = 2πj/points, with axes in the reverse order of the coordinates."""
    axis = torch.arange(points, dtype=torch.float64) * (2 * math.pi / points)
    reversed_axes = torch.meshgrid(*[axis] * dim, indexing="ij")
    x = torch.stack(reversed_axes[::-1], dim=-1)
    return torch.exp(1j * (x @ xi.mT).movedim(-1, 0))


def complex_normal(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.complex128)


@grids
def test_the_density_is_a_sum_of_exponentials(dim: int, points: int, reach: int) -> None:
    xi, grid = box(dim, reach), TorusGrid(dim, points, reach)
    means = complex_normal(2, 3, len(xi))
    terms = torch.tensordot(means, waves(dim, points, xi), dims=1)
    expected = 1 + 2 * terms.real
    assert grid.shape == (points,) * dim
    torch.testing.assert_close(
        grid.density(means, grid.place(xi)), expected, rtol=1e-13, atol=1e-12
    )


@grids
def test_analysis_is_an_average_against_exponentials(dim: int, points: int, reach: int) -> None:
    xi, grid = box(dim, reach), TorusGrid(dim, points, reach)
    field = complex_normal(2, *grid.shape).real  # with all frequencies
    slots, mirrored, images = grid.place(xi)
    spectrum = grid.analyse(field)
    assert spectrum.shape == (2, grid.slots)
    axes = tuple(range(-dim, 0))
    expected = (field[:, None] * waves(dim, points, xi).conj()).mean(dim=axes)
    torch.testing.assert_close(spectrum[:, slots], expected, rtol=1e-13, atol=1e-14)
    torch.testing.assert_close(
        spectrum[:, images], expected[:, mirrored].conj(), rtol=1e-13, atol=1e-14
    )
    torch.testing.assert_close(spectrum[:, 0].real, field.mean(dim=axes), rtol=1e-13, atol=1e-14)


@grids
def test_analysis_inverts_synthesis(dim: int, points: int, reach: int) -> None:
    xi, grid = box(dim, reach), TorusGrid(dim, points, reach)
    means, placed = complex_normal(4, len(xi)), grid.place(xi)
    spectrum = grid.analyse(grid.density(means, placed))
    torch.testing.assert_close(spectrum[:, placed[0]], means, rtol=1e-13, atol=1e-13)
    field = grid.synthesise(spectrum)
    torch.testing.assert_close(grid.synthesise(grid.analyse(field)), field, rtol=1e-13, atol=1e-12)


@grids
def test_every_slot_is_used_once(dim: int, points: int, reach: int) -> None:
    xi, grid = box(dim, reach), TorusGrid(dim, points, reach)
    slots, mirrored, images = grid.place(xi)
    taken = torch.cat((torch.zeros(1, dtype=torch.int64), slots, images))
    assert len(torch.unique(taken)) == len(taken)
    assert 0 <= int(taken.min()) <= int(taken.max()) < grid.slots
    assert torch.equal(mirrored, (xi[:, 0] == 0).nonzero()[:, 0])
    if points == 2 * reach + 1:
        assert len(taken) == grid.slots


@given(points=st.integers(1, 3000))
def test_sides_are_rounded_up_to_small_prime_factors(points: int) -> None:
    side = TorusGrid(1, points, 0).points
    assert points <= side <= math.ceil(1.25 * points)
    for prime in (2, 3, 5):
        while side % prime == 0:
            side //= prime
    assert side == 1


def test_columns_beyond_the_reach_are_dropped() -> None:
    narrow, wide = TorusGrid(2, 12, 2), TorusGrid(2, 12, 5)
    field = complex_normal(12, 12).real
    kept = wide.analyse(field).reshape(12, 6)[:, :3].flatten()
    torch.testing.assert_close(narrow.analyse(field), kept, rtol=0, atol=1e-15)


@pytest.mark.parametrize(("dim", "bound", "points"), [(1, 16, 9), (2, 10, 8), (3, 6, 7)])
def test_a_transform_is_that_of_the_basis(dim: int, bound: int, points: int) -> None:
    basis = Fourier.lattice(dim, bound)
    transform = TorusTransform(basis.frequencies, points)
    count = transform.grid.points
    axis = torch.arange(count, dtype=torch.float64) * (2 * math.pi / count)
    axes = torch.meshgrid(*[axis] * dim, indexing="ij")
    table = basis.values(torch.stack(axes[::-1], dim=-1).flatten(0, -2))  # (points, size)
    assert table.shape == (transform.points, transform.size)
    generator = torch.Generator().manual_seed(0)
    alpha = torch.randn(2, 3, transform.size, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(transform.synthesise(alpha), alpha @ table.mT)
    torch.testing.assert_close(transform.analyse(alpha @ table.mT), alpha)
    field = torch.randn(2, transform.points, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(transform.analyse(field), field @ table / transform.points)
    own = transform._scattered(alpha)
    torch.testing.assert_close(transform._gathered(alpha), own, rtol=0, atol=1e-15)
