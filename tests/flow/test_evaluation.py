"""Means of values in batches, against NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oism.flow import RunningMean

numbers = st.floats(-1e3, 1e3)


@given(batches=st.lists(st.lists(numbers, min_size=1, max_size=5), min_size=1, max_size=5))
def test_batches_do_not_matter(batches: list[list[float]]) -> None:
    found = RunningMean()
    for batch in batches:
        found.add(torch.tensor(batch, dtype=torch.float64))
    values = np.concatenate(batches)
    estimate = found.estimate()
    assert estimate.count == len(values)
    assert estimate.mean == pytest.approx(values.mean(), abs=1e-9)
    if len(values) > 1:
        error = values.std(ddof=1) / math.sqrt(len(values))
        assert estimate.error == pytest.approx(error, abs=1e-6)
    else:
        assert math.isnan(estimate.error)


def test_a_large_mean_does_not_cancel() -> None:
    found = RunningMean()
    for batch in torch.split(1e8 + torch.arange(100, dtype=torch.float64), 7):
        found.add(batch)
    assert found.estimate().error == pytest.approx(np.arange(100).std(ddof=1) / 10, rel=1e-9)


def test_nothing_has_no_mean() -> None:
    estimate = RunningMean().estimate()
    assert estimate.count == 0
    assert math.isnan(estimate.mean)
    assert math.isnan(estimate.error)
