"""Rows in batches: a fit in two passes whose memory does not grow with the number of rows.

Pass 1 surveys the rows: their number and weights, the range of each column, and a `Reservoir`.
From it comes a *pilot*, rows that represent all of them: the random subsample together with the
rows in which a column has its least or its largest value. A column's box, kind and scale are
chosen for the pilot, so the box covers all rows. The weights of the m rows of the subsample are
scaled up, so that the weights of the pilot sum to the effective number of all rows. With at most
`oism.tables._survey.PILOT` rows in all, the pilot is the table.

Pass 2 adds each batch to the moments. It has to read the rows of pass 1: their number and the sums
of weights and columns are compared. Where there are several processes, each passes over its own
rows, and the sums of a pass are merged as those of images are: every process has the pilot and the
moments of all rows. An error of one process is raised in all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oism._core.batches import Batch
from oism._core.progress import no_bars, progress_bar
from oism._core.transforms import shared_tensor, threads_apart
from oism.estimation import gathered, together
from oism.tables._frame import Table, check_is_table, common_dtype, types_of
from oism.tables._reading import is_number
from oism.tables._survey import Survey

PASSES = 2
"""How often a stream of batches is read: for the ranges of the columns, and for the averages."""

SAME = 1e-6
"""How much sums of two passes over the same rows may differ, as a share of those of magnitudes.

