"""Points of the sphere beside other columns: density, samples, dependence, gaps, bad requests."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import scipy.stats
import torch

import oism
from oism import OISM
from oism.plot import overview
from oism.tables._sphere_table import cylindrical, empty_axis

FAST: dict[str, Any] = {"max_eigenvalue": 30, "flow_steps": 16, "cv": 2}


def table(n: int, seed: int = 0) -> pd.DataFrame:
    """Return places around a circle of latitude, a height that depends on them, and a level."""
    source = np.random.default_rng(seed)
    lon = source.uniform(-180, 180, n)
    lat = source.normal(30, 8, n)
    height = 2 * np.cos(2 * np.radians(lon)) + source.normal(size=n) * 0.4
    level = np.where(source.random(n) < 0.5 + 0.4 * np.sin(np.radians(lon)), "wet", "dry")
    return pd.DataFrame({"height": height, "lat": lat, "level": level, "lon": lon})


def height_density(rows: pd.DataFrame) -> np.ndarray:
    """Return the log-density of the height given the place."""
    mean = 2 * np.cos(2 * np.radians(rows["lon"]))
    return np.asarray(scipy.stats.norm.logpdf(rows["height"], mean, 0.4))


@pytest.fixture(scope="module")
def model() -> OISM:
    found: OISM = OISM(sphere=("lat", "lon"), **FAST).fit(table(300))
    return found


def test_a_dependence_on_the_place_is_found(model: OISM) -> None:
    """p(z | x) = p(x, z)/p(x): close to the truth, and far above that of independent columns."""
    new = table(1000, seed=1)
    place = model.marginal(["lat", "lon"]).score_samples(new[["lat", "lon"]])
    given = model.score_samples(new) - place
    chance = 0.5 + 0.4 * np.sin(np.radians(new["lon"]))
    levels = np.log(np.where(new["level"] == "wet", chance, 1 - chance))
    truth = height_density(new) + levels
    assert (truth - given).mean() < 0.25
    alone = OISM(process="joint").fit(table(300)[["height", "level"]])
    independent = alone.score_samples(new[["height", "level"]])
    assert (given - independent).mean() > 0.7


def test_the_integral_over_the_other_columns_is_the_density_of_points(model: OISM) -> None:
    """So the mass is that of the points, see test_sphere.py."""
    place, heights = table(1, seed=5)[["lat", "lon"]], np.linspace(-8, 8, 16001)
    expected = np.exp(model.marginal(["lat", "lon"]).score_samples(place))
    rows = place.loc[np.zeros(16001, dtype=int)].assign(height=heights)
    order = ["height", "lat", "level", "lon"]
    found = [
        0.001 * np.exp(model.score_samples(rows.assign(level=level)[order])).sum()
        for level in ("wet", "dry")
    ]
    assert sum(found) == pytest.approx(expected[0], rel=1e-3)
    assert min(found) > 0.01 * expected[0]


def test_samples_agree_with_the_density(model: OISM) -> None:
    """F(z | x) of samples is uniform, with F by integrals of the density; of wrong pairs not."""
    drawn = model.sample(400, random_state=0)
    assert list(drawn.columns) == ["height", "lat", "level", "lon"]
    assert set(drawn["level"]) == {"wet", "dry"}
    first, heights = drawn[:60], np.linspace(-6, 6, 241)
    rows = first[["lat", "lon"]].loc[np.repeat(first.index, 241)]
    density = model.marginal(["lat", "lon", "height"])
    values = np.exp(density.score_samples(rows.assign(height=np.tile(heights, 60))))
    mass = values.reshape(60, 241).cumsum(axis=1)

    def shares(drawn_heights: Any) -> np.ndarray:
        pairs = zip(drawn_heights, mass, strict=True)
        return np.array([np.interp(h, heights + 0.025, row / row[-1]) for h, row in pairs])

    assert scipy.stats.kstest(shares(first["height"]), "uniform").pvalue > 1e-3
    assert scipy.stats.kstest(shares(np.roll(first["height"], 1)), "uniform").pvalue < 1e-3
    place = model.marginal(["lat", "lon"]).sample(400, random_state=0)
    assert scipy.stats.kstest(drawn["lat"], place["lat"]).pvalue > 1e-3


def test_conditionals_are_ratios_of_densities(model: OISM) -> None:
    rows = table(4, seed=3)
    for row in rows.to_dict("records"):
        given = model.conditional({"lat": row["lat"], "lon": row["lon"]})
        both = pd.DataFrame([row])
        place = model.marginal(["lat", "lon"]).score_samples(both[["lat", "lon"]])
        expected = model.score_samples(both) - place
        found = given.score_samples(both[["height", "level"]])
        np.testing.assert_allclose(found, expected, atol=1e-5)  # tiny components are left out
    height = model.marginal(["lon", "height", "lat"])
    whole = sum(np.exp(model.score_samples(rows.assign(level=level))) for level in ("wet", "dry"))
    np.testing.assert_allclose(
        np.exp(height.score_samples(rows[["lon", "height", "lat"]])), whole, rtol=1e-9
    )
    gaps = rows.assign(level=None)
    np.testing.assert_allclose(np.exp(model.score_samples(gaps)), whole, rtol=1e-9)
    swapped = model.marginal(["lon", "lat"]).score_samples(rows[["lon", "lat"]])
    straight = model.marginal(["lat", "lon"]).score_samples(rows[["lat", "lon"]])
    np.testing.assert_allclose(swapped, straight, atol=1e-12)


def test_gaps_are_filled_given_the_place(model: OISM) -> None:
    rows = table(400, seed=4)
    gaps = rows.assign(height=math.nan)
    gaps.loc[::4, ["lat", "lon", "level"]] = math.nan, math.nan, None  # nothing is there
    found = model.impute(gaps, random_state=0)
    assert not found.isna().any().any()
    own = np.arange(400) % 4 != 0
    pd.testing.assert_frame_equal(
        found[own].drop(columns="height"), rows[own].drop(columns="height")
    )
    error = (found["height"] - 2 * np.cos(2 * np.radians(found["lon"]))) / 0.4
    assert abs(error[own]).median() < 1.5  # 0.67 by the exact density; 3.4 of independent heights


def test_files_summaries_and_maps(model: OISM, tmp_path: Path) -> None:
    rows = table(5, seed=2)
    model.save(tmp_path / "model.safetensors")
    again = oism.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.score_samples(rows), model.score_samples(rows))
    pd.testing.assert_frame_equal(again.sample(5, random_state=1), model.sample(5, random_state=1))
    text = model.summary()
    assert "latitude in degrees" in text
    assert "height: free" in text
    assert "given the point" in text
    figure = overview(model, table(50))
    assert len(figure.axes) == 5  # four maps and a colour bar
    plt.close(figure)


@pytest.mark.slow
def test_rows_with_gaps_in_other_columns_are_fitted() -> None:
    rows = table(120)
    rows.loc[::4, "height"] = math.nan
    found = OISM(sphere=("lat", "lon"), **FAST).fit(rows)
    assert np.isfinite(found.score_samples(rows)).all()
    rows.loc[3, "lat"] = math.nan
    with pytest.raises(ValueError, match=r"row 3 has latitude nan: drop rows"):
        OISM(sphere=("lat", "lon"), **FAST).fit(rows)


def test_requests_that_have_no_answer(model: OISM) -> None:
    for columns in (["height"], ["height", "lat"]):
        with pytest.raises(ValueError, match="all columns of the points"):
            model.marginal(columns)
    with pytest.raises(ValueError, match="all columns of the points"):
        model.conditional({"height": 1.0})
    with pytest.raises(TypeError, match=r"model_.sphere has the scores of the points"):
        model.score_function(table(2), 0.1)
    with pytest.raises(ValueError, match="columns of sphere cannot be periodic"):
        OISM(sphere=("lat", "lon"), periodic={"lon": 360}).fit(table(50))


def test_coordinates_preserve_areas_and_avoid_rows() -> None:
    source = torch.Generator().manual_seed(0)
    x = torch.randn(2000, 3, generator=source).double()
    x = torch.nn.functional.normalize(x + torch.tensor([0.0, 0.0, 2.0]), dim=1)  # near a pole
    frame = empty_axis(x, torch.ones(2000).double())
    torch.testing.assert_close(frame @ frame.mT, torch.eye(3).double())
    assert float(torch.linalg.det(frame)) == pytest.approx(1)
    assert float((x @ frame[2]).abs().max()) < 0.999
    assert float((x @ frame[2]).abs().mean()) < 0.4 < float(x[:, 2].mean())
    flat = torch.nn.functional.normalize(
        torch.randn(20000, 3, generator=source, dtype=torch.float64), dim=1
    )
    s, turn = cylindrical(flat, frame).numpy().T
    assert scipy.stats.kstest(s, scipy.stats.uniform(-1, 2).cdf).pvalue > 1e-3
    assert scipy.stats.kstest(turn, scipy.stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue > 1e-3


def unit_vectors(rng: np.random.Generator, n: int) -> np.ndarray:
    found = rng.normal(size=(n, 3))
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True))


def test_levels_are_those_of_the_columns_beside_the_points() -> None:
    """The last column of the table is not the last of the model beside the points, (s, λ, …)."""
    rng = np.random.default_rng(0)
    x, count = unit_vectors(rng, 60), rng.poisson(3, size=(60, 1)).astype(float)
    free = rng.normal(size=(60, 1))
    alone = OISM(sphere=(0, 1, 2), discrete=[3], **FAST).fit(np.hstack((x, count)))
    assert np.isfinite(alone.score_samples(np.hstack((x, count)))).all()
    first, after = np.hstack((count, x, free)), np.hstack((x, count, free))
    found = OISM(sphere=(1, 2, 3), discrete=[0], **FAST).fit(first).score_samples(first)
    other = OISM(sphere=(0, 1, 2), discrete=[3], **FAST).fit(after).score_samples(after)
    np.testing.assert_allclose(found, other, atol=1e-6)


def test_copies_with_a_count_are_held_out_together() -> None:
    rng = np.random.default_rng(0)
    count = rng.poisson(3, size=(30, 1)).astype(float)
    rows = np.hstack((unit_vectors(rng, 30), count, rng.normal(size=(30, 1))))
    model = OISM(sphere=(0, 1, 2), discrete=[3], **FAST).partial_fit(np.repeat(rows, 3, axis=0))
    _, held_out = model.collector_.others.cross_fitted()
    assert len(held_out.rows) == 90  # counts are spread, so that copies differ
    _, copy = torch.unique(held_out.rows[:, :2], dim=0, return_inverse=True)
    for one in range(30):
        train = held_out.train[:, copy == one]
        assert torch.equal(train, train[:, :1].expand(-1, 3))


@pytest.mark.slow
def test_units_do_not_change_the_density() -> None:
    rows, new = table(80).drop(columns="level"), table(10, seed=1).drop(columns="level")
    first = OISM(sphere=("lat", "lon"), **FAST).fit(rows).score_samples(new)
    turned = [
        one.assign(lat=np.radians(one["lat"]), lon=np.radians(one["lon"])) for one in (rows, new)
    ]
    second = OISM(sphere=("lat", "lon"), sphere_unit="radians", **FAST).fit(turned[0])
    np.testing.assert_allclose(second.score_samples(turned[1]), first, atol=1e-6)
