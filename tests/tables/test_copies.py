from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oism.tables import CopyCheck, nearest_neighbour_check


def draws(n: int, seed: int, dim: int = 2) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, dim)) * [1.0, 100.0, 1e-3][:dim]


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_fresh_draws_are_not_flagged(dim: int) -> None:
    found = [
        nearest_neighbour_check(draws(300, seed, dim), draws(300, 100 + seed, dim))
        for seed in range(20)
    ]
    assert not any(one.are_copies for one in found)
    assert all(0.6 < one.median_ratio < 1.6 for one in found)
    assert np.mean([one.median_ratio for one in found]) == pytest.approx(1.0, abs=0.07)
    assert 0.003 < np.mean([one.near_share for one in found]) < 0.03
    assert min(one.p_value for one in found) > 1e-3
    assert "no copies" in str(found[0])


@pytest.mark.parametrize("noise", [0.0, 1e-9, 1e-3])
def test_copies_are_flagged(noise: float) -> None:
    data = draws(300, 0)
    copies = data[::3] * (1 + noise * np.random.default_rng(1).normal(size=(100, 2)))
    found = nearest_neighbour_check(copies, data)
    assert found.are_copies
    assert found.median_ratio < 0.1
    assert found.near_share > 0.5
    assert "COPIES" in str(found)


def test_samples_that_are_further_away_are_not_copies() -> None:
    found = nearest_neighbour_check(draws(300, 0) + 5.0 * np.array([1.0, 100.0]), draws(300, 1))
    assert not found.are_copies
    assert found.p_value > 0.99


def test_half_copies_are_seen_in_the_share() -> None:
    data = draws(400, 0)
    mixed = np.concatenate([data[:150], draws(150, 1)])
    found = nearest_neighbour_check(mixed, data)
    assert found.near_share == pytest.approx(0.5, abs=0.05)
    assert found.p_value < 1e-3


def test_repeated_rows_count_once() -> None:
    data = draws(200, 0)
    once = nearest_neighbour_check(draws(200, 1), data)
    twice = nearest_neighbour_check(draws(200, 1), np.repeat(data, 2, axis=0))
    assert once == twice


@given(turns=st.integers(-3, 3))
def test_a_turn_is_no_distance_in_a_periodic_column(turns: int) -> None:
    rng = np.random.default_rng(0)
    data = rng.uniform(-180, 180, size=(200, 1))
    copies = data[:50] + 360.0 * turns + 1e-3
    periods = np.array([360.0])
    assert nearest_neighbour_check(copies, data, periods=periods).are_copies
    if turns:
        assert not nearest_neighbour_check(copies, data).are_copies


def test_distances_go_round() -> None:
    data = np.linspace(0.0, 360.0, 100, endpoint=False)[:, None]
    seam = np.array([[359.99999]])  # next to 0, and 3.6 from the last row
    near = nearest_neighbour_check(seam, data, periods=np.array([360.0]))
    assert near.median_ratio == pytest.approx(1e-5 / 3.6, rel=1e-3)
    far = nearest_neighbour_check(seam, data, periods=np.array([0.0]))
    assert far.median_ratio == pytest.approx(1.0, rel=1e-3)


def test_units_of_columns_do_not_matter() -> None:
    data, samples = draws(200, 0), draws(200, 1)
    unit = np.array([1024.0, 0.25])
    found = nearest_neighbour_check(unit * samples, unit * data)
    assert found == nearest_neighbour_check(samples, data)
    # A column in large units must not hide that the other one was copied with it.
    assert nearest_neighbour_check(data[:50] + np.array([0.0, 0.1]), data).are_copies


def test_constant_columns_do_not_matter() -> None:
    data, samples = draws(200, 0, 1), draws(200, 1, 1)
    with_one = nearest_neighbour_check(*(np.c_[x, np.full(200, 3.0)] for x in (samples, data)))
    assert with_one == nearest_neighbour_check(samples, data)


@pytest.mark.parametrize(("samples", "rows"), [(10, 2), (0, 10)])
def test_too_little_to_compare(samples: int, rows: int) -> None:
    with pytest.raises(ValueError, match="data must hold at least three different rows"):
        nearest_neighbour_check(draws(samples, 0), np.repeat(draws(rows, 1), 2, axis=0))


def test_the_text_has_the_rule() -> None:
    """A p-value of 0.002 beside "no copies" reads like a contradiction."""
    text = str(CopyCheck(median_ratio=0.9, near_share=0.01, p_value=0.0024))
    assert text.startswith("no copies: median distance to the nearest row 0.90 of that between")
    assert "p = 0.0024 (copies: below 0.5 and below 0.001)" in text
