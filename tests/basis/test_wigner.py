"""Functions of rotations and of unit quaternions: identities, transforms, scattered sums."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation
from torch import Tensor
from torch.func import jacrev, vmap

from oism.basis import Hyperspherical, Wigner
from oism.basis._wigner import QuaternionBasis
from oism.basis._wigner_transform import ScatteredWigner
from oism.process import CarreDuChamp, InfinitesimalGenerator, Quadrature, Semigroup

BASES: dict[str, QuaternionBasis] = {
    "rotations, degree 1": Wigner(1),
    "rotations, degree 3": Wigner(3),
    "three-sphere, degree 1": Hyperspherical(1),
    "three-sphere, degree 5": Hyperspherical(5),
}
bases = pytest.mark.parametrize("basis", BASES.values(), ids=BASES.keys())


def points(n: int, seed: int = 0) -> Tensor:
    """Return unit quaternions, the first four on the circles where Euler angles are singular."""
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(n, 4, generator=generator, dtype=torch.float64)
    for row, (first, second) in enumerate(((1, 2), (0, 3), (1, 2), (0, 3))):
        if row < n:
            q[row, [first, second]] = 0.0
    unit: Tensor = q / q.norm(dim=1, keepdim=True)
    return unit


def coefficients(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_the_number_of_functions() -> None:
    assert Wigner(16).size == sum((2 * k + 1) ** 2 for k in range(1, 17)) == 6544
    assert Wigner(32).size == 47904
    assert Hyperspherical(6).size == sum((k + 1) ** 2 for k in range(1, 7))


@bases
def test_functions_are_sorted_and_a_truncation_is_a_prefix(basis: QuaternionBasis) -> None:
    rates = basis.eigenvalues
    assert rates.dtype == torch.float64
    assert bool((rates < 0).all())
    assert bool((rates.diff() <= 0).all())
    q, wide = points(6), basis.doubled()
    short = wide.truncated(-float(rates[-1]))
    assert short == basis
    assert torch.equal(wide.eigenvalues[: basis.size], rates)
    torch.testing.assert_close(wide(q)[:, : basis.size], basis(q), rtol=0, atol=1e-13)
    assert wide.truncated(0.0).degree == 1
    assert wide.truncated(math.inf) is wide


@bases
def test_eigenfunctions_of_the_generator_by_autodiff(basis: QuaternionBasis) -> None:
    q = points(8)
    generated = InfinitesimalGenerator(basis.process)(basis)(q)
    torch.testing.assert_close(generated, basis.eigenvalues * basis(q), rtol=0, atol=3e-13)


@bases
def test_gradients_agree_with_autodiff_and_are_tangent(basis: QuaternionBasis) -> None:
    q = points(8)
    jacobian = vmap(jacrev(lambda y: basis(y[None])[0]))(q)
    found = basis.gradients(q)
    torch.testing.assert_close(found, jacobian, rtol=0, atol=1e-12)
    assert float((found * q[:, None]).sum(dim=2).abs().max()) < 1e-13


@bases
def test_laplacians_are_those_of_the_unit_sphere(basis: QuaternionBasis) -> None:
    q = points(5)
    expected = basis.eigenvalues * basis(q) / basis.process.rate
    torch.testing.assert_close(basis.laplacians(q), expected, rtol=1e-14, atol=0)


@bases
def test_orthonormality_by_quadrature(basis: QuaternionBasis) -> None:
    q, weights = basis.process.invariant.quadrature(4, 4 * basis.degree + 3)
    values = torch.cat((torch.ones(len(q), 1).double(), basis(q)), dim=1)
    identity = torch.eye(basis.size + 1, dtype=torch.float64)
    torch.testing.assert_close(
        values.mT @ (weights[:, None] * values), identity, rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("basis", [Wigner(2), Hyperspherical(3)])
def test_products_and_carre_du_champ_by_their_expansions(basis: QuaternionBasis) -> None:
    wide, (nodes, weights) = basis.doubled(), basis.rule()
    values = basis(nodes)
    full = torch.cat((torch.ones(len(nodes), 1).double(), wide(nodes)), dim=1)
    rates = torch.cat((torch.zeros(1).double(), wide.eigenvalues))
    beta = torch.einsum("m,mj,mk,mn->jkn", weights, values, values, full)
    q = points(7)
    at, gradients = basis(q), basis.gradients(q)
    there = torch.cat((torch.ones(len(q), 1).double(), wide(q)), dim=1)
    products = torch.einsum("jkn,in->ijk", beta, there)
    torch.testing.assert_close(products, at[:, :, None] * at[:, None], rtol=0, atol=1e-12)
    own = basis.eigenvalues
    factor = 0.5 * (rates - own[:, None, None] - own[:, None])
    field = torch.einsum("jkn,in->ijk", factor * beta, there)
    direct = basis.process.rate * gradients @ gradients.mT
    torch.testing.assert_close(field, direct, rtol=0, atol=2e-12)
    first = CarreDuChamp(basis.process)(lambda y: basis(y)[:, :1], lambda y: basis(y)[:, 1:2])(q)
    torch.testing.assert_close(first[:, 0], direct[:, 0, 1], rtol=0, atol=1e-12)


@bases
@pytest.mark.parametrize("t", [1e-6, 0.05, 0.6])
def test_eigenfunctions_of_the_semigroup_by_quadrature(basis: QuaternionBasis, t: float) -> None:
    q = points(3)
    averaged = Semigroup(basis.process, t, Quadrature(32))(basis)(q)
    expected = torch.exp(basis.eigenvalues * t) * basis(q)
    torch.testing.assert_close(averaged, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("basis", [Wigner(32), Hyperspherical(64)])
def test_the_addition_theorem_up_to_degree_64(basis: QuaternionBasis) -> None:
    """Σ φ_k(p) φ_k(q) over one degree l is (l + 1) sin((l + 1)θ)/sin θ, cos θ = ⟨p, q⟩."""
    p, q = points(6), points(6, seed=1)
    products = basis(p) * basis(q)
    degrees = torch.from_numpy(basis._functions.degrees)
    theta = torch.acos((p * q).sum(dim=1))
    for degree in (2, 8, 32, 64):
        found = products[:, degrees == degree].sum(dim=1)
        expected = (degree + 1) * torch.sin((degree + 1) * theta) / torch.sin(theta)
        error = (found - expected).abs().max() / (degree + 1) ** 2
        assert float(error) < 1e-13


def test_functions_of_degree_one_are_the_entries_of_rotation_matrices() -> None:
    q = points(40)
    matrices = torch.from_numpy(Rotation.from_quat(q[:, [1, 2, 3, 0]].numpy()).as_matrix())
    entries = math.sqrt(3) * matrices.flatten(1)
    values = Wigner(1)(q)
    change = torch.linalg.lstsq(values, entries).solution
    torch.testing.assert_close(values @ change, entries, rtol=0, atol=1e-13)
    torch.testing.assert_close(change @ change.mT, torch.eye(9).double(), rtol=0, atol=1e-13)


def test_parity_under_the_change_of_sign() -> None:
    q = points(9)
    assert torch.equal(Wigner(4)(-q), Wigner(4)(q))
    basis = Hyperspherical(4)
    sign = (-1.0) ** torch.from_numpy(basis._functions.degrees)
    torch.testing.assert_close(basis(-q), sign * basis(q), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("basis", "rate"), [(Wigner(16), 40.0), (Wigner(5), math.inf), (Hyperspherical(7), 60.0)]
)
def test_grid_transforms_equal_direct_sums(basis: QuaternionBasis, rate: float) -> None:
    own, wide = basis.transforms(rate)
    high = basis.doubled().truncated(rate)
    assert (own.size, wide.size, own.points) == (basis.size, high.size, wide.points)
    exact = basis._step * (2 * basis.degree + high.degree)
    angles = next(k for k in range(1, 999) if k > (exact // basis._step) and _is_fast(k))
    nodes, weights = basis.process.invariant.quadrature(4, angles)
    assert len(nodes) == own.points
    rows = torch.randperm(len(nodes), generator=torch.Generator().manual_seed(0))[:60]
    for functions, transform in ((basis, own), (high, wide)):
        alpha = coefficients(2, functions.size)
        scale = math.sqrt(functions.size)
        found = transform.synthesise(alpha)[:, rows]
        expected = alpha @ functions(nodes[rows]).mT
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12 * scale)
        again = transform.analyse(transform.synthesise(alpha))
        torch.testing.assert_close(again, alpha, rtol=0, atol=1e-12)
    field = torch.zeros(len(nodes), dtype=torch.float64)
    field[rows] = coefficients(len(rows))
    expected = (field[rows] * weights[rows]) @ basis(nodes[rows])
    torch.testing.assert_close(own.analyse(field), expected, rtol=0, atol=1e-12)


def _is_fast(count: int) -> bool:
    for factor in (2, 3, 5, 7, 11):
        while count % factor == 0:
            count //= factor
    return count == 1


def test_products_on_the_grid_are_exact_where_they_must_be() -> None:
    """∫ f g ψ dπ on the small grid equals that on a larger one, for ψ of a low degree."""
    basis = Wigner(4)
    own, wide = basis.transforms(6.0)  # ψ of degree 2
    assert own.points < basis.transform().points
    f, g = coefficients(2, basis.size)
    psi = coefficients(wide.size)
    small = own.analyse(own.synthesise(f) * wide.synthesise(psi)) @ g
    nodes, weights = basis.process.invariant.quadrature(4, 25)
    values = basis(nodes)
    large = weights @ ((values @ f) * (values @ g) * (basis.doubled().truncated(6.0)(nodes) @ psi))
    torch.testing.assert_close(small, large, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("basis", [Wigner(8), Hyperspherical(9)])
def test_scattered_sums_equal_direct_sums(basis: QuaternionBasis) -> None:
    q, fast = points(40), ScatteredWigner(basis._functions)
    values = basis(q)
    for count in (1, 4):
        alpha = coefficients(count, basis.size) / math.sqrt(basis.size)
        torch.testing.assert_close(fast.series(q, alpha), alpha @ values.mT, rtol=0, atol=1e-11)
    weights = coefficients(3, len(q)).abs()
    expected = weights @ values
    error = (fast.averages(q, weights) - expected).abs().max() / expected.abs().max()
    assert float(error) < 1e-12


@pytest.mark.parametrize("basis", [Wigner(4), Hyperspherical(6)])
def test_series_are_the_same_by_every_route(
    basis: QuaternionBasis, monkeypatch: pytest.MonkeyPatch
) -> None:
    q, alpha = points(30), coefficients(basis.size) / 10
    gradient = (basis.gradients(q) * alpha[:, None]).sum(dim=1)
    generated = basis(q) @ (basis.eigenvalues * alpha)
    for fast in (1e9, 0):
        monkeypatch.setattr("oism.basis._wigner.FAST", fast)
        both = basis._gradient_and_generated(q, alpha)
        torch.testing.assert_close(both[:, :4], gradient, rtol=0, atol=1e-11)
        torch.testing.assert_close(both[:, 4], generated, rtol=0, atol=1e-11)
        torch.testing.assert_close(basis.series(q, alpha, 1), gradient, rtol=0, atol=1e-11)
        torch.testing.assert_close(basis.series(q, alpha), basis(q) @ alpha, rtol=0, atol=1e-12)
    rows = alpha.expand(len(q), -1) * torch.linspace(0, 1, len(q)).double()[:, None]
    expected = gradient * torch.linspace(0, 1, len(q)).double()[:, None]
    torch.testing.assert_close(basis.series(q, rows, 1), expected, rtol=0, atol=1e-12)


def test_averages_in_blocks_and_by_finufft_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    basis, q, weights = Wigner(5), points(300), coefficients(2, 300).abs()
    monkeypatch.setattr("oism.basis._wigner.FAST", 0)
    fast = basis.averages(q, weights)
    monkeypatch.setattr("oism.basis._wigner.FAST", 1e9)
    monkeypatch.setattr("oism.basis._wigner.BLOCK", 70 * basis.size)
    torch.testing.assert_close(basis.averages(q, weights), fast, rtol=0, atol=1e-9)


@bases
@given(rows=st.integers(0, 3), dtype=st.sampled_from([torch.float32, torch.float64]))
def test_shapes_and_dtypes(basis: QuaternionBasis, rows: int, dtype: torch.dtype) -> None:
    jet = basis.jet(torch.full((rows, 4), 0.5, dtype=dtype))
    assert jet.values.shape == jet.laplacians.shape == (rows, basis.size)
    assert jet.gradients.shape == (rows, basis.size, 4)
    assert {jet.values.dtype, jet.gradients.dtype, jet.laplacians.dtype} == {dtype}


def test_bad_degrees_and_points_are_rejected() -> None:
    with pytest.raises(ValueError, match="degree must be an integer >= 1, got 0"):
        Wigner(0)
    with pytest.raises(ValueError, match="degree must be at most 64, got 65"):
        Wigner(65)
    with pytest.raises(ValueError, match=r"x must have shape \(n, 4\), got \(2, 3\)"):
        Hyperspherical(2)(torch.zeros(2, 3))
