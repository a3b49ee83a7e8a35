"""Wrong arguments of the estimator, and whether its errors are clear.

An error is clear if it is a ValueError or a TypeError, raised by the library or by scikit-learn's
checks, and its message has a word that leads to the argument.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

import oism
from oism import OISM

if TYPE_CHECKING:
    from campaign.tables import Case

TRIED = 4
"""How many mistakes are made with each model."""

Call = Callable[[OISM, "Case"], object]
OWN = (str(Path(oism.__file__).parent), "sklearn")


def _numbers(case: Case) -> Any:  # noqa: ANN401
    """Return the new rows without names, for calls that never get to them."""
    return case.table(case.new)


def _fit(case: Case, table: object = None, weights: object = None, **changes: Any) -> OISM:  # noqa: ANN401
    table = case.table(case.rows) if table is None else table
    model = OISM(**{**case.settings, **changes})
    model.fit(table, sample_weight=weights)
    return model


def _with(case: Case, value: object) -> Any:  # noqa: ANN401
    """Return the rows with a value in a numeric column, as a frame."""
    frame = case.rows.copy()
    name = next(
        name
        for name, kind in zip(case.names, case.kinds, strict=True)
        if kind not in ("level", "flag")
    )
    frame[name] = frame[name].astype(object if isinstance(value, str) else np.float64)
    frame.loc[frame.index[-1], name] = value
    return case.table(frame)


def _wide(case: Case) -> Any:  # noqa: ANN401
    return case.table(pd.concat((case.new, case.new.add_prefix("more_")), axis=1))


CALLS: dict[str, tuple[Call, tuple[str, ...]]] = {
    "infinite entry": (lambda _, c: _fit(c, _with(c, np.inf)), ("inf", "finite")),
    "infinite new row": (
        lambda m, c: m.score_samples(
            c.table(c.new.assign(**{n: np.inf for n in c.names if c.new[n].dtype.kind == "f"}))
        ),
        ("inf", "finite"),
    ),
    "no rows": (lambda _, c: _fit(c, c.table(c.rows[:0])), ("0 sample", "rows", "array=[]")),
    "no columns": (lambda _, c: _fit(c, c.table(c.rows[[]])), ("0 feature", "column", "empty")),
    "one dimension": (lambda _, c: _fit(c, np.arange(5.0)), ("1D", "2D", "X must")),
    "a number": (lambda _, c: _fit(c, 3.0), ("scalar", "2D", "X must", "got float")),
    "too many columns": (lambda m, c: m.score_samples(_wide(c)), ("feature", "column", "X ")),
    "negative weight": (
        lambda _, c: _fit(c, None, -np.ones(len(c.rows))),
        ("sample_weight", "weight"),
    ),
    "all weights zero": (
        lambda _, c: _fit(c, None, np.zeros(len(c.rows))),
        ("sample_weight", "sample weight"),
    ),
    "weights of another length": (
        lambda _, c: _fit(c, None, np.ones(len(c.rows) + 1)),
        ("sample_weight",),
    ),
    "weights that are text": (
        lambda _, c: _fit(c, None, ["heavy"] * len(c.rows)),
        ("sample_weight", "heavy"),
    ),
    "NaN weight": (lambda _, c: _fit(c, None, np.full(len(c.rows), np.nan)), ("NaN", "weight")),
    "unknown periodic": (lambda _, c: _fit(c, periodic={"nowhere": 1.0}), ("periodic",)),
    "negative period": (lambda _, c: _fit(c, periodic={c.key(0): -1.0}), ("periodic", "period")),
    "bounds upside down": (lambda _, c: _fit(c, bounds={c.key(0): (1, 0)}), ("bounds",)),
    "bounds without rows": (
        lambda _, c: _fit(c, bounds={c.key(0): (1e30, 2e30)}, periodic=None),
        ("bounds", "c0", "column 0"),
    ),
    "bounds of a column that is not there": (
        lambda _, c: _fit(c, bounds={99: (0, 1)}),
        ("bounds", "99"),
    ),
    "unknown process": (lambda _, c: _fit(c, process="heat"), ("process",)),
    "negative ridge": (lambda _, c: _fit(c, ridge=-1.0), ("ridge",)),
    "cv of one": (lambda _, c: _fit(c, cv=1), ("cv", "fold")),
    "unknown device": (lambda _, c: _fit(c, device="abacus"), ("device",)),
    "box upside down": (lambda _, c: _fit(c, box=(1.0, 0.0), bounds=None, periodic=None), ("box",)),
    "unknown discrete": (lambda _, c: _fit(c, discrete=["nowhere"]), ("discrete",)),
    "too small eigenvalue": (lambda _, c: _fit(c, max_eigenvalue=0.0), ("max_eigenvalue",)),
    "negative count": (lambda m, _: m.sample(-1), ("n_samples",)),
    "half a sample": (lambda m, _: m.sample(1.5), ("n_samples",)),  # type: ignore[arg-type]
    "unknown method": (lambda m, _: m.sample(1, method="magic"), ("method",)),
    "text as seed": (lambda m, _: m.sample(1, random_state="x"), ("seed", "random_state")),  # type: ignore[arg-type]
    "unknown given": (lambda m, _: m.sample(1, given={"nowhere": 1.0}), ("given",)),
    "text given": (lambda m, c: m.conditional({c.key(0): "nowhere"}), ("given",)),
    "all given": (
        lambda m, c: m.conditional({c.key(j): c.new.iloc[0, j] for j in range(len(c.kinds))}),
        ("given",),
    ),
    "nothing given": (lambda m, _: m.conditional({}), ("given",)),
    "unknown marginal": (lambda m, _: m.marginal(["nowhere"]), ("column",)),
    "no marginal": (lambda m, _: m.marginal([]), ("column",)),
    "a model that is not fitted": (
        lambda _, c: OISM().score_samples(_numbers(c)),
        ("not fitted",),
    ),
}
"""The calls, and the words of which a message must have one."""


def judged(model: OISM, case: Case, rng: np.random.Generator) -> Iterator[tuple[str, str]]:
    """Yield the names of mistakes that were not answered by a clear error, and what was wrong."""
    for name in rng.choice(sorted(CALLS), size=TRIED, replace=False):
        fault = fault_of(str(name), model, case)
        if fault is not None:
            yield str(name), fault


def fault_of(name: str, model: OISM, case: Case) -> str | None:
    """Return what is wrong with the answer to a mistake, or None."""
    if name in ("infinite entry", "infinite new row") and not _has_floats(case):
        return None
    if name == "infinite new row" and not len(case.new):
        return None
    call, words = CALLS[name]
    try:
        call(model, case)
    except Exception as error:  # whatever it is, it is judged
        return fault_of_error(error, words)
    return "no error"


def fault_of_error(error: Exception, words: tuple[str, ...]) -> str | None:
    """Return what is unclear in an error, or None."""
    text = f"{type(error).__name__}: {error}"[:200]
    if not isinstance(error, ValueError | TypeError):
        return f"another error, {text}"
    place = traceback.extract_tb(error.__traceback__)[-1].filename
    if not any(own in place for own in OWN):
        return f"raised in {place}, {text}"
    if not any(word.lower() in str(error).lower() for word in words):
        return f"does not name the argument, {text}"
    return None


def _has_floats(case: Case) -> bool:
    return any(case.new[name].dtype.kind == "f" for name in case.names)
