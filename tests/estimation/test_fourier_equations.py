"""A_t and b_t on the torus, compared with averages over points and over noised points."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from oism import Fourier, Torus, fit
from oism.basis import product_lattice
from oism.estimation import FourierEquations, FourierMoments, fold_of, gather
from oism.process import Quadrature, Semigroup

FOLDS = 3
SPARSE = Fourier(torch.tensor([[0.0, 2.0], [1.0, -2.0], [3.0, 0.0], [2.0, 3.0]]))
BASES = {
    "circle": Fourier.lattice(1, 25),
    "T2": Fourier.lattice(2, 5),
    "T2, not a full lattice": SPARSE,
    "T3": Fourier.lattice(3, 2),
    "T4": Fourier.lattice(4, 2),
}
bases = pytest.mark.parametrize("basis", BASES.values(), ids=BASES.keys())
planar = pytest.mark.parametrize(
    "basis", [basis for basis in BASES.values() if basis.dim <= 2], ids=list(BASES)[:3]
)
TIMES = torch.tensor([0.0, 0.02, 0.7], dtype=torch.float64)


def points(dim: int, n: int = 12) -> Tensor:
    generator = torch.Generator().manual_seed(dim)
    return 0.4 + torch.randn(n, dim, generator=generator, dtype=torch.float64)


def moments(basis: Fourier, x: Tensor) -> FourierMoments:
    return FourierMoments(basis, FOLDS).update(x)


def equations(
    basis: Fourier, x: Tensor, part: str = "total", band: float = math.inf
) -> FourierEquations:
    sums = moments(basis, x)
    return FourierEquations.of(basis, sums.frequencies, getattr(sums.averages(), part), band)


def products(basis: Fourier, x: Tensor) -> Tensor:
    """∇φ_k·∇φ_ℓ and Δφ_k at points, in one row: A and b are averages of these."""
    jet = basis.jet(x)
    pairs = torch.einsum("nki,nli->nkl", jet.gradients, jet.gradients).flatten(1)
    return torch.cat((pairs, jet.laplacians), dim=1)


def noised(basis: Fourier, x: Tensor, t: float) -> tuple[Tensor, Tensor]:
    """The same for each point, averaged over the noise by quadrature."""
    rule = Quadrature(24 + 2 * int(basis.frequencies.abs().max()))
    rows = Semigroup(Torus(), t, rule)(lambda y: products(basis, y))(x)
    return rows[:, : -basis.size].reshape(len(x), basis.size, -1), rows[:, -basis.size :]


def assert_near(got: Tensor, expected: Tensor, relative: float = 1e-12) -> None:
    torch.testing.assert_close(
        got, expected, rtol=0, atol=relative * float(expected.abs().max()), check_stride=False
    )


@bases
def test_equations_at_time_zero_are_averages_over_the_points(basis: Fourier) -> None:
    x = points(basis.dim)
    own, t = equations(basis, x), torch.zeros(1, dtype=torch.float64)
    rows = products(basis, x).mean(dim=0)
    assert_near(own.dense(t)[0], rows[: -basis.size].reshape(basis.size, -1))
    values = (basis.eigenvalues * basis(x)).mean(dim=0)
    assert_near(own.right(t)[0], values)
    assert_near(own.right(t)[0], rows[-basis.size :])  # on the torus λφ = Δφ


@planar
@pytest.mark.parametrize("part", ["total", "training", "heldout"])
def test_equations_at_later_times_are_averages_over_noised_points(
    basis: Fourier, part: str
) -> None:
    x = points(basis.dim)
    own = equations(basis, x, part)
    dense, right = own.dense(TIMES), own.right(TIMES)
    fold = fold_of(x, FOLDS)
    rows = {
        "total": [fold >= 0],
        "training": [fold != one for one in torch.unique(fold)],
        "heldout": [fold == one for one in torch.unique(fold)],
    }[part]
    batch = () if part == "total" else (len(rows),)
    assert len(rows) > 1 or part == "total"
    assert dense.shape == (3, *batch, basis.size, basis.size)
    assert right.shape == (3, *batch, basis.size)
    for i, t in enumerate(TIMES.tolist()):
        pairs, values = noised(basis, x, t)
        expected = torch.stack([pairs[own].mean(dim=0) for own in rows])
        assert_near(dense[i].reshape(expected.shape), expected)
        expected = torch.stack([values[own].mean(dim=0) for own in rows])
        assert_near(right[i].reshape(expected.shape), expected)


@bases
def test_the_characteristic_function_solves_the_heat_equation(basis: Fourier) -> None:
    x = points(basis.dim)
    own = equations(basis, x)
    direct = torch.exp(-1j * (x @ own.lattice.mT)).mean(dim=0)
    for i, t in enumerate(TIMES.tolist()):
        decay = torch.exp(-t * own.lattice.norm(dim=1) ** 2)
        torch.testing.assert_close(own.characteristic(TIMES)[i], decay * direct, rtol=0, atol=1e-13)


@bases
def test_the_operator_agrees_with_the_matrix(basis: Fourier) -> None:
    own = equations(basis, points(basis.dim))
    dense = own.dense(TIMES)
    generator = torch.Generator().manual_seed(1)
    operator = own.operator(TIMES)
    for _ in range(2):
        alpha = torch.randn(len(TIMES), own.size, generator=generator, dtype=torch.float64)
        assert_near(operator(alpha), (dense @ alpha[..., None])[..., 0])


@planar
def test_the_operator_agrees_with_the_matrix_for_many_folds(basis: Fourier) -> None:
    own = equations(basis, points(basis.dim), "training")
    dense = own.dense(TIMES)
    alpha = torch.linspace(-1, 2, dense.shape[1] * own.size * 3, dtype=torch.float64)
    alpha = alpha.reshape(*dense.shape[:2], own.size)
    expected = (dense @ alpha[..., None])[..., 0]
    assert_near(own.operator(TIMES)(alpha.flatten(0, 1)), expected.flatten(0, 1))
    some = torch.tensor([2, 0])
    got = own.operator(TIMES, some)(alpha[:, some].flatten(0, 1))
    assert_near(got, expected[:, some].flatten(0, 1))


@pytest.mark.parametrize("negligible", [1e-4, 1e-8, 1e-17])
def test_a_smoother_density_needs_a_coarser_grid(negligible: float) -> None:
    own = equations(Fourier.lattice(2, 100), points(2))
    t = torch.tensor([0.3], dtype=torch.float64)
    width = own.width(0.3, negligible)
    assert math.exp(-0.3 * width**2) <= negligible < math.exp(-0.3 * (width - 1) ** 2)
    assert own.width(0.0) == own.width(1e-9) == 20
    alpha = torch.linspace(-1, 1, own.size, dtype=torch.float64)[None]
    exact = (own.dense(t) @ alpha[..., None])[..., 0]
    got = own.operator(t, negligible=negligible)(alpha)
    error = float((got - exact).abs().max() / exact.abs().max())
    assert error < max(10 * negligible, 1e-12)
    assert own.band.transforms(width)[0].points < 0.7 * own.band.transforms(20)[0].points


@pytest.mark.parametrize(
    ("basis", "band"),
    [(BASES["circle"], 3.0), (Fourier.lattice(2, 13), 2.5), (SPARSE, 3.0), (BASES["T3"], 1.0)],
)
def test_a_band_is_a_leading_block(basis: Fourier, band: float) -> None:
    x = points(basis.dim)
    full, part = equations(basis, x), equations(basis, x, band=band)
    inside = basis.frequencies.norm(dim=1) <= band
    size = part.size
    assert size == 2 * int(inside.sum()) < full.size
    assert torch.equal(part.eigenvalues, full.eigenvalues[:size])
    assert_near(part.dense(TIMES), full.dense(TIMES)[..., :size, :size], 1e-14)
    assert_near(part.right(TIMES), full.right(TIMES)[..., :size], 1e-14)
    assert part.reach == int(basis.frequencies[inside].abs().max())
    alpha = torch.linspace(-1, 1, 3 * size, dtype=torch.float64).reshape(3, size)
    expected = (part.dense(TIMES) @ alpha[..., None])[..., 0]
    assert_near(part.operator(TIMES)(alpha), expected)


@bases
def test_sample_means_give_positive_semidefinite_matrices(basis: Fourier) -> None:
    # Fewer points than functions: at t = 0 the matrix is singular, without negative eigenvalues.
    few = 1 + basis.size // (2 * basis.dim)
    dense = equations(basis, points(basis.dim, few)).dense(TIMES)
    assert torch.equal(dense, dense.mT)
    values = torch.linalg.eigvalsh(dense)
    assert bool((values[:, 0] > -1e-13 * values[:, -1]).all())
    rank = few * basis.dim
    assert float(values[0, basis.size - rank - 1].abs()) < 1e-13 * float(values[0, -1])
    assert bool((values[2] > 0).all())


@bases
def test_functions_are_orthogonal_at_large_times(basis: Fourier) -> None:
    late = torch.tensor([60.0], dtype=torch.float64)
    own = equations(basis, points(basis.dim))
    rates = -basis.eigenvalues
    assert_near(own.dense(late)[0], torch.diag(rates), 1e-15)
    assert float(own.right(late).abs().max()) < 1e-20


def test_frequencies_may_have_either_sign() -> None:
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(60, 2, generator=generator, dtype=torch.float64)
    lattice = Fourier.lattice(2, 5).frequencies
    signs = torch.tensor([1.0, -1.0]).repeat(len(lattice))[: len(lattice), None].double()
    basis = Fourier(signs * lattice)
    moments = gather(x, basis)
    assert isinstance(moments, FourierMoments)
    equations = FourierEquations.of(basis, moments.frequencies, moments.averages().total[None])
    t = torch.zeros(1, dtype=torch.float64)
    gradients = basis.gradients(x)
    matrix = torch.einsum("nkd,nld->kl", gradients, gradients) / len(x)
    right = (basis.eigenvalues * basis.values(x)).mean(dim=0)
    torch.testing.assert_close(equations.dense(t)[0, 0], matrix, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(equations.right(t)[0, 0], right, rtol=1e-11, atol=1e-11)
    alpha = torch.randn(1, basis.size, generator=generator, dtype=torch.float64)
    applied = equations.operator(t)(alpha)
    torch.testing.assert_close(applied[0], matrix @ alpha[0], rtol=1e-11, atol=1e-11)
    one, other = (fit(x, b, ridge=0.01).score(x, 0.1) for b in (basis, Fourier(lattice)))
    torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-8)


def test_a_band_without_functions_is_rejected() -> None:
    basis = Fourier(torch.tensor([[5.0]]))
    lattice = product_lattice(basis)
    with pytest.raises(ValueError, match="band must hold at least one frequency"):
        FourierEquations.of(basis, lattice, torch.zeros(len(lattice), dtype=torch.complex128), 2.0)
    assert bool(fit(torch.zeros(9, 1), basis, ridge=0.1).score(torch.zeros(1, 1), 10.0).isfinite())
