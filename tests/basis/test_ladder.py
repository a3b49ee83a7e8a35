"""Ladder operators on Hermite polynomials, compared with autodiff and quadrature."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from oism._core import quadrature
from oism.basis import Ladder
from oism.basis._hermite import lowered, products, with_constant


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


dims, degrees = st.integers(1, 4), st.integers(0, 4)


@given(dims, degrees)
def test_functions_are_sorted_by_degree_and_complete(dim: int, degree: int) -> None:
    ladder = Ladder(dim, degree)
    total = ladder.indices.sum(dim=1)
    assert len(ladder.indices) == math.comb(dim + degree, degree) == ladder.count(degree)
    assert len(torch.unique(ladder.indices, dim=0)) == len(ladder.indices)
    assert bool((total.diff() >= 0).all())
    assert int((total < degree).sum()) == ladder.count(degree - 1)


@given(dims, degrees, st.randoms(use_true_random=False))
def test_lowered_returns_the_positions_of_lowered_indices(
    dim: int, degree: int, random: object
) -> None:
    indices = with_constant(dim, degree)
    order = [0, *random.sample(range(1, len(indices)), len(indices) - 1)]  # type: ignore[attr-defined]
    shuffled = indices[order]
    places, roots = lowered(shuffled)
    for i in range(dim):
        has = shuffled[:, i] > 0
        down = shuffled[has] - torch.nn.functional.one_hot(torch.tensor(i), dim)
        assert torch.equal(shuffled[places[has, i]], down)
        assert not places[~has, i].any()
    torch.testing.assert_close(roots.square(), shuffled.double())


@settings(max_examples=15)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(0, 100))
def test_slopes_are_derivatives(dim: int, degree: int, seed: int) -> None:
    ladder, direction = Ladder(dim, degree), normal(2, dim, seed=seed)
    u = normal(3, dim, seed=seed + 1)

    def along(n: Tensor) -> Tensor:
        moved = torch.func.jvp(lambda y: products(y, ladder.indices), (u,), (n.expand_as(u),))
        slope: Tensor = moved[1]
        return slope

    ours = ladder.slopes(direction) @ products(u, ladder.indices)[:, : ladder.count(degree - 1)].mT
    for one, n in zip(ours, direction, strict=True):
        torch.testing.assert_close(one.mT, along(n), rtol=1e-11, atol=1e-11)


@settings(max_examples=20)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 4), st.integers(0, 100))
def test_symmetric_powers_are_conditional_expectations(
    dim: int, source: int, degree: int, seed: int
) -> None:
    # u' = Bu + (I - BBᵀ)^½ ε, by Gauss's rule for ε; B may be wide or tall.
    matrix = normal(dim, source, seed=seed)
    matrix = 0.9 * matrix / torch.linalg.matrix_norm(matrix, 2)
    rest = torch.linalg.cholesky(torch.eye(dim).double() - matrix @ matrix.mT)
    ladder, below = Ladder(dim, degree), Ladder(source, degree)
    u = normal(4, source, seed=seed + 1)
    nodes, weights = quadrature.product(*quadrature.gauss_hermite(degree + 1), dim)
    moved = (u @ matrix.mT)[:, None] + nodes @ rest.mT
    values = products(moved.flatten(0, 1), ladder.indices).unflatten(0, moved.shape[:2])  # type: ignore[no-untyped-call]
    expected = torch.einsum("q,nqs->ns", weights, values)
    ours = ladder.spread(matrix[None], products(u, below.indices), below)[0]
    torch.testing.assert_close(ours, expected, rtol=1e-11, atol=1e-11)


def test_symmetric_powers_of_the_identity_and_of_products() -> None:
    ladder, means = Ladder(3, 5), normal(2, 56)
    eye = torch.eye(3, dtype=torch.float64)
    torch.testing.assert_close(ladder.spread(eye[None], means, ladder)[0], means)
    first, second = normal(3, 3, seed=1), normal(3, 3, seed=2)
    twice = ladder.spread(second[None], ladder.spread(first[None], means, ladder)[0], ladder)
    torch.testing.assert_close(twice, ladder.spread((second @ first)[None], means, ladder))


@pytest.mark.parametrize(("dim", "degree", "name"), [(0, 2, "dim"), (2, -1, "degree")])
def test_invalid_sizes_are_rejected(dim: int, degree: int, name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be an integer >="):
        Ladder(dim, degree)
