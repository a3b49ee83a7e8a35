"""Multistep methods in standardised coordinates, against exact flows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from oism._core import devices
from oism.basis import OrthogonalFrame
from oism.images import Directions, GaussianPart
from oism.sampling import (
    Denoiser,
    Plan,
    Polynomial,
    Prediction,
    SamplingMethod,
    Span,
    alpha_sigma,
    best_method,
    measure_residual,
    start_level,
)
from oism.sampling._coordinates import Level, weight
from oism.sampling._prediction import cumulative_rule
from oism.sampling._statistics import band_edges

SPAN = Span(-5.0, 5.0)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def gaussian(dim: int = 3, seed: int = 0) -> GaussianPart:
    """Return a Gaussian with random directions, means and variances from 0.01 to 4."""
    source = seeded(seed)
    matrix = torch.linalg.qr(torch.randn(dim, dim, generator=source, dtype=torch.float64)).Q
    mean = torch.randn(dim, generator=source, dtype=torch.float64)
    variances = torch.logspace(math.log10(4.0), -2, dim, dtype=torch.float64)
    return GaussianPart(OrthogonalFrame(matrix), dim, mean, variances)


def exact_denoiser(part: GaussianPart) -> Denoiser:
    """Return E[x_0 | x] of a Gaussian from its covariance matrix, not from coordinates."""
    eye = torch.eye(part.dim, dtype=torch.float64)
    axes = part.analyse(eye)
    covariance = axes @ torch.diag(part.variances) @ axes.mT
    mean = part.synthesise(part.mean[None])[0]

    def denoise(x: Tensor, level: Tensor) -> Tensor:
        alpha, sigma = alpha_sigma(level)
        total = alpha**2 * covariance + sigma**2 * eye
        gain: Tensor = alpha * torch.linalg.solve(total, covariance)
        return mean + (x - alpha * mean) @ gain

    return denoise


def mixture_denoiser(means: Tensor, variances: Tensor) -> Denoiser:
    """Return E[x_0 | x] of a mixture with equal weights and isotropic components."""

    def denoise(x: Tensor, level: Tensor) -> Tensor:
        alpha, sigma = alpha_sigma(level)
        total = alpha**2 * variances + sigma**2  # (C,)
        apart = x[:, None] - alpha * means  # (n, C, d)
        log = -0.5 * (apart.square().sum(dim=2) / total + means.shape[1] * total.log())
        clean = means + (alpha * variances / total)[:, None] * apart
        return (log.softmax(dim=1)[..., None] * clean).sum(dim=1)

    return denoise


MEANS = torch.tensor([[-1.0, 0.5], [1.2, 0.3], [0.1, -1.1]], dtype=torch.float64)
SPREADS = torch.tensor([0.05, 0.1, 0.2], dtype=torch.float64)
MIXTURE = mixture_denoiser(MEANS, SPREADS)


def mixture_part() -> GaussianPart:
    """Return the Gaussian with the moments of the mixture along the axes."""
    mean = MEANS.mean(dim=0)
    variances = SPREADS.mean() + (MEANS - mean).square().mean(dim=0)
    return GaussianPart(GaussianPart.isotropic(2, 1.0).frame, 2, mean, variances)


def true_flow(denoiser: Denoiser, noise: Tensor, steps: int = 2000) -> Tensor:
    """Return the end of d(x/σ)/dλ = e^λ D by the classical method of order four in x/σ."""
    levels = torch.linspace(SPAN.first, SPAN.last, steps + 1, dtype=torch.float64)
    y = noise / alpha_sigma(levels[0])[1]

    def slope(y: Tensor, level: Tensor) -> Tensor:
        return level.exp() * denoiser(alpha_sigma(level)[1] * y, level)

    for low, high in itertools.pairwise(levels):
        h, middle = high - low, 0.5 * (low + high)
        a = slope(y, low)
        b = slope(y + 0.5 * h * a, middle)
        c = slope(y + 0.5 * h * b, middle)
        d = slope(y + h * c, high)
        y = y + h / 6 * (a + 2 * b + 2 * c + d)
    return y * alpha_sigma(levels[-1])[1]


METHODS: list[SamplingMethod] = [
    Polynomial(order, corrector, start=start)
    for order in (1, 2, 3)
    for corrector in (False, True)
    for start in (None, -4.0)
]


@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.parametrize("evaluations", [1, 2, 5])
def test_a_gaussian_is_exact_at_any_number_of_evaluations(
    method: SamplingMethod, evaluations: int
) -> None:
    part = gaussian()
    noise = torch.randn(7, 3, generator=seeded(1), dtype=torch.float64)
    plan, denoiser = method.plan(part, SPAN, evaluations), exact_denoiser(part)
    x = plan.sample(denoiser, noise, denoise=False)
    first, last = (Level.of(part, torch.tensor(one), noise) for one in (SPAN.first, SPAN.last))
    expected = last.tensors(part, first.standardised(part, noise))
    assert torch.allclose(x, expected, rtol=0, atol=1e-12)
    assert torch.allclose(x, true_flow(denoiser, noise, 800), rtol=0, atol=1e-6)


@pytest.mark.parametrize("corrector", [False, True])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_polynomials_have_the_declared_order(order: int, *, corrector: bool) -> None:
    noise = torch.randn(20, 2, generator=seeded(2), dtype=torch.float64)
    expected = true_flow(MIXTURE, noise)
    method = Polynomial(order, corrector, start=SPAN.first)
    plans = [method.plan(mixture_part(), SPAN, n) for n in (200, 400, 800)]
    ends = [plan.sample(MIXTURE, noise, denoise=False) for plan in plans]
    errors = [float((end - expected).norm()) for end in ends]
    slopes = [math.log2(a / b) for a, b in itertools.pairwise(errors)]
    assert slopes[-1] == pytest.approx(order + corrector, abs=0.25)


def test_without_variance_the_method_is_dpm_solver() -> None:
    """Order one is DDIM: x' = (σ'/σ)x + (α' - ασ'/σ)D."""
    part = GaussianPart.isotropic(2, 0.0)
    noise = torch.randn(5, 2, generator=seeded(3), dtype=torch.float64)
    plan = Polynomial(1, corrector=False).plan(part, SPAN, 6)
    assert plan.levels[0] == SPAN.first
    x = noise
    for low, high in zip(plan.levels[:-1], plan.levels[1:], strict=True):
        (alpha, sigma), (to_alpha, to_sigma) = alpha_sigma(low), alpha_sigma(high)
        ratio = to_sigma / sigma
        x = ratio * x + (to_alpha - alpha * ratio) * MIXTURE(x, low)
    found = plan.sample(MIXTURE, noise, denoise=False)
    assert torch.allclose(found, x, rtol=0, atol=1e-10)


def test_the_first_weight_has_a_closed_form() -> None:
    """∫ w dλ = asinh(√c e^λ)/√c."""
    part = gaussian()
    plan = Polynomial(1, corrector=False, start=-2.0).plan(part, SPAN, 3)
    root = part.variances.sqrt()
    integral = torch.asinh(root * plan.levels[:, None].exp()) / root
    found = torch.cat([step.weights for step in plan.steps])
    assert torch.allclose(found, integral.diff(dim=0), rtol=1e-12)


def test_noise_keeps_a_gaussian_exactly() -> None:
    """For R = 0 each step is an autoregression with a² + n² = 1."""
    part = gaussian()
    plan = Polynomial(2, eta=0.7, start=-3.0).plan(part, SPAN, 4)
    for step, low, high in zip(plan.steps, plan.levels[:-1], plan.levels[1:], strict=True):
        assert step.decay is not None
        assert step.noise is not None
        w = weight(part.variances, torch.stack((low, high)))
        assert torch.allclose(step.decay, (w[0] / w[1]) ** 0.49)
        assert torch.allclose(step.decay**2 + step.noise**2, torch.ones(3).double())


def test_noise_gives_the_distribution_of_the_data() -> None:
    noise = torch.randn(20_000, 2, generator=seeded(4), dtype=torch.float64)
    plan = Polynomial(2, eta=1.0, start=-4.0).plan(mixture_part(), SPAN, 60)
    x = plan.sample(MIXTURE, noise, seeded(5))
    mean = MEANS.mean(dim=0)
    spread = SPREADS.mean() * torch.eye(2) + (MEANS - mean).mT @ (MEANS - mean) / 3
    assert torch.allclose(x.mean(dim=0), mean, atol=0.02)
    assert torch.allclose(x.mT.cov(), spread, atol=0.03)
    # E|x|⁴ of N(m, vI) in the plane is |m|⁴ + 8v|m|² + 8v².
    square = MEANS.square().sum(dim=1)
    fourth = (square.square() + 8 * SPREADS * square + 8 * SPREADS.square()).mean()
    assert float(x.square().sum(dim=1).square().mean()) == pytest.approx(float(fourth), rel=0.04)


def test_the_order_of_weak_convergence_with_noise() -> None:
    """The second moment of a Gaussian under the coordinates of another one, without sampling."""
    part = GaussianPart.isotropic(1, 1.0)
    true = GaussianPart.isotropic(1, 0.25)
    denoise = exact_denoiser(true)

    def variance(evaluations: int) -> float:
        # Everything is linear: the responses to independent inputs add their squares.
        method = Polynomial(2, corrector=False, eta=1.0, start=-4.9)
        plan = method.plan(part, Span(-4.9, 3.0), evaluations)
        total = 0.0
        for k in range(-1, evaluations):
            x, history = plan.start(torch.full((1, 1), float(k < 0), dtype=torch.float64))
            for j, level in enumerate(plan.levels[:-1]):
                fresh = torch.full_like(x, float(j == k))
                x, history = plan.step(j, x, denoise(x, level), history, fresh)
            total += float(x) ** 2
        return total

    alpha, sigma = alpha_sigma(torch.tensor(3.0))
    expected = float(alpha**2 * 0.25 + sigma**2)
    errors = [abs(variance(n) - expected) for n in (40, 80, 160)]
    assert math.log2(errors[1] / errors[2]) > 0.9
    assert errors[2] < 0.01


@pytest.fixture(scope="module")
def measured() -> Prediction:
    noise = torch.randn(200, 2, generator=seeded(6), dtype=torch.float64)
    return Prediction(measure_residual(MIXTURE, mixture_part(), SPAN, noise))


def test_prediction_beats_polynomials_and_expects_its_error(measured: Prediction) -> None:
    noise = torch.randn(500, 2, generator=seeded(7), dtype=torch.float64)
    expected = true_flow(MIXTURE, noise)
    clean = MIXTURE(expected, torch.tensor(SPAN.last))

    def error(x: Tensor) -> float:
        return float((x - expected).square().mean().sqrt())

    part = mixture_part()
    for n in (4, 6, 10):
        plan = measured.plan(part, SPAN, n)
        others = [Polynomial(p, c).plan(part, SPAN, n) for p in (1, 2, 3) for c in (False, True)]
        own = error(plan.sample(MIXTURE, noise, denoise=False))
        assert own < min(error(other.sample(MIXTURE, noise)) for other in others)
        assert plan.expected_error is not None
        assert 0.3 < plan.expected_error / own < 3
        denoised = float((plan.sample(MIXTURE, noise) - clean).square().mean().sqrt())
        assert denoised < 1.5 * own


def test_the_result_of_a_prediction_has_no_noise() -> None:
    """Components much narrower than the noise of the last level: samples are their means."""
    denoiser = mixture_denoiser(MEANS, torch.full((3,), 1e-8, dtype=torch.float64))
    noise = torch.randn(400, 2, generator=seeded(21), dtype=torch.float64)
    method = Prediction(measure_residual(denoiser, mixture_part(), SPAN, noise[200:]))
    plan = method.plan(mixture_part(), SPAN, 30)
    noisy, result = (plan.sample(denoiser, noise[:200], denoise=which) for which in (False, True))
    sigma = float(alpha_sigma(torch.tensor(SPAN.last))[1])
    nearest = [(x[:, None] - MEANS).norm(dim=2).amin(dim=1) for x in (noisy, result)]
    assert float(nearest[0].median()) == pytest.approx(1.18 * sigma, rel=0.3)  # of a Rayleigh law
    assert float(nearest[1].median()) < 0.1 * sigma


def test_statistics_of_another_model_do_not_break_a_gaussian(measured: Prediction) -> None:
    """Where the residual is zero, so is the result of any weights."""
    part = mixture_part()
    noise = torch.randn(5, 2, generator=seeded(8), dtype=torch.float64)
    plan, denoiser = measured.plan(part, SPAN, 5), exact_denoiser(part)
    x = plan.sample(denoiser, noise, denoise=False)
    first, last = (Level.of(part, torch.tensor(one), noise) for one in (SPAN.first, SPAN.last))
    expected = last.tensors(part, first.standardised(part, noise))
    assert torch.allclose(x, expected, rtol=0, atol=1e-12)
    clean = denoiser(expected, torch.tensor(SPAN.last))
    assert torch.allclose(plan.sample(denoiser, noise), clean, rtol=0, atol=1e-12)


def test_prediction_is_the_best_linear_one(measured: Prediction) -> None:
    """The weights of the last step, found again by least squares on paths of the mixture."""
    part, count = mixture_part(), 3
    plan = measured.plan(part, SPAN, count)
    places = plan.levels[:-1]
    fine = torch.linspace(SPAN.first, SPAN.last, 801, dtype=torch.float64)
    noise = torch.randn(4000, 2, generator=seeded(9), dtype=torch.float64)
    path = Polynomial(3, levels=tuple(fine.tolist())).plan(part, SPAN, 800)
    x, history = path.start(noise)
    start, found = history.u, []
    for k, level in enumerate(fine[:-1]):
        denoised = MIXTURE(x, level)
        if bool(((places - level).abs() < 0.5 * (fine[1] - fine[0])).any()):
            found.append(path.residual(k, x, denoised, history)[1])
        x, history = path.step(k, x, denoised, history)
    assert start is not None
    assert history.u is not None
    total = [sum(step.weights[len(step.weights) - 1 - j] for step in plan.steps
                 if len(step.weights) > j) for j in range(count)]  # fmt: skip
    for axis in range(2):
        design = torch.stack([residual[:, axis] for residual in found], dim=1)
        target = (history.u - start)[:, axis]
        best = torch.linalg.lstsq(design, target[:, None]).solution[:, 0]
        own = torch.stack([torch.as_tensor(weights)[axis] for weights in total])
        reached = (design @ own - target).square().mean()
        smallest = (design @ best - target).square().mean()
        # Its own weights also allow for errors of the residuals, and cannot be better.
        assert smallest <= reached < 0.5 * target.square().mean()


def test_steps_one_by_one_are_the_loop() -> None:
    part = gaussian()
    plan = Polynomial(3).plan(part, SPAN, 5)
    noise = torch.randn(4, 3, generator=seeded(10), dtype=torch.float64)
    denoise = mixture_denoiser(torch.eye(3, dtype=torch.float64), SPREADS)
    x, history = plan.start(noise)
    for k, level in enumerate(plan.levels[:-1]):
        x, history = plan.step(k, x.clone(), denoise(x, level), history)  # coordinates are found
    assert torch.allclose(x, plan.sample(denoise, noise), rtol=0, atol=1e-12)


def test_tensors_that_were_changed_in_place_have_other_coordinates() -> None:
    """As in inpainting, where known pixels are written into the tensors between two steps."""
    plan = Polynomial(2).plan(gaussian(), SPAN, 4)
    noise = torch.randn(4, 3, generator=seeded(10), dtype=torch.float64)
    denoise = mixture_denoiser(torch.eye(3, dtype=torch.float64), SPREADS)
    results = []
    for in_place in (True, False):
        x, history = plan.start(noise)
        x, history = plan.step(0, x, denoise(x, plan.levels[0]), history)
        if in_place:
            x[:, 0] = 2.0
        else:
            x = torch.cat((torch.full_like(x[:, :1], 2.0), x[:, 1:]), dim=1)
        results.append(plan.step(1, x, denoise(x, plan.levels[1]), history)[0])
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=1e-12)


def test_a_plan_that_starts_at_the_first_level_does_not_move_the_noise() -> None:
    noise = torch.randn(4, 3, generator=seeded(10), dtype=torch.float64)
    moved, _ = Polynomial(start=SPAN.first).plan(gaussian(), SPAN, 4).start(noise)
    assert torch.allclose(moved, noise, rtol=0, atol=1e-14)


def test_directions_that_span_a_part_of_the_space() -> None:
    """Coordinates of a frame and of the rest give the same plan as the complete frame."""
    like = gaussian(4)
    variances = like.variances.clone()
    variances[2:] = 0.3
    matrix = like.frame.directions(4)
    mean = like.mean
    complete = GaussianPart(OrthogonalFrame(matrix), 4, mean, variances)
    rest = mean[2:] @ matrix[2:]
    partial = GaussianPart(
        Directions(matrix[:2]), 4, torch.cat((mean[:2], rest)),
        torch.cat((variances[:2], torch.full((4,), 0.3, dtype=torch.float64))),
    )  # fmt: skip
    denoise = mixture_denoiser(torch.eye(4, dtype=torch.float64)[:3], SPREADS)
    noise = torch.randn(6, 4, generator=seeded(11), dtype=torch.float64)
    whole, parts = (
        Polynomial(start=-3.0).plan(part, SPAN, 5).sample(denoise, noise)
        for part in (complete, partial)
    )
    assert torch.allclose(whole, parts, rtol=0, atol=1e-10)
    # The rest has four coordinates and two dimensions, which counts where directions are averaged.
    for count in (5, 12):
        first, other = (start_level(part, SPAN, count) for part in (complete, partial))
        assert first == other
    errors = []
    for part in (complete, partial):
        statistics = measure_residual(denoise, part, SPAN, noise.repeat(8, 1), trial=False)
        errors.append(Prediction(statistics).plan(part, SPAN, 6).expected_error)
    assert errors[0] == pytest.approx(errors[1], rel=0.1)  # bands differ a little


@pytest.mark.parametrize("method", [Polynomial(), Polynomial(eta=1.0)])
def test_plans_move_to_a_device(method: SamplingMethod) -> None:
    """The device "meta" has no values, and as a GPU it computes with tensors of its own only."""
    plan = method.plan(gaussian(), SPAN, 3)
    moved = plan.to("meta")
    assert {one.device.type for one in tensors(moved)} == {"meta"}
    assert {one.device.type for one in tensors(plan)} == {"cpu"}, "the first plan stays"
    assert len(tensors(moved)) == len(tensors(plan))
    assert (moved.levels is plan.levels, moved.span) == (True, plan.span)
    noise = torch.empty(2, 3, device="meta")
    assert moved.sample(lambda x, _: x, noise).device.type == "meta"
    assert plan.to("cpu") is plan
    assert plan.to("meta", moved.part).part is moved.part, "one copy for several plans"


def test_the_end_of_a_plan_moves_as_well(measured: Prediction) -> None:
    plan = measured.plan(mixture_part(), SPAN, 3)
    end = plan.to("meta").end
    assert end is not None
    assert end.device.type == "meta"
    assert plan.to("cpu") is plan


def test_on_a_device_without_float64_means_and_variances_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    part = gaussian()
    assert Polynomial().plan(part, SPAN, 3).to("mps").part is part
    monkeypatch.setattr(devices, "has_float64", lambda device: device != "meta")
    single = replace(part, frame=Directions(part.frame.directions(3).float()))
    plan = Polynomial().plan(single, SPAN, 3)
    moved = plan.to("meta")
    assert [one.device.type for one in tensors(moved)] == ["meta", *["cpu"] * 5]
    assert moved.steps == plan.steps


def tensors(plan: Plan) -> list[Tensor]:
    """Return the matrix, the mean and the variances of a plan, and the numbers of its steps."""
    part = plan.part
    found = [part.frame.stored_directions(), part.mean, part.variances, plan.end]
    for step in plan.steps:
        found += [step.weights, step.decay, step.noise]
    return [one for one in found if one is not None]


def test_the_first_level_falls_with_the_number_of_evaluations() -> None:
    part = gaussian()
    starts = [start_level(part, SPAN, n) for n in (1, 5, 10, 20, 40, 80)]
    assert starts == sorted(starts, reverse=True)
    assert starts[-1] > SPAN.first - 1e-9
    assert starts[0] < SPAN.last


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=200), st.integers(1, 20))
@settings(max_examples=50, deadline=None)
def test_bands_cover_all_variances(values: list[float], most: int) -> None:
    variances = torch.tensor(values, dtype=torch.float64)
    edges = band_edges(variances, most)
    assert len(edges) < most + 1
    assert bool((edges.diff() < 0).all())
    assert bool(((edges >= variances.min()) & (edges <= variances.max())).all())


def test_cumulative_integrals_have_order_four() -> None:
    errors = []
    for count in (41, 81, 161):
        points = torch.linspace(0, 2, count, dtype=torch.float64)
        found = cumulative_rule(count, 2 / (count - 1)) @ points.exp()
        errors.append(float((found - points.exp() + 1).abs().max()))
    assert math.log2(errors[1] / errors[2]) == pytest.approx(4, abs=0.3)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Polynomial(4), "order must be 1 to 3"),
        (lambda: Polynomial(eta=-1.0), "eta must be at least 0"),
        (lambda: Span(1.0, 1.0), "first must be below last"),
        (lambda: Polynomial(levels=(0.0, 0.0)).plan(gaussian(), SPAN, 1), "increasing"),
        (lambda: Polynomial(levels=(-9.0, 0.0)).plan(gaussian(), SPAN, 1), "range of the model"),
        (lambda: Polynomial().plan(gaussian(), SPAN, 0), "evaluations"),
    ],
)
def test_mistakes_are_named(make: Callable[[], object], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        make()


def test_statistics_of_other_levels_are_refused(measured: Prediction) -> None:
    with pytest.raises(ValueError, match="statistics must be those of levels"):
        measured.plan(mixture_part(), Span(-4.0, 5.0), 5)
    with pytest.raises(ValueError, match="evaluations must be at most"):
        measured.plan(mixture_part(), SPAN, 1000)


def test_a_denoiser_that_is_not_finite_is_named() -> None:
    def broken(x: Tensor, level: Tensor) -> Tensor:
        return x * math.nan

    with pytest.raises(FloatingPointError, match="finite"):
        measure_residual(broken, mixture_part(), SPAN, torch.zeros(2, 2))


def test_a_trial_shows_where_predictions_fail() -> None:
    """A denoiser that jumps with x: paths with errors have other residuals than those measured."""

    def rough(x: Tensor, level: Tensor) -> Tensor:
        return MIXTURE(x, level) + 0.3 * torch.sign(torch.sin(300 * x))

    noise = torch.randn(64, 2, generator=seeded(20), dtype=torch.float64)
    smooth = measure_residual(MIXTURE, mixture_part(), SPAN, noise)
    assert smooth.is_predictable
    assert isinstance(best_method(smooth, 20), Prediction)
    assert isinstance(best_method(smooth, 1000), Polynomial)
    assert isinstance(best_method(None, 20), Polynomial)
    failed = replace(smooth, trial=torch.tensor([0.2, 0.1]))
    assert isinstance(best_method(failed, 20), Polynomial)
    found = measure_residual(rough, mixture_part(), SPAN, noise).trial
    assert float(found.min()) > 20 * float(smooth.trial[0])
