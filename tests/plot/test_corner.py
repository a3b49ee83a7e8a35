"""Corner plots: marginals against known densities, kinds of columns, labels that do not overlap."""

from __future__ import annotations

import itertools
import math
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy import stats

from oism import OISM
from oism.plot import corner
from oism.plot._corner import DOTS, SHARES, _number
from oism.plot._marginals import Axis, density_levels, marginal_density, pair_density
from oism.tables import Column

Array = NDArray[np.float64]
SPECIES = ("setosa", "versicolor", "virginica with a long name")


def mixed_rows(n: int, seed: int) -> pd.DataFrame:
    r = np.random.default_rng(seed)
    kind = r.integers(0, 3, n)
    return pd.DataFrame(
        {
            "length": r.normal(size=n) + kind,
            "crp": r.gamma(1.0, 1.0, n),
            "share": r.beta(2, 1, n),
            "phi": np.remainder(np.degrees(r.vonmises(0, 2, n)), 360),
            "count": np.minimum(r.poisson(2, n), 9),
            "species": np.array(SPECIES, dtype=object)[kind],
            "psi": r.vonmises(math.pi, 2, n),
            "a_column_with a long name": 1e6 * (3 + r.normal(size=n)),
        }
    )


class Known:
    """A model whose samples are those of `mixed_rows`."""

    n_features_in_ = 8
    feature_names_in_ = np.array(mixed_rows(1, 0).columns, dtype=object)
    columns_ = (
        Column(),
        Column(low=0.0),
        Column(low=0.0, high=1.0),
        Column(period=360.0),
        Column(levels=tuple(range(10))),
        Column(levels=SPECIES, categorical=True),
        Column(period=2 * math.pi),
        Column(),
    )

    def sample(self, n_samples: int = 1, random_state: int = 0) -> pd.DataFrame:
        return mixed_rows(n_samples, 1000 + random_state)


def panels_of(figure: Figure) -> NDArray[Any]:
    count = math.isqrt(len(figure.axes))
    return np.array(figure.axes).reshape(count, count)


def dots(panel: Axes) -> Array:
    return np.asarray(panel.collections[-1].get_offsets())


@pytest.fixture(scope="module")
def eight() -> Figure:
    rows = mixed_rows(500, 0)
    rows.loc[3, "length"] = 1e6  # an outlier must not set the range
    rows.loc[4, "share"] = math.nan
    figure = corner(Known(), rows)
    figure.draw_without_rendering()
    return figure


@pytest.mark.parametrize(
    ("column", "law"),
    [
        (Column(), stats.norm()),
        (Column(low=0.0), stats.expon()),  # as high as possible at its bound
        (Column(low=0.0, high=1.0), stats.beta(1, 2)),
        (Column(period=2 * math.pi, start=-math.pi), stats.vonmises(2, loc=3.0)),
    ],
)
def test_a_marginal_is_the_density_of_the_samples(column: Column, law: Any) -> None:
    """Up to its bounds: without reflection the density would be halved there."""
    x = law.rvs(40_000, random_state=np.random.default_rng(0))
    axis = Axis.of(column, "x", [x])
    edges, density = marginal_density(axis, axis.places(x))
    middles = 0.5 * (edges[1:] + edges[:-1])
    inside = law.pdf(middles)
    assert np.abs(density - inside).max() < 0.08 * inside.max()
    assert density @ np.diff(edges) == pytest.approx(1, abs=0.02)


def test_the_density_of_a_pair_is_that_of_correlated_normals() -> None:
    """Of marginals of different shape the transposed table would be wrong."""
    law = stats.multivariate_normal(cov=[[1.0, 1.8], [1.8, 4.0]])
    x, y = law.rvs(40_000, random_state=np.random.default_rng(1)).T
    first, second = Axis.of(Column(), "x", [x]), Axis.of(Column(), "y", [y])
    table = pair_density(first, second, x, y)
    places = [0.5 * (edges[1:] + edges[:-1]) for edges in (first.edges(90), second.edges(90))]
    truth = law.pdf(np.stack(np.meshgrid(*places), axis=-1))
    assert np.abs(table - truth).max() < 0.15 * truth.max()
    y = np.random.default_rng(2).exponential(size=len(x))
    second = Axis.of(Column(low=0.0), "y", [y])
    table = pair_density(first, second, x, y)
    places[1] = 0.5 * (second.edges(90)[1:] + second.edges(90)[:-1])
    truth = stats.expon.pdf(places[1])[:, None] * stats.norm.pdf(places[0])
    assert np.abs(table - truth).max() < 0.15 * truth.max()
    assert np.abs(table.T - truth).max() > 0.5 * truth.max()


