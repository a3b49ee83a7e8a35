"""Rows in batches: a fit in two passes whose memory does not grow with the number of rows.

Pass 1 surveys the rows: their number and weights, the range of each column, and a `Reservoir`.
From it comes a *pilot*, rows that represent all of them: the random subsample together with the
rows in which a column has its least or its largest value. A column's box, kind and scale are
chosen for the pilot, so the box covers all rows. The weights of the m rows of the subsample are
scaled up, so that the weights of the pilot sum to the effective number of all rows. With at most
`PILOT` rows in all, the pilot is the table.

Pass 2 adds each batch to the moments. Where there are several processes, each passes over its own
rows, and the sums of a pass are merged as those of images are: every process has the pilot and the
moments of all rows. An error of one process is raised in all of them.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oism._core.batches import Batch
from oism._core.progress import no_bars, progress_bar
from oism._core.transforms import shared_tensor, threads_apart
from oism.estimation import across_processes, gathered, together
from oism.tables._background import effective_count
from oism.tables._frame import common_dtype, types_of
from oism.tables._reservoir import Reservoir

PILOT = 2**17
"""The largest number of rows in the random subsample."""

PASSES = 2
"""How often a stream of batches is read: for the ranges of the columns, and for the averages."""

RANK_STRIDE = 2**48
"""Between the first positions of two processes, where batches come without positions."""

Batches = Callable[[], Iterable[Any]]


class Edges:
    """The rows in which a column has its least or its largest value: ``(2d, d)``; mergeable.

    Of equal values the one at the first position counts, so that the order of the batches does not
    matter. Gaps, which are NaN, are passed over.
    """

    def __init__(self, dim: int) -> None:
        self.rows = torch.full((2 * dim, dim), math.nan, dtype=torch.float64)
        self.weights = torch.zeros(2 * dim, dtype=torch.float64)
        self.positions = torch.full((2 * dim,), -1)
        self._values = torch.full((2 * dim,), math.inf, dtype=torch.float64)

    def update(self, x: Tensor, weights: Tensor, positions: Tensor) -> Self:
        """Return self after rows ``(n, d)`` with weights and ascending positions, ``(n,)``."""
        if len(x):
            signed = torch.cat((x, -x), dim=1).nan_to_num_(math.inf, math.inf, -math.inf)
            values, index = signed.min(dim=0)
            first = (signed == values).byte().argmax(dim=0)  # `min` returns any of equal ones
            index = torch.where(values.isfinite(), first, index)
            self._keep(values, x[index], weights[index], positions[index])
        return self

    def merge(self, other: Self) -> Self:
        """Return the edges of the rows of both."""
        result = copy.copy(self)
        result._keep(other._values, other.rows, other.weights, other.positions)
        return result

    def _keep(self, values: Tensor, rows: Tensor, weights: Tensor, positions: Tensor) -> None:
        earlier = (positions >= 0) & (positions < self.positions)
        better = (values < self._values) | ((values == self._values) & earlier)
        self._values = torch.where(better, values, self._values)
        self.rows = torch.where(better[:, None], rows, self.rows)
        self.weights = torch.where(better, weights, self.weights)
        self.positions = torch.where(better, positions, self.positions)


class Totals:
    """The number of rows, and the sums of their weights and of the squares; mergeable."""

    def __init__(self) -> None:
        self.rows = 0
        self.sums = torch.zeros(2, dtype=torch.float64)

    def update(self, weights: Tensor) -> Self:
        """Return self after rows of these weights, ``(n,)``."""
        self.rows += len(weights)
        self.sums = self.sums + torch.stack((weights.sum(), weights.square().sum()))
        return self

    def merge(self, other: Self) -> Self:
        """Return the totals of the rows of both."""
        result = copy.copy(self)
        result.rows += other.rows
        result.sums = self.sums + other.sums
        return result

    @property
    def count(self) -> float:
        """The effective number of rows, 0 without any."""
        first, second = self.sums.tolist()
        return effective_count(first, second) if second > 0 else 0.0


class Survey:
    """What pass 1 finds out about rows of ``dim`` columns."""

    def __init__(self, dim: int, size: int = PILOT) -> None:
        self.dim = dim
        self.totals, self.edges, self.reservoir = Totals(), Edges(dim), Reservoir(size, dim)

    def update(self, x: Tensor, weights: Tensor, positions: Tensor) -> Self:
        """Return self after rows; those of weight 0 count for nothing."""
        used = weights > 0
        x, weights, positions = x[used], weights[used], positions[used]
        self.totals.update(weights)
        self.edges.update(x, weights, positions)
        self.reservoir.update(x, weights, positions)
        return self

    def across_processes(self) -> Self:
        """Return the survey of the rows of all processes."""
        result = copy.copy(self)
        result.totals = across_processes(self.totals)
        result.edges = across_processes(self.edges)
        result.reservoir = self.reservoir.across_processes()
        return result

    def pilot(self) -> tuple[Tensor, Tensor]:
        """Return rows that represent all of them, and weights that sum to their number."""
        rows, weights, positions = (
            part() for part in (self.reservoir.rows, self.reservoir.weights,
                                self.reservoir.positions)
        )  # fmt: skip
        if self.totals.rows <= len(self.reservoir):  # the table: as it was read
            order = positions.argsort()
            return rows[order], weights[order]
        edges, index = np.unique(self.edges.positions.numpy(), return_index=True)
        index = index[(edges >= 0) & ~np.isin(edges, positions.numpy())]
        more, least = self.edges.rows[index], self.edges.weights[index]
        total, _ = self.totals.sums.tolist()
        unit = self.totals.count / total  # weights may have any sum, an effective number has not
        share = (total - float(least.sum())) / float(weights.sum())
        return torch.cat((rows, more)), unit * torch.cat((share * weights, least))


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

    def pilot(self, numbers: Callable[[Any], NDArray[np.float64]]) -> tuple[Any, Tensor]:
        """Return rows that represent those of all processes, and their weights: pass 1.

        ``numbers`` returns the rows of a batch as an array, with NaN for gaps. The pilot is a frame
        where the batches are, and its columns have the types that hold the values of all batches.
        """
        found: list[Survey] = []

        def add(batch: Batch) -> None:
            x = shared_tensor(numbers(batch.rows))
            if not found:
                found.append(Survey(x.shape[1]))
                self._template = batch.rows[:0]
            self._dtypes = united((self._dtypes, types_of(batch.rows)))
            weights = np.ones(len(x)) if batch.weights is None else batch.weights
            found[0].update(x, torch.tensor(weights, dtype=torch.float64), _positions(batch))

        self._read("ranges", add)
        own = (found[0].dim, self._template, self._dtypes) if found else None
        known = [one for one in gathered(own) if one is not None]
        if not known:
            raise ValueError("batches must hold at least one row, got none")
        dim, template, _ = known[0]
        dtypes = united(dtypes for _, _, dtypes in known)
        survey = (found[0] if found else Survey(dim)).across_processes()
        if not survey.totals.count > 0:
            raise ValueError("sample_weight must have a positive sum")
        self.weight = float(survey.totals.sums[0])
        rows, weights = survey.pilot()
        return like(template, rows.numpy(), dtypes), weights

    def each(self, add: Callable[[Batch], None]) -> None:
        """Add every batch to the moments: pass 2."""
        self._read("moments", add)

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
    if isinstance(item, Batch):
        return item
    if isinstance(item, tuple):
        if len(item) != 2:
            raise TypeError(f"a batch must be rows, or a pair (rows, weights), got {len(item)}")
        return Batch(item[0], np.asarray(item[1], dtype=np.float64))
    return Batch(item)
