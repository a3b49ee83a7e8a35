"""Conditional samples against sections of the joint density, and against exact conditionals."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch

from oism import OISM, storage
from oism.tables import BoxChart, TableModel, sample_given

Array = np.ndarray
N = 20_000  # drawn at once, from the section: the flow is not run again


def data(n: int) -> Array:
    """Return an angle, a share and a size that depend on each other."""
    r = np.random.default_rng(0)
    angle = r.vonmises(0.0, 2.0, n)
    share = r.beta(2.0, 2.0 + np.cos(angle), n)
    size = 0.8 * np.sin(angle) + share + 0.5 * r.normal(size=n)
    return np.stack([angle, share, size], axis=1)


KINDS: dict[str, tuple[list[int], dict[str, Any]]] = {
    "free": ([0, 2], {}),
    "periodic, free": ([0, 2], {"periodic": {0: 2 * math.pi}}),
    "bounded, free": ([1, 2], {"bounds": {0: (0.0, 1.0)}}),
    "periodic, bounded": ([0, 1], {"periodic": {0: 2 * math.pi}, "bounds": {1: (0.0, 1.0)}}),
    "few": ([0, 2], {}),
    "three rows": ([0, 2], {}),
    "few, bounded": ([1, 2], {"bounds": {0: (0.0, 1.0)}}),
}


@cache
def fitted(kind: str) -> OISM:
    columns, settings = KINDS[kind]
    x = data({"three rows": 3}.get(kind, 6 if "few" in kind else 400))[:, columns]
    model: OISM = OISM(max_eigenvalue=16, flow_steps=32, **settings).fit(x)
    return model


def table(kind: str) -> TableModel:
    model = fitted(kind).model_
    assert isinstance(model, TableModel)
    return model


def axis(chart: BoxChart, column: int, count: int, boxes: int = 3) -> Array:
    """Return midpoints of cells over the range of a column, free ones some boxes wide."""
    half, centre = math.pi / float(chart.scale[column]), float(chart.centre[column])
    low, high = centre - boxes * half, centre + boxes * half
    if bool(chart.periodic[column]):
        low = float(chart.start[column])
        high = low + 2 * half
    elif bool(chart.bounded[column]):
        low, high = centre, centre + half
    return low + (high - low) * (np.arange(count) + 0.5) / count


def section(
    model: OISM, given: dict[int, float], count: int, boxes: int = 3
) -> tuple[Array, Array]:
    """Return points whose given columns are fixed, and their weights by the joint density."""
    chart = model.model_.chart
    assert isinstance(chart, BoxChart)
    axes = [
        np.array([given[j]]) if j in given else axis(chart, j, count, boxes)
        for j in range(model.n_features_in_)
    ]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
    logs = model.score_samples(points)
    weights = np.exp(logs - logs.max())
    return points, weights / weights.sum()


def distance(samples: Array, points: Array, weights: Array) -> float:
    """Return Kolmogorov's distance between samples and cells with weights."""
    edges = 0.5 * (points[1:] + points[:-1])
    below = np.searchsorted(np.sort(samples), edges) / len(samples)
    return float(np.abs(below - np.cumsum(weights)[:-1]).max())


CASES = [
    ("free", 0, 0.3),
    ("free", 1, 0.5),
    ("free", 1, 2.7),  # rare: the background has its share
    ("free", 0, 9.0),  # outside of the box: nothing but the background
    ("few", 0, 0.1),
    ("few", 0, 1.6),
    ("three rows", 1, 0.5),
    ("three rows", 0, 0.0),
    ("few, bounded", 0, 0.5),
    ("few, bounded", 0, 0.02),
    ("few, bounded", 1, 0.9),
    ("periodic, free", 0, 1.0),
    ("periodic, free", 0, 1.0 + 6 * math.pi),
    ("periodic, free", 1, -0.5),
    ("bounded, free", 0, 0.02),
    ("bounded, free", 1, 0.9),
    ("periodic, bounded", 0, 2.5),
    ("periodic, bounded", 1, 0.9),
]


@pytest.mark.parametrize(("kind", "column", "value"), CASES)
def test_samples_follow_the_section_of_the_joint_density(
    kind: str, column: int, value: float
) -> None:
    model = fitted(kind)
    samples = model.sample(N, random_state=0, given={column: value})
    assert samples.shape == (N, 2)
    assert (samples[:, column] == value).all()
    other = 1 - column
    points, weights = section(model, {column: value}, 4800, boxes=12)
    assert distance(samples[:, other], points[:, other], weights) < 1.95 / math.sqrt(N)
    assert len(np.unique(samples[:, other])) > 0.99 * N, "not only nodes of a grid"


