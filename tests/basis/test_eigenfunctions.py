"""Numerical eigenfunctions and features: the identities of a basis, to the accuracy of splines."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.func import hessian, jacrev, vmap

from oism import Fourier, OrnsteinUhlenbeck, TensorHermite, Torus
from oism.basis import Eigenfunctions, Features, Functions
from oism.process import CriticallyDamped, InfinitesimalGenerator, Langevin, SymmetricPart
from oism.storage import load, save


def wells(x: Tensor) -> Tensor:
    return (x[:, 0].square() - 1).square() + 0.5 * x[:, 1:].square().sum(dim=1)


LINE = Eigenfunctions.of(Langevin.of(wells, [(-2.5, 2.5)]), 12)
PLANE = Eigenfunctions.of(Langevin.of(wells, [(-2.5, 2.5), (-4.0, 4.0)], cells=24), 12)
bases = pytest.mark.parametrize("basis", [LINE, PLANE], ids=["line", "plane"])


def points(basis: Eigenfunctions, n: int = 30) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    kind = torch.float64
    return basis.process.invariant.sample((n, basis.dim), generator=generator, dtype=kind)


@bases
def test_orthonormal_under_the_rule_and_ordered(basis: Eigenfunctions) -> None:
    x, w = basis.rule()
    values = torch.cat((torch.ones(len(x), 1).double(), basis.values(x)), dim=1)
    gram = values.mT @ (w[:, None] * values)
    torch.testing.assert_close(gram, torch.eye(13).double(), rtol=0, atol=2e-5)
    assert bool((basis.eigenvalues.diff() <= 0).all())
    slopes = basis.gradients(x).flatten(2)
    energy = torch.einsum("n,njd,nkd->jk", w, slopes, slopes)
    torch.testing.assert_close(
        energy, basis.rates.diag(), rtol=0, atol=2e-4 * float(basis.rates[-1])
    )


@bases
def test_derivatives_are_those_of_autograd(basis: Eigenfunctions) -> None:
    x = points(basis)

    def f(point: Tensor) -> Tensor:
        return basis.values(point[None])[0]

    torch.testing.assert_close(basis.gradients(x), vmap(jacrev(f))(x), rtol=1e-6, atol=1e-6)
    trace = vmap(hessian(f))(x).diagonal(dim1=2, dim2=3).sum(dim=2)
    torch.testing.assert_close(basis.laplacians(x), trace, rtol=1e-6, atol=1e-5)


@bases
def test_they_are_eigenfunctions(basis: Eigenfunctions) -> None:
    x = points(basis)
    found = InfinitesimalGenerator(basis.process)(basis)(x)
    scale = 1e-6 if basis is LINE else 5e-3
    torch.testing.assert_close(
        found, basis.generated(x), rtol=0, atol=scale * float(basis.rates[-1])
    )


@bases
@pytest.mark.parametrize("derivative", [0, 1, 2])
def test_a_series_is_one_spline(basis: Eigenfunctions, derivative: int) -> None:
    x, alpha = points(basis), torch.linspace(-1, 1, 12).double()
    shared = basis.series(x, alpha, derivative)
    torch.testing.assert_close(shared, basis.series(x, alpha.expand(len(x), -1), derivative))


@bases
def test_the_wider_basis_begins_with_the_basis(basis: Eigenfunctions) -> None:
    wide = basis.doubled()
    assert wide.size > basis.size
    x = points(basis)
    torch.testing.assert_close(wide.values(x)[:, :12], basis.values(x), rtol=1e-6, atol=1e-6)
    clock = basis.default_clock()
    assert clock.sigma_min == pytest.approx(0.25 * float(basis.process.splines.widths.max()))
    last = 0.5 * clock.sigma_max**2
    assert math.exp(float(basis.eigenvalues[0]) * last) == pytest.approx(math.exp(-8))


def test_mistakes() -> None:
    process = LINE.process
    with pytest.raises(ValueError, match="a spline for each"):
        Eigenfunctions(process, LINE.rates, LINE.coefficients[:, :3])
    with pytest.raises(ValueError, match="positive and not decrease"):
        Eigenfunctions(process, LINE.rates.flip(0), LINE.coefficients)
    with pytest.raises(TypeError, match="process must be"):
        Eigenfunctions.of(Torus(), 3)  # type: ignore[arg-type]


def same(basis: Functions) -> Features:
    return Features(basis.values, basis.process, basis.dim, basis.size)


@pytest.mark.parametrize(
    "basis", [TensorHermite(2, 3, OrnsteinUhlenbeck(0.7, 1.3)), Fourier.lattice(2, 5)], ids=repr
)
def test_features_are_differentiated(basis: TensorHermite | Fourier) -> None:
    x = torch.randn(9, 2, generator=torch.Generator().manual_seed(0)).double()
    features, alpha = same(basis), torch.linspace(-1, 1, basis.size).double()
    torch.testing.assert_close(features.values(x), basis.values(x))
    torch.testing.assert_close(features.gradients(x), basis.gradients(x))
    torch.testing.assert_close(features.laplacians(x), basis.laplacians(x))
    torch.testing.assert_close(features.generated(x), basis.eigenvalues * basis.values(x))
    for derivative in range(3):
        for coefficients in (alpha, alpha * x[:, :1]):
            torch.testing.assert_close(
                features.series(x, coefficients, derivative),
                basis.series(x, coefficients, derivative),
            )


def test_an_asymmetric_process_generates_by_its_symmetric_part() -> None:
    process = CriticallyDamped(dim=1)
    features = Features(lambda x: torch.stack((x[:, 0] * x[:, 1], x[:, 1] ** 2), 1), process, 2, 2)
    x = torch.tensor([[1.0, 3.0]]).double()
    expected = SymmetricPart(process)(features)(x)
    torch.testing.assert_close(features.generated(x), expected)
    assert not torch.allclose(InfinitesimalGenerator(process)(features)(x), expected)


def test_features_check_their_function(tmp_path: object) -> None:
    x, process = torch.zeros(2, 1).double(), OrnsteinUhlenbeck()
    with pytest.raises(ValueError, match=r"function must map points \(2, 1\) to"):
        Features(lambda x: x[:, 0], process, 1, 1).values(x)
    with pytest.raises(TypeError, match="function must be a function"):
        Features(3, process, 1, 1)  # type: ignore[arg-type]
    path = f"{tmp_path}/features.safetensors"
    save(Features(torch.sin, process, 1, 1), path)
    again = load(path, given={"function": torch.sin})
    torch.testing.assert_close(again.values(x + 1), torch.sin(x + 1))
    with pytest.raises(ValueError, match="function"):
        load(path)
