"""Rows of a table in the columns of a model, for the commands that evaluate or draw them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
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
    found = {} if kinds is None else {names[j]: kinds.levels(j) for j in kinds.categorical}
    numeric = [name for name in names if name not in found]
    rows = sheet.numbers(numeric)
    sheet.check_finite(rows, numeric)
    texts = {name: sheet.texts(name) for name in names if name in found}
    cells = {name: _levels(sheet, texts[name], name, found[name]) for name in texts}
    gaps = np.stack([np.asarray(text.is_null()) for text in texts.values()], axis=1) if texts else 0
    known = np.concatenate([rows, np.where(gaps, np.nan, 0.0)], axis=1) if texts else rows
    if missing == "use":
        kept = np.ones(len(rows), dtype=np.bool_)
    else:
        kept = sheet.complete(known, [*numeric, *texts], skip=missing == "skip")
    labels = models.column_names(model)
    if labels is None and not texts:
        return Rows(sheet, rows[kept], kept, numeric)
    numbers = dict(zip(numeric, rows.T, strict=True))
    parts = [(cells[name] if name in cells else numbers[name])[kept] for name in names]
    if labels is None:
        return Rows(sheet, np.stack([part.astype(object) for part in parts], axis=1), kept, numeric)
    table = pa.table(dict(zip(labels, map(pa.array, parts), strict=True)))
    return Rows(sheet, table, kept, numeric)


def _levels(
    sheet: files.Sheet, texts: pa.ChunkedArray, name: str, levels: tuple[Any, ...]
) -> NDArray[np.object_]:
    """Return the levels that texts stand for, None for gaps; raise where the fit has not seen one.

    A model that was fitted in Python may have levels that are no texts, as True and False.
    """
    known: dict[str | None, Any] = {None: None}
    for text in pc.unique(texts).to_pylist():
        if text is None:
            continue
        known[text] = models.level_of(text, levels)
        if known[text] is None:
            seen = ", ".join(map(repr, levels[:20])) + (", …" if len(levels) > 20 else "")
            row = texts.to_pylist().index(text)
            raise files.FileError(
                f"{sheet.place(row, name)}: the level {text!r}, which the fit has not seen: its "
                f"levels are {seen}; leave the row or the cell out, or fit again"
            )
    result = np.empty(len(texts), dtype=object)
    result[:] = [known[text] for text in texts.to_pylist()]
    return result
