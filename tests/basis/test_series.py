"""Sums and products of eigenfunctions, computed without a table of all functions."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.func import hessian, jacrev, vmap

from oism import Brownian, Fourier, Hermite, OrnsteinUhlenbeck, TensorHermite
from oism.basis import Basis, OrthogonalFrame
from oism.basis._hermite import (
    TensorGram,
    affine,
    gram,
    multi_indices,
    products,
    tabulate,
    with_constant,
)

OU = OrnsteinUhlenbeck(theta=0.7, sigma=1.3)


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def rotated(dim: int) -> OrthogonalFrame:
    return OrthogonalFrame(torch.linalg.qr(normal(dim, dim))[0])


BASES: dict[str, Basis] = {
    "hermite, order 1": Hermite(2, 1, OU),
    "hermite, line": Hermite(1, 9, OU),
    "hermite, rotated": Hermite(3, 6, OU, rotated(3)),
    "tensor hermite, order 1": TensorHermite(2, 1, OU),
    "tensor hermite, rotated": TensorHermite(3, 4, OU, rotated(3)),
    "fourier, circle": Fourier.lattice(1, 64),
    "fourier, T3": Fourier.lattice(3, 6),
    "fourier, real frequencies": Fourier(
        torch.tensor([[0.5, 0.1], [1.3, -0.4], [0.2, 2.2]], dtype=torch.float64), Brownian()
    ),
}
bases = pytest.mark.parametrize("basis", BASES.values(), ids=BASES.keys())


@bases
@pytest.mark.parametrize("shared", [True, False])
def test_series_are_sums_over_the_dense_tables(basis: Basis, shared: bool) -> None:
    x = normal(7, basis.dim)
    alpha = normal(basis.size, seed=1) if shared else normal(7, basis.size, seed=1)
    rows = alpha.expand(7, -1)
    tables = basis.values(x), basis.gradients(x), basis.laplacians(x)
    for derivative, table in enumerate(tables):
        expected = torch.einsum("nk...,nk->n...", table, rows)
        got = basis.series(x, alpha, derivative)
        scale = float(table.abs().max() * alpha.abs().max())
        torch.testing.assert_close(got, expected, rtol=1e-13, atol=1e-13 * scale)


@bases
def test_derivatives_of_series_agree_with_autograd(basis: Basis) -> None:
    x, alpha = normal(5, basis.dim), normal(basis.size, seed=1)

    def f(y: Tensor) -> Tensor:
        return basis.series(y[None], alpha)[0]

    torch.testing.assert_close(basis.series(x, alpha), vmap(f)(x), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        basis.series(x, alpha, 1), vmap(jacrev(f))(x), rtol=1e-12, atol=1e-11
    )
    curvature = vmap(hessian(f))(x).diagonal(dim1=-2, dim2=-1).sum(dim=-1)
    torch.testing.assert_close(basis.series(x, alpha, 2), curvature, rtol=1e-11, atol=1e-10)


@bases
def test_series_have_the_dtype_of_the_points(basis: Basis) -> None:
    x, alpha = normal(3, basis.dim).float(), normal(basis.size, seed=1)
    for derivative, shape in enumerate([(3,), (3, basis.dim), (3,)]):
        got = basis.series(x, alpha, derivative)
        assert got.dtype == torch.float32
        assert got.shape == shape
        exact = basis.series(x.double(), alpha, derivative)
        torch.testing.assert_close(
            got.double(), exact, rtol=0, atol=1e-5 * float(exact.abs().max())
        )


@bases
def test_series_of_one_function_are_that_function(basis: Basis) -> None:
    x = normal(basis.size, basis.dim)
    diagonal = basis.values(x).diagonal()
    identity = torch.eye(basis.size, dtype=torch.float64)
    torch.testing.assert_close(basis.series(x, identity), diagonal, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(
        basis.series(x[:1], identity[-1]), basis.values(x[:1])[:, -1], rtol=1e-13, atol=1e-13
    )


@pytest.mark.parametrize(
    "basis", [basis for basis in BASES.values() if isinstance(basis, Hermite | Fourier)]
)
def test_autocast_does_not_change_series(basis: Basis) -> None:
    x, alpha = normal(4, basis.dim).float(), normal(4, basis.size, seed=1).float()
    for derivative in (0, 1, 2):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            cast = [basis.series(x, alpha, derivative), basis.series(x, alpha[0], derivative)]
        assert torch.equal(cast[0], basis.series(x, alpha, derivative))
        assert torch.equal(cast[1], basis.series(x, alpha[0], derivative))


@bases
def test_invalid_series_are_rejected(basis: Basis) -> None:
    x, alpha = torch.zeros(2, basis.dim), torch.zeros(basis.size)
    shapes = rf"\({basis.size},\) or \(2, {basis.size}\)"
    for bad in (torch.zeros(basis.size + 1), torch.zeros(3, basis.size), torch.zeros(())):
        with pytest.raises(ValueError, match=rf"alpha must have shape {shapes}, got \("):
            basis.series(x, bad)
    with pytest.raises(ValueError, match=r"alpha must be finite, but alpha\[0\] = nan"):
        basis.series(x, torch.full((basis.size,), math.nan))
    with pytest.raises(TypeError, match="alpha must have a floating-point dtype"):
        basis.series(x, torch.zeros(basis.size, dtype=torch.int64))
    for derivative in (-1, 3):
        with pytest.raises(ValueError, match=f"derivative must be 0, 1 or 2, got {derivative}"):
            basis.series(x, alpha, derivative)
    with pytest.raises(ValueError, match=rf"x must have shape \(n, {basis.dim}\)"):
        basis.series(torch.zeros(2, 7), alpha)


@given(order=st.integers(0, 12), gamma=st.floats(-1.5, 1.5), delta=st.floats(-2, 2))
def test_affine_agrees_with_direct_evaluation(order: int, gamma: float, delta: float) -> None:
    u = torch.linspace(-3, 3, 11, dtype=torch.float64)
    slope, offset = torch.tensor([gamma, delta], dtype=torch.float64)
    matrix = affine(slope, offset, order)
    moved = tabulate(gamma * u + delta, order)
    scale = 1 + float(moved.abs().max())
    torch.testing.assert_close(tabulate(u, order) @ matrix.mT, moved, rtol=0, atol=1e-12 * scale)


def test_affine_maps_compose_and_can_be_batched() -> None:
    gamma, delta = normal(2, 3), normal(2, 3, seed=1)
    matrix = affine(gamma, delta, 5)
    assert matrix.shape == (2, 3, 6, 6)
    for i, j in ((0, 0), (1, 2)):
        torch.testing.assert_close(matrix[i, j], affine(gamma[i, j], delta[i, j], 5))
    one, two = matrix
    both = affine(gamma[0] * gamma[1], gamma[0] * delta[1] + delta[0], 5)  # the composition
    torch.testing.assert_close(one @ two, both, rtol=1e-11, atol=1e-11)
    degrees = torch.arange(6)
    torch.testing.assert_close(
        matrix.diagonal(dim1=-2, dim2=-1), gamma[..., None] ** degrees, rtol=1e-11, atol=1e-12
    )
    assert torch.equal(matrix, matrix.tril())


@pytest.mark.parametrize("order", [0, 1, 5, 9])
def test_gram_is_the_average_of_products_over_any_points(order: int) -> None:
    u = 0.5 + 1.2 * normal(3, 40)
    table = torch.stack([tabulate(one, 2 * order) for one in u])  # (3, 40, 2·order + 1)
    expected = table[..., : order + 1].mT @ table[..., : order + 1] / 40
    got = gram(table.mean(dim=1), order)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-11 * float(expected.abs().max()))
    more = torch.cat((table.mean(dim=1), torch.ones(3, 4)), dim=1)  # higher degrees do not matter
    assert torch.equal(gram(more, order), got)


@pytest.mark.parametrize(
    ("dim", "order", "extra"), [(1, 6, 0), (2, 3, 0), (2, 2, 3), (3, 2, 0), (3, 0, 1)]
)
def test_tensor_gram_is_the_average_of_products_over_any_points(
    dim: int, order: int, extra: int
) -> None:
    degree = 2 * order + extra
    u = 0.3 + 1.1 * normal(2, 30, dim)
    table = torch.stack([products(one, with_constant(dim, degree)) for one in u])
    few = table[..., : math.comb(dim + order, dim)]
    expected = few.mT @ few / 30
    got = TensorGram(dim, order, degree)(table.mean(dim=1))
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12 * float(expected.abs().max()))


def test_both_gram_matrices_agree_in_one_dimension() -> None:
    means = normal(4, 13)
    expected = gram(means, 6)
    error = (TensorGram(1, 6, 12)(means) - expected).abs().max()
    assert float(error) < 1e-14 * float(expected.abs().max())


def test_products_agree_with_the_tensor_functions() -> None:
    u = normal(6, 3)
    indices = with_constant(3, 4)
    assert torch.equal(indices[1:], multi_indices(3, 4))
    assert torch.equal(with_constant(3, 0), torch.zeros(1, 3, dtype=torch.int64))
    values = products(u, indices)
    assert bool((values[:, 0] == 1).all())
    torch.testing.assert_close(values[:, 1:], TensorHermite(3, 4).values(u), rtol=1e-13, atol=1e-13)


def test_no_rows_and_no_autocast() -> None:
    for basis in (Fourier.lattice(2, 4), Hermite(2, 3), TensorHermite(2, 3)):
        alpha = torch.linspace(-1, 1, basis.size)
        for derivative, shape in enumerate(((0,), (0, 2), (0,))):
            assert basis.series(torch.zeros(0, 2), alpha, derivative).shape == shape
            x = torch.linspace(-1, 1, 8).reshape(4, 2)
            plain = basis.series(x, alpha, derivative)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                assert torch.equal(basis.series(x, alpha, derivative), plain)
