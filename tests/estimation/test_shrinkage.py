from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.fft
import scipy.optimize
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from oism import Fourier, Hermite, TensorHermite
from oism.basis._hermite import TensorGram, gram, tabulate
from oism.estimation import (
    FourierEquations,
    FourierMoments,
    GaussianMoments,
    HermiteFamilyMoments,
    HermiteMoments,
    JamesStein,
    Modulation,
    Monotone,
    SampleMeans,
    Shrinkage,
    TensorHermiteMoments,
    fold_of,
    moments_of,
)
from oism.estimation._moments.fourier import DENSITY_FLOOR, project_fourier

ALL: dict[str, Shrinkage] = {
    "sample means": SampleMeans(),
    "james-stein": JamesStein(),
    "modulation": Modulation(),
    "monotone": Monotone(),
}
every = pytest.mark.parametrize("shrinkage", ALL.values(), ids=ALL.keys())
BREAKING: dict[str, Shrinkage] = {
    "modulation": Modulation(project=False),
    "monotone": Monotone(project=False),
}
TIMES = torch.tensor([0.0, 1e-3, 1e-2, 0.1, 1.0], dtype=torch.float64)


def numbers(seed: int, size: int, batch: tuple[int, ...] = ()) -> tuple[Tensor, Tensor]:
    """Return means and variances, some of them mostly noise."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(*batch, size, generator=generator, dtype=torch.float64)
    variances = 0.05 + torch.rand(*batch, size, generator=generator, dtype=torch.float64)
    return 1.5 * noise / torch.arange(1, size + 1).sqrt(), variances


def claw(n: int, dim: int, seed: int = 0) -> Tensor:
    """Return samples of the Bart Simpson density in each coordinate: N(0, 1) with five peaks."""
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(n, dim, generator=generator, dtype=torch.float64)
    finger = torch.randint(10, (n, dim), generator=generator)
    return torch.where(finger < 5, finger / 2 - 1 + 0.1 * z, z)


def two_clusters(n: int, dim: int) -> Tensor:
    z = torch.randn(n, dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return z.sign() + 0.1 * z


def positive(n: int) -> Tensor:
    return 0.1 + torch.rand(n, generator=torch.Generator().manual_seed(n), dtype=torch.float64)


def lowest(matrices: Tensor) -> float:
    """Return the smallest eigenvalue relative to the largest."""
    values = torch.linalg.eigvalsh(matrices)
    return float((values[..., 0] / values[..., -1]).min())


# --- the factors -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_james_stein_minimises_the_unbiased_estimate_of_the_risk(seed: int) -> None:
    means, variances = numbers(seed, 6)
    gamma = JamesStein().factors(means, variances, -torch.arange(1.0, 7.0))

    def risk(g: float) -> float:
        return float((g**2 * variances + (1 - g) ** 2 * (means.square() - variances)).sum())

    best = scipy.optimize.minimize_scalar(risk, bounds=(0, 1), options={"xatol": 1e-9}).x
    assert float(gamma[0]) == pytest.approx(best, abs=1e-6)
    assert bool((gamma == gamma[0]).all())


def test_james_stein_has_one_factor_per_batch_which_may_be_zero() -> None:
    means, variances = numbers(1, 4, (5, 2))
    gamma = JamesStein().factors(means, variances, -torch.arange(1.0, 5.0))
    for i in range(5):
        alone = JamesStein().factors(means[i, 1], variances[i, 1], -torch.arange(1.0, 5.0))
        assert torch.equal(gamma[i, 1], alone)
    nothing = JamesStein().factors(0.1 * means, variances, -torch.arange(1.0, 5.0))
    assert bool((nothing == 0).all())
    zero = torch.zeros(3, dtype=torch.float64)
    assert bool(JamesStein()(zero, zero, zero).isfinite().all())


@pytest.mark.parametrize("seed", range(4))
def test_modulation_minimises_the_papers_estimate_of_each_risk(seed: int) -> None:
    means, variances = numbers(seed, 6)
    gamma = Modulation().factors(means, variances, -torch.arange(1.0, 7.0))
    signal = (means.square() - variances).clamp(min=0)
    for g, m, v in zip(gamma.tolist(), signal.tolist(), variances.tolist(), strict=True):
        best = scipy.optimize.minimize_scalar(
            lambda a, m=m, v=v: a**2 * v + (1 - a) ** 2 * m,
            bounds=(0, 1),
            options={"xatol": 1e-9},
        ).x
        assert g == pytest.approx(best, abs=1e-5)


def test_modulation_does_not_shrink_constants() -> None:
    zero, one = torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    assert torch.equal(Modulation().factors(one, zero, -one), one)
    assert torch.equal(Modulation().factors(zero, zero, -one), one)
    assert torch.equal(Modulation().factors(zero, one, -one), zero)


def best_monotone(means: Tensor, variances: Tensor, rates: Tensor) -> Tensor:
    """Minimise Σ γ²σ² + (1-γ)²(θ² - σ²) = Σ θ²(γ - 1 + σ²/θ²)² + … by non-negative least squares.

    A γ that does not increase with the rate is a sum of steps d ≥ 0, one at each distinct rate.
    """
    steps = (rates[:, None] <= torch.unique(rates)).double()
    root = means.abs()
    target = root * (1 - variances / means.square())
    found, _ = scipy.optimize.nnls((root[:, None] * steps).numpy(), target.numpy())
    return torch.from_numpy(steps.numpy() @ found)


RATES = {
    "distinct": [1, 2, 3, 4, 5, 6, 7],
    "ties": [1, 1, 2, 2, 2, 3, 4],
    "unsorted": [4, 1, 3, 1, 2, 9, 3],
    "all equal": [2, 2, 2, 2, 2, 2, 2],
}


@pytest.mark.parametrize("rates", RATES.values(), ids=RATES.keys())
@pytest.mark.parametrize("seed", range(4))
def test_monotone_minimises_the_risk_over_monotone_factors(rates: list[int], seed: int) -> None:
    means, variances = numbers(seed, 7)
    rate = torch.tensor(rates, dtype=torch.float64)
    gamma = Monotone().factors(means, variances, -rate)
    assert float((gamma - best_monotone(means, variances, rate)).abs().max()) < 1e-12


@settings(max_examples=30)
@given(
    seed=st.integers(0, 1000),
    rates=st.lists(st.integers(1, 5), min_size=1, max_size=8),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    batch=st.sampled_from([(), (3,), (2, 1)]),
)
def test_monotone_factors_are_monotone_and_equal_for_ties(
    seed: int, rates: list[int], dtype: torch.dtype, batch: tuple[int, ...]
) -> None:
    means, variances = (part.to(dtype) for part in numbers(seed, len(rates), batch))
    rate = torch.tensor(rates)
    gamma = Monotone().factors(means, variances, -rate.double())
    assert (gamma.shape, gamma.dtype) == (means.shape, dtype)
    assert bool(((gamma >= 0) & (gamma <= 1)).all())
    order = rate.argsort(stable=True)
    assert bool((gamma[..., order].diff() <= 0).all())
    for value in set(rates):
        shared = gamma[..., rate == value]
        assert torch.equal(shared, shared[..., :1].expand_as(shared))


def test_modulation_is_not_monotone() -> None:  # so the two estimates differ
    means, variances = torch.tensor([1.0, 2.0, 0.5]), torch.tensor([0.5, 0.5, 0.5])
    rate = torch.tensor([1.0, 2.0, 3.0])
    assert not bool((Modulation().factors(means, variances, -rate).diff() <= 0).all())
    assert bool((Monotone().factors(means, variances, -rate).diff() <= 0).all())


@every
@settings(max_examples=20)
@given(seed=st.integers(0, 1000), size=st.integers(1, 6), scale=st.floats(0.01, 100))
def test_factors_are_in_the_unit_interval_and_scale_invariant(
    shrinkage: Shrinkage, seed: int, size: int, scale: float
) -> None:
    means, variances = numbers(seed, size, (2,))
    rates = -torch.arange(1.0, size + 1)
    gamma = shrinkage.factors(means, variances, rates)
    assert gamma.shape == means.shape
    assert bool(((gamma >= 0) & (gamma <= 1)).all())
    scaled = shrinkage.factors(scale * means, scale**2 * variances, rates)
    torch.testing.assert_close(scaled, gamma, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(shrinkage(means, variances, rates), gamma * means)
    certain = shrinkage.factors(means, torch.zeros_like(means), rates)
    assert torch.equal(certain, torch.ones_like(means))  # nothing to shrink


def test_the_contract_is_enforced() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Shrinkage()  # type: ignore[abstract]


# --- on the torus ----------------------------------------------------------------------------

TORI = {
    "circle": (Fourier.lattice(1, 400), claw(300, 1)),
    "T2": (Fourier.lattice(2, 30), claw(300, 2)),
}
tori = pytest.mark.parametrize(("basis", "x"), TORI.values(), ids=TORI.keys())


def torus(basis: Fourier, x: Tensor) -> FourierMoments:
    return FourierMoments(basis, 3, squares=True).update(x, positive(len(x)))


@tori
@pytest.mark.parametrize(
    "shrinkage", [JamesStein(), *BREAKING.values()], ids=["james-stein", *BREAKING]
)
def test_waves_are_shrunk_by_their_own_variances(
    basis: Fourier, x: Tensor, shrinkage: Shrinkage
) -> None:
    moments, w = torus(basis, x), positive(len(x))
    phase = x @ moments.frequencies.mT
    waves = math.sqrt(2) * torch.stack((phase.cos(), phase.sin()), dim=-1).flatten(1)
    share = (w / w.sum())[:, None]
    means = (share * waves).sum(dim=0)
    variances = (share * (waves - means).square()).sum(dim=0) * share.square().sum()
    rates = -moments.frequencies.square().sum(dim=1).repeat_interleave(2)
    shrunk = shrinkage(means, variances, rates).reshape(-1, 2) / math.sqrt(2)
    exact = torch.complex(shrunk[:, 0], -shrunk[:, 1])
    found = moments.shrunk(shrinkage).total
    assert float((found - exact).abs().max()) < 1e-11
    assert float((found - moments.averages().total).abs().max()) > 0.01  # shrinkage has an effect


@tori
@every
def test_every_estimate_gives_positive_semidefinite_equations(
    basis: Fourier, x: Tensor, shrinkage: Shrinkage
) -> None:
    moments = torus(basis, x)
    fits = moments.shrunk(shrinkage).fitting()
    assert len(fits) == 4
    assert lowest(FourierEquations.of(basis, moments.frequencies, fits).dense(TIMES)) > -1e-13
    assert bool((fits.abs() <= 1 + 1e-12).all())


@tori
@pytest.mark.parametrize("shrinkage", BREAKING.values(), ids=BREAKING.keys())
def test_without_the_projection_equations_are_indefinite(
    basis: Fourier, x: Tensor, shrinkage: Shrinkage
) -> None:
    moments = torus(basis, x)
    for means in moments.shrunk(shrinkage).fitting():
        assert lowest(FourierEquations.of(basis, moments.frequencies, means).dense(TIMES)) < -1e-4


@tori
@every
def test_held_out_waves_are_not_shrunk(basis: Fourier, x: Tensor, shrinkage: Shrinkage) -> None:
    moments = torus(basis, x)
    before, after = moments.averages(), moments.shrunk(shrinkage)
    for name in ("heldout", "shares", "counts"):
        assert torch.equal(getattr(after, name), getattr(before, name))
    assert after.total.shape == before.total.shape
    assert after.training.shape == before.training.shape
    plain = isinstance(shrinkage, SampleMeans)
    assert torch.equal(after.total, before.total) == plain
    assert torch.equal(after.training, before.training) == plain


@tori
def test_training_waves_are_shrunk_like_a_separate_fit(basis: Fourier, x: Tensor) -> None:
    shrunk, rest = torus(basis, x).shrunk(Modulation()), fold_of(x, 3) != 1
    alone = FourierMoments(basis, 1, squares=True).update(x[rest], positive(len(x))[rest])
    exact = alone.shrunk(Modulation()).total
    assert float((shrunk.training[1] - exact).abs().max()) < 1e-11


def test_shrinkage_requires_squares() -> None:
    moments = FourierMoments(Fourier.lattice(1, 4)).update(claw(20, 1))
    moments.shrunk(SampleMeans())
    with pytest.raises(ValueError, match="squares must be True"):
        moments.shrunk(JamesStein())


@pytest.mark.parametrize("dim", [1, 2])
def test_the_projection_is_the_clipped_density(dim: int) -> None:
    moments = torus(Fourier.lattice(dim, 4), claw(50, dim))
    lattice = moments.frequencies
    means = moments.shrunk(Modulation(project=False)).fitting()
    side = scipy.fft.next_fast_len(4 * int(lattice.abs().max()) + 1, real=True)
    axis = 2 * np.pi * torch.arange(side).double() / side
    points = torch.cartesian_prod(*[axis] * dim).reshape(-1, dim)
    waves = torch.exp(1j * (points @ lattice.mT))
    density = 1 + 2 * (means @ waves.mT).real
    assert float(density.min()) < 0
    clipped = density.clamp(min=DENSITY_FLOOR)
    exact = (clipped + 0j) @ waves.conj() / clipped.sum(dim=1, keepdim=True)
    assert float((project_fourier(lattice, means) - exact).abs().max()) < 1e-13


def test_the_projection_does_not_change_densities() -> None:
    lattice = Fourier.lattice(2, 5).frequencies
    smooth = torch.exp(-lattice.square().sum(dim=1)) * torch.exp(1j * lattice[:, 0])
    assert float((project_fourier(lattice, smooth) - smooth).abs().max()) < 1e-15
    high = project_fourier(lattice, smooth, floor=0.9)
    assert float((high - smooth).abs().max()) > 0.01


# --- Hermite ---------------------------------------------------------------------------------


def products_of(moments: HermiteFamilyMoments, means: Tensor) -> Tensor:
    """Return E[φ_kφ_ℓ] for all k, ℓ of degree < order."""
    order = moments.basis.order - 1
    if isinstance(moments, HermiteMoments):
        return gram(means.mT, order)
    functions = math.comb(moments.basis.dim + 2 * order, 2 * order)
    return TensorGram(moments.basis.dim, order, 2 * order)(means[..., :functions])


CASES: dict[str, HermiteFamilyMoments] = {
    "order nine": HermiteMoments(Hermite(2, 9), 3, squares=True).update(claw(300, 2, 1)),
    "clusters": HermiteMoments(Hermite(2, 4), 3, squares=True).update(two_clusters(60, 2)),
    "products": TensorHermiteMoments(TensorHermite(2, 4), 3, squares=True).update(
        claw(60, 2).exp()
    ),
}
cases = pytest.mark.parametrize("moments", CASES.values(), ids=CASES.keys())


@cases
@every
def test_every_estimate_gives_positive_squares(
    moments: HermiteFamilyMoments, shrinkage: Shrinkage
) -> None:
    averages = moments.shrunk(shrinkage).averages
    assert float(torch.linalg.eigvalsh(products_of(moments, averages.total)).min()) > -1e-12
    if not isinstance(shrinkage, JamesStein):
        rest = torch.linalg.eigvalsh(products_of(moments, averages.training))
        assert float(rest.min()) > -1e-12


@pytest.mark.parametrize("shrinkage", BREAKING.values(), ids=BREAKING.keys())
@pytest.mark.parametrize("moments", list(CASES.values())[::2], ids=list(CASES)[::2])
def test_without_the_projection_squares_are_not_positive(
    moments: HermiteFamilyMoments, shrinkage: Shrinkage
) -> None:
    means = moments.shrunk(shrinkage).averages.total
    assert float(torch.linalg.eigvalsh(products_of(moments, means)).min()) < -1e-2


@pytest.mark.parametrize(
    "shrinkage", [JamesStein(), *BREAKING.values()], ids=["james-stein", *BREAKING]
)
def test_polynomials_are_shrunk_by_their_own_variances(shrinkage: Shrinkage) -> None:
    x, w = claw(200, 2), positive(200)
    moments = HermiteMoments(Hermite(2, 4), 3, squares=True).update(x, w)
    standard = moments.standardised()
    values = tabulate((x - standard.shift) / standard.scale, 6)
    share = (w / w.sum())[:, None, None]
    means = (share * values).sum(dim=0)
    variances = (share * (values - means).square()).sum(dim=0) * share.square().sum()
    exact = means.clone()
    for i in range(2):
        rates = -torch.arange(3.0, 7.0)
        exact[3:, i] = shrinkage(means[3:, i], variances[3:, i], rates)
    found = moments.shrunk(shrinkage).averages.total
    assert found.shape == exact.shape
    assert float((found - exact).abs().max()) < 1e-11
    assert float((found - means).abs().max()) > 0.01


def test_products_are_shrunk_by_their_own_variances() -> None:
    x = claw(200, 2)
    moments = TensorHermiteMoments(TensorHermite(2, 3), 3, squares=True).update(x)
    standard = moments.standardised()
    assert standard.rotation is not None
    table = tabulate((x @ standard.rotation.mT - standard.shift) / standard.scale, 4)
    indices = moments.indices[:15]
    values = table[:, indices[:, 0], 0] * table[:, indices[:, 1], 1]
    means, variances = values.mean(dim=0), values.var(dim=0, correction=0) / 200
    degrees = indices.sum(dim=1)
    exact = means.clone()
    high = degrees > 2
    exact[high] = Monotone()(means[high], variances[high], -degrees[high].double())
    found = moments.shrunk(Monotone(project=False)).averages.total
    assert float((found - exact).abs().max()) < 1e-11


@cases
@every
def test_held_out_polynomials_are_not_shrunk(
    moments: HermiteFamilyMoments, shrinkage: Shrinkage
) -> None:
    before, after = moments.standardised(), moments.shrunk(shrinkage)
    for name in ("shift", "scale", "low", "high"):
        assert torch.equal(getattr(after, name), getattr(before, name))
    for name in ("heldout", "shares", "counts"):
        assert torch.equal(getattr(after.averages, name), getattr(before.averages, name))
    kept = before.averages.total[: len(after.averages.total)]
    if isinstance(shrinkage, SampleMeans):
        assert torch.equal(after.averages.total, kept)
    else:
        assert float((after.averages.total - kept).abs().max()) > 0.01
        assert len(after.averages.training) == 3
        assert float(after.averages.total.flatten()[0]) == pytest.approx(1, abs=1e-14)


@every
def test_constant_columns_remain_constant(shrinkage: Shrinkage) -> None:
    x = claw(100, 2)
    x[:, 1] = 0.1
    moments = HermiteMoments(Hermite(2, 4), 3, squares=True).update(x)
    fits = moments.shrunk(shrinkage).averages.fitting()
    assert bool(fits.isfinite().all())
    assert bool((fits[:, 1:, 1] == 0).all())
    assert float((fits[:, 0, 1] - 1).abs().max()) < 1e-14


@every
@pytest.mark.parametrize("order", [1, 2])
def test_low_orders_have_nothing_to_shrink(shrinkage: Shrinkage, order: int) -> None:
    x = claw(50, 2)
    for basis in (Hermite(2, order), TensorHermite(2, order)):
        moments = moments_of(basis, squares=True).update(x)
        assert isinstance(moments, HermiteMoments | TensorHermiteMoments | GaussianMoments)
        before, after = moments.standardised(), moments.shrunk(shrinkage)
        assert torch.equal(after.averages.total, before.averages.total)
        assert torch.equal(after.scale, before.scale)


@cases
def test_the_projection_is_the_smallest_sufficient_mixture(
    moments: HermiteMoments | TensorHermiteMoments,
) -> None:
    averages = moments.shrunk(Modulation(project=False)).averages
    means = averages.fitting().mT if isinstance(moments, HermiteMoments) else averages.fitting()
    mixed = moments.projected(means)
    keep = (mixed[..., 3:] / means[..., 3:].where(means[..., 3:] != 0, 1.0)).amax(dim=-1)

    def smallest(means: Tensor) -> Tensor:
        rows = means.mT if isinstance(moments, HermiteMoments) else means
        values: Tensor = torch.linalg.eigvalsh(products_of(moments, rows))
        return values[..., 0]

    before, after = smallest(means), smallest(mixed)
    broken = before < 0
    # One factor for all functions except the constant: a mixture with the Gaussian.
    assert float((mixed[..., 1:] - keep[..., None] * means[..., 1:]).abs().max()) < 1e-12
    assert bool((mixed[..., 0] == 1).all())
    assert torch.equal(mixed[~broken], means[~broken])
    if bool(broken.any()):
        assert float(after[broken].abs().max()) < 1e-12
        assert bool((keep[broken] < 1).all())


def test_the_projection_of_an_even_density_is_even() -> None:
    """Its means are real: imaginary parts of 1e-16 asked for sines that held-out rows have not."""
    lattice = torch.arange(1, 9)[:, None].double()
    means = torch.complex(0.7 * torch.randn(3, 8).double().sign(), torch.zeros(3, 8).double())
    assert not bool(project_fourier(lattice, means).imag.any())
