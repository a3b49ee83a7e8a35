"""Tables as rows of numbers, with the checks of scikit-learn.

The first rows determine the columns of an estimator: their number, names, kinds and levels. Later
rows are read by them. Rows are a float64 tensor ``(n, d)``, in which a level is its index and a gap
is NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array
from sklearn.utils.validation import (
    _check_feature_names,
    _check_n_features,
    _check_sample_weight,
    validate_data,
)
from torch import Tensor

from oism._core.transforms import shared_tensor
from oism.tables._columns import Columns
from oism.tables._frame import Table, check_is_table, check_labels, readable
from oism.tables._reading import (
    check_complete,
    check_finite,
    check_no_times,
    read_columns,
    read_rows,
)

Array = NDArray[np.float64]


class TableEstimator(Protocol):
    """An estimator of tables: what is declared of its columns, and the columns that were fitted."""

    periodic: Mapping[Any, float] | float | None
    bounds: Mapping[Any, tuple[float | None, float | None]] | None
    box: tuple[float, float] | None
    discrete: str | Sequence[Any]
    sphere: Sequence[Any] | None
    columns_: Columns
    n_features_in_: int


def learn_columns(estimator: TableEstimator, X: ArrayLike, *, detect: bool = True) -> Tensor:  # noqa: N803
    """Return the first rows, which may have gaps, and set the estimator's columns by them.

    Discrete columns are detected unless ``detect`` is false.
    """
    X = readable(X)  # noqa: N806
    table, rows = _numbers(estimator, X, reset=True)
    count = estimator.n_features_in_ if table is None else len(table.dtypes)
    labels = getattr(estimator, "feature_names_in_", None if table is None else table.labels)
    declared = Columns.of(count, labels, estimator.periodic, estimator.bounds, estimator.box)
    automatic = isinstance(estimator.discrete, str)
    detect = detect and estimator.sphere is None
    discrete = () if automatic and not detect else estimator.discrete
    estimator.columns_, rows = read_columns(table, rows, declared, discrete)
    _check(estimator, rows, reset=True)
    return rows


def rows_of(estimator: TableEstimator, X: ArrayLike, *, gaps: bool = False) -> Tensor:  # noqa: N803
    """Return rows of the estimator's columns; raises where they have gaps, unless allowed."""
    X = readable(X)  # noqa: N806
    table, rows = _numbers(estimator, X, reset=False)
    if estimator.columns_.texts is None:
        check_labels(estimator.columns_, table)
    if rows is None:
        assert table is not None
        rows = read_rows(table, estimator.columns_)
    _check(estimator, rows, reset=False)
    if not gaps:
        check_complete(estimator.columns_, rows)
    return rows


def weights_of(sample_weight: ArrayLike | None, rows: Tensor) -> Tensor:
    """Return the weights of rows: ``(n,)``, 1 by default."""
    weights = _check_sample_weight(
        readable(sample_weight), rows.numpy(), dtype=np.float64, ensure_non_negative=True
    )
    return shared_tensor(weights)


def check_folds(cv: object) -> None:
    """Raise for folds that need the groups of the rows, and for a list that is none of splits."""
    routing = getattr(cv, "get_metadata_routing", None)
    if routing is not None and routing().split.requests.get("groups"):
        raise ValueError(
            f"cv must be splits where rows come in groups, got {cv!r}: give "
            "cv=list(splitter.split(X, groups=groups))"
        )
    if isinstance(cv, list | tuple) and not all(isinstance(one, list | tuple) for one in cv):
        raise ValueError(
            f"cv must be a number of folds, a splitter, or pairs (train, test), got {cv!r}"
        )


def batch_reader(estimator: TableEstimator) -> Callable[[Any], Array]:
    """Return a function of batches: their numbers, with NaN for gaps.

    The first batch sets the number and the names of the estimator's columns, and others are
    compared with it.
    """
    first = True

    def numbers(rows: Any) -> Array:  # noqa: ANN401
        nonlocal first
        reset, first = first, False
        rows = readable(rows)
        table = Table.of(rows)
        if table is not None:
            for j in range(len(table.dtypes)):
                check_no_times(table, j)
        found: Array = validate_data(
            estimator, rows, dtype=np.float64, ensure_all_finite="allow-nan", reset=reset
        )
        return found

    return numbers


def _numbers(
    estimator: TableEstimator,
    X: ArrayLike,  # noqa: N803
    *,
    reset: bool,
) -> tuple[Table | None, Tensor | None]:
    """Return the table, None if it is no frame, and its rows if all of them are numbers."""
    check_is_table(X)
    table = Table.of(X)
    if table is None or (table.is_numeric and (reset or not estimator.columns_.categorical)):
        array = validate_data(
            estimator, X, dtype=np.float64, order="C", reset=reset, ensure_all_finite=False
        )
        return table, shared_tensor(array)
    _check_feature_names(estimator, X, reset=reset)
    return table, None


def _check(estimator: TableEstimator, rows: Tensor, *, reset: bool) -> None:
    check_array(rows.numpy(), ensure_all_finite=False)
    _check_n_features(estimator, rows.numpy(), reset=reset)
    check_finite(estimator.columns_, rows)
