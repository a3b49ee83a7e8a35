"""`OISM(sphere=...)`: rows in all units, densities per steradian, the pool, bad rows."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.integrate
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import KFold

import oism
from oism import OISM
from oism.cli import main
from oism.tables._directions import Directions
from oism.tables._kernels import MEMBERS, DirectionalKernels
from oism.tables._pool import Densities, held_out_weights

FAST: dict[str, Any] = {"max_eigenvalue": 90, "flow_steps": 32}  # degree 9


def angles(n: int, seed: int = 0) -> np.ndarray:
    """Return latitudes and longitudes in degrees of two clusters, one over the date line."""
    source = np.random.default_rng(seed)
    centre = np.where(source.random((n, 1)) < 0.5, [[40.0, 175.0]], [[-20.0, 30.0]])
    found = centre + source.normal(size=(n, 2)) * [8.0, 10.0]
    found[:, 1] = (found[:, 1] + 180) % 360 - 180
    return found


@pytest.fixture(scope="module")
def model() -> OISM:
    rows = pd.DataFrame(angles(400), columns=["lat", "lon"])
    found: OISM = OISM(sphere=("lat", "lon"), cv=2, **FAST).fit(rows)
    return found


def sphere_grid(side: int) -> tuple[np.ndarray, np.ndarray]:
    z, weights = np.polynomial.legendre.leggauss(side)
    turn = 360 * np.arange(2 * side) / (2 * side) - 180
    rows = np.stack(np.meshgrid(np.degrees(np.arcsin(z)), turn, indexing="ij"), axis=-1)
    mass = np.repeat(weights / 2, 2 * side) / (2 * side) * 4 * math.pi
    return rows.reshape(-1, 2), mass


def test_densities_integrate_to_one_over_area(model: OISM) -> None:
    rows, mass = sphere_grid(32)
    fitted = model.model_
    x = fitted.directions.to_points(torch.from_numpy(rows))
    assert abs(mass @ fitted.flow_density(x).exp().numpy() - 1) < 1e-3
    assert abs(float(fitted.weights.sum()) - 1) < 1e-12
    wide = DirectionalKernels(x[:50], torch.ones(50), torch.arange(3))  # κ up to 64
    np.testing.assert_allclose(mass @ wide.log_densities(x).exp().numpy(), 1, atol=1e-9)
    frame = pd.DataFrame(rows[:5], columns=["lat", "lon"])
    parts = torch.cat(
        (
            fitted.flow_density(x[:5])[:, None],
            torch.full((5, 1), -math.log(4 * math.pi)),
            fitted.kernels.log_densities(x[:5]),
        ),
        dim=1,
    )
    total = torch.logsumexp(parts + fitted.weights.log(), dim=1)
    np.testing.assert_allclose(model.score_samples(frame), total.numpy(), atol=1e-9)


def test_samples_are_rows_of_the_same_kind(model: OISM) -> None:
    drawn = model.sample(500, random_state=0)
    assert list(drawn.columns) == ["lat", "lon"]
    assert drawn["lat"].abs().max() <= 90
    assert drawn["lon"].between(-180, 180).all()
    truth = angles(500, seed=3)
    assert scipy.stats.kstest(drawn["lat"], truth[:, 0]).pvalue > 1e-3
    assert scipy.stats.kstest(drawn["lon"], truth[:, 1]).pvalue > 1e-3


@pytest.mark.slow
def test_units_do_not_change_the_density() -> None:
    degrees, test = angles(60), angles(20, seed=5)
    folds = 2
    first = OISM(sphere=(0, 1), cv=folds, **FAST).fit(degrees).score_samples(test)
    turned = OISM(sphere=(1, 0), sphere_unit="radians", cv=folds, **FAST).fit(
        np.radians(degrees[:, ::-1])
    )
    second = turned.score_samples(np.radians(test[:, ::-1]))
    np.testing.assert_allclose(first, second, atol=1e-6)
    reading = Directions((0, 1))
    x, y = (reading.to_points(torch.from_numpy(rows)).numpy() for rows in (degrees, test))
    third = OISM(sphere=(0, 1, 2), cv=folds, **FAST).fit(x).score_samples(y)
    np.testing.assert_allclose(first, third, atol=1e-6)


def test_scores_are_towards_north_and_east(model: OISM) -> None:
    rows, t, h = angles(3, seed=7), 0.02, 1e-4
    score = model.score_function(pd.DataFrame(rows, columns=["lat", "lon"]), t)
    inner = model.model_.operator_score
    reading = model.model_.directions
    for j, scale in enumerate((np.ones(3), np.cos(np.radians(rows[:, 0])))):
        ends = []
        for side in (1, -1):
            moved = rows.copy()
            moved[:, j] += side * math.degrees(h) / scale
            ends.append(inner.log_ratio(reading.to_points(torch.from_numpy(moved)), t).numpy())
        np.testing.assert_allclose(score[:, j], (ends[0] - ends[1]) / (2 * h), atol=1e-4)


def test_saving_and_the_summary(model: OISM, tmp_path: Path) -> None:
    rows = pd.DataFrame(angles(10, seed=2), columns=["lat", "lon"])
    model.save(tmp_path / "model.safetensors")
    again = oism.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.score_samples(rows), model.score_samples(rows))
    pd.testing.assert_frame_equal(again.sample(5, random_state=1), model.sample(5, random_state=1))
    text = model.summary()
    assert "latitude in degrees" in text
    assert "per steradian" in text
    assert "spherical harmonics" in text


BAD = {
    "latitudes must be within ±90": (np.array([[95.0, 10.0], [5.0, 6.0]]), (0, 1)),
    "but row 1 has latitude -90.1": (np.array([[90.0, 10.0], [-90.1, 6.0]]), (0, 1)),
    "divide them by their norms": (np.array([[0.0, 0, 0], [1.0, 0.0, 0]]), (0, 1, 2)),
    "sphere must be two columns, latitude and longitude": (np.zeros((4, 2)), (0, 0)),
    "vectors must have norm 1, but row 1": (np.array([[1.0, 0, 0], [1.0, 1.0, 0]]), (0, 1, 2)),
    "sphere must be two columns": (np.zeros((4, 2)), (0,)),
    "NaN": (np.array([[math.nan, 1.0], [2.0, 3.0]]), (0, 1)),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_rows(message: str) -> None:
    rows, sphere = BAD[message]
    with pytest.raises(ValueError, match=message if message != "NaN" else "missing|NaN|empty|gap"):
        OISM(sphere=sphere).fit(rows)


def test_bad_arguments(model: OISM) -> None:
    rows = angles(50)
    with pytest.raises(ValueError, match="columns of sphere cannot be periodic"):
        OISM(sphere=(0, 1), periodic={1: 360.0}).fit(rows)
    with pytest.raises(ValueError, match="process must be 'auto' or Sphere"):
        OISM(sphere=(0, 1), process="torus").fit(rows)
    with pytest.raises(ValueError, match="no marginals and conditionals"):
        model.marginal(["lat"])
    with pytest.raises(ValueError, match="latitudes must be within"):
        model.score_samples(pd.DataFrame({"lat": [100.0], "lon": [0.0]}))


def test_few_rows() -> None:
    model = OISM(sphere=(0, 1), **FAST).fit(np.array([[10.0, 20.0]]))
    assert np.isfinite(model.score_samples([[10.0, 20.0], [-10.0, 200.0]])).all()


@pytest.mark.slow
def test_duplicates_share_a_fold_unless_folds_are_given() -> None:
    """With equal rows in training and held-out rows, narrow kernels have large weights."""
    rows = np.repeat(angles(40), 5, axis=0)
    narrow = []
    for cv in (5, KFold(5, shuffle=True, random_state=0)):
        kernels = OISM(sphere=(0, 1), cv=cv, **FAST).fit(rows).model_
        kappa = kernels.kernels.kappa.median(dim=1).values
        narrow.append(float(kernels.weights[2:][kappa > 1e4].sum()))
    assert narrow[1] > narrow[0] + 0.3


def test_an_integer_weight_is_that_number_of_rows() -> None:
    rows, new = angles(60), angles(20, seed=5)
    settings: dict[str, Any] = {"sphere": (0, 1), "flow_steps": 16, "cv": 2}
    heavy = OISM(**settings).fit(rows, sample_weight=np.full(60, 8.0))
    often = OISM(**settings).fit(np.repeat(rows, 8, axis=0))
    np.testing.assert_allclose(heavy.score_samples(new), often.score_samples(new), atol=1e-9)
    once = OISM(**settings).fit(rows)
    assert abs(heavy.score_samples(new) - once.score_samples(new)).max() > 0.01
    half = OISM(**settings).fit(rows, sample_weight=np.full(60, 0.5))  # as many rows, not fewer
    np.testing.assert_allclose(half.score_samples(new), once.score_samples(new), atol=1e-9)


def test_weights_of_one_row_are_exact() -> None:
    weights = OISM(sphere=(0, 1), **FAST).fit(np.array([[10.0, 20.0]])).model_.weights
    np.testing.assert_array_equal(weights.numpy(), [0.5, 0.5])
    heavy = OISM(sphere=(0, 1), **FAST).fit(np.array([[10.0, 20.0]]), sample_weight=[2.0])
    np.testing.assert_array_equal(heavy.model_.weights.numpy(), [1 - 1 / 3, 1 / 3])


def test_held_out_rows_come_from_all_places() -> None:
    """They are in canonical order: the first of them would lie on one side."""
    rows = torch.linspace(-1, 1, 100, dtype=torch.float64)[:, None]
    shown = []

    class Noted(Densities):
        count = 1

        def log_densities(self, x: torch.Tensor, **_: Any) -> torch.Tensor:
            shown.append(x)
            return torch.zeros_like(x)

        def sample(self, member: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
            raise NotImplementedError

    all_rows = torch.ones(100, dtype=torch.bool)
    held_out_weights(lambda _: [Noted()], rows, torch.ones(100).double(), [all_rows], 10)
    assert len(shown[0]) == 10
    assert abs(float(shown[0].mean())) < 0.2
    held_out_weights(lambda _: [Noted()], rows, torch.ones(100).double(), [all_rows], 1000)
    torch.testing.assert_close(shown[1], rows)


def test_the_shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pd.DataFrame(angles(80), columns=["lat", "lon"]).assign(size=1.0).to_csv(
        tmp_path / "rows.csv", index=False
    )
    out = tmp_path / "model.safetensors"
    arguments = ["fit", str(tmp_path / "rows.csv"), "--sphere", "lat,lon", "-o", str(out)]
    assert main([*arguments, "--max-eigenvalue", "30", "--flow-steps", "8"]) == 0
    assert "longitude in degrees" in capsys.readouterr().out
    assert oism.load(out).n_features_in_ == 2
    assert main([*arguments[:2], "--sphere", "lat", "-o", str(out)]) != 0
    assert "--sphere: expected two columns" in capsys.readouterr().err


@given(
    latitude=st.floats(-90, 90),
    longitude=st.floats(-720, 720),
    unit=st.sampled_from(["degrees", "radians"]),
)
def test_rows_and_points_are_inverse(latitude: float, longitude: float, unit: str) -> None:
    reading = Directions((1, 0), unit, -180.0 if unit == "degrees" else -math.pi)
    scale = 1.0 if unit == "degrees" else math.pi / 180
    row = torch.tensor([[longitude * scale, latitude * scale]], dtype=torch.float64)
    point = reading.to_points(row)
    assert abs(float(point.norm()) - 1) < 1e-12
    again = reading.to_points(reading.to_rows(point))
    torch.testing.assert_close(again, point, rtol=0, atol=1e-12)


def test_kernels_are_densities_and_samples_follow_them() -> None:
    centre = torch.tensor([[0.0, 0.6, 0.8]], dtype=torch.float64)
    kernels = DirectionalKernels(centre, torch.ones(1))
    for member in (0, 3, 8):
        kappa = float(kernels.kappa[member, 0])

        def density(z: float, kappa: float = kappa) -> float:
            return kappa / (1 - math.exp(-2 * kappa)) * math.exp(kappa * (z - 1))

        mass = scipy.integrate.quad(density, max(-1.0, 1 - 40 / kappa), 1)[0]
        assert abs(mass - 1) < 1e-8
        own = kernels.log_densities(centre)[0, member]
        assert abs(float(own) - math.log(density(1.0) / (2 * math.pi))) < 1e-9
        drawn = kernels.sample(torch.full((2000,), member), torch.Generator().manual_seed(0))
        depth = (1 - drawn @ centre[0]).clamp(min=0).numpy()
        assert scipy.stats.kstest(depth * kappa, scipy.stats.expon.cdf).pvalue > 1e-4 or member == 0
    assert len(kernels.members) == MEMBERS
