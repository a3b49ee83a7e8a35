"""Properties of every basis."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.func import hessian, jacrev, vmap

from oism import Brownian, Fourier, Hermite, Linear, OrnsteinUhlenbeck, TensorHermite
from oism.basis import Basis, OrthogonalFrame, WhitenedHermite
from oism.process import InfinitesimalGenerator, Isotropic, Quadrature, Semigroup
from oism.process._expectation import expectation

OU = OrnsteinUhlenbeck(theta=0.7, sigma=1.3)


def normal(n: int, dim: int) -> Tensor:
    return torch.randn(n, dim, generator=torch.Generator().manual_seed(dim), dtype=torch.float64)


def rotated(dim: int) -> OrthogonalFrame:
    return OrthogonalFrame(torch.linalg.qr(normal(dim, dim))[0])


def symmetric(dim: int) -> Linear:
    """A symmetric process, F = -GΣ∞⁻¹; F and Σ∞ are not diagonal and do not commute."""
    m = normal(dim, dim)
    a, b = m @ m.mT + 0.3 * torch.eye(dim), m.mT @ m + 0.3 * torch.eye(dim)
    return Linear(-a @ b, torch.linalg.cholesky(2 * a))


BASES: dict[str, Basis] = {
    "hermite, line": Hermite(1, 12, OU),
    "hermite, paper's process": Hermite(2, 5),
    "hermite, rotated": Hermite(3, 7, OU, rotated(3)),
    "tensor hermite, line": TensorHermite(1, 6, OU),
    "tensor hermite, rotated plane": TensorHermite(2, 5, OU, rotated(2)),
    "tensor hermite, rotated space": TensorHermite(3, 4, OU, rotated(3)),
    "whitened, line": WhitenedHermite(symmetric(1), 6),
    "whitened plane": WhitenedHermite(symmetric(2), 5),
    "whitened space": WhitenedHermite(symmetric(3), 4),
    "fourier, circle": Fourier.lattice(1, 100),
    "fourier, T2": Fourier.lattice(2, 25),
    "fourier, T3": Fourier.lattice(3, 6),
    "fourier, real frequencies": Fourier(
        torch.tensor([[0.5, 0.1], [1.3, -0.4], [0.2, 2.2]], dtype=torch.float64), Brownian()
    ),
}
bases = pytest.mark.parametrize("basis", BASES.values(), ids=BASES.keys())


def at_a_point(basis: Basis, x: Tensor) -> Tensor:
    return basis(x[None])[0]


@bases
def test_eigenfunctions_of_the_generator_by_autodiff(basis: Basis) -> None:
    x = normal(30, basis.dim)
    generated = InfinitesimalGenerator(basis.process)(basis)(x)
    expected = basis.eigenvalues * basis(x)
    error = (generated - expected).abs().max() / expected.abs().max()
    assert float(error) < 1e-14


@bases
def test_gradients_and_laplacians_agree_with_autograd(basis: Basis) -> None:
    x = normal(10, basis.dim)
    jacobian = vmap(jacrev(lambda y: at_a_point(basis, y)))(x)
    torch.testing.assert_close(basis.gradients(x), jacobian, rtol=1e-12, atol=1e-11)
    second = vmap(hessian(lambda y: at_a_point(basis, y)))(x)
    laplacian = second.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
    torch.testing.assert_close(basis.laplacians(x), laplacian, rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize(
    "basis", [basis for basis in BASES.values() if isinstance(basis.process, Isotropic)]
)
def test_gradients_and_laplacians_satisfy_the_eigenrelation(basis: Basis) -> None:
    x = normal(30, basis.dim)
    jet = basis.jet(x)
    along_drift = (jet.gradients @ basis.process.drift(x)[..., None])[..., 0]
    diffusivity = float(basis.process.diffusion(1))
    generated = along_drift + diffusivity * jet.laplacians
    torch.testing.assert_close(generated, basis.eigenvalues * jet.values, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(
    "basis", [basis for basis in BASES.values() if basis.process.invariant.is_probability]
)
def test_orthonormality_by_quadrature(basis: Basis) -> None:
    def gram(x: Tensor) -> Tensor:
        values = torch.cat((torch.ones(len(x), 1, dtype=x.dtype), basis(x)), dim=1)
        return values[:, :, None] * values[:, None]

    rule = Quadrature({1: 40, 2: 24, 3: 14}[basis.dim])
    matrix = expectation(gram, basis.process.invariant, (basis.dim,), rule)
    identity = torch.eye(basis.size + 1, dtype=torch.float64)  # with the constant function
    torch.testing.assert_close(matrix, identity, rtol=0, atol=1e-12)


@bases
@pytest.mark.parametrize("t", [1e-6, 0.05, 0.6])
def test_eigenfunctions_of_the_semigroup_by_quadrature(basis: Basis, t: float) -> None:
    x, rule = normal(4, basis.dim), Quadrature({1: 64, 2: 40, 3: 26}[basis.dim])
    averaged = Semigroup(basis.process, t, rule)(basis)(x)
    expected = torch.exp(basis.eigenvalues * t) * basis(x)
    torch.testing.assert_close(averaged, expected, rtol=1e-11, atol=1e-12)


@bases
def test_eigenfunctions_of_the_semigroup_by_simulation(
    basis: Basis, generator: torch.Generator
) -> None:
    t, draws, x = 0.1, 50_000, 0.3 * normal(1, basis.dim)
    sample = basis(basis.process.transition(t).sample(x.expand(draws, -1), generator=generator))
    error = (sample.mean(dim=0) - torch.exp(basis.eigenvalues * t) * basis(x)[0]).abs()
    assert bool((error < 4.5 * sample.std(dim=0) / math.sqrt(draws)).all())


@bases
def test_functions_are_sorted_by_eigenvalue(basis: Basis) -> None:
    assert basis.eigenvalues.dtype == torch.float64
    assert bool((basis.eigenvalues < 0).all())
    assert bool((basis.eigenvalues.diff() <= 0).all())


@bases
@given(rows=st.integers(0, 3), dtype=st.sampled_from([torch.float32, torch.float64]))
def test_shapes_and_dtypes(basis: Basis, rows: int, dtype: torch.dtype) -> None:
    jet = basis.jet(torch.full((rows, basis.dim), 0.5, dtype=dtype))
    assert jet.values.shape == jet.laplacians.shape == (rows, basis.size)
    assert jet.gradients.shape == (rows, basis.size, basis.dim)
    assert {jet.values.dtype, jet.gradients.dtype, jet.laplacians.dtype} == {dtype}


@bases
def test_points_may_be_on_another_device(basis: Basis) -> None:
    jet = basis.jet(torch.empty(3, basis.dim, device="meta"))
    assert {part.device.type for part in (jet.values, jet.gradients, jet.laplacians)} == {"meta"}


@bases
def test_a_jet_computes_one_table(basis: Basis) -> None:
    x = normal(5, basis.dim)
    jet = basis.jet(x)
    assert torch.equal(jet.values, basis.values(x))
    assert torch.equal(jet.gradients, basis.gradients(x))
    assert torch.equal(jet.laplacians, basis.laplacians(x))
    assert torch.equal(jet.values, basis(x))


@pytest.mark.slow
@bases
def test_functions_support_autograd_and_compile(basis: Basis) -> None:
    x = (0.3 * normal(2, basis.dim)).requires_grad_()
    basis(x).sum().backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(x.grad, basis.gradients(x.detach()).sum(dim=1))
    torch.compiler.reset()
    for method in (basis.values, basis.gradients, basis.laplacians):
        compiled = torch.compile(method, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(x.detach()), method(x.detach()))


@bases
def test_autocast_does_not_change_the_functions(basis: Basis) -> None:
    x = normal(5, basis.dim).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = basis.jet(x)
        parts = cast.values, cast.gradients, cast.laplacians
    plain = basis.jet(x)
    for part, exact in zip(parts, (plain.values, plain.gradients, plain.laplacians), strict=True):
        assert part.dtype == torch.float32
        assert torch.equal(part, exact)


@bases
def test_invalid_points_are_rejected(basis: Basis) -> None:
    for method in (basis.values, basis.gradients, basis.laplacians):
        with pytest.raises(
            ValueError, match=rf"x must have shape \(n, {basis.dim}\), got \(2, 5\)"
        ):
            method(torch.zeros(2, 5))
        with pytest.raises(ValueError, match=r"x must be finite, but x\[0, 0\] = nan"):
            method(torch.full((2, basis.dim), math.nan))
        with pytest.raises(TypeError, match="x must have a floating-point dtype"):
            method(torch.zeros(2, basis.dim, dtype=torch.int64))


def test_the_contract_is_enforced() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Basis()  # type: ignore[abstract]