Rounding errors depend on the order and the size of the batches.
"""

RANK_STRIDE = 2**48
"""Between the first positions of two processes, where batches come without positions."""

Batches = Callable[[], Iterable[Any]]


@dataclass
class PassSums:
    """What a pass has read: the number of rows, Σw, and Σwx and Σw|x| of each column without gaps.

    >>> sums = PassSums(np.zeros((2, 1)))
    >>> sums.update(np.array([[2.0], [np.nan], [-3.0]]), np.ones(3))
    >>> sums.rows, sums.weight, sums.columns.tolist()
    (3, 3.0, [[-1.0], [5.0]])
    """

    columns: NDArray[np.float64]
    rows: int = 0
    weight: float = 0.0

    def update(self, x: NDArray[np.float64], weights: NDArray[np.float64]) -> None:
        """Add rows ``(n, d)`` with weights ``(n,)``."""
        self.rows += len(x)
        self.weight += float(weights.sum())
        filled = np.nan_to_num(x)
        self.columns = self.columns + np.stack((weights @ filled, weights @ np.abs(filled)))

    def merge(self, other: Self) -> None:
        """Add what another process has read."""
        self.rows += other.rows
        self.weight += other.weight
        self.columns = self.columns + other.columns

    def difference(self, other: Self, names: Sequence[str]) -> str | None:
        """Return in words how another pass differs from this one; None if it does not."""
        if self.rows != other.rows:
            return f"pass 1 had {self.rows} rows and pass 2 has {other.rows}"
        if not abs(self.weight - other.weight) <= SAME * self.weight:
            return f"weights had the sum {self.weight:g} in pass 1 and have {other.weight:g} in 2"
        gap = np.abs(self.columns - other.columns)
        for j, found in enumerate((gap <= SAME * self.columns[1]).all(axis=0)):
            if not found:
                first, second = self.columns[0, j], other.columns[0, j]
                return f"column {names[j]} had the sum {first:g} in pass 1 and has {second:g} in 2"
        return None


class Stream:
    """Batches that are read once for each pass, with a bar that counts the passes.

    ``batches`` is called at the start of a pass, and returns an iterable of arrays, frames, pairs
    of rows and weights, or `Batch`. It may have the number of its rows as the attribute
    ``expected``, which the progress of the first pass is measured by.
    """

    def __init__(self, batches: Batches) -> None:
        if not callable(batches):
            raise TypeError(
                "batches must be a function that returns the batches, because they are read "
                f"{PASSES} times, got {type(batches).__name__}: pass `lambda: batches`"
            )
        self._batches = batches
        self.weight = 0.0
        """Σw over all rows, known after pass 1."""
        self._total: int | None = getattr(batches, "expected", None)
        self._pass = 0
        self._template: Any = None  # the first batch without its rows
        self._dtypes: dict[int, dict[str, Any]] = {}  # of each column, in all batches
        self._numbers: Callable[[Any], NDArray[np.float64]] = np.asarray
        self._sums: list[PassSums] = []  # of each pass of this process, if it has rows
        self._dim = 0

    def pilot(self, numbers: Callable[[Any], NDArray[np.float64]]) -> tuple[Any, Tensor]:
        """Return rows that represent those of all processes, and their weights: pass 1.

        ``numbers`` returns the rows of a batch as an array, with NaN for gaps. The pilot is a frame
        where the batches are, and its columns have the types that hold the values of all batches.
        """
        found: list[Survey] = []
        self._numbers = numbers

        def add(batch: Batch) -> None:
            table = Table.of(batch.rows)
            if table is not None and not table.is_numeric:
                check_text(table)
            x = shared_tensor(self._counted(batch))
            if not found:
                found.append(Survey(x.shape[1]))
                self._template = batch.rows[:0]
            self._dtypes = united((self._dtypes, types_of(batch.rows)))
            found[0].update(x, torch.tensor(_weights(batch)), _positions(batch))

        self._read("ranges", add)
        own = (found[0].dim, self._template, self._dtypes) if found else None
        known = [one for one in gathered(own) if one is not None]
        if not known:
            raise ValueError("batches must hold at least one row, got none")
        dim, template, _ = known[0]
        self._dim = dim
        dtypes = united(dtypes for _, _, dtypes in known)
        survey = (found[0] if found else Survey(dim)).across_processes()
        if not survey.totals.count > 0:
            raise ValueError("sample_weight must have a positive sum")
        self.weight = float(survey.totals.sums[0])
        rows, weights = survey.pilot()
        return like(template, rows.numpy(), dtypes), weights

    def each(self, add: Callable[[Batch], None]) -> None:
        """Add every batch to the moments: pass 2. Raise unless it has the rows of pass 1."""

        def add_counted(batch: Batch) -> None:
            self._counted(batch)
            add(batch)

        self._read("moments", add_counted)
        self._check_passes()

    def _counted(self, batch: Batch) -> NDArray[np.float64]:
        """Return the numbers of a batch, and add them to the sums of this pass."""
        try:
            x = self._numbers(batch.rows)
        except ValueError:
            table = Table.of(batch.rows)
            if table is not None and table.is_numeric:
                check_infinity(table)  # which names the column
            raise
        while len(self._sums) < self._pass:
            self._sums.append(PassSums(np.zeros((2, x.shape[1]))))
        self._sums[self._pass - 1].update(x, _weights(batch))
        return x

    def _check_passes(self) -> None:
        """Raise on every process unless all passes had the same rows, those of all together."""
        totals = [PassSums(np.zeros((2, self._dim))) for _ in range(PASSES)]
        for own in gathered(self._sums):
            for total, one in zip(totals, own, strict=False):
                total.merge(one)
        table = Table.of(self._template)
        names = [str(j) if table is None else table.name(j) for j in range(self._dim)]
        difference = totals[0].difference(totals[1], names)
        if difference is not None:
            raise ValueError(
                f"batches must return the same rows in both passes, but {difference}: return a new "
                "iterator in each call, one that reads the rows again"
            )

    def _read(self, what: str, add: Callable[[Batch], None]) -> None:
        self._pass += 1
        with ExitStack() as stack:
            stack.enter_context(together())
            bar = stack.enter_context(progress_bar(None))
            stack.enter_context(no_bars())  # those of single batches
            stack.enter_context(threads_apart())  # for the folds of a batch
            bar.stage(f"pass {self._pass} of {PASSES}, {what}", self._total)
            count = 0
            for batch in self._located():
                if len(batch.rows):
                    add(batch)
                count += len(batch.rows)
                bar.advance(len(batch.rows))
        self._total = count  # of this process; the progress of the next pass is measured by it

    def _located(self) -> Iterator[Batch]:
        """Yield the batches of this process, each with positions."""
        position = RANK_STRIDE * _rank()
        for item in self._batches():
            batch = _batch(item)
            n = len(batch.rows)
            if batch.positions is None:
                batch = batch._replace(positions=np.arange(position, position + n))
            position += n
            yield batch


def _rank() -> int:
    import torch.distributed as dist  # noqa: PLC0415 (it takes long, and most fits need none)

    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def _positions(batch: Batch) -> Tensor:
    assert batch.positions is not None
    return torch.from_numpy(batch.positions)


def _weights(batch: Batch) -> NDArray[np.float64]:
    if batch.weights is None:
        return np.ones(len(batch.rows))
    return np.asarray(batch.weights, dtype=np.float64)


def check_text(table: Table) -> None:
    """Raise for a batch with levels of a category, or with text that is no number."""
    for j, dtype in enumerate(table.dtypes):
        levels, entries = _is_levels(dtype), table.column(j)
        if not levels and entries.dtype.kind in "biufc":
            continue
        for value in entries.tolist():
            if isinstance(value, str) and (levels or not is_number(value)):
                raise ValueError(
                    f"column {table.name(j)} has the text {value!r}, and batches hold numbers "
                    "alone: give numbers, or use fit, which reads texts as levels"
                )


def check_infinity(table: Table) -> None:
    """Raise for a batch of numbers with infinity."""
    for j in range(len(table.dtypes)):
        infinite = np.isinf(np.asarray(table.column(j), dtype=np.float64))
        if bool(infinite.any()):
            raise ValueError(
                f"Input X contains infinity: column {table.name(j)}, row {infinite.argmax()} of a "
                "batch. Give NaN for a missing value, or leave the row out"
            )


def _is_levels(dtype: object) -> bool:
    """Return whether a dtype of any library is one of categories."""
    return str(dtype).lower().startswith(("category", "categorical", "enum", "dictionary"))


def united(several: Iterable[Mapping[int, Mapping[str, Any]]]) -> dict[int, dict[str, Any]]:
    """Return the dtypes of columns in several tables, by column and by their text."""
    result: dict[int, dict[str, Any]] = {}
    for one in several:
        for column, dtypes in one.items():
            result.setdefault(column, {}).update(dtypes)
    return result


def like(
    template: Any,  # noqa: ANN401 (any library of frames)
    rows: NDArray[np.float64],
    dtypes: Mapping[int, Mapping[str, Any]],
) -> Any:  # noqa: ANN401
    """Return rows as a frame with the library and the names of a template.

    ``dtypes`` are those of each column in all batches. The frame has what they have in common: one
    batch of a column may hold integers alone.

    >>> like(np.zeros((0, 2)), np.ones((1, 2)), {})
    array([[1., 1.]])
    """
    kind = type(template)
    library = kind.__module__.partition(".")[0]
    found = {j: dtype for j, one in dtypes.items() if (dtype := common_dtype(one)) is not None}
    if library in ("pandas", "polars"):
        names = list(template.columns)
        types = {names[j]: dtype for j, dtype in found.items()}
        if library == "pandas":
            return kind(rows, columns=names).astype(types)
        return kind(rows, schema=names).cast(types)
    if library == "pyarrow":
        frame = kind.from_arrays(list(rows.T.copy()), template.column_names)
        schema = frame.schema
        for j, dtype in found.items():
            schema = schema.set(j, schema.field(j).with_type(dtype))
        return frame.cast(schema)
    return rows


def _batch(item: object) -> Batch:
    """Return rows, or a pair of rows and weights, as a batch whose parts are equally long."""
    batch = item if isinstance(item, Batch) else _pair(item)
    check_is_table(batch.rows)
    n = len(batch.rows)
    for name, part in (("weights", batch.weights), ("positions", batch.positions)):
        if part is not None and np.shape(part) != (n,):
            raise ValueError(
                f"{name} of a batch must be one for each of its {n} rows, got the shape "
                f"{np.shape(part)}"
            )
    return batch


def _pair(item: object) -> Batch:
    if not isinstance(item, tuple):
        return Batch(item)
    if len(item) != 2:
        raise TypeError(f"a batch must be rows, or a pair (rows, weights), got {len(item)}")
    return Batch(item[0], np.asarray(item[1], dtype=np.float64))
