"""Figures of priors: expected errors, and samples where they are images."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from oism import fit_prior
from oism.images import HermitePrior, Prior
from oism.plot import noise_error, prior_overview, sample_grid


def fitted(*shape: int) -> HermitePrior:
    generator = torch.Generator().manual_seed(0)
    return fit_prior(torch.randint(0, 256, (30, *shape), generator=generator).byte(), order=2)


@pytest.fixture(scope="module")
def grey() -> Prior:
    return fitted(4, 5)


def test_the_curves_are_those_of_the_prior(grey: Prior) -> None:
    ax = noise_error(grey)
    error, scale, gate = ax.lines
    tau = np.asarray(error.get_xdata(), dtype=float)
    assert tau[0] == pytest.approx(1e-3)
    assert tau[-1] == 1.0
    for line, values in (
        (error, grey.expected_error),
        (scale, grey.output_scale),
        (gate, grey.gate),
    ):
        expected = values(torch.from_numpy(tau)).numpy()
        np.testing.assert_allclose(np.asarray(line.get_ydata()), expected, rtol=1e-9)
    plt.close("all")


def test_the_upper_axis_has_the_noise(grey: Prior) -> None:
    ax = noise_error(grey)
    (upper,) = ax.child_axes
    for place, label in zip(upper.get_xticks(), upper.get_xticklabels(), strict=True):
        sigma = float(grey.noising.sigma(torch.tensor(place, dtype=torch.float64)))
        assert sigma == pytest.approx(float(label.get_text()), rel=1e-2)
    assert len(upper.get_xticks()) >= 5
    plt.close("all")


@pytest.mark.parametrize(
    ("shape", "panels"), [((4, 5), 2), ((3, 4, 4), 2), ((7,), 1), ((2, 4, 4), 1)]
)
def test_samples_are_shown_where_they_are_pictures(shape: tuple[int, ...], panels: int) -> None:
    figure = prior_overview(fitted(*shape))
    assert len(figure.axes) == panels
    figure.canvas.draw()
    plt.close("all")


def test_samples_depend_on_the_seed(grey: Prior) -> None:
    first, again, other = (
        np.asarray(sample_grid(grey, torch.Generator().manual_seed(seed)).images[0].get_array())
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    with pytest.raises(ValueError, match="spec must be that of images"):
        sample_grid(fitted(7), torch.Generator())
    plt.close("all")
