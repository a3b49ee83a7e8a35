"""Clock times as features of a network."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oism.nn._embedding import waves_of_time

times = st.lists(st.floats(0, 1), min_size=1, max_size=6)


@given(tau=times, half=st.integers(1, 70))
def test_waves_are_their_formula(tau: list[float], half: int) -> None:
    found = waves_of_time(torch.tensor(tau, dtype=torch.float64), 2 * half)
    assert found.shape == (len(tau), 2 * half)
    assert found.dtype == torch.float32
    for row, own in zip(found.double().numpy(), tau, strict=True):
        for k in range(half):
            slowness = 10_000 ** (k / (half - 1)) if half > 1 else 1.0
            phase = 999 * own / slowness
            # A phase of a thousand, rounded to float32.
            assert row[k] == pytest.approx(math.sin(phase), abs=2e-4)
            assert row[half + k] == pytest.approx(math.cos(phase), abs=2e-4)


@pytest.mark.parametrize("first", [1e-5, 1e-3, 0.5, 0.999])
def test_close_times_have_different_features(first: float) -> None:
    tau = first + 1e-6 * torch.arange(5, dtype=torch.float64)
    waves = waves_of_time(tau, 128).double()
    gaps = torch.cdist(waves, waves)
    apart = gaps[~torch.eye(5, dtype=torch.bool)]
    assert float(apart.min()) > 5e-4
    assert torch.equal(gaps[0].argsort(), torch.arange(5)), "the further, the more so"


def test_the_dtype_of_the_times_does_not_matter() -> None:
    tau = torch.tensor([1e-5, 0.25, 1.0])
    np.testing.assert_array_equal(waves_of_time(tau, 32), waves_of_time(tau.double(), 32))
