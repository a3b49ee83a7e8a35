"""Fitted scores of every basis, compared with autodiff, exact solves and other dtypes."""

from __future__ import annotations

import copy
import math
import pickle
import sys
from functools import cache

import pytest
import torch
from torch import Tensor

from oism import (
    Brownian,
    CriticallyDamped,
    Fourier,
    Hermite,
    Linear,
    OrnsteinUhlenbeck,
    TensorHermite,
    VariancePreserving,
    fit,
    fit_linear,
)
from oism.basis import Basis, OrthogonalFrame, ScatteredSeries
from oism.score import Curve, FourierScore, OperatorScore, Table, soft_clamp
from oism.score._fourier import TRANSFORM_COST, WAVE_COST, _has_finufft

OU = OrnsteinUhlenbeck(theta=0.7, sigma=1.3)


def skewed(n: int = 600) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(n, 2, generator=generator, dtype=torch.float64)
    return torch.stack((x[:, 0], x[:, 1].abs() + 0.4 * x[:, 0]), dim=1)


ROTATION = OrthogonalFrame(torch.linalg.qr(skewed()[:2])[0])
BASES: dict[str, Basis] = {
    "fourier, dense": Fourier.lattice(2, 20),
    "fourier, matrix-free": Fourier.lattice(2, 60),
    "hermite": Hermite(2, 5),
    "hermite, rotated": Hermite(2, 4, OU, ROTATION),
    "hermite, order one": Hermite(2, 1, OU),
    "tensor hermite": TensorHermite(2, 4),
    "tensor hermite, rotated": TensorHermite(2, 3, OU, ROTATION),
    "gaussian": TensorHermite(2, 2, OU),
}
LINEAR: dict[str, tuple[Linear, int]] = {
    "linear": (Linear(torch.tensor([[-1.0, -1.5], [1.5, -1.0]]), torch.eye(2)), 4),
    "linear, gaussian": (CriticallyDamped(1), 2),
}
cases = pytest.mark.parametrize("name", [*BASES, *LINEAR])
INSIDE = skewed(4)
POINTS = torch.cat((INSIDE, torch.tensor([[5.0, -4.0], [7.0, 7.0]], dtype=torch.float64)))
TIMES = torch.tensor([0.01, 0.02, 0.1, 0.3, 0.05, 1.0], dtype=torch.float64)


@cache
def fitted(name: str) -> OperatorScore:
    if name in LINEAR:
        return fit_linear(skewed(), *LINEAR[name], whole=True)
    return fit(skewed(), BASES[name])


@cases
def test_score_is_the_gradient_of_log_density(name: str) -> None:
    score, process = fitted(name), fitted(name).basis.process
    x = POINTS.clone().requires_grad_(True)
    (slope,) = torch.autograd.grad(score.log_ratio(x, TIMES).sum(), x)
    expected = slope + process.invariant.score(x.detach())
    torch.testing.assert_close(score.score(x, TIMES), expected, rtol=1e-12, atol=1e-12)


@cases
def test_divergence_agrees_with_autodiff_of_the_score(name: str) -> None:
    score = fitted(name)
    x = POINTS.clone().requires_grad_(True)
    values = score.score(x, TIMES)
    parts = [
        torch.autograd.grad(values[:, i].sum(), x, retain_graph=True)[0][:, i] for i in range(2)
    ]
    torch.testing.assert_close(
        score.divergence(POINTS, TIMES), torch.stack(parts).sum(dim=0), rtol=1e-11, atol=1e-11
    )


@cases
def test_one_time_and_a_time_per_row_agree(name: str) -> None:
    score = fitted(name)
    for part in (score.score, score.divergence, score.log_ratio):
        rows = part(POINTS, TIMES)
        single = torch.cat([part(x[None], float(t)) for x, t in zip(POINTS, TIMES, strict=True)])
        torch.testing.assert_close(rows, single, rtol=1e-13, atol=1e-13)


@cases
def test_batches_do_not_change_the_result(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    score = fitted(name)
    whole = [score.score(POINTS, TIMES), score.score(POINTS, 0.1), score.log_ratio(POINTS, TIMES)]
    monkeypatch.setattr("oism.score._base.ROWS", 2 * max(1, score.curve.values[0].numel()))
    parts = [score.score(POINTS, TIMES), score.score(POINTS, 0.1), score.log_ratio(POINTS, TIMES)]
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-13, atol=1e-13)


