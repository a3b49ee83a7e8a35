"""Marginals and conditionals of a fitted table, as distributions of tables of their own.

They read and write rows as the estimator does: frames with names and levels, or arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from oism._core import checks
from oism.tables._columns import Columns
from oism.tables._contract import Density
from oism.tables._declared import by_index, index_of
from oism.tables._frame import Table, check_labels, readable
from oism.tables._gaps import log_density
from oism.tables._output import write_rows
from oism.tables._parameters import RandomState, torch_generator
from oism.tables._reading import check_finite, level_code, read_rows

Array = NDArray[np.float64]


class TableDistribution:
    """The distribution of some columns, alone or given values of others.

    ``columns_`` are the records of the columns, ``density`` is the model of rows of numbers.
    """

    def __init__(self, density: Density, columns: Columns) -> None:
        self.density, self.columns_ = density, columns

    @property
    def n_features_in_(self) -> int:
        """The number of columns."""
        return self.columns_.count

    @property
    def feature_names_in_(self) -> NDArray[np.object_]:
        """The names of the columns, where the table that was fitted had names."""
        names = self.columns_.texts
        if names is None:
            raise AttributeError("feature_names_in_: the columns have no names that are text")
        return names

    def __repr__(self) -> str:
        names = ", ".join(self.columns_.label(j) for j in range(self.columns_.count))
        return f"{type(self).__name__}(columns {names})"

    def score_samples(self, X: ArrayLike) -> Array:  # noqa: N803
        """Return the log-density of each row; entries that are missing are integrated over."""
        result: Array = log_density(self.density, self._rows(X)).numpy()
        return result

    def sample(self, n_samples: int = 1, random_state: RandomState = None) -> Any:  # noqa: ANN401
        """Return rows, as a frame where the model was fitted to one."""
        n = checks.integer(n_samples, "n_samples", minimum=0)
        generator = torch_generator(random_state)
        return write_rows(self.columns_, self.density.sample(n, generator))

    def marginal(self, columns: Sequence[Any]) -> TableDistribution:
        """Return the distribution of some of the columns, by name or index."""
        kept = chosen_columns(self.columns_, columns)
        return TableDistribution(self.density.marginal(kept), self.columns_.select(kept))

    def conditional(self, given: Mapping[Any, Any]) -> TableDistribution:
        """Return the distribution of the other columns, given values or levels of some."""
        values = given_values(self.columns_, given)
        rest = [j for j in range(self.columns_.count) if j not in values]
        return TableDistribution(self.density.conditional(values), self.columns_.select(rest))

    def _rows(self, X: ArrayLike) -> Tensor:  # noqa: N803
        table = Table.of(readable(X))
        if table is None:
            raise TypeError(f"X must be a table (n, {self.columns_.count}), got {type(X).__name__}")
        if len(table.dtypes) != self.columns_.count:
            raise ValueError(
                f"X must have the {self.columns_.count} columns of {self!r}, got "
                f"{len(table.dtypes)}"
            )
        check_labels(self.columns_, table)
        rows = read_rows(table, self.columns_)
        check_finite(self.columns_, rows)
        return rows


def chosen_columns(columns: Columns, keys: Sequence[Any]) -> list[int]:
    """Return the indices of distinct columns that are given by name or index."""
    if isinstance(keys, str | int):
        keys = [keys]
    if not isinstance(keys, Iterable):
        raise TypeError(f"columns must be a list of names or indices of columns, got {keys!r}")
    found = [index_of(key, columns.count, columns.names, "columns") for key in keys]
    if not found or len(set(found)) < len(found):
        raise ValueError(f"columns must name at least one column, each once, got {list(keys)}")
    return found


def given_values(columns: Columns, given: Mapping[Any, Any]) -> dict[int, float]:
    """Return given values by the index of their column, levels as their indices."""
    count, values = columns.count, {}
    for j, key, value in by_index(given, count, columns.names, "given"):
        if columns[j].categorical:
            values[j] = level_code(columns[j], value, f"given[{key!r}]")
        else:
            values[j] = checks.number(value, f"given[{key!r}]")
            if columns[j].is_integer and values[j] != round(values[j]):
                raise ValueError(
                    f"given[{key!r}] must be a whole number, as all values of this column "
                    f"({columns[j].dtype}), got {values[j]:g}"
                )
    if not values:
        raise ValueError("given must name at least one column")
    if len(values) == count:
        raise ValueError(f"given must leave at least one of the {count} columns")
    return values
