"""The fitted density: it integrates to one, samples follow it, units do not matter."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.spatial.distance
import scipy.stats
import torch
from sklearn.base import clone
from sklearn.model_selection import KFold

from oism import OISM, Fourier, OrnsteinUhlenbeck, VarianceExploding, fit
from oism._core.transforms import in_parallel
from oism.flow import Flow, RungeKutta4, log_density
from oism.tables import BoxChart, Chart, TableModel, converged_steps
from oism.tables import _model as table_model

N = 600
Array = np.ndarray
FOLDS = KFold(3)  # by place: folds by content would change with the last bit of a unit


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def draw(name: str, n: int = N, seed: int = 0) -> Array:
    """Return rows of a distribution."""
    r = rng(seed)
    angle, choice = r.uniform(0, 2 * math.pi, n), r.uniform(size=n) < 0.5
    radius = np.where(choice, 1.0, 2.0) + 0.1 * r.normal(size=n)
    table: dict[str, tuple[Array, ...]] = {
        "normal": (r.normal(size=n),),
        "bimodal": (np.where(choice, -2 + 0.3 * r.normal(size=n), 2 + 0.5 * r.normal(size=n)),),
        "uniform": (r.uniform(size=n),),
        "exponential": (r.exponential(size=n),),
        "angles": (r.vonmises(3.0, 2.0, n),),
        "normals": (r.normal(size=n), r.normal(size=n)),
        "circles": (radius * np.cos(angle), radius * np.sin(angle)),
        "angle and line": (r.vonmises(0.0, 2.0, n), r.normal(size=n)),
        "share and size": (r.uniform(size=n), r.exponential(size=n)),
        "angle and share": (r.vonmises(0.0, 2.0, n), r.beta(2.0, 1.0, n)),
        "three": (r.vonmises(0.0, 2.0, n), r.beta(2.0, 1.0, n), r.normal(size=n)),
    }
    columns = np.stack(table[name], axis=1)
    if name == "normals":
        columns[:, 1] = 0.8 * columns[:, 0] + 0.6 * columns[:, 1]
    return columns


TURN = 2 * math.pi
SHARE = (0.0, 1.0)
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "normal": ("normal", {}),
    "bimodal": ("bimodal", {}),
    "uniform": ("uniform", {}),
    "exponential": ("exponential", {}),
    "default": ("bimodal", {"max_eigenvalue": "auto", "flow_steps": "auto"}),
    "periodic": ("angles", {"periodic": {0: TURN}}),
    "bounded": ("uniform", {"bounds": {0: SHARE}}),
    "box": ("angles", {"box": (-math.pi, math.pi)}),
    "normals": ("normals", {}),
    "circles": ("circles", {}),
    "periodic and free": ("angle and line", {"periodic": {0: TURN}}),
    "bounded and free": ("share and size", {"bounds": {0: SHARE}}),
    "periodic and bounded": ("angle and share", {"periodic": {0: TURN}, "bounds": {1: SHARE}}),
}
cases = pytest.mark.parametrize("case", CASES)


@cache
def fitted(case: str, n: int = N) -> OISM:
    name, settings = CASES[case]
    x = draw(name, n)
    settings = {"max_eigenvalue": 64 if x.shape[1] == 1 else 25, "flow_steps": 32, **settings}
    model: OISM = OISM(**settings).fit(x)
    return model


def cells(chart: Chart, per_box: int, reach: int = 3) -> tuple[Array, float]:
    """Return midpoints of cells, and their volume: free columns reach beyond their box."""
    assert isinstance(chart, BoxChart)
    axes, volume = [], 1.0
    for j, (centre, scale) in enumerate(zip(chart.centre, chart.scale, strict=True)):
        half, middle = math.pi / float(scale), float(centre)
        if bool(chart.periodic[j]):
            low, high, count = middle - half, middle + half, per_box
        elif bool(chart.bounded[j]):
            low, high, count = middle, middle + half, per_box
        else:
            low, high, count = middle - reach * half, middle + reach * half, reach * per_box
        step = (high - low) / count
        axes.append(low + step * (np.arange(count) + 0.5))
        volume *= step
    mesh = np.meshgrid(*axes, indexing="ij")
    return np.stack(mesh, axis=-1).reshape(-1, len(axes)), volume


@cases
def test_densities_integrate_to_one(case: str) -> None:
    model = fitted(case)
    per_box = 400 if model.n_features_in_ == 1 else 80 if case == "circles" else 40
    points, volume = cells(model.model_.chart, per_box)
    assert np.exp(model.score_samples(points)).sum() * volume == pytest.approx(1.0, abs=1e-3)


def test_a_density_of_three_columns_integrates_to_one() -> None:
    settings: dict[str, Any] = {"periodic": {0: TURN}, "bounds": {1: SHARE}}
    model = OISM(max_eigenvalue=5, flow_steps=16, **settings).fit(draw("three", 200))
    points, volume = cells(model.model_.chart, 18, reach=2)
    assert np.exp(model.score_samples(points)).sum() * volume == pytest.approx(1.0, abs=1e-3)


DISTRIBUTIONS = {
    "normal": scipy.stats.norm.cdf,
    "uniform": scipy.stats.uniform.cdf,
    "bimodal": lambda x: 0.5 * (scipy.stats.norm.cdf(x, -2, 0.3) + scipy.stats.norm.cdf(x, 2, 0.5)),
    "exponential": scipy.stats.expon.cdf,
}


@pytest.mark.parametrize("case", DISTRIBUTIONS)
def test_samples_follow_the_distribution_of_the_data(case: str) -> None:
    cdf, scale = DISTRIBUTIONS[case], float(np.std(draw(case)))
    samples = fitted(case).sample(2000, random_state=1)[:, 0]
    limit = 0.07  # 600 rows alone have a distance of 0.03 or so
    assert scipy.stats.kstest(samples, cdf).statistic < limit
    shifted = OISM(max_eigenvalue=64, flow_steps=32).fit(draw(case) + 0.3 * scale)
    wrong = shifted.sample(2000, random_state=1)[:, 0]
    assert scipy.stats.kstest(wrong, cdf).statistic > limit, "a test that sees a wrong model"


def energy(x: Array, y: Array) -> float:
    """Return the energy distance 2E|X - Y| - E|X - X'| - E|Y - Y'|."""
    cross, left, right = (
        float(scipy.spatial.distance.cdist(a, b).sum()) for a, b in ((x, y), (x, x), (y, y))
    )
    n, m = len(x), len(y)
    return 2 * cross / (n * m) - left / (n * (n - 1)) - right / (m * (m - 1))


@pytest.mark.parametrize("case", ["normals", "circles", "bounded and free"])
def test_pairs_follow_the_distribution_of_the_data(case: str) -> None:
    name, settings = CASES[case]
    fresh = draw(name, 1000, seed=7)
    samples = fitted(case).sample(1000, random_state=1)
    limit = 0.018
    assert energy(samples, fresh) < limit
    columns_apart = draw(name)
    columns_apart[:, 1] = rng(3).permutation(1.3 * columns_apart[:, 1])
    wrong = OISM(max_eigenvalue=25, flow_steps=32, **settings).fit(columns_apart)
    assert energy(wrong.sample(1000, random_state=1), fresh) > limit


@pytest.mark.parametrize("case", ["bimodal", "circles", "periodic and bounded"])
def test_samples_follow_their_own_density(case: str) -> None:
    # Densities at samples are distributed as densities at points that are drawn from the cells of
    # a grid.
    model = fitted(case)
    points, _ = cells(model.model_.chart, 400 if model.n_features_in_ == 1 else 50, reach=2)
    logs = model.score_samples(points)
    mass = np.exp(logs - logs.max())
    picked = rng(5).choice(logs, size=2000, p=mass / mass.sum())
    samples = model.score_samples(model.sample(2000, random_state=2))
    assert scipy.stats.ks_2samp(picked, samples).pvalue > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("case", ["bimodal", "normals", "periodic and bounded", "five columns"])
def test_flow_and_reverse_sde_agree(case: str) -> None:
    model = gaussian() if case == "five columns" else fitted(case)
    ode, sde = (model.sample(1000, random_state=4, method=kind) for kind in ("ode", "sde"))
    assert not np.allclose(ode, sde)
    for one, other in zip(ode.T, sde.T, strict=True):
        assert scipy.stats.ks_2samp(one, other).pvalue > 1e-3
    if ode.shape[1] == 2:
        assert energy(ode, sde) < 0.012


def test_uniform_data_have_no_edges_where_bounds_are_declared() -> None:
    x = draw("uniform", 4000)
    ends = [[0.0], [0.003], [0.5], [0.997], [1.0]]
    bounded = OISM(max_eigenvalue=64, flow_steps=16, bounds={0: SHARE}).fit(x).score_samples(ends)
    np.testing.assert_allclose(bounded, 0.0, atol=0.1)
    free = OISM(max_eigenvalue=64, flow_steps=16).fit(x).score_samples(ends)
    assert free[[0, -1]].max() < -0.4, "halved, where nobody says that there is an edge"


def test_there_is_no_density_beyond_declared_bounds() -> None:
    model = fitted("bounded and free")
    inside = model.score_samples([[0.0, 1.0], [1.0, 1.0], [0.5, 1e6], [0.5, 1e200]])
    assert np.isfinite(inside).all()
    outside = model.score_samples([[-1e-6, 1.0], [1.0 + 1e-6, 1.0], [1e200, 1e200], [-3.0, 1.0]])
    assert (outside == -math.inf).all()
    for method in ("ode", "sde"):
        samples = model.sample(200, random_state=0, method=method)
        assert samples[:, 0].min() >= 0
        assert samples[:, 0].max() <= 1
    np.testing.assert_array_equal(fitted("bounded").score_samples([[-0.01], [1.01]]), -math.inf)


@pytest.mark.parametrize("negative", [False, True])
def test_units_change_densities_by_the_jacobian(negative: bool) -> None:
    x, y = draw("normals", 300), draw("normals", 20, seed=2)
    scale, shift = np.array([-3.0 if negative else 3.0, 0.01]), np.array([100.0, -5.0])
    model = OISM(max_eigenvalue=16, flow_steps=32, cv=FOLDS).fit(x)
    moved = OISM(max_eigenvalue=16, flow_steps=32, cv=FOLDS).fit(scale * x + shift)
    expected = model.score_samples(y) - np.log(np.abs(scale)).sum()
    np.testing.assert_allclose(moved.score_samples(scale * y + shift), expected, atol=1e-6)
    scores = model.score_function(y, 0.1) / scale
    np.testing.assert_allclose(moved.score_function(scale * y + shift, 0.1), scores, rtol=1e-5)
    samples = (moved.sample(500, random_state=0) - shift) / scale
    if negative:
        assert energy(samples, model.sample(500, random_state=1)) < 0.02
    else:
        np.testing.assert_allclose(samples, model.sample(500, random_state=0), atol=1e-6)


@pytest.mark.parametrize("unit", [1e-12, 2.0**20, 1e12])
def test_tiny_and_huge_units(unit: float) -> None:
    for x, process in ((draw("normal", 200), "torus"), (rng().normal(size=(200, 5)), "ou")):
        settings: dict[str, Any] = {"max_eigenvalue": 25, "flow_steps": 16, "cv": FOLDS}
        settings["process"] = process
        logs = OISM(**settings).fit(x).score_samples(x) - x.shape[1] * math.log(unit)
        found = OISM(**settings).fit(unit * x).score_samples(unit * x)
        np.testing.assert_allclose(found, logs, atol=1e-5)


def test_folds_by_content_change_with_the_unit_and_little_else() -> None:
    x = draw("normal", 300)
    settings: dict[str, Any] = {"max_eigenvalue": 25, "flow_steps": 16}
    logs = OISM(**settings).fit(x).score_samples(x)
    found = OISM(**settings).fit(0.3 * x).score_samples(0.3 * x) + math.log(0.3)
    assert np.abs(found - logs).mean() < 0.1


def test_units_of_many_columns() -> None:
    x = rng().normal(size=(300, 5)) ** 3
    scale, shift = np.array([1.0, -2.0, 0.1, 30.0, 5.0]), np.arange(5.0)
    for frame, factor in (("identity", scale), ("pca", np.full(5, 7.0))):
        blank = OISM(process="ou", frame=frame, flow_steps=16, cv=FOLDS)
        model, moved = clone(blank).fit(x), clone(blank).fit(factor * x + shift)
        y = x[:20]
        expected = model.score_samples(y) - np.log(np.abs(factor)).sum()
        np.testing.assert_allclose(moved.score_samples(factor * y + shift), expected, atol=1e-6)
        scores = model.score_function(y, 0.1) / factor
        found = moved.score_function(factor * y + shift, 0.1)
        np.testing.assert_allclose(found, scores, rtol=1e-5, atol=1e-8)


def test_degrees_are_radians() -> None:
    x = draw("angle and line", 300)
    settings: dict[str, Any] = {"max_eigenvalue": 16, "flow_steps": 32, "cv": FOLDS}
    radians = OISM(periodic={0: TURN}, **settings).fit(x)
    factor = np.array([180 / math.pi, 1.0])
    degrees = OISM(periodic={0: 360.0}, **settings).fit(factor * x)
    expected = radians.score_samples(x) - math.log(180 / math.pi)
    np.testing.assert_allclose(degrees.score_samples(factor * x), expected, atol=1e-6)
    samples = degrees.sample(200, random_state=0) / factor
    np.testing.assert_allclose(samples, radians.sample(200, random_state=0), atol=1e-6)


def test_whole_periods_change_nothing() -> None:
    x = draw("angle and line", 300)
    turned = x + np.stack([360 * rng().integers(-1, 2, size=300), np.zeros(300)], axis=1)
    settings: dict[str, Any] = {"periodic": {0: 360.0}, "max_eigenvalue": 16, "flow_steps": 16}
    model = OISM(cv=FOLDS, **settings).fit(x)
    logs = model.score_samples(x)
    np.testing.assert_allclose(model.score_samples(turned), logs, atol=1e-8)
    np.testing.assert_allclose(OISM(cv=FOLDS, **settings).fit(turned).score_samples(x), logs, 1e-6)
    scores = model.score_function(x, 0.1)
    np.testing.assert_allclose(model.score_function(turned, 0.1), scores, atol=1e-8)


@pytest.mark.parametrize(
    ("settings", "shift", "low"),
    [
        ({"periodic": {0: 360.0}}, 200.0, 0.0),
        ({"periodic": {0: 360.0}}, 0.0, -180.0),
        ({"box": (90.0, 450.0)}, 200.0, 90.0),
        ({"box": (-180.0, 180.0)}, 0.0, -180.0),
    ],
)
def test_samples_lie_in_the_range_of_the_data(
    settings: dict[str, Any], shift: float, low: float
) -> None:
    x = 60 * draw("normal", 300) % 360 - 180 + shift
    x = low + (x - low) % 360
    model = OISM(max_eigenvalue=16, flow_steps=16, **settings).fit(x)
    for method in ("ode", "sde"):
        samples = model.sample(300, random_state=0, method=method)
        assert low <= samples.min() < low + 60
        assert low + 300 < samples.max() < low + 360


def test_a_box_is_the_torus() -> None:
    # The estimator in the box (-π, π) is that of `fit`: no scale, no background.
    x = draw("angles", 300)
    x = (x + math.pi) % TURN - math.pi
    model = OISM(box=(-math.pi, math.pi), max_eigenvalue=25, ridge=0.01, flow_steps=64).fit(x)
    clock = VarianceExploding(0.01 * math.sqrt(500 / 25), 5.0)
    score = fit(torch.from_numpy(x), Fourier.lattice(1, 25), ridge=0.01, clock=clock)
    expected = log_density(Flow(score), torch.from_numpy(x[:50])).numpy()
    np.testing.assert_allclose(model.score_samples(x[:50]), expected, atol=1e-3)
    assert model.model_.background is None


@pytest.mark.parametrize("case", ["normals", "periodic and bounded", "columns", "principal"])
@pytest.mark.parametrize("t", [0.01, 0.5])
def test_scores_are_gradients_in_the_datas_units(case: str, t: float) -> None:
    if case in CASES:
        model, y = fitted(case), draw(CASES[case][0], 5, seed=9)
    else:
        x = np.exp(0.3 * rng().normal(size=(200, 4))) * np.array([1.0, 10.0, 2.0, 0.1])
        frame = "pca" if case == "principal" else "identity"
        model, y = OISM(process="ou", frame=frame, order=4, flow_steps=8).fit(x), x[:5]
    chart, score = model.model_.chart, model.model_.operator_score
    process = score.basis.process

    def log_noised(x: Array) -> Array:
        u = chart.to_process(torch.from_numpy(x))
        logs = score.log_ratio(u, t)
        if isinstance(process, OrnsteinUhlenbeck):
            logs = logs - 0.5 * u.square().sum(dim=1) / process.stationary_variance
        noised: Array = logs.numpy()
        return noised

    found = model.score_function(y, t)
    assert found.shape == y.shape
    for j in range(y.shape[1]):
        step = 1e-5 * y[:, j].std() * np.eye(y.shape[1])[j]
        slope = (log_noised(y + step) - log_noised(y - step)) / (2 * step[j])
        np.testing.assert_allclose(found[:, j], slope, rtol=1e-4, atol=1e-4 * np.abs(slope).max())


def test_times_are_the_processs_own_one_or_one_per_row() -> None:
    model, y = fitted("normals"), draw("normals", 3, seed=9)
    times = np.array([0.01, 0.1, 1.0])
    one_by_one = [model.score_function(row[None], t)[0] for row, t in zip(y, times, strict=True)]
    np.testing.assert_allclose(model.score_function(y, times), one_by_one, rtol=1e-10)
    low, high = model.model_.operator_score.times
    assert np.isfinite(model.score_function(y, low)).all()
    for t in (0.5 * low, 2 * high, -1.0, math.nan):
        with pytest.raises(ValueError, match="t must be"):
            model.score_function(y, t)
    with pytest.raises(ValueError, match="t must be one number or one per row: 3 rows, 2 values"):
        model.score_function(y, [0.1, 0.2])


MIXING = np.tril(rng(11).normal(size=(5, 5))) + np.eye(5)
GAUSS = scipy.stats.multivariate_normal(np.arange(5.0), MIXING @ MIXING.T)


@cache
def gaussian(**settings: Any) -> OISM:
    settings = {"process": "ou", **settings}
    model: OISM = OISM(**settings).fit(GAUSS.rvs(2000, random_state=0))
    return model


@pytest.mark.parametrize(
    "settings", [{}, {"order": 3}, {"process": OrnsteinUhlenbeck(theta=0.5, sigma=2.0)}]
)
def test_many_columns_of_a_gaussian(settings: dict[str, Any]) -> None:
    model, y = gaussian(**settings), GAUSS.rvs(500, random_state=1)
    gap = model.score_samples(y) - GAUSS.logpdf(y)
    assert abs(gap.mean()) < 0.05
    assert gap.std() < 0.3
    samples = model.sample(3000, random_state=0)
    np.testing.assert_allclose(samples.mean(axis=0), np.arange(5.0), atol=0.3)
    np.testing.assert_allclose(np.cov(samples.T), MIXING @ MIXING.T, rtol=0.15, atol=0.4)


def test_the_speed_of_the_process_matters_little() -> None:
    y = GAUSS.rvs(200, random_state=1)
    fast = gaussian(process=OrnsteinUhlenbeck(theta=0.5, sigma=2.0))
    gap = np.abs(fast.score_samples(y) - gaussian().score_samples(y))
    assert np.median(gap) < 0.02
    assert np.quantile(gap, 0.9) < 0.1  # ridges are chosen in other folds


def test_data_have_the_stationary_variance_of_the_process() -> None:
    x = GAUSS.rvs(300, random_state=3)
    process = OrnsteinUhlenbeck(theta=0.5, sigma=2.0)
    model = OISM(process=process, order=2, flow_steps=2).fit(x)
    u = model.model_.chart.to_process(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(np.cov(u.T, bias=True), 4.0 * np.eye(5), atol=1e-8)


def test_order_two_is_the_gaussian_of_the_data() -> None:
    x = GAUSS.rvs(300, random_state=3)
    model = OISM(process="ou", order=2, ridge=0.0, flow_steps=64).fit(x)
    law = scipy.stats.multivariate_normal(x.mean(axis=0), np.cov(x.T, bias=True))
    wide = scipy.stats.multivariate_t(x.mean(axis=0), 4 / 3 * np.cov(x.T, bias=True), df=3)
    expected = np.logaddexp(law.logpdf(x) + math.log(300 / 301), wide.logpdf(x) - math.log(301))
    np.testing.assert_allclose(model.score_samples(x), expected, atol=1e-3)
    # White data stay white: the score is that of the Gaussian at every time.
    slope = -np.linalg.solve(np.cov(x.T, bias=True), (x - x.mean(axis=0)).T).T
    for t in (0.01, 0.7):
        np.testing.assert_allclose(model.score_function(x, t), slope, rtol=1e-6, atol=1e-8)


def test_skewed_columns_are_not_gaussian() -> None:
    x, y = (np.exp(0.5 * rng(seed).normal(size=(1000, 4))) for seed in (0, 1))
    law = scipy.stats.lognorm(0.5)
    truth = law.logpdf(y).sum(axis=1).mean()
    normal = scipy.stats.multivariate_normal(x.mean(axis=0), np.cov(x.T)).logpdf(y).mean()
    found = OISM(process="ou", frame="identity", flow_steps=64).fit(x).score(y) / 1000
    assert found > normal + 0.5 * (truth - normal)
    assert found < truth + 0.05


@pytest.mark.filterwarnings("ignore:columns? .* (constant|linear functions)")
@pytest.mark.parametrize("columns", [3, 5])
@pytest.mark.parametrize("flat", ["constant", "collinear"])
def test_flat_data_are_finite(columns: int, flat: str) -> None:
    x = rng().normal(size=(60, columns))
    x[:, 1] = 3.0 if flat == "constant" else 2 * x[:, 0] - 1
    model = OISM(max_eigenvalue=4, flow_steps=8).fit(x)
    assert np.isfinite(model.score_samples(x)).all()
    samples = model.sample(50, random_state=0)
    assert np.isfinite(samples).all()
    gap = samples[:, 1] - (3.0 if flat == "constant" else 2 * samples[:, 0] - 1)
    assert np.median(np.abs(gap)) < 2.0


def test_a_point_does_not_depend_on_its_neighbours() -> None:
    small = OISM(max_eigenvalue=16, flow_steps=16).fit(draw("normals"))
    for model, dim in ((small, 2), (gaussian(), 5)):
        y = np.concatenate([rng().normal(size=(10_000, dim)), 1e6 * np.ones((1, dim))])
        together = model.score_samples(y)
        for place in (0, 17, 9_999, 10_000):
            alone = model.score_samples(y[place : place + 1])
            assert together[place] == pytest.approx(alone[0], rel=1e-7, abs=1e-7)


@pytest.mark.parametrize("far", [1e3, 1e6, 1e200, -1e300])
def test_far_queries_are_finite_and_unlikely(far: float) -> None:
    for model, dim in ((fitted("normal"), 1), (fitted("periodic and free"), 2), (gaussian(), 5)):
        value = model.score_samples(np.full((1, dim), far))
        assert np.isfinite(value).all()
        assert value[0] < -30


def student(x: Array) -> Any:
    """Return the background: Student with three degrees of freedom, twice the deviation of rows."""
    return scipy.stats.t(3, x.mean(), 2 * x.std() / math.sqrt(3))


def test_the_background_is_the_density_outside_of_the_box() -> None:
    model, x = fitted("normal"), draw("normal")
    y = np.array([[8.0], [-9.0], [30.0]])
    wide = student(x).logpdf(y[:, 0])
    np.testing.assert_allclose(model.score_samples(y), wide - math.log(N + 1), rtol=1e-4)
    # It takes its share of the samples as well.
    few = OISM(max_eigenvalue=4, flow_steps=8).fit(x[:4])
    half = math.pi / float(few.model_.chart.scale)
    samples = np.abs(few.sample(4000, random_state=0) - float(few.model_.chart.centre))
    centre = float(few.model_.chart.centre)
    law = student(x[:4])
    outside = 0.2 * (1 - law.cdf(centre + half) + law.cdf(centre - half))
    assert (samples > half).mean() == pytest.approx(outside, abs=0.01)
    assert outside > 0.03


def with_steps(model: TableModel, steps: int) -> TableModel:
    return TableModel(model.operator_score, model.chart, model.background, model.span, steps)


def test_more_steps_change_little_and_too_few_do() -> None:
    model, y = fitted("bimodal").model_, torch.from_numpy(draw("bimodal", 200, seed=3))
    logs = model.log_density(y)
    finer = with_steps(model, 4 * model.steps).log_density(y)
    assert float((finer - logs).square().mean().sqrt()) < 1e-3
    coarse = with_steps(model, 4).log_density(y)
    assert float((coarse - finer).square().mean().sqrt()) > 1e-2


@pytest.mark.slow
def test_converged_steps_reach_their_tolerance() -> None:
    for case in ("bimodal", "circles"):
        model = fitted(case).model_
        steps = converged_steps(model.operator_score, model.span)
        flow = Flow(model.operator_score, span=model.span)
        u = model.chart.to_process(torch.from_numpy(draw(CASES[case][0], 50, seed=5)))
        half, full, most = (
            log_density(flow, u, method=RungeKutta4(count))
            for count in (steps // 2, steps, 4 * steps)
        )
        error = float((full - most).square().mean().sqrt())
        assert error < 1e-3
        assert error < 0.3 * float((half - most).square().mean().sqrt())


def test_fewer_steps_would_not_have_converged() -> None:
    model = fitted("default").model_
    assert model.steps > 32
    flow = Flow(model.operator_score, span=model.span)
    u = flow.sample(100, (1,), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    coarse, fine = (
        log_density(flow, u, method=RungeKutta4(model.steps // part)) for part in (4, 2)
    )
    assert float((coarse - fine).square().mean().sqrt()) > 5e-4


def test_flow_steps_is_the_number_of_steps() -> None:
    x = draw("normal", 50)
    model = OISM(max_eigenvalue=9, flow_steps=5).fit(x)
    assert model.model_.steps == 5
    other = OISM(max_eigenvalue=9, flow_steps=50).fit(x)
    assert not np.allclose(model.score_samples(x), other.score_samples(x), atol=1e-6)
    one, two = (m.sample(20, random_state=0) for m in (model, other))
    assert not np.allclose(one, two, atol=1e-6)


def test_the_clock_is_the_one_that_is_given() -> None:
    clock = VarianceExploding(0.3, 4.0)
    model = OISM(max_eigenvalue=9, flow_steps=16, clock=clock).fit(draw("normal", 200))
    assert model.model_.operator_score.clock is clock
    assert model.model_.operator_score.times == pytest.approx((0.045, 8.0))
    # Data blurred by 0.3 of the box's coordinates.
    points, volume = cells(model.model_.chart, 1000, reach=3)
    density = np.exp(model.score_samples(points)) * volume
    variance = density @ points[:, 0] ** 2 - (density @ points[:, 0]) ** 2
    blur = (0.3 / float(model.model_.chart.scale)) ** 2
    assert variance == pytest.approx(draw("normal", 200).var() + blur, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["normals", "bimodal"])
def test_runs_of_rows_on_threads_change_nothing(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted(case)
    x = draw(case, 700, seed=5)
    whole, drawn = model.score_samples(x), model.sample(700, random_state=3)
    monkeypatch.setattr(table_model, "LEAST_RUN", 64)
    monkeypatch.setattr(table_model, "LARGEST_RUN", 128)
    threads = torch.get_num_threads()
    seen: list[int] = []

    def counted(work: Any, runs: Any) -> Any:
        seen.append(len(runs))
        return in_parallel(work, runs)

    monkeypatch.setattr(table_model, "in_parallel", counted)
    try:
        torch.set_num_threads(2)
        np.testing.assert_allclose(model.score_samples(x), whole, atol=1e-7)
        np.testing.assert_allclose(model.sample(700, random_state=3), drawn, atol=1e-6)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    # The tabulated flow of one column is not divided among threads.
    assert seen == ([6, 6] if model.n_features_in_ > 1 else [])


@pytest.mark.parametrize("dim", [1, 2])
def test_a_flow_that_does_not_converge_gives_a_warning(
    dim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was the last number of steps that was tried, without a word."""
    monkeypatch.setattr("oism.tables._model.STEPS", (2, 4, 8))
    monkeypatch.setattr("oism.tables._model.PILOT_TOLERANCE", 1e-12)
    x = rng().normal(size=(50, dim))
    with pytest.warns(UserWarning, match=r"still change by .* between 4 and 8 steps, and 8 are"):
        model = OISM(max_eigenvalue=2).fit(x)
    assert model.model_.steps == 8
