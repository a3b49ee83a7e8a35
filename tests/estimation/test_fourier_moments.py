from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from oism import Brownian, Fourier, Hermite
from oism.basis import product_lattice
from oism.estimation import FourierMoments, fold_of

LATTICES = {
    "circle": Fourier.lattice(1, 400),
    "T2": Fourier.lattice(2, 30),
    "T3": Fourier.lattice(3, 6),
    "T4": Fourier.lattice(4, 3),
}
lattices = pytest.mark.parametrize("basis", LATTICES.values(), ids=LATTICES.keys())


def angles(n: int, dim: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(10 * dim + seed)
    return 1.5 * torch.randn(n, dim, generator=generator, dtype=torch.float64) + 0.3


def positive(n: int) -> Tensor:
    return 0.1 + torch.rand(n, generator=torch.Generator().manual_seed(n), dtype=torch.float64)


def direct(x: Tensor, w: Tensor, zeta: Tensor) -> Tensor:
    """Return Σ w e^{-iζ·x} / Σ w, wave by wave in NumPy."""
    points, weights = x.numpy(), w.numpy() / float(w.sum())
    return torch.from_numpy(
        np.array([np.sum(weights * np.exp(-1j * (points @ k))) for k in zeta.numpy()])
    )


def error(left: Tensor, right: Tensor) -> float:
    return float((left - right).abs().max())


@lattices
@pytest.mark.parametrize("multiple", [1, 2])
def test_averages_are_those_of_exponentials(basis: Fourier, multiple: int) -> None:
    x, w = angles(300, basis.dim), positive(300)
    moments = FourierMoments(basis, 3, squares=True).update(x, w)
    averages = moments.averages() if multiple == 1 else moments.doubled()
    zeta, fold = multiple * moments.frequencies, fold_of(x, 3)
    assert averages.total.dtype == torch.complex128
    assert error(averages.total, direct(x, w, zeta)) < 2e-13
    for k in range(3):
        inside = fold == k
        assert error(averages.heldout[k], direct(x[inside], w[inside], zeta)) < 2e-13
        assert error(averages.training[k], direct(x[~inside], w[~inside], zeta)) < 2e-13


@lattices
def test_every_sum_and_difference_of_frequencies_is_averaged(basis: Fourier) -> None:
    xi = basis.frequencies
    known = {tuple(zeta) for zeta in product_lattice(basis).tolist()}
    known |= {tuple(-z for z in zeta) for zeta in known} | {(0.0,) * basis.dim}
    products = torch.cat([(xi[:, None] + side * xi).flatten(0, 1) for side in (-1, 1)])
    assert {tuple(zeta) for zeta in products.tolist()} <= known
    assert len(known) == 2 * len(product_lattice(basis)) + 1
    radius = float(xi.square().sum(dim=1).max()) ** 0.5
    assert float(product_lattice(basis).square().sum(dim=1).max()) <= 4 * radius**2 + 1e-9


def test_any_integer_frequencies_are_accepted() -> None:
    basis = Fourier(torch.tensor([[1.0, 0.0], [-1.0, 2.0], [0.0, 3.0]]))
    moments = FourierMoments(basis).update(angles(100, 2))
    ones = torch.ones(100, dtype=torch.float64)
    exact = direct(angles(100, 2), ones, moments.frequencies)
    assert error(moments.averages().total, exact) < 2e-13


@lattices
def test_averages_give_the_products_of_gradients(basis: Fourier) -> None:
    # 2 cos ξ·x cos η·x = cos(ξ - η)·x + cos(ξ + η)·x, for the last two frequencies of the basis.
    x = angles(80, basis.dim)
    moments = FourierMoments(basis).update(x)
    places = {tuple(zeta): k for k, zeta in enumerate(moments.frequencies.tolist())}
    xi, eta = basis.frequencies[-1], basis.frequencies[-2]

    def cosine(zeta: Tensor) -> Tensor:
        key = tuple(zeta.tolist())
        place = places[key] if key in places else places[tuple(-z for z in key)]
        return moments.averages().total[place].real

    exact = (2 * (x @ xi).cos() * (x @ eta).cos()).mean()
    assert error(cosine(xi - eta) + cosine(xi + eta), exact) < 1e-13


def test_doubled_waves_give_the_variances() -> None:
    x = angles(500, 2)
    moments = FourierMoments(Fourier.lattice(2, 5), squares=True).update(x)
    phase = x @ moments.frequencies.mT
    mean, double = moments.averages().total, moments.doubled().total
    cosine = 0.5 * (1 + double.real) - mean.real.square()
    assert error(cosine, phase.cos().var(dim=0, correction=0)) < 1e-13
    sine = 0.5 * (1 - double.real) - mean.imag.square()
    assert error(sine, phase.sin().var(dim=0, correction=0)) < 1e-13


@lattices
def test_points_are_taken_modulo_2_pi(basis: Fourier) -> None:
    x = angles(200, basis.dim)
    turns = torch.randint(-3, 4, x.shape, generator=torch.Generator().manual_seed(0)).double()
    moments = [
        FourierMoments(basis, 1, squares=True).update(y) for y in (x, x + 2 * math.pi * turns)
    ]
    # A coordinate of size 20 has an error of 20ε, multiplied by the frequency of a wave.
    slack = 40 * float(product_lattice(basis).abs().max()) * 2.2e-16
    assert error(moments[0].averages().total, moments[1].averages().total) < slack
    assert error(moments[0].doubled().total, moments[1].doubled().total) < 2 * slack


def test_the_error_of_a_large_offset_is_its_rounding() -> None:
    basis, noise = Fourier.lattice(1, 25), angles(1000, 1)
    x = 1e6 + noise
    moments = FourierMoments(basis, 1).update(x)
    # The phase ζx is exact to ζ 1e6 ε: subtract whole turns with 2π in extended precision.
    turn = 2 * (np.longdouble(math.pi) + np.longdouble(1.2246467991473532e-16))
    angle = np.remainder(x.numpy().astype(np.longdouble), turn).astype(np.float64)
    exact = direct(torch.from_numpy(angle), torch.ones(1000).double(), moments.frequencies)
    assert error(moments.averages().total, exact) < 10 * 1e6 * 2.2e-16
    moved = torch.exp(-1e6j * moments.frequencies[:, 0]) * direct(
        noise, torch.ones(1000).double(), moments.frequencies
    )
    assert error(moments.averages().total, moved) < 10 * 1e6 * 2.2e-16


def test_points_at_plus_and_minus_pi_are_equal() -> None:
    ends = [math.pi, -math.pi, 3 * math.pi, math.nextafter(math.pi, 0), math.nextafter(math.pi, 4)]
    x = torch.tensor(ends, dtype=torch.float64)[:, None]
    total = FourierMoments(Fourier.lattice(1, 25)).update(x).averages().total
    signs = (-1.0) ** torch.arange(1, 11, dtype=torch.float64)
    assert error(total, signs + 0j) < 1e-12


@lattices
def test_one_point_many_times(basis: Fourier) -> None:
    x = angles(1, basis.dim)
    averages = FourierMoments(basis).update(x.expand(50, -1)).averages()
    exact = torch.exp(-1j * (x @ product_lattice(basis).mT))[0]
    assert error(averages.total, exact) < 1e-12
    assert len(averages.shares) == 0


@lattices
def test_averages_of_sorted_and_drifting_rows_are_exact(basis: Fourier) -> None:
    x = angles(700, basis.dim)
    x = x[x[:, 0].argsort()]
    drifting = [part + 10.0 * k for k, part in enumerate(x.chunk(7))]
    moments = FourierMoments(basis)
    for part in drifting:
        moments.update(part)
    ones = torch.ones(700, dtype=torch.float64)
    exact = direct(torch.cat(drifting), ones, moments.frequencies)
    assert error(moments.averages().total, exact) < 1e-12


def test_the_range_is_that_of_the_columns_before_wrapping() -> None:
    x = 10 * angles(100, 2)
    moments = FourierMoments(Fourier.lattice(2, 1))
    for part in x.chunk(3):
        moments.update(part)
    assert torch.equal(moments.low, x.amin(dim=0))
    assert torch.equal(moments.high, x.amax(dim=0))


def test_averages_do_not_depend_on_the_block_size(monkeypatch: pytest.MonkeyPatch) -> None:
    basis, x = LATTICES["T4"], angles(100, 4)
    whole = FourierMoments(basis, 2).update(x).averages()
    monkeypatch.setattr(
        "oism.estimation._moments.fourier.EXPONENTIALS", 7 * len(product_lattice(basis))
    )
    pieces = FourierMoments(basis, 2).update(x).averages()
    assert error(whole.total, pieces.total) < 1e-14
    assert error(whole.heldout, pieces.heldout) < 1e-14


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_finufft_and_exponentials_agree(dim: int, monkeypatch: pytest.MonkeyPatch) -> None:
    basis, x = LATTICES[{1: "circle", 2: "T2", 3: "T3"}[dim]], angles(200, dim)
    fast = FourierMoments(basis, squares=True).update(x)
    monkeypatch.setattr("oism.estimation._moments.fourier.NUFFT_DIM", 0)
    slow = FourierMoments(basis, squares=True).update(x)
    assert error(fast.averages().training, slow.averages().training) < 2e-13
    assert error(fast.doubled().heldout, slow.doubled().heldout) < 2e-13


@settings(max_examples=15)
@given(
    dim=st.integers(1, 4),
    n=st.integers(1, 12),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    reach=st.sampled_from([1, 2]),
)
def test_shapes_dtypes_and_bounds(dim: int, n: int, dtype: torch.dtype, reach: int) -> None:
    basis = Fourier.lattice(dim, reach)
    moments = FourierMoments(basis, 2).update(angles(n, dim, n).to(dtype))
    averages = moments.averages()
    assert averages.total.shape == (len(product_lattice(basis)),)
    assert averages.total.dtype == averages.heldout.dtype == torch.complex128
    assert averages.fitting().shape == (1 + len(averages.shares), len(product_lattice(basis)))
    assert bool((averages.fitting().abs() <= 1 + 1e-13).all())
    exact = direct(
        angles(n, dim, n).to(dtype).double(), torch.ones(n).double(), moments.frequencies
    )
    assert error(averages.total, exact) < 1e-13


@lattices
@pytest.mark.parametrize("squares", [False, True])
def test_reflected_moments_are_those_of_the_mirror_images(basis: Fourier, squares: bool) -> None:
    x, w = angles(60, basis.dim), positive(60)
    fold = torch.arange(60) % 3
    moments = FourierMoments(basis, 3, squares=squares).update(x, w, fold=fold)
    before = moments.averages().total.clone()
    subsets = [[j] for j in range(basis.dim)] + [list(range(basis.dim)), []]
    for mirrored in subsets:
        columns = torch.tensor([j in mirrored for j in range(basis.dim)])
        images = [x]
        for j in mirrored:
            flip = torch.ones(basis.dim, dtype=torch.float64)
            flip[j] = -1
            images += [flip * image for image in images]
        several = FourierMoments(basis, 3, squares=squares)
        for image in images:
            several.update(image, w / len(images), fold=fold)
        reflected = moments.reflected(columns)
        for kind in ("averages", "doubled") if squares else ("averages",):
            found, exact = getattr(reflected, kind)(), getattr(several, kind)()
            for part in ("total", "training", "heldout"):
                assert error(getattr(found, part), getattr(exact, part)) < 1e-12
        assert reflected.count == 60
        torch.testing.assert_close(reflected.weight, moments.weight)
        torch.testing.assert_close(reflected.averages().counts, moments.averages().counts)
        if len(mirrored) == basis.dim:
            # The distribution is even: only cosines remain, and waves are real in one dimension.
            again = reflected.reflected(columns)
            assert error(again.averages().total, reflected.averages().total) < 1e-15
            if basis.dim == 1:
                assert float(reflected.averages().total.imag.abs().max()) == 0
    assert torch.equal(moments.averages().total, before), "the moments are unchanged"


def test_reflection_and_merging_commute() -> None:
    basis, columns = LATTICES["T2"], torch.tensor([True, False])
    left, right = (FourierMoments(basis).update(angles(50, 2, seed)) for seed in (1, 2))
    one = left.merge(right).reflected(columns).averages()
    two = left.reflected(columns).merge(right.reflected(columns)).averages()
    assert error(one.training, two.training) < 1e-13


def test_invalid_bases_are_rejected() -> None:
    with pytest.raises(TypeError, match="basis must be of type Fourier, got Hermite"):
        FourierMoments(Hermite(2, 2))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"basis\.process must be of type Torus, got Brownian"):
        FourierMoments(Fourier(torch.tensor([[0.5]]), Brownian()))
    with pytest.raises(TypeError, match="basis must be of type Fourier, got the class Fourier"):
        FourierMoments(Fourier)  # type: ignore[arg-type]


def test_doubled_waves_require_squares() -> None:
    moments = FourierMoments(Fourier.lattice(1, 1)).update(angles(3, 1))
    with pytest.raises(ValueError, match="squares must be True"):
        moments.doubled()
