"""Properties of `fit`, from data to scores."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from oism import (
    CrossValidation,
    Fourier,
    Hermite,
    OrnsteinUhlenbeck,
    TensorHermite,
    VariancePreserving,
    fit,
)
from oism.basis import Basis
from oism.estimation import (
    EvenKnots,
    JamesStein,
    Modulation,
    Monotone,
    PlacedKnots,
    SampleMeans,
    Shrinkage,
    fit_moments,
    gather,
    principal_frame,
)

FAMILIES: dict[str, Basis] = {
    "fourier": Fourier.lattice(2, 10),
    "hermite": Hermite(2, 4),
    "tensor": TensorHermite(2, 3),
    "gaussian": TensorHermite(2, 2),
}
families = pytest.mark.parametrize("basis", FAMILIES.values(), ids=FAMILIES.keys())


def cloud(n: int = 400, dim: int = 2, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, dim, generator=generator, dtype=torch.float64)
    return 0.7 * x + 0.2 * x.square()


def scores(data: object, basis: Basis, **settings: object) -> Tensor:
    score = fit(data, basis, **settings)  # type: ignore[arg-type]
    times = torch.tensor([0.01, 0.1, 1.0], dtype=torch.float64)
    return torch.stack([score.score(cloud(8), float(t)) for t in times])


@pytest.mark.parametrize("dim", [1, 2, 5, 40])
def test_order_two_is_the_gaussian(dim: int) -> None:
    process = OrnsteinUhlenbeck(theta=0.8, sigma=1.1)
    mixing = torch.randn(dim, dim, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x = cloud(300, dim) @ mixing + 0.5
    score = fit(x, TensorHermite(dim, 2, process))
    mean, covariance = x.mean(dim=0), torch.cov(x.mT, correction=0).reshape(dim, dim)
    for t in (0.0, 1e-6, 0.01, 0.3, 1.0, 5.0):
        law = process.transition(t)
        noised = law.alpha.square() * covariance + law.covariance(dim)
        expected = -torch.linalg.solve(noised, (x - law.alpha * mean).mT).mT
        found = score.score(x, t)
        assert float((found - expected).abs().max() / expected.abs().max()) < 1e-10


def test_order_two_of_each_direction_is_the_diagonal_gaussian() -> None:
    x = cloud(300, 3)
    score = fit(x, Hermite(3, 2))
    for t in (0.0, 0.1, 2.0):
        law = OrnsteinUhlenbeck().transition(t)
        variance = law.alpha.square() * x.var(dim=0, correction=0) + law.variance
        expected = -(x - law.alpha * x.mean(dim=0)) / variance
        torch.testing.assert_close(score.score(x, t), expected, rtol=1e-10, atol=1e-10)


def test_order_one_fits_the_mean_only() -> None:
    process = OrnsteinUhlenbeck(theta=0.8, sigma=1.1)
    score = fit(cloud(), Hermite(2, 1, process))
    alpha, v = process.transition(0.4).alpha, process.stationary_variance
    expected = -(cloud(5) - alpha * cloud().mean(dim=0)) / v
    torch.testing.assert_close(score.score(cloud(5), 0.4), expected)


@families
def test_fits_do_not_depend_on_the_order_of_rows_or_batches(basis: Basis) -> None:
    x = cloud()
    whole = scores(x, basis)
    shuffled = x[torch.randperm(len(x), generator=torch.Generator().manual_seed(2))]
    torch.testing.assert_close(scores(shuffled, basis), whole, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(scores(torch.split(x, 37), basis), whole, rtol=1e-6, atol=1e-8)


@families
def test_arrays_tensors_and_iterables_are_accepted(basis: Basis) -> None:
    x = cloud().float()
    whole = scores(x, basis)

    def generator() -> Iterator[np.ndarray]:
        yield from np.split(x.numpy(), [100, 101, 350])

    for data in (x.numpy(), x.double(), generator(), [x[:200], x[200:].numpy()]):
        torch.testing.assert_close(scores(data, basis), whole, rtol=1e-6, atol=1e-8)


@families
def test_integer_weights_are_repeated_rows(basis: Basis) -> None:
    x = cloud(150)
    counts = torch.randint(0, 4, (150,), generator=torch.Generator().manual_seed(0))
    repeated = scores(x.repeat_interleave(counts, dim=0), basis)
    weighted = scores(x, basis, sample_weight=counts)
    torch.testing.assert_close(weighted, repeated, rtol=1e-6, atol=1e-8)
    in_batches = scores(torch.split(x, 60), basis, sample_weight=torch.split(counts, 60))
    torch.testing.assert_close(in_batches, repeated, rtol=1e-6, atol=1e-8)


@families
def test_merged_moments_give_the_same_fit(basis: Basis) -> None:
    x = cloud()
    merged = gather(x[:123], basis).merge(gather(x[123:], basis))
    score, whole = fit_moments(merged), fit(x, basis)
    torch.testing.assert_close(score.score(x, 0.1), whole.score(x, 0.1), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("shrinkage", [SampleMeans(), JamesStein(), Modulation(), Monotone()])
@pytest.mark.parametrize("name", ["fourier", "hermite", "tensor"])
def test_every_shrinkage_fits_every_family(shrinkage: Shrinkage, name: str) -> None:
    assert bool(scores(cloud(), FAMILIES[name], shrinkage=shrinkage).isfinite().all())


def test_a_fixed_ridge_solves_the_stated_equations() -> None:
    basis, x, ridge, t = Fourier.lattice(1, 25), cloud(300, 1), 0.02, 0.05
    score = fit(x, basis, ridge=ridge)
    gradients = basis.gradients(x)[..., 0]
    rates = -basis.eigenvalues
    # P_t from its formula: products of gradients are waves ξ ± η, which decay by their eigenvalues
    noise = torch.linspace(-8, 8, 4001, dtype=torch.float64)
    weights = torch.softmax(-0.5 * noise.square(), dim=0)
    moved = (x + math.sqrt(2 * t) * noise).reshape(-1, 1)
    many = basis.gradients(moved)[..., 0] * weights.repeat(len(x))[:, None].sqrt()
    matrix = many.mT @ many / len(x)
    right = -rates * torch.exp(-rates * t) * basis.values(x).mean(dim=0)
    expected = torch.linalg.solve(matrix + ridge * torch.diag(rates.square()), -right)
    assert gradients.shape == (300, 10)
    torch.testing.assert_close(score.coefficients(t, exact=True), expected, rtol=1e-9, atol=1e-10)


def test_a_ridge_of_zero_gives_finite_scores() -> None:
    score = fit(cloud(2000, 1), Fourier.lattice(1, 9), ridge=0.0)
    assert bool((score.diagnostics.ridge == 0).all())
    assert bool(score.score(cloud(5, 1), 0.01).isfinite().all())
    assert bool(score.diagnostics.loss.isnan().all())


def test_diagnostics() -> None:
    for basis, batch in ((Fourier.lattice(2, 60), ()), (Hermite(2, 4), (2,))):
        score = fit(cloud(), basis, ridge=CrossValidation(folds=4, times=21))
        found = score.diagnostics
        for name in ("ridge", "level", "loss", "smallest", "condition", "iterations"):
            assert getattr(found, name).shape == (21, *batch), name
        assert bool((found.ridge > 0).all())
        solved = found.t < 1
        assert bool((found.condition[solved] >= 1).all())
        assert float(found.loss[0].max()) < 0, "the fit is better than the invariant distribution"
        assert float(found.smallest[solved].min()) > 0
        assert score.times == pytest.approx((float(found.t[0]), float(found.t[-1])))
    score = fit(cloud(), Fourier.lattice(2, 125), ridge=0.01)  # 400 functions: iterations
    assert int(score.diagnostics.iterations.max()) > 0


def test_the_cross_validated_loss_is_close_to_the_true_one() -> None:
    generator = torch.Generator().manual_seed(3)
    x = 0.5 * torch.randn(3000, 1, generator=generator, dtype=torch.float64)
    score = fit(x, Fourier.lattice(1, 100))
    fresh = 0.5 * torch.randn(200_000, 1, generator=generator, dtype=torch.float64)
    place = 8
    t = float(score.diagnostics.t[place])
    noised = fresh + math.sqrt(2 * t) * torch.randn(fresh.shape, generator=generator).double()
    loss = score.score(noised, t).square().sum(dim=1) + 2 * score.divergence(noised, t)
    error = float(loss.std() / math.sqrt(len(loss)))
    spread = 0.1 * abs(float(score.diagnostics.loss[place]))  # that of 3,000 points
    assert abs(float(loss.mean() - score.diagnostics.loss[place])) < 4 * error + spread


def test_a_larger_basis_does_not_increase_the_loss() -> None:
    x = cloud(1000, 1)
    fresh = cloud(100_000, 1, seed=9)

    def loss(basis: Basis) -> float:
        score = fit(x, basis)
        parts = score.score(fresh, 0.005).square()[:, 0] + 2 * score.divergence(fresh, 0.005)
        return float(parts.mean())

    small, large = (loss(Fourier.lattice(1, n**2)) for n in (15, 60))
    assert large < small + 0.02 * abs(small)
    low, high = (loss(Hermite(1, n)) for n in (3, 9))
    assert high < low + 0.02 * abs(low)


def test_coefficients_are_continuous_in_time() -> None:
    score = fit(cloud(500, 1), Fourier.lattice(1, 400))
    t = torch.logspace(math.log10(score.times[0]), 0, 501, dtype=torch.float64)
    alpha = score.coefficients(t, exact=True)
    steps = score.system.norm(t[1:], alpha.diff(dim=0)) / score.system.norm(t[1:], alpha[1:])
    assert float(steps.max()) < 0.04, "at most 2% per step in t"


def test_clocks_and_knots_can_be_chosen() -> None:
    clock = VariancePreserving(beta_0=0.2, beta_1=10.0)
    score = fit(cloud(), Hermite(2, 3), clock=clock, knots=EvenKnots(57))
    assert len(score.curve.knots) == 57
    assert score.curve.order == 2
    placed = fit(cloud(), Hermite(2, 3), clock=clock, knots=PlacedKnots(tolerance=1e-4))
    assert placed.curve.order == 4
    assert float(placed.diagnostics.interpolation) <= 1e-4


def test_tighter_knots_interpolate_better() -> None:
    t = torch.logspace(-4, 1, 200, dtype=torch.float64)
    errors = []
    for tolerance in (1e-2, 1e-4):
        score = fit(cloud(), Fourier.lattice(2, 20), knots=PlacedKnots(tolerance=tolerance))
        exact = score.coefficients(t, exact=True)
        norm = score.system.norm
        wrong = norm(t, exact - score.coefficients(t)) / (norm(t, exact) + 1e-2)
        errors.append(float(wrong.max()))
        assert errors[-1] < 3 * tolerance
    assert errors[1] < 0.1 * errors[0]


@families
def test_few_rows(basis: Basis) -> None:
    for n in (20, 6):
        assert bool(scores(cloud(n), basis).isfinite().all())


@pytest.mark.parametrize("name", ["fourier", "hermite", "tensor"])
def test_too_few_rows_for_cross_validation_are_rejected(name: str) -> None:
    for data in (cloud(1), cloud(1).repeat(50, 1)):
        with pytest.raises(ValueError, match="data must fall into at least two folds"):
            fit(data, FAMILIES[name])
        assert bool(scores(data, FAMILIES[name], ridge=0.1).isfinite().all())


def test_the_fit_of_one_row_is_the_gaussian_of_the_noise() -> None:
    x = cloud(1)
    score = fit(x, TensorHermite(2, 2))
    law = OrnsteinUhlenbeck().transition(0.3)
    expected = -(cloud(5) - law.alpha * x) / law.variance
    torch.testing.assert_close(score.score(cloud(5), 0.3), expected)


def test_data_with_two_values() -> None:
    x = torch.tensor([[0.0, 1.0], [1.0, 1.0]], dtype=torch.float64).repeat(40, 1)
    x[:, 0] += torch.arange(80) * 1e-9  # rows that differ, so that folds are filled
    assert bool(scores(x, Hermite(2, 6)).isfinite().all())


def test_heavy_tails() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2000, 1, generator=generator) / torch.rand(2000, 1, generator=generator)
    score = fit(x, Hermite(1, 9))
    assert bool(score.score(x, 0.01).isfinite().all())


def test_fits_are_equivariant_under_scaling() -> None:
    x = cloud()
    for factor, offset in ((1e-4, 0.0), (1.0, 1e3), (1e4, -7.0)):
        # At t = 0 the distribution is scaled; the ridge is relative to its Gaussian and scales too.
        score = fit(factor * x + offset, Hermite(2, 4), ridge=0.01)
        at_zero = factor * score.score(factor * x[:5] + offset, 0.0)
        torch.testing.assert_close(
            at_zero, fit(x, Hermite(2, 4), ridge=0.01).score(x[:5], 0.0), rtol=1e-5, atol=1e-6
        )


def test_angles_are_taken_modulo_two_pi() -> None:
    x, basis = cloud(300), Fourier.lattice(2, 10)
    which = torch.randint(-1, 2, x.shape, generator=torch.Generator().manual_seed(0))
    turns = 2 * math.pi * which.double()
    with pytest.warns(UserWarning, match=r"taken modulo 2π on the torus, but column \d spans"):
        turned = fit(x + turns, basis, ridge=0.01)
    same = fit(x, basis, ridge=0.01)
    torch.testing.assert_close(turned.score(x, 0.1), same.score(x, 0.1), rtol=1e-8, atol=1e-8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(x + math.pi, basis, ridge=0.01)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"ridge": -1.0}, ValueError, "ridge must be CrossValidation"),
        ({"ridge": math.nan}, ValueError, "ridge must be CrossValidation"),
        ({"ridge": "cv"}, TypeError, "ridge must be CrossValidation"),
        ({"ridge": True}, TypeError, "ridge must be CrossValidation"),
        ({"clock": 1.0}, TypeError, "clock must be of type Clock"),
        ({"shrinkage": "none"}, TypeError, "shrinkage must be of type Shrinkage"),
        ({"knots": 100}, TypeError, "knots must be of type Knots"),
        ({"sample_weight": [1.0]}, ValueError, "sample_weight must have one entry per row"),
        ({"sample_weight": 3}, ValueError, "sample_weight must have one entry per row"),
    ],
)
def test_invalid_settings_are_rejected(
    settings: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        fit(cloud(), Fourier.lattice(2, 4), **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        (CrossValidation, {"folds": 1}, "folds must be an integer >= 2"),
        (CrossValidation, {"times": 2}, "times must be an integer >= 4"),
        (EvenKnots, {"count": 1}, "count must be an integer >= 2"),
        (PlacedKnots, {"tolerance": 0.0}, "tolerance must be a positive"),
        (PlacedKnots, {"most": 2}, "most must be an integer >= 8"),
    ],
)
def test_invalid_regularisations_and_knots_are_rejected(
    kind: type, arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**arguments)


def test_invalid_data_are_rejected() -> None:
    basis = Hermite(2, 3)
    broken = cloud()
    broken[17, 1] = math.inf
    with pytest.raises(ValueError, match="data must be finite, but row 17 holds NaN or infinity"):
        fit(broken, basis)
    with pytest.raises(ValueError, match="data must hold at least one row"):
        fit([], basis)
    with pytest.raises(ValueError, match="data must have rows of 2 entries"):
        fit([cloud(5), cloud(5, 3)], basis)
    with pytest.raises(TypeError, match="basis must be of type Basis"):
        fit(cloud(), "fourier")  # type: ignore[arg-type]


@settings(max_examples=15, deadline=None)
@given(
    n=st.integers(8, 60),
    dim=st.integers(1, 3),
    dtype=st.sampled_from([torch.float16, torch.float32, torch.float64, torch.int32, torch.uint8]),
    seed=st.integers(0, 1000),
)
def test_any_shape_and_dtype_fits(n: int, dim: int, dtype: torch.dtype, seed: int) -> None:
    x = (3 * cloud(n, dim, seed) + 5).to(dtype)
    for basis in (Hermite(dim, 3), TensorHermite(dim, 3)):
        try:
            score = fit(x, basis)
        except ValueError as error:  # integers may leave one distinct row
            assert "at least two folds" in str(error)  # noqa: PT017
            return
        assert score.score(x.double(), 0.2).shape == (n, dim)
        assert bool(score.score(x.double(), 0.2).isfinite().all())


def test_a_progress_bar_is_shown_if_progress_is_true(capsys: pytest.CaptureFixture[str]) -> None:
    fit(cloud(), Hermite(2, 3), progress=True)
    assert "choosing ridge and truncation" in capsys.readouterr().err
    fit(cloud(), Hermite(2, 3))
    assert capsys.readouterr().err == ""


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, 4, 6])
@pytest.mark.parametrize("basis", [TensorHermite(3, 3), TensorHermite(2, 4), Hermite(3, 6)])
def test_three_to_six_rows(n: int, basis: Basis) -> None:
    for seed in range(4):
        x = cloud(n, basis.dim, seed)
        for shrinkage in (SampleMeans(), JamesStein()):
            try:
                score = fit(x, basis, shrinkage=shrinkage)
            except ValueError as error:  # by chance all rows share a fold
                assert "at least two folds" in str(error)  # noqa: PT017
                continue
            assert bool(score.score(x, 0.2).isfinite().all())


def test_order_one_of_products_is_order_one_of_each() -> None:
    one, other = (fit(cloud(), kind(2, 1)) for kind in (Hermite, TensorHermite))
    torch.testing.assert_close(one.score(cloud(5), 0.3), other.score(cloud(5), 0.3))


def test_polynomials_in_principal_directions() -> None:
    x = cloud() @ torch.tensor([[2.0, 1.0], [0.0, 0.3]], dtype=torch.float64)
    frame = principal_frame(x, dim=2)
    score = fit(x, Hermite(2, 2, frame=frame))
    torch.testing.assert_close(score.score(x, 0.1), fit(x, TensorHermite(2, 2)).score(x, 0.1))
