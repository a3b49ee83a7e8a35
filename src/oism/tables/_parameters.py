"""The parameters of an estimator as a file holds them: no dictionaries with keys that are numbers.

A mapping from columns becomes a tuple of pairs, an array a tuple, a device its name, a number of
NumPy a number. A generator's state is not a parameter, and becomes None. Processes and clocks are
stored as objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state

from oism.process import Clock, Process

MAPPINGS = ("periodic", "bounds")
"""The parameters that may be mappings from columns."""

RandomState = int | np.random.Generator | np.random.RandomState | None

Value = None | bool | int | float | str | Process | Clock


def torch_generator(random_state: RandomState) -> torch.Generator:
    """Return a generator of torch that is seeded by a seed or a generator of NumPy."""
    if isinstance(random_state, np.random.Generator):
        return torch.Generator().manual_seed(int(random_state.integers(2**31 - 1)))
    try:
        state = check_random_state(random_state)
    except ValueError as error:
        raise ValueError(
            "random_state must be None, an integer from 0 to 2**32 - 1, or a Generator or "
            f"RandomState of NumPy, got {random_state!r}"
        ) from error
    return torch.Generator().manual_seed(int(state.randint(2**31 - 1)))


def to_plain(parameters: Mapping[str, object]) -> dict[str, Any]:
    """Return parameters as values that can be stored, or raise where one cannot."""
    return {name: _plain(value, name) for name, value in parameters.items()}


def _plain(value: object, name: str) -> object:
    if isinstance(value, Mapping):
        return tuple((_plain(k, name), _plain(v, name)) for k, v in value.items())
    if hasattr(value, "tolist"):  # numbers and arrays of NumPy, indices of pandas
        return _plain(value.tolist(), name)
    if isinstance(value, tuple | list) and name != "cv":
        return tuple(_plain(entry, name) for entry in value)
    if name == "random_state" and not isinstance(value, int):
        return None
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, Value):
        return value
    raise TypeError(f"{name} must be made of numbers and text to be saved, got {value!r}")


def from_plain(parameters: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the parameters from what `to_plain` made of them; ``names`` are all that there are."""
    known = set(names)
    for name in sorted(known ^ set(parameters)):
        fault = "is missing" if name in known else "is unknown"
        raise ValueError(f"parameter {name!r} {fault}")
    return {name: _restored(value, name) for name, value in parameters.items()}


def _restored(value: Any, name: str) -> Any:  # noqa: ANN401
    if name not in MAPPINGS or not isinstance(value, tuple):
        return value
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in value):
        raise ValueError(f"parameter {name!r} must be pairs of a column and a value")
    return dict(value)
