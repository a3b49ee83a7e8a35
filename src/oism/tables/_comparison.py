"""Held-out log-likelihoods of a model beside those of other methods, on the same rows.

With the log-densities a_i of the model and b_i of a baseline at n test rows, the mean difference
and its standard error are those of d_i = a_i - b_i:

    d̄ = Σ d_i / n,    s² = Σ (d_i - d̄)² / (n(n - 1)).

Rows that are difficult for one method are difficult for the others. So the paired error is smaller
than the errors of the two means suggest. It is over test rows, with the fits given.

Baselines are densities of numbers. They are fitted to rows whose discrete values, and the indices
of whose levels, are spread uniformly over their cells. The density of a level is then the mean of
that density over its cell, by `DRAWS` draws: the probability of the level per unit of the column,
as in `DiscreteModel`.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oism._core import checks
from oism._core.progress import progress_bar
from oism.tables._baselines import Standardised, fit_flow, fit_kde, fit_mixture_by_bic
from oism.tables._column import Column
from oism.tables._columns import Columns

Array = NDArray[np.float64]

MODEL = "model"
BASELINES = ("kde", "mixture", "flow")

DRAWS = 8

HEADER = ("", "mean", "±", "model better by", "±", "lowest", "chosen")


@dataclass(frozen=True)
class Estimate:
    """A mean and its standard error."""

    mean: float
    error: float

    @classmethod
    def of(cls, values: Array) -> Estimate:
        """Return the mean of values, at least two, with its standard error."""
        return cls(float(values.mean()), float(values.std(ddof=1)) / math.sqrt(len(values)))


@dataclass(frozen=True, eq=False)
class Comparison:
    """Log-likelihoods of a model and of baselines at the same test rows, in nats per row.

    Parameters
    ----------
    log_densities
        Of each method at each row; the model comes first.
    notes
        What each baseline has chosen, and the seconds of its fit.
    skipped
        The number of rows that were left out because of missing values.

    Examples
    --------
    >>> found = Comparison({"model": np.array([-1.0, -2.0]), "kde": np.array([-1.5, -2.1])})
    >>> round(found.difference("kde").mean, 6)  # the model is better by
    0.3
    """

    log_densities: Mapping[str, Array]
    notes: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    skipped: int = 0

    @property
    def methods(self) -> list[str]:
        """The names of the methods, the model first."""
        return list(self.log_densities)

    @property
    def rows(self) -> int:
        """The number of test rows."""
        return len(self.log_densities[self.methods[0]])

    def mean(self, method: str) -> Estimate:
        """Return the mean log-likelihood of a method."""
        return Estimate.of(self.log_densities[method])

    def difference(self, method: str) -> Estimate:
        """Return the paired difference: how much the model is better than a baseline."""
        return Estimate.of(self.log_densities[self.methods[0]] - self.log_densities[method])

    def facts(self) -> dict[str, Any]:
        """Return all figures but those of single rows, as JSON can hold them."""
        model, *others = self.methods
        methods = []
        for name in self.methods:
            mean = self.mean(name)
            gap = self.difference(name) if name in others else None
            methods.append(
                {
                    "name": name,
                    "mean": mean.mean,
                    "standard_error": mean.error,
                    "difference": None if gap is None else gap.mean,
                    "difference_error": None if gap is None else gap.error,
                    "lowest": float(self.log_densities[name].min()),
                    "chosen": dict(self.notes.get(name, {})),
                }
            )
        return {"rows": self.rows, "skipped": self.skipped, "model": model, "methods": methods}

    def to_frame(self) -> Any:  # noqa: ANN401
        """Return the log-density of each row by each method, as a pandas DataFrame."""
        import pandas as pd  # noqa: PLC0415 (no dependency of the package)

        return pd.DataFrame(dict(self.log_densities))

    def __str__(self) -> str:
        """Return a table with one line for each method."""
        cells = [list(HEADER), *(_cells(one) for one in self.facts()["methods"])]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = []
        for row in cells:
            first, *middle, last = row
            parts = [first.ljust(widths[0])]
            parts += [cell.rjust(width) for cell, width in zip(middle, widths[1:-1], strict=True)]
            lines.append("  ".join((*parts, last)).rstrip())
        left_out = f", {self.skipped:,} with missing values left out" if self.skipped else ""
        head = f"log-likelihood in nats per row, {self.rows:,} test rows{left_out}"
        return "\n".join((head, *lines))

    __repr__ = __str__


def _cells(one: Mapping[str, Any]) -> list[str]:
    """Return a line of the table."""
    paired = ["", ""]
    if one["difference"] is not None:
        paired = [f"{one['difference']:+.3f}", f"{one['difference_error']:.3f}"]
    chosen = ", ".join(f"{name} {value:.3g}" for name, value in one["chosen"].items() if value)
    numbers = [f"{one['mean']:.3f}", f"{one['standard_error']:.3f}", *paired]
    return [one["name"], *numbers, f"{one['lowest']:.1f}", chosen]


def default_baselines() -> tuple[str, ...]:
    """Return the names of all baselines; without flows where zuko is not installed."""
    has_flows = importlib.util.find_spec("zuko") is not None
    return tuple(name for name in BASELINES if name != "flow" or has_flows)


def check_baselines(names: Sequence[str] | str | None) -> tuple[str, ...]:
    """Return the names of baselines, or raise."""
    if names is None:
        return default_baselines()
    names = (names,) if isinstance(names, str) else tuple(names)
    for name in names:
        if name not in BASELINES:
            raise ValueError(f"baselines must be out of {', '.join(BASELINES)}, got {name!r}")
    if len(set(names)) < len(names):
        raise ValueError(f"baselines must name each method once, got {list(names)}")
    return names


def compare_with_baselines(  # noqa: PLR0913
    log_densities: Array,
    test: Tensor,
    train: Tensor,
    columns: Columns,
    *,
    baselines: Sequence[str] | str | None = None,
    seconds: float = 60.0,
    seed: int = 0,
) -> Comparison:
    """Return the comparison of a model with baselines that are fitted to the training rows.

    ``log_densities`` ``(n,)`` are those of the model at the test rows ``(n, d)``. Categorical
    columns hold the indices of their levels. Rows with missing values, which baselines cannot use,
    are left out. ``seconds`` is the longest training time of a flow.
    """
    names = check_baselines(baselines)
    seconds = checks.positive(seconds, "seconds")
    kept, used = (rows.isfinite().all(dim=1) for rows in (test, train))
    for name, complete in (("X", kept), ("train", used)):
        if int(complete.sum()) < 2:
            raise ValueError(
                f"{name} must have at least two rows without missing values, got "
                f"{int(complete.sum())}"
            )
    numeric = Columns(tuple(map(_as_numbers, columns)))
    source = torch.Generator().manual_seed(seed)
    rows = numeric.dequantised(train[used].double(), source).numpy()
    fits: dict[str, Callable[[], Standardised]] = {
        "kde": lambda: fit_kde(rows, numeric.periods, seed),
        "mixture": lambda: fit_mixture_by_bic(rows, seed, numeric.periods),
        "flow": lambda: fit_flow(rows, seconds, seed, numeric.periods),
    }
    found = {MODEL: log_densities[kept.numpy()]}
    notes: dict[str, dict[str, float]] = {}
    with progress_bar(None) as bar:
        bar.stage("baselines", len(names))
        for name in names:
            bar.note(name)
            fitted = fits[name]()
            found[name] = _log_densities(fitted, test[kept].double(), numeric, source)
            notes[name] = {**fitted.notes, "seconds": fitted.seconds}
            bar.advance(1)
    return Comparison(found, notes, int((~kept).sum()))


def _as_numbers(column: Column) -> Column:
    """Return a categorical column as a discrete one of the indices of its levels."""
    if column.is_numeric:
        return column
    return Column(column.name, levels=tuple(float(k) for k in range(len(column.levels))))


def _log_densities(
    fitted: Standardised, rows: Tensor, columns: Columns, source: torch.Generator
) -> Array:
    """Return the log-densities of rows, averaged over the cells of their levels."""
    if not columns.discrete:
        return fitted.score_samples(rows.numpy())
    draws = [fitted.score_samples(columns.dequantised(rows, source).numpy()) for _ in range(DRAWS)]
    result: Array = np.logaddexp.reduce(draws, axis=0) - math.log(DRAWS)
    return result
