"""Rows of a table in the columns of a model, for the commands that evaluate or draw them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from oism.cli import models
from oism.data import files
from oism.tables import OISM


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a table that a model can use.

    ``values`` are the rows as the model accepts them, ``kept`` says which rows of the
    sheet they are, ``numeric`` which of its columns are numbers.
    """

    sheet: files.Sheet
    values: Any
    kept: NDArray[np.bool_]
    numeric: list[str]

    @property
    def skipped(self) -> int:
        """The number of rows that were left out."""
        return int((~self.kept).sum())


def read_rows(
    path: str,
    model: OISM,
    *,
    chosen: tuple[str, ...] = (),
    missing: str = "error",
    format: str | None = None,  # noqa: A002
) -> Rows:
    """Return the rows of a file in the model's columns, in its order.

    Levels of categorical columns are texts, all others must be numbers. Rows with missing values
    are errors, or left out ("skip"), or kept with their gaps ("use").
    """
    sheet = files.read(path, format)
    names = models.matching(sheet, model, chosen)
    kinds = getattr(model, "columns_", None)
    levels = {names[j] for j in (() if kinds is None else kinds.categorical)}
    numeric = [name for name in names if name not in levels]
    rows = sheet.numbers(numeric)
    sheet.check_finite(rows, numeric)
    texts = {name: sheet.texts(name) for name in names if name in levels}
    gaps = np.stack([np.asarray(text.is_null()) for text in texts.values()], axis=1) if texts else 0
    known = np.concatenate([rows, np.where(gaps, np.nan, 0.0)], axis=1) if texts else rows
    if missing == "use":
        kept = np.ones(len(rows), dtype=np.bool_)
    else:
        kept = sheet.complete(known, [*numeric, *texts], skip=missing == "skip")
    labels = models.column_names(model)
    if labels is None:
        return Rows(sheet, rows[kept], kept, numeric)
    numbers = dict(zip(numeric, rows.T, strict=True))
    parts = [
        texts[name].filter(pa.array(kept)) if name in texts else pa.array(numbers[name][kept])
        for name in names
    ]
    return Rows(sheet, pa.table(dict(zip(labels, parts, strict=True))), kept, numeric)
