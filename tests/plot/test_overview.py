"""One page for a model of any number of columns, with rows or without."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from oism import OISM
from oism.plot import limits_of, overview

Array = NDArray[np.float64]


def dots(ax: Axes) -> Array:
    (points,) = ax.collections
    return np.asarray(points.get_offsets())


def panels_of(figure: Figure) -> list[Axes]:
    return [ax for ax in figure.axes if ax.get_label() != "<colorbar>"]


def test_one_column(line: OISM) -> None:
    rows = pd.DataFrame({"length": np.random.default_rng(0).gamma(2, 1, 300)})
    left, right = overview(line, rows).axes
    legend = left.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["300 rows", "fitted density"]
    (curve,) = left.lines
    x, y = (np.asarray(part) for part in curve.get_data())
    np.testing.assert_allclose(y, np.exp(line.score_samples(pd.DataFrame({"length": x}))))
    score = np.asarray(right.lines[0].get_ydata())
    t = 0.005  # noise of a tenth
    where = pd.DataFrame({"length": np.asarray(right.lines[0].get_xdata())})
    np.testing.assert_allclose(score, line.score_function(where, t)[:, 0])
    assert left.get_xlabel() == right.get_xlabel() == "length"
    legend = overview(line).axes[0].get_legend()
    assert legend is not None
    assert legend.get_texts()[0].get_text() == "5,000 samples"


def test_two_angles(torus: OISM, angles: pd.DataFrame) -> None:
    figure = overview(torus, angles, random_state=3)
    data, density, drawn, score = panels_of(figure)
    titles = [ax.get_title() for ax in panels_of(figure)]
    assert titles == ["400 rows", "fitted log-density", "400 samples", "score, noise σ = 5.7"]
    assert len(figure.axes) == 5, "and a colour bar"
    assert figure.axes[-1].get_ylabel() == "nats below the mode"
    np.testing.assert_allclose(dots(data), angles)
    np.testing.assert_allclose(dots(drawn), torus.sample(400, random_state=3))
    assert len(density.lines) == 2  # a Ramachandran plot has lines through its middle
    assert (data.get_xlabel(), data.get_ylabel()) == ("phi", "psi")
    assert score.get_xlabel() == "phi"
    for ax in panels_of(figure):
        assert (ax.get_xlim(), ax.get_ylim()) == ((0, 360), (0, 360))


def test_two_columns_of_the_plane(plane: OISM, rows: Array) -> None:
    titles = [ax.get_title() for ax in panels_of(overview(plane))]
    units = [(high - low) / (2 * np.pi) for low, high in limits_of(plane)]
    noise = ", ".join(f"{0.1 * unit:.2g}" for unit in units)
    assert titles == ["fitted density", "5,000 samples", f"score, noise σ = ({noise})"]
    figure = overview(plane, rows, columns=(0, 1))
    assert len(panels_of(figure)) == 4
    assert len(figure.axes[1].images) == 1


def test_five_columns(five: OISM, five_rows: pd.DataFrame) -> None:
    figure = overview(five, five_rows, random_state=1)
    panels = np.array(figure.axes).reshape(5, 5)
    samples, data = five.sample(300, random_state=1), five_rows.to_numpy()
    limits = limits_of(five)
    for i in range(5):
        for j in range(5):
            panel = panels[i, j]
            assert panel.get_xlim() == pytest.approx(limits[j])
            if i == j:
                assert len(panel.patches) > 1
                continue
            expected = samples if j < i else data
            np.testing.assert_allclose(dots(panel), expected[:, [j, i]])
            assert panel.get_ylim() == pytest.approx(limits[i])
    assert [panel.get_xlabel() for panel in panels[-1]] == list("abcde")
    assert [panel.get_ylabel() for panel in panels[:, 0]] == list("abcde")
    assert figure.get_suptitle() == "below the diagonal 300 samples, above it 300 rows"


def test_five_columns_without_rows(five: OISM) -> None:
    figure = overview(five)
    panels = np.array(figure.axes).reshape(5, 5)
    assert not panels[0, 3].axison
    assert panels[3, 0].axison
    assert figure.get_suptitle() == "below the diagonal 5,000 samples"


def test_two_columns_without_a_box(rows: Array) -> None:
    model = OISM(process="ou", order=3, flow_steps=8).fit(rows)
    data, density, drawn, _ = panels_of(overview(model, rows))
    np.testing.assert_allclose(dots(data), rows)
    np.testing.assert_allclose(dots(drawn), model.sample(len(rows), random_state=0))
    assert len(density.images) == 1
    assert density.get_title() == "fitted density"


def test_a_periodic_a_bounded_and_a_free_column(mixed: OISM) -> None:
    panels = np.array(overview(mixed).axes).reshape(3, 3)
    assert panels[1, 0].get_xlim() == pytest.approx((-180, 180))
    assert panels[1, 0].get_ylim() == pytest.approx((0, 1))
    values = dots(panels[2, 1])[:, 0]
    assert 0 <= values.min() < values.max() <= 1


def test_more_columns_than_fit_on_a_page() -> None:
    x = np.random.default_rng(0).normal(size=(50, 8))
    figure = overview(OISM(order=2, flow_steps=4).fit(x), x)
    assert len(figure.axes) == 36
    assert "(the first 6 columns)" in figure.get_suptitle()


def test_two_of_five_columns(five: OISM, five_rows: pd.DataFrame) -> None:
    figure = overview(five, five_rows, columns=(3, 1), random_state=2)
    data, drawn = figure.axes
    np.testing.assert_allclose(dots(data), five_rows[["d", "b"]])
    np.testing.assert_allclose(dots(drawn), five.sample(300, random_state=2)[:, [3, 1]])
    for ax in figure.axes:
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("d", "b")
        assert ax.get_xlim() == pytest.approx(limits_of(five)[3])
    (alone,) = overview(five, columns=(3, 1)).axes
    assert alone.get_title() == "5,000 samples"


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ((0, 5), r"columns must be two of 5, got \(0, 5\)"),
        ((2, 2), r"columns must be two of 5, got \(2, 2\)"),
        ((1,), r"columns must be two of 5, got \(1,\)"),
        ((0, 1, 1), r"columns must be two of 5, got \(0, 1, 1\)"),
        ((-1, 0), "columns must be an integer >= 0, got -1"),
    ],
)
def test_columns_that_are_not_two(columns: Any, message: str, five: OISM) -> None:
    with pytest.raises(ValueError, match=message):
        overview(five, columns=columns)
    assert not plt.get_fignums()


def test_rows_of_another_width(five: OISM, plane: OISM) -> None:
    with pytest.raises(ValueError, match=r"rows must have the 5 columns .* got \(7, 4\)"):
        overview(five, np.zeros((7, 4)))
    with pytest.raises(ValueError, match=r"rows must have the 2 columns .* got \(7,\)"):
        overview(plane, np.zeros(7))


def test_rows_that_came_in_batches(rows: Array) -> None:
    model = OISM(max_eigenvalue=25, flow_steps=16)
    model.partial_fit(rows)
    assert len(panels_of(overview(model, rows))) == 4