@cases
def test_interpolation_agrees_with_an_exact_solve(name: str) -> None:
    score = fitted(name)
    low, high = score.times
    t = torch.tensor([low, 0.013, 0.09, 0.4, 2.0, high], dtype=torch.float64)
    exact = score.coefficients(t, exact=True)
    assert exact.shape == score.coefficients(t).shape
    if "gaussian" in name:
        assert exact.shape == (6, 0), "a Gaussian has no coefficients"
        return
    size = score.system.norm(t, exact) + 1e-2
    off = score.system.norm(t, exact - score.coefficients(t))
    assert float((off / size).max()) < 2e-3
    assert score.coefficients(0.1, exact=True).shape == score.coefficients(0.1).shape


@cases
def test_dtypes_and_devices(name: str) -> None:
    score, single = fitted(name), copy.deepcopy(fitted(name)).float()
    assert single.curve.values.dtype == torch.float32
    assert single.curve.knots.dtype == torch.float64
    low = single.score(POINTS.float(), TIMES.float())
    assert low.dtype == torch.float32
    torch.testing.assert_close(low.double(), score.score(POINTS, TIMES), rtol=2e-4, atol=2e-4)
    meta = copy.deepcopy(score).to("meta")
    for t in (TIMES.to("meta"), 0.1):
        assert meta.score(POINTS.to("meta"), t).device.type == "meta"