def test_regions_hold_their_shares_of_the_mass() -> None:
    """Of a normal distribution in the plane the share p lies where the density is above (1-p)ρ."""
    axis = np.linspace(-6, 6, 301)
    density = np.exp(-0.5 * (axis[:, None] ** 2 + axis**2))
    for share, level in zip(SHARES, density_levels(density, SHARES), strict=True):
        assert level == pytest.approx(1 - share, abs=0.01)


def test_the_panels_of_eight_columns(eight: Figure) -> None:
    panels = panels_of(eight)
    low, high = panels[0, 0].get_xlim()
    assert -8 < low < high < 10, "in spite of the outlier"
    ranges = {k: panels[-1, k].get_xlim() for k in range(8)}
    assert ranges[1][0] == 0
    assert ranges[2] == (0, 1)
    assert ranges[3] == (0, 360)
    assert ranges[4] == (-0.5, 9.5)
    assert ranges[5] == (-0.5, 2.5)
    assert ranges[6] == pytest.approx((-math.pi, math.pi))
    assert [panel.get_xlabel() for panel in panels[-1]][-1] == "a column with\na long name"
    rows = mixed_rows(500, 0)
    shown = dots(panels[3, 1])  # phi over crp
    assert len(shown) == 500
    assert set(np.round(shown[:, 1], 9)) == set(np.round(rows["phi"], 9))
    drawn = dots(panels[1, 3])  # samples above the diagonal, with the axes exchanged
    assert len(drawn) == 500
    assert set(np.round(drawn[:, 0], 9)) <= set(np.round(mixed_rows(10_000, 1000)["phi"], 9))
    legend = [text.get_text() for text in eight.legends[0].get_texts()]
    assert legend == ["500 rows", "model, regions of 20, 50, 80, 95% of its mass", "samples"]


def test_bars_and_boxes_are_shares(eight: Figure) -> None:
    panels, rows = panels_of(eight), mixed_rows(500, 0)
    heights = [bar.get_height() for bar in panels[5, 5].patches]
    expected = rows["species"].value_counts(normalize=True)
    np.testing.assert_allclose(heights, [expected[one] for one in SPECIES])
    model, data = panels[5, 4].collections  # boxes of the model, outlines of the data
    boxes = [path.get_extents() for path in data.get_paths()]
    observed = rows.groupby(["species", "count"]).size().to_numpy() / 500
    areas = np.array([box.width * box.height for box in boxes])
    np.testing.assert_allclose(np.sort(areas / areas.max()), np.sort(observed / observed.max()))
    assert len(model.get_paths()) >= len(boxes)


def test_labels_do_not_overlap(eight: Figure) -> None:
    panels = panels_of(eight)
    texts = [text for panel in panels[-1] for text in panel.get_xticklabels()]
    texts += [text for panel in panels[1:, 0] for text in panel.get_yticklabels()]
    texts += [panel.xaxis.label for panel in panels[-1]]
    texts += [panel.yaxis.label for panel in panels[:, 0]]
    shown = [text for text in texts if text.get_text() and text.get_visible()]
    boxes = [text.get_window_extent() for text in shown]
    width, height = eight.get_size_inches() * eight.dpi
    for text, box in zip(shown, boxes, strict=True):
        inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height
        assert inside, text.get_text()
    for (first, one), (second, other) in itertools.combinations(zip(shown, boxes, strict=True), 2):
        assert not one.overlaps(other), (first.get_text(), second.get_text())


def test_columns_by_name_and_number() -> None:
    panels = panels_of(corner(Known(), columns=["phi", 0], n_samples=500))
    assert [panel.get_xlabel() for panel in panels[-1]] == ["phi", "length"]
    assert len(dots(panels[0, 1])) == 500
    (alone,) = corner(Known(), mixed_rows(50, 0), columns=["crp"], n_samples=500).axes
    assert (alone.get_xlabel(), alone.get_ylabel()) == ("crp", "density")


