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


def test_five_columns_are_a_corner_plot(five: OISM, five_rows: pd.DataFrame) -> None:
    figure = overview(five, five_rows, random_state=1)
    panels = np.array(figure.axes).reshape(5, 5)
    assert [panel.get_xlabel() for panel in panels[-1]] == list("abcde")
    shown = np.asarray(panels[3, 1].collections[-1].get_offsets())
    np.testing.assert_allclose(np.sort(shown[:, 0]), np.sort(five_rows["b"]))


def test_two_columns_without_a_box(rows: Array) -> None:
    model = OISM(process="ou", order=3, flow_steps=8).fit(rows)
    data, density, drawn, _ = panels_of(overview(model, rows))
    np.testing.assert_allclose(dots(data), rows)
    np.testing.assert_allclose(dots(drawn), model.sample(len(rows), random_state=0))
    assert len(density.images) == 1
    assert density.get_title() == "fitted density"


def test_two_of_five_columns(five: OISM, five_rows: pd.DataFrame) -> None:
    figure = overview(five, five_rows, columns=("d", 1), random_state=2)
    assert [ax.get_xlabel() for ax in figure.axes[2:]] == ["d", "b"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ((0, 5), "columns must be out of 0 to 4, got 5"),
        ((2, 2), r"columns must be distinct, at least one, got \[2, 2\]"),
        ((-1, 0), "columns must be an integer >= 0, got -1"),
        (("z",), "columns names 'z'; the columns are"),
    ],
)
def test_columns_that_there_are_not(columns: Any, message: str, five: OISM) -> None:
    with pytest.raises(ValueError, match=message):
        overview(five, columns=columns)
    assert not plt.get_fignums()


def test_rows_of_another_width(five: OISM, plane: OISM) -> None:
    with pytest.raises(ValueError, match=r"X must have the 5 columns .* got shape \(7, 4\)"):
        overview(five, np.zeros((7, 4)))
    with pytest.raises(ValueError, match=r"rows must have the 2 columns .* got \(7,\)"):
        overview(plane, np.zeros(7))


def test_rows_that_came_in_batches(rows: Array) -> None:
    model = OISM(max_eigenvalue=25, flow_steps=16)
    model.partial_fit(rows)
    assert len(panels_of(overview(model, rows))) == 4