def test_the_distance_sees_another_section() -> None:
    model = fitted("free")
    samples = model.sample(N, random_state=0, given={0: 0.3})
    points, weights = section(model, {0: 0.4}, 1200)
    assert distance(samples[:, 1], points[:, 1], weights) > 1.95 / math.sqrt(N)


@cache
def three() -> OISM:
    settings: dict[str, Any] = {"periodic": {0: 2 * math.pi}, "bounds": {1: (0.0, 1.0)}}
    model: OISM = OISM(max_eigenvalue=6, flow_steps=16, **settings).fit(data(300))
    return model


def test_two_of_three_columns_given() -> None:
    for given, other in (({0: 1.0, 1: 0.4}, 2), ({1: 0.4, 2: 0.5}, 0), ({0: 1.0, 2: 0.5}, 1)):
        samples = three().sample(N, random_state=0, given=given)
        points, weights = section(three(), given, 600)
        assert distance(samples[:, other], points[:, other], weights) < 1.95 / math.sqrt(N)


@pytest.mark.parametrize("given", [{0: 1.0}, {1: 0.4}, {2: 1.5}])
def test_one_of_three_columns_given(given: dict[int, float]) -> None:
    samples = three().sample(N, random_state=0, given=given)
    points, weights = section(three(), given, 40)
    rest = [j for j in range(3) if j not in given]

    def features(x: Array) -> Array:
        left, right = (np.clip(x[:, j], -4, 4) for j in rest)
        return np.stack(
            [np.sin(left), np.cos(left), np.sin(right), np.cos(right), np.sin(left + right)]
        )

    expected = features(points) @ weights
    found = features(samples)
    error = found.std(axis=1) / math.sqrt(N)
    assert (np.abs(found.mean(axis=1) - expected) < 4 * error + 2e-3).all()


def test_the_conditional_of_a_correlated_gaussian() -> None:
    r = np.random.default_rng(1)
    x = r.normal(size=(2000, 2)) @ np.array([[1.0, 0.8], [0.0, 0.6]])
    model = OISM(max_eigenvalue=36, flow_steps=32).fit(x)
    for column, value in ((0, 1.0), (1, -0.5), (0, 0.0)):
        samples = model.sample(4000, random_state=0, given={column: value})[:, 1 - column]
        exact = scipy.stats.norm(0.8 * value, 0.6)
        assert scipy.stats.kstest(samples, exact.cdf).statistic < 0.06
        assert scipy.stats.kstest(samples, "norm").statistic > 0.1, (
            "the marginal is another distribution"
        )


def test_the_conditional_of_a_mixture() -> None:
    r = np.random.default_rng(2)
    centre = np.where(r.uniform(size=3000) < 0.5, -1.0, 1.0)
    noise = r.normal(size=(3000, 2))
    x = np.stack([centre + 0.7 * noise[:, 0], 2 * centre + 0.6 * noise[:, 1]], axis=1)
    model = OISM(max_eigenvalue=36, flow_steps=32).fit(x)
    for value in (0.0, 0.4):
        odds = 1 / (1 + math.exp(-2 * value / 0.7**2))
        samples = model.sample(4000, random_state=0, given={0: value})[:, 1]

        def cdf(y: Array, odds: float = odds) -> Array:
            up, down = scipy.stats.norm.cdf(y, 2, 0.6), scipy.stats.norm.cdf(y, -2, 0.6)
            mixed: Array = odds * up + (1 - odds) * down
            return mixed

        assert scipy.stats.kstest(samples, cdf).statistic < 0.09
        assert (samples > 0).mean() == pytest.approx(odds, abs=0.09)


def test_no_chart_rounds_the_given_value_out_of_its_box(generator: torch.Generator) -> None:
    # The density of (0, u) is that of fitted("free") whatever the units: 40 of them.
    model = table("free")
    for _ in range(40):
        centre = 10 * torch.randn(2, generator=generator, dtype=torch.float64)
        scale = 0.1 + torch.rand(2, generator=generator, dtype=torch.float64)
        free = torch.zeros(2, dtype=torch.bool)
        chart = BoxChart(centre, scale, torch.zeros_like(centre), free, free)
        other = TableModel(model.operator_score, chart, None, model.span, steps=2)
        u = chart.to_process(sample_given(other, {0: float(centre[0])}, 100, generator))[:, 1]
        assert float((u.abs() < 2).double().mean()) > 0.8