def test_many_rows_are_thinned_and_many_columns_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oism.plot._corner.MOST_COLUMNS", 3)

    class Wide:
        n_features_in_ = 5

        def sample(self, n_samples: int = 1, random_state: int = 0) -> Array:
            return np.random.default_rng(random_state).normal(size=(n_samples, 5))

    figure = corner(Wide(), np.zeros((3000, 5)) + np.arange(3000)[:, None], n_samples=3000)
    panels = panels_of(figure)
    assert panels.shape == (3, 3)
    assert len(dots(panels[1, 0])) == len(dots(panels[0, 1])) == DOTS
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts[0] == "3,000 rows"
    assert texts[-1] == "samples (2 more columns are not shown)"


def test_frames_of_other_libraries_and_arrays() -> None:
    rows = mixed_rows(40, 0)
    for table in (rows[rows.columns[::-1]], pa.table(rows.to_dict("list")), rows.to_numpy()):
        panels = panels_of(corner(Known(), table, columns=["phi", "species"], n_samples=200))
        places = dots(panels[1, 0])[:, 0]
        assert set(np.round(places, 9)) == set(np.round(rows["phi"], 9))


def test_constant_columns_are_drawn(rows: Array) -> None:
    class Constant:
        n_features_in_ = 2

        def sample(self, n_samples: int = 1, random_state: int = 0) -> Array:
            return np.stack([np.full(n_samples, 7.0), np.arange(float(n_samples))], axis=1)

    panels = panels_of(corner(Constant(), n_samples=100))
    low, high = panels[0, 0].get_xlim()
    assert low < 7 < high


@pytest.mark.parametrize(
    ("rows", "columns", "message"),
    [
        (None, ["nothing"], "columns names 'nothing'; the columns are"),
        (None, [8], "columns must be out of 0 to 7, got 8"),
        (None, [1, 1], "columns must be distinct"),
        (None, [], "columns must be distinct, at least one"),
        (np.zeros((5, 3)), None, r"X must have the 8 columns of the model, got shape \(5, 3\)"),
        (pd.DataFrame({"phi": [1.0]}), None, "X must have column 'length'; its columns are"),
    ],
)
def test_mistakes(rows: Any, columns: Any, message: str) -> None:
    before = plt.get_fignums()
    with pytest.raises(ValueError, match=message):
        corner(Known(), rows, columns=columns, n_samples=50)
    assert plt.get_fignums() == before, "no figure is left open"


def test_a_column_without_values() -> None:
    rows = mixed_rows(5, 0)
    rows["crp"] = math.nan
    with pytest.raises(ValueError, match="X must have values in column 'crp', got none"):
        corner(Known(), rows, n_samples=50)


def test_a_fitted_model(mixed: OISM) -> None:
    panels = panels_of(corner(mixed, n_samples=300))
    assert panels[2, 0].get_xlim() == (-180, 180)
    assert panels[2, 1].get_xlim() == (0, 1)


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (-2.5, "−2.5"), (3e6, "3e6"), (1e-5, "1e−5"), (1200, "1200")]
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert _number(value) == text


def test_many_levels_of_numbers_are_an_interval_and_of_texts_are_not() -> None:
    numbers = tuple(float(k) for k in range(30))
    axis = Axis.of(Column(levels=numbers), "x", [np.array(numbers)])
    assert axis.levels == ()
    texts = tuple(map(str, range(30)))
    axis = Axis.of(Column(levels=texts, categorical=True), "x", [])
    assert (axis.low, axis.high, axis.levels) == (-0.5, 29.5, texts)
    places = axis.places(np.array(["3", "none", None], dtype=object))
    np.testing.assert_array_equal(places, [3, math.nan, math.nan])


def test_a_marginal_and_a_conditional_have_corner_plots() -> None:
    x = np.random.default_rng(0).normal(size=(60, 3))
    model = OISM(max_eigenvalue=2, flow_steps=4).fit(x)
    for part, rows in ((model.marginal([0, 2]), x[:, [0, 2]]), (model.conditional({1: 0.0}), None)):
        figure = corner(part, rows, n_samples=200)
        assert len(figure.axes) == 4
        plt.close(figure)
