from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.func import vmap

from oism._core import checks


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        (np.zeros((2, 2)), TypeError, r"x must be a torch.Tensor, got ndarray"),
        (torch.zeros(2, 2, dtype=torch.int64), TypeError, r"x .* floating-point dtype.*int64"),
        (torch.zeros(2, 2, dtype=torch.complex64), TypeError, r"x .* floating-point .*complex64"),
        (torch.zeros(2, 2).to_sparse(), TypeError, r"x must be a dense tensor, got layout"),
        (torch.zeros(2, 0), ValueError, r"x must be a batch of points .*got \(2, 0\)"),
        (torch.zeros(3), ValueError, r"x must be a batch of points .*got \(3,\)"),
        (torch.tensor([[0.0, math.nan]]), ValueError, r"x must be finite, but x\[0, 1\] = nan"),
        (torch.tensor([[0.0], [-math.inf]]), ValueError, r"finite, but x\[1, 0\] = -inf"),
    ],
)
def test_invalid_points_are_rejected(value: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        checks.points(value)


def test_points_checks_the_dimension() -> None:
    with pytest.raises(ValueError, match=r"y must have shape \(n, 3\), got \(4, 2\)"):
        checks.points(torch.zeros(4, 2), "y", dim=3)
    with pytest.raises(ValueError, match=r"must have shape \(n, 2\), got \(4, 2, 1\)"):
        checks.points(torch.zeros(4, 2, 1), dim=2)


def test_like_requires_equal_shapes_and_dtypes() -> None:
    x = torch.zeros(2, 3)
    with pytest.raises(ValueError, match=r"y must have the shape \(2, 3\) of x, got \(2, 2\)"):
        checks.like(torch.zeros(2, 2), x)
    with pytest.raises(TypeError, match=r"y must have the dtype torch.float32 of x"):
        checks.like(torch.zeros(2, 3, dtype=torch.float64), x)


@pytest.mark.parametrize("value", ["1", None, True, 1j])
def test_strings_and_booleans_are_not_numbers(value: object) -> None:
    with pytest.raises(TypeError, match=r"theta must be a positive finite number, got"):
        checks.positive(value, "theta")


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, np.float32(-2), 10**400])
def test_positive_numbers(value: float) -> None:
    with pytest.raises(ValueError, match=r"theta must be a positive finite number, got"):
        checks.positive(value, "theta")
    assert checks.positive(np.float32(0.5), "theta") == 0.5


def test_integers() -> None:
    assert checks.integer(np.int64(4), "order", minimum=1) == 4
    with pytest.raises(ValueError, match=r"order must be an integer >= 1, got 0"):
        checks.integer(0, "order", minimum=1)
    for wrong in (2.0, True, "2"):
        with pytest.raises(TypeError, match=r"order must be an integer >= 1, got"):
            checks.integer(wrong, "order", minimum=1)


def test_shapes() -> None:
    assert checks.shape([3, 2]) == (3, 2)
    with pytest.raises(ValueError, match=r"shape must have at least one axis"):
        checks.shape(())
    with pytest.raises(ValueError, match=r"shape\[1\] must be an integer >= 0, got -1"):
        checks.shape((2, -1))
    with pytest.raises(ValueError, match=r"shape\[0\] must be an integer >= 1, got 0"):
        checks.shape((0,), minimum=1)
    with pytest.raises(TypeError, match=r"shape must be a sequence of integers, got int"):
        checks.shape(2)


def test_instances_and_dtypes() -> None:
    checks.instance(1, int, "n")
    with pytest.raises(TypeError, match="n must be of type int, got NoneType"):
        checks.instance(None, int, "n")
    with pytest.raises(TypeError, match="n must be of type int, got the class int"):
        checks.instance(int, int, "n")
    with pytest.raises(TypeError, match=r"dtype must be one of .*, got torch.complex64"):
        checks.dtype(torch.complex64)


@pytest.mark.parametrize(
    ("t", "error", "words"),
    [
        (-0.1, ValueError, r"t must be in \[0, inf\), but t = -0.1"),
        (math.nan, ValueError, r"t must be .*got nan"),
        (torch.tensor([0.1, -2.0]), ValueError, r"but t\[1\] = -2.0"),
        (torch.tensor([0.1, math.inf]), ValueError, r"t must be finite, but t\[1\] = inf"),
        (torch.tensor([1, 2]), TypeError, r"t must have a floating-point dtype"),
        (torch.zeros(2, 2), ValueError, r"t must have shape \(\) or \(n,\), got \(2, 2\)"),
        ("now", TypeError, r"t must be a finite number or a tensor, got str 'now'"),
        ([0.1], TypeError, r"t must be a finite number or a tensor, got list"),
    ],
)
def test_invalid_times_are_rejected(t: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        checks.time(t)


def test_times_are_converted_to_float64_exactly() -> None:
    for t in (0.1, np.float32(0.1), torch.tensor(0.1), torch.tensor([0.1], dtype=torch.float16)):
        checked = checks.time(t)
        assert checked.dtype == torch.float64
        assert float(checked) == float(t)


def test_zero_is_a_time() -> None:
    assert float(checks.time(0)) == 0


def test_orthogonal_matrices() -> None:
    assert checks.orthogonal(torch.eye(3)) is not None
    with pytest.raises(ValueError, match=r"matrix must be orthogonal: max\|VVᵀ - I\| = 3"):
        checks.orthogonal(2 * torch.eye(2))
    with pytest.raises(ValueError, match=r"matrix must be a square matrix, got shape \(2, 3\)"):
        checks.orthogonal(torch.eye(3)[:2])


@pytest.mark.parametrize("dim", [1, 5, 300])
def test_every_orthogonal_matrix_of_float32_is_accepted(
    dim: int, generator: torch.Generator
) -> None:
    matrix = torch.linalg.qr(torch.randn(dim, dim, generator=generator))[0]
    assert checks.orthogonal(matrix) is matrix


def test_values_are_not_read_inside_transforms(generator: torch.Generator) -> None:
    def checked(row: Tensor) -> Tensor:
        return checks.points(row[None])[0]

    x = torch.randn(4, 2, generator=generator)
    assert torch.equal(vmap(checked)(x), x)
    assert torch.equal(torch.compile(checks.points, backend="eager", fullgraph=True)(x), x)


def test_unavailable_devices_are_rejected() -> None:
    assert checks.device("cpu") == torch.device("cpu")
    with pytest.raises(ValueError, match="device 'cuda:99' cannot be used here"):
        checks.device("cuda:99")
    with pytest.raises(ValueError, match="device 'nonsense' cannot be used here"):
        checks.device("nonsense")


def test_values_are_readable_only_outside_of_transforms() -> None:
    seen = []

    def note(x: Tensor) -> Tensor:
        seen.append(checks.readable(x))
        return x.sum()

    x = torch.ones(2, 3)
    note(x)
    note(x[:0])
    torch.func.grad(note)(x)
    vmap(note)(x)
    note(torch.empty(2, device="meta"))
    assert seen == [True, True, True, False, False]


class Recorded:
    """A condition on a GPU whose operations are being recorded."""

    is_cuda = True

    def all(self) -> bool:
        raise AssertionError("a number was read from the device")


def test_conditions_are_not_read_while_they_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    condition: Any = Recorded()
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert checks.holds(condition)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    with pytest.raises(AssertionError, match="was read"):
        checks.holds(condition)