def test_reproducible_and_any_number() -> None:
    model = fitted("free")
    one, two = (model.sample(50, random_state=3, given={0: 0.2}) for _ in range(2))
    np.testing.assert_array_equal(one, two)
    assert model.sample(0, given={0: 0.2}).shape == (0, 2)
    given: dict[Any, Any] = {np.int64(-2): np.float32(0.5)}
    assert float(model.sample(1, given=given)[0, 0]) == 0.5


def test_without_a_generator_samples_are_those_of_the_global_one() -> None:
    model, given = table("periodic, free"), {0: 1.0}
    drawn, after = [], []
    for _ in range(2):
        torch.manual_seed(0)
        drawn.append(sample_given(model, given, 50, None))
        after.append(torch.rand(3))
    assert torch.equal(drawn[0], drawn[1])
    assert torch.equal(after[0], after[1])
    assert torch.equal(drawn[0], sample_given(model, given, 50, torch.Generator().manual_seed(0)))


def test_drawn_columns_keep_their_range() -> None:
    samples = fitted("periodic, bounded").sample(5000, random_state=0, given={0: 2.0})
    assert samples[:, 1].min() >= 0
    assert samples[:, 1].max() <= 1
    samples = fitted("periodic, bounded").sample(5000, random_state=0, given={1: 0.5})
    assert samples[:, 0].min() >= -math.pi
    assert samples[:, 0].max() < math.pi


