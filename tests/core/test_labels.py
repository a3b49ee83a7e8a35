"""Labels of rows: what they may be, and what is said of others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oism._core.labels import as_labels, training_labels


@pytest.mark.parametrize(
    "labels", [["a", "b"], np.array(["a", "b"]), np.array(["a", 1], dtype=object), [0, None]]
)
def test_names_are_no_labels(labels: Any) -> None:
    """Errors were those of torch, which name neither the argument nor a remedy."""
    with pytest.raises(TypeError, match=r"labels must be integers from 0: .*np\.unique\(labels"):
        as_labels(labels)


def test_numbers_of_classes_may_not_be_any_numbers() -> None:
    """One count for each number up to the largest would need 80 gigabytes."""
    message = "the largest is 10000000000, and no row has 1"
    with pytest.raises(ValueError, match=message):
        training_labels([0, 10**10] * 100)
    assert training_labels([1, 0, 1]).tolist() == [1, 0, 1]
    with pytest.raises(ValueError, match="the largest is 3, and no row has 1"):
        training_labels([0, 2, 3])
    with pytest.raises(ValueError, match="the largest is 1, and no row has 0"):
        training_labels([1, 1])
