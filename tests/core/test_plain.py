from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from oism._core.plain import plain


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.bool_(True), True),
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (1 / 3, 0.333333),
        (math.nan, None),
        (-math.inf, None),
        (torch.tensor(2.5), 2.5),
        (torch.tensor([[1, 2]]), [[1, 2]]),
        (np.array([True, False]), [True, False]),
        ((1, (2.0, None)), [1, [2.0, None]]),
        ({"a": {1: np.array([np.nan, 1e-30])}}, {"a": {"1": [None, 1e-30]}}),
        ([], []),
        ("text", "text"),
        (Path("a/b"), "a/b"),
        (torch.float64, "torch.float64"),
    ],
)
def test_plain_values(value: object, expected: object) -> None:
    found = plain(value, digits=6)
    assert found == expected
    assert type(found) is type(expected)
    json.dumps(found, allow_nan=False)


def test_floats_keep_all_digits_by_default() -> None:
    assert plain(1 / 3) == 1 / 3
    assert plain({"a": [np.float64(1 / 3)]}) == {"a": [1 / 3]}
    assert plain([1 / 3], digits=2) == [0.33]