@pytest.mark.parametrize("kind", ["bounded, free", "periodic, bounded"])
@pytest.mark.parametrize("value", [-0.01, 1.01])
def test_beyond_the_bounds_there_is_nothing(kind: str, value: float) -> None:
    with pytest.raises(ValueError, match="given lies outside of the bounds of its columns"):
        fitted(kind).sample(3, given={0 if kind == "bounded, free" else 1: value})


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({0: 1.0, 1: 1.0}, ValueError, "given must leave at least one of the 2 columns"),
        ({2: 1.0}, ValueError, "given has column 2, but the data have 2 columns"),
        ({"a": 1.0}, ValueError, "given names column 'a', but the data have no column names"),
        ({0: math.nan}, ValueError, r"given\[0\] must be a finite number"),
        ({0: "x"}, TypeError, r"given\[0\] must be a finite number"),
        ({0: 1.0, -2: 1.0}, ValueError, "given must name every column once"),
        ([1.0], TypeError, "given must be a mapping"),
    ],
)
def test_wrong_values_of_given_are_errors(given: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        fitted("free").sample(3, given=given)


def test_only_the_torus_has_conditionals() -> None:
    x = np.random.default_rng(0).normal(size=(50, 2))
    with pytest.raises(ValueError, match="2 columns and process OrnsteinUhlenbeck"):
        OISM(flow_steps=4, process="ou").fit(x).sample(3, given={0: 1.0})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("column", [0, 1])
def test_marginals_are_integrals_of_the_joint_density(kind: str, column: int) -> None:
    model = table(kind)
    chart = model.chart
    assert isinstance(chart, BoxChart)
    low, width = float(chart.low[column]), float(chart.width[column])
    values = low + width * torch.tensor([0.2, 0.5, 0.9], dtype=torch.float64)
    if bool(chart.free[column]):
        values = torch.cat((values, low + width * values.new_tensor([-0.1])))  # background only
    count = 8000
    over = torch.from_numpy(axis(chart, 1 - column, count, boxes=20))
    points = torch.empty(len(values), count, 2, dtype=torch.float64)
    points[..., column], points[..., 1 - column] = values[:, None], over
    logs = model.log_density(points.reshape(-1, 2)).reshape(-1, count)
    expected = torch.logsumexp(logs, dim=1) + math.log(float(over[1] - over[0]))
    found = model.marginal([column])
    few = found.log_density(values[:, None])
    torch.testing.assert_close(few, expected, atol=1e-3, rtol=0)
    many = values.repeat(40)[:, None]  # enough for splines
    torch.testing.assert_close(found.log_density(many), few.repeat(40), atol=2e-5, rtol=0)
    assert torch.equal(found.log_density(values[:, None]), few)  # whatever was evaluated before
    section = model.conditional({column: float(values[1])}).log_density(over[:, None])
    inside = torch.logsumexp(section, dim=0)
    assert float(inside) + math.log(float(over[1] - over[0])) == pytest.approx(0, abs=1e-3)


def test_splines_are_used_for_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    model = table("free")
    flow_density = TableModel.flow_density

    def spy(self: TableModel, u: torch.Tensor, **more: Any) -> torch.Tensor:
        seen.append(len(u))
        return flow_density(self, u, **more)

    monkeypatch.setattr(TableModel, "flow_density", spy)
    found = model.marginal([0])
    x = torch.linspace(-1, 1, 1000, dtype=torch.float64)[:, None]
    once = found.log_density(x)
    assert sum(seen) < 5000
    used = sum(seen)
    assert torch.equal(found.log_density(x), once)
    assert sum(seen) == used, "the table is kept"
    torch.testing.assert_close(found.log_density(x[:3]), once[:3], rtol=0, atol=2e-5)


@pytest.mark.slow
def test_splines_of_two_columns_have_the_accuracy_declared() -> None:
    model = three().model_
    assert isinstance(model, TableModel)
    pair, x = model.marginal([0, 1]), torch.from_numpy(data(60)[:, :2])
    many = pair.log_density(x.repeat(40, 1))[: len(x)]  # enough for splines
    torch.testing.assert_close(many, pair.log_density(x), rtol=0, atol=4e-4)


def test_marginals_of_three_columns() -> None:
    model = three().model_
    assert isinstance(model, TableModel)
    x = torch.from_numpy(data(300)[:6])
    pair, one = model.marginal([2, 0]), model.marginal([1])
    # The chain rule: p(x_0, x_2) p(x_1 | x_0, x_2) = p(x).
    rest = model.conditional({0: float(x[0, 0]), 2: float(x[0, 2])})
    total = pair.log_density(x[:1, [2, 0]]) + rest.log_density(x[:1, 1:2])
    torch.testing.assert_close(total, model.log_density(x[:1]), atol=1e-3, rtol=0)
    nested = model.marginal([1, 2]).marginal([0])
    torch.testing.assert_close(nested.log_density(x[:1, 1:2]), one.log_density(x[:1, 1:2]))
    both = model.conditional({2: 0.5}).conditional({0: 1.0})  # column 1, given 0 and 2
    other = model.conditional({0: 1.0, 2: 0.5})
    torch.testing.assert_close(both.log_density(x[:, 1:2]), other.log_density(x[:, 1:2]))
    grid = torch.linspace(0, 1, 31, dtype=torch.float64)[:, None]
    mass = torch.trapezoid(one.log_density(grid).exp(), grid[:, 0])
    assert float(mass) == pytest.approx(1, abs=1e-3)


def test_samples_of_marginals() -> None:
    samples = table("free").marginal([1]).sample(4000, torch.Generator().manual_seed(0))
    other = table("free").sample(4000, torch.Generator().manual_seed(1))
    assert samples.shape == (4000, 1)
    assert scipy.stats.ks_2samp(samples[:, 0], other[:, 1]).pvalue > 0.01
    assert scipy.stats.ks_2samp(samples[:, 0], other[:, 0]).pvalue < 0.01


@pytest.mark.parametrize("columns", [[], [0, 0], [2], [-1]])
def test_columns_of_a_marginal_are_checked(columns: list[int]) -> None:
    with pytest.raises(ValueError, match="columns"):
        table("free").marginal(columns)


def test_rows_with_gaps_have_the_density_of_their_entries() -> None:
    model = fitted("periodic, free")
    x = data(5)[:, [0, 2]]
    x[1, 0] = x[2, 1] = np.nan
    x[3] = np.nan
    logs = model.score_samples(x)
    joint = table("periodic, free")
    one, other = (joint.marginal([j]) for j in (1, 0))
    assert logs[0] == pytest.approx(float(joint.log_density(torch.from_numpy(x[:1]))))
    assert logs[1] == pytest.approx(float(one.log_density(torch.from_numpy(x[1:2, 1:]))))
    assert logs[2] == pytest.approx(float(other.log_density(torch.from_numpy(x[2:3, :1]))))
    assert logs[3] == 0
    with pytest.raises(ValueError, match=r"Input X contains NaN: column 0, row 1\. Leave out rows"):
        OISM().fit(x)


def test_a_marginal_is_a_file_too(tmp_path: Path) -> None:
    found = table("free").conditional({0: 0.3})
    storage.save(found, tmp_path / "section.safetensors")
    again = storage.load(tmp_path / "section.safetensors")
    x = torch.tensor([[0.1], [0.7]], dtype=torch.float64)
    assert torch.equal(again.log_density(x), found.log_density(x))