@cases
def test_autocast_does_not_change_the_score(name: str) -> None:
    score = fitted(name)
    plain = score.score(POINTS.float(), 0.1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(score.score(POINTS.float(), 0.1), plain)


@pytest.mark.slow
@cases
def test_compile(name: str) -> None:
    score = fitted(name)
    torch.compiler.reset()
    compiled = torch.compile(score.score, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(POINTS, TIMES), score.score(POINTS, TIMES))
    if score.process.diffusivity is not None:
        noise = torch.compile(score, fullgraph=True, backend="eager")
        tau = score.clock.inverse(TIMES)
        torch.testing.assert_close(noise(POINTS, tau), score.noise(POINTS, tau))


@cases
def test_state_dict_and_pickle_round_trip(name: str) -> None:
    score = fitted(name)
    twin = fit(skewed(300), BASES[name]) if name == "hermite" else copy.deepcopy(score)
    twin.load_state_dict(score.state_dict())
    assert torch.equal(twin.score(POINTS, TIMES), score.score(POINTS, TIMES))
    again = pickle.loads(pickle.dumps(score))
    assert torch.equal(again.score(POINTS, TIMES), score.score(POINTS, TIMES))


def test_results_have_the_shape_of_the_points() -> None:
    x = torch.randn(64, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    score = fit(x, Hermite(dim=12, order=3))
    assert score.score(x, 0.1).shape == x.shape
    assert score.divergence(x, 0.1).shape == (64,)
    torch.testing.assert_close(
        score.score(x, 0.1).flatten(1), score.score(x.flatten(1), 0.1), rtol=0, atol=0
    )


def test_no_rows() -> None:
    score = fitted("hermite")
    assert score.score(POINTS[:0], 0.1).shape == (0, 2)
    assert score.divergence(POINTS[:0], TIMES[:0]).shape == (0,)


@pytest.mark.parametrize(
    ("x", "t", "message"),
    [
        (torch.zeros(2, 3), 0.1, "x must have rows of 2 entries"),
        (torch.zeros(2), 0.1, "x must have rows of 2 entries"),
        (torch.zeros(2, 2), torch.zeros(3) + 0.1, "one number or one per row"),
        (torch.zeros(2, 2), -0.1, r"t must be in \[0,"),
        (torch.zeros(2, 2), 99.0, r"t must be in \[0,"),
        (torch.zeros(2, 2), float("nan"), "t must be"),
        (torch.zeros(2, 2), torch.zeros(1, 1), r"shape \(\) or \(n,\)"),
    ],
)
def test_invalid_points_and_times_are_rejected(x: Tensor, t: Tensor | float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fitted("hermite").score(x, t)


def test_points_must_be_floating_tensors() -> None:
    with pytest.raises(TypeError, match="x must"):
        fitted("hermite").score(torch.zeros(2, 2, dtype=torch.int64), 0.1)
    with pytest.raises(TypeError, match="x must"):
        fitted("hermite").score([[0.0, 0.0]], 0.1)  # type: ignore[arg-type]


def test_a_time_rounded_to_float32_is_within_the_clock() -> None:
    score = fitted("fourier, dense")
    ends = torch.tensor(score.times, dtype=torch.float64).float()
    assert bool(score.score(POINTS[:2].float(), ends).isfinite().all())


def test_soft_clamp_is_twice_continuously_differentiable() -> None:
    z = torch.linspace(-4, 4, 4001, dtype=torch.float64).requires_grad_(True)
    low, high, width = (torch.tensor(v, dtype=torch.float64) for v in (-1.0, 1.5, 0.4))
    value, slope, bend = soft_clamp(z, low, high, width)
    (first,) = torch.autograd.grad(value.sum(), z)
    value, slope, bend = value.detach(), slope.detach(), bend.detach()
    torch.testing.assert_close(first, slope, rtol=0, atol=1e-14)
    (second,) = torch.autograd.grad(soft_clamp(z, low, high, width)[1].sum(), z)
    torch.testing.assert_close(second, bend, rtol=0, atol=1e-12)
    inside = ((z > low) & (z < high)).detach()
    assert torch.equal(value[inside], z.detach()[inside])
    assert float(slope.diff().abs().max()) < 0.01, "the slope has no jump"
    assert float(bend.diff().abs().max()) < 0.1, "the second derivative has no jump"


def test_score_far_outside_of_the_data_is_that_of_the_gaussian_part() -> None:
    # A cubic potential fitted to skewed data sends points to infinity; the clamped one does not.
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2000, 1, generator=generator, dtype=torch.float64).mul(0.5).exp()
    score = fit(x, Hermite(dim=1, order=3))
    gaussian = fit(x, Hermite(dim=1, order=2))
    far = torch.tensor([[-30.0], [40.0], [1e3]], dtype=torch.float64)
    for t in (0.0, 0.05, 0.5):
        torch.testing.assert_close(score.score(far, t), gaussian.score(far, t), rtol=1e-9, atol=0)
        inside = x[:50]
        assert float((score.score(inside, t) - gaussian.score(inside, t)).abs().max()) > 1e-3
    jumps = []
    for count in (2001, 4001):
        ends = (float(x.min()) - 3, float(x.max()) + 3)
        steps = torch.linspace(*ends, count, dtype=torch.float64)[:, None]
        jumps.append(float(score.score(steps, 0.0).diff(dim=0).abs().max()))
    assert jumps[1] < 0.6 * jumps[0], "the score is continuous"


def test_without_the_clamp_a_cubic_points_away_from_the_data() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2000, 1, generator=generator, dtype=torch.float64).mul(0.5).exp()
    score = fit(x, Hermite(dim=1, order=3))
    clamped = score.score(torch.tensor([[40.0]], dtype=torch.float64), 0.0)
    score.get_buffer("high").fill_(1e9)
    unclamped = score.score(torch.tensor([[40.0]], dtype=torch.float64), 0.0)
    assert float(unclamped) > 0 > float(clamped)


def test_score_of_a_constant_column_is_exact() -> None:
    x = torch.cat((skewed()[:, :1], torch.full((600, 1), 0.7, dtype=torch.float64)), dim=1)
    for basis in (Hermite(2, 4), TensorHermite(2, 3), TensorHermite(2, 2)):
        score = fit(x, basis)
        law = OrnsteinUhlenbeck().transition(0.2)
        expected = -(POINTS[:, 1] - law.alpha * 0.7) / law.variance
        torch.testing.assert_close(score.score(POINTS, 0.2)[:, 1], expected, rtol=1e-9, atol=1e-9)
        assert bool(score.score(POINTS, 0.0).isfinite().all())


def test_scores_are_finite_over_the_whole_clock() -> None:
    for name in BASES:
        score = fitted(name)
        low, high = score.times
        for t in torch.linspace(low, high, 7, dtype=torch.float64):
            assert bool(score.score(POINTS, t).isfinite().all())
            assert bool(score.divergence(POINTS, t).isfinite().all())


def test_times_are_the_range_of_the_clock() -> None:
    clock = VariancePreserving(beta_0=0.2, beta_1=8.0)
    score = fit(skewed(), Hermite(2, 3), clock=clock)
    assert score.times == (0.0, float(clock.time(1.0)))


@cases
def test_score_and_divergence_agrees_with_both_methods(name: str) -> None:
    score = fitted(name)
    for x in (POINTS, POINTS.float()):
        for t in (TIMES, 0.07):
            value, divergence = score.score_and_divergence(x, t)
            assert value.shape == x.shape
            assert divergence.shape == (len(x),)
            assert value.dtype == divergence.dtype == x.dtype
            accuracy = 1e-12 if x.dtype == torch.float64 else 2e-5
            pairs = ((value, score.score(x, t)), (divergence, score.divergence(x, t)))
            for one, other in pairs:
                torch.testing.assert_close(one, other, rtol=accuracy, atol=10 * accuracy)
    images = fitted(name).score_and_divergence(POINTS.reshape(6, 1, 2, 1), 0.07)
    assert images[0].shape == (6, 1, 2, 1)
    assert score.score_and_divergence(POINTS[:0], 0.07)[1].shape == (0,)


SCATTERED = {1: 400, 2: 100, 3: 22}
"""Largest eigenvalues by dimension for which transforms are faster at a few thousand points."""


@cache
def on_torus(dim: int) -> FourierScore:
    generator = torch.Generator().manual_seed(dim)
    x = 0.7 * torch.randn(300, dim, generator=generator, dtype=torch.float64)
    score = fit(x, Fourier.lattice(dim, SCATTERED.get(dim, 4)), ridge=0.01)
    assert isinstance(score, FourierScore)
    return score


def many(dim: int, n: int) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    return 12 * torch.rand(n, dim, generator=generator, dtype=torch.float64) - 6


class Transforms:
    """Counts the calls of FINUFFT."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        own = ScatteredSeries.__call__

        def call(series: ScatteredSeries, x: Tensor, spectra: Tensor) -> Tensor:
            self.count += 1
            return own(series, x, spectra)

        monkeypatch.setattr(ScatteredSeries, "__call__", call)
        for dim in SCATTERED:  # so that it is used for a thousand points
            monkeypatch.setitem(TRANSFORM_COST, dim, (20_000, 0))


@pytest.fixture
def transforms(monkeypatch: pytest.MonkeyPatch) -> Transforms:
    return Transforms(monkeypatch)


def parts(score: OperatorScore, x: Tensor, t: Tensor | float) -> list[Tensor]:
    both = score.score_and_divergence(x, t)
    return [score.score(x, t), score.divergence(x, t), score.log_ratio(x, t), *both]


@pytest.mark.parametrize("dim", SCATTERED)
def test_transforms_and_products_agree(
    dim: int, transforms: Transforms, monkeypatch: pytest.MonkeyPatch
) -> None:
    score, x = on_torus(dim), many(dim, 2500)
    for t in (score.times[0], 0.05, torch.tensor(1.0, dtype=torch.float64)):
        before = transforms.count
        fast = parts(score, x, t)
        assert transforms.count == before + 4
        with monkeypatch.context() as patch:
            patch.setattr("oism.score._fourier._has_finufft", lambda: False)
            plain = parts(score, x, t)
        assert transforms.count == before + 4
        for one, other in zip(fast, plain, strict=True):
            assert one.shape == other.shape
            assert one.dtype == other.dtype
            assert float((one - other).abs().max()) < 1e-8 * float(other.abs().max())
        rows = parts(score, x[:5], torch.as_tensor(t, dtype=torch.float64).expand(5))
        for one, other in zip(fast, rows, strict=True):
            torch.testing.assert_close(one[:5], other, rtol=1e-7, atol=1e-7)


def test_products_are_used_where_transforms_are_not_possible(transforms: Transforms) -> None:
    score, x = on_torus(1), many(1, 4000)
    expected = score.score_and_divergence(x, 0.1)
    assert transforms.count == 1
    score.score(x[:0], 0.1)
    score.score(x[:3], 0.1)
    score.score(x, torch.full((4000,), 0.1, dtype=torch.float64))  # one time per row
    own = x.clone().requires_grad_()
    value = score.score(own, 0.1)
    (slope,) = torch.autograd.grad(value.sum(), own)
    torch.testing.assert_close(slope[:, 0], expected[1], rtol=1e-6, atol=1e-6)
    t = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    (change,) = torch.autograd.grad(score.score(x, t).sum(), t)
    assert float(change) != 0
    mapped = torch.func.vmap(lambda one: score.score(one[None], 0.1)[0])(x)
    torch.testing.assert_close(mapped, expected[0], rtol=1e-6, atol=1e-6)
    tangent = torch.func.jvp(lambda x: score.score(x, 0.1), (x,), (torch.ones_like(x),))[1]
    torch.testing.assert_close(tangent[:, 0], expected[1], rtol=1e-6, atol=1e-6)
    meta = copy.deepcopy(score).to("meta")
    assert meta.score(x.to("meta"), 0.1).device.type == "meta"
    torch.compiler.reset()
    compiled = torch.compile(score.score, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x, t.detach()), expected[0], rtol=1e-6, atol=1e-6)
    four = on_torus(4)
    assert four.score(many(4, 4000), 0.1).shape == (4000, 4)
    assert transforms.count == 1
    with torch.no_grad():
        score.score(own, 0.1)  # not differentiated: a transform is possible
    assert transforms.count == 2


def test_waves_that_are_not_periodic_are_summed_by_products(transforms: Transforms) -> None:
    basis, x = Fourier(torch.arange(1.0, 200.0).double()[:, None] / 3, Brownian()), many(1, 4000)
    alpha, own = torch.ones(basis.size, dtype=torch.float64), on_torus(1)
    curve = Curve(torch.tensor([0.0, 1.0], dtype=torch.float64), alpha.expand(2, -1), order=2)
    score = FourierScore(basis, own.clock, Table(curve, own.schedule, own.diagnostics), own.system)
    torch.testing.assert_close(score.score(x, 0.1), basis.series(x, alpha, derivative=1))
    assert transforms.count == 0


def test_float32_points_use_a_transform(transforms: Transforms) -> None:
    score, x = on_torus(2), many(2, 4000).float()
    fast = parts(score, x, 0.1)
    assert transforms.count == 4
    for one, other in zip(fast, parts(score, x.double(), 0.1), strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one.double(), other, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("dim", SCATTERED)
def test_the_cheaper_of_transform_and_products_is_used(dim: int, transforms: Transforms) -> None:
    score, t = on_torus(dim), 1e-3
    reach = math.ceil(math.sqrt(SCATTERED[dim]))
    assert score.coefficients(t)[-2:].abs().max() > 1e-9, "all waves count at an early time"
    terms = (1 + score.bandwidth) * (1 + 2 * score.bandwidth) ** (dim - 1)
    assert score._scattered(reach, torch.device("cpu"))[0].modes == (2 * score.bandwidth + 1,) * dim
    once, per_point = TRANSFORM_COST[dim]
    tables = WAVE_COST * (1 + score.bandwidth + (dim - 1) * (2 * score.bandwidth + 1))
    crossing = once // (dim * (terms - per_point) + tables)  # where both cost the same
    score.score(many(dim, crossing - 1), t)
    assert transforms.count == 0
    score.score(many(dim, crossing + 1), t)
    assert transforms.count == 1


def test_late_times_need_few_waves(monkeypatch: pytest.MonkeyPatch) -> None:
    score, x, reaches = on_torus(2), many(2, 50), []
    own = FourierScore._scattered

    def spied(score: FourierScore, reach: int, device: torch.device) -> object:
        reaches.append(reach)
        return own(score, reach, device)

    monkeypatch.setattr(FourierScore, "_scattered", spied)
    for t in (1e-3, 0.5, 5.0):
        expected = score.basis.series(x, score.coefficients(t), derivative=1)
        torch.testing.assert_close(score.score(x, t), expected, rtol=0, atol=1e-9)
    assert reaches[0] == 10
    assert reaches == sorted(reaches, reverse=True)
    assert reaches[-1] < 8


def test_transforms_are_computed_in_batches(
    transforms: Transforms, monkeypatch: pytest.MonkeyPatch
) -> None:
    score, x = on_torus(1), many(1, 5000)
    whole = score.score(x, 0.1)
    monkeypatch.setattr("oism.score._fourier.POINTS", 2000)
    torch.testing.assert_close(score.score(x, 0.1), whole, rtol=1e-8, atol=1e-8)
    assert transforms.count == 1 + 3


def test_products_are_used_without_finufft(monkeypatch: pytest.MonkeyPatch) -> None:
    score, x = on_torus(1), many(1, 4000)
    expected = parts(score, x, 0.1)
    monkeypatch.setitem(sys.modules, "finufft", None)
    _has_finufft.cache_clear()
    try:
        for one, other in zip(parts(score, x, 0.1), expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-7)
    finally:
        _has_finufft.cache_clear()


def test_cached_transforms_are_not_stored() -> None:
    score, x = on_torus(1), many(1, 4000)
    expected = score.score(x, 0.1)
    again = pickle.loads(pickle.dumps(score))
    assert torch.equal(again.score(x, 0.1), expected)
    assert set(score.state_dict()) == set(fitted("fourier, dense").state_dict())
