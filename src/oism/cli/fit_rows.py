"""The rows of a table that ``oism fit`` uses, whole or in batches, by one process or several."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from oism.cli.exit_codes import UsageError
from oism.cli.options import STANDARD

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from oism.data.files import Shard, Sheet, TableFile
    from oism.tables import Batch


@dataclass
class FitRows:
    """Some columns of a table, and the counts of its rows in the last pass.

    Called, it returns the batches of a shard, as `OISM.fit_batches` needs them. ``missing`` is
    "error", "skip" or "use" for rows with an empty cell; ``advice`` ends the message about text.
    """

    table: TableFile
    columns: list[str]
    weights: str | None
    missing: str
    advice: str
    batch: int
    shard: Shard
    used: int = field(default=0, init=False)
    total: int = field(default=0, init=False)

    @property
    def named(self) -> bool:
        """Whether the columns have names of their own."""
        from oism.data.files import numbering

        return self.columns != numbering(len(self.columns))

    @property
    def expected(self) -> int | None:
        """The number of rows of this process, about, if it is known before they are read."""
        total = self.table.total
        return None if total is None else total // self.shard.count

    def whole(self) -> tuple[Any, NDArray[np.float64] | None]:
        """Return all rows, where text with few levels is allowed, and their weights."""
        import numpy as np
        import pyarrow as pa

        from oism.cli import models

        sheet = self.table.whole()
        found = sheet.frame(self.columns, self.advice)
        types = {name: found.schema.field(name).type for name in self.columns}
        numeric = (pa.types.is_integer, pa.types.is_floating)
        levels = [name for name in types if not any(test(types[name]) for test in numeric)]
        numbers = [name for name in self.columns if name not in levels]
        used = [*numbers, *([] if self.weights is None else [self.weights])]
        rows = np.column_stack(
            [found.column(name).to_numpy().astype(np.float64) for name in numbers]
            + ([] if self.weights is None else [sheet.numbers([self.weights], self.advice)])
            or [np.empty((found.num_rows, 0))]
        )
        gaps = [found.column(name).is_null().to_numpy() for name in levels]
        kept = self._kept(sheet, rows, used, dict(zip(levels, gaps, strict=True)))
        weight = None if self.weights is None else rows[kept, -1]
        if not levels and not (self.named and any(map(pa.types.is_integer, types.values()))):
            rows = rows[kept, : len(numbers)]
            return models.frame(rows, self.columns if self.named else None), weight
        return found.filter(kept), weight

    def __call__(self) -> Iterator[Batch]:
        """Yield the batches of numbers of this process."""
        import numpy as np

        from oism.cli import models
        from oism.data.files import FileError
        from oism.tables import Batch

        self.used = self.total = 0
        used = [*self.columns, *([] if self.weights is None else [self.weights])]
        for sheet in self.table.sheets(used, self.batch, self.shard):
            rows = sheet.numbers(used, f"{self.advice}; --batch 0 reads texts as categories")
            kept = self._kept(sheet, rows, used, {}, some=False)
            places = sheet.first + np.flatnonzero(kept)
            weight = None if self.weights is None else rows[kept, -1]
            names = self.columns if self.named else None
            batch = models.frame(rows[kept, : len(self.columns)], names)
            yield Batch(self._typed(sheet, batch, kept), weight, places)
        if self.shard.count == 1 and not self.used:
            what = f"no row is complete in {', '.join(used)}" if self.total else "it has no rows"
            raise FileError(f"{self.table.head.source}: {what}")

    def _typed(self, sheet: Sheet, batch: Any, kept: NDArray[np.bool_]) -> Any:  # noqa: ANN401
        """Return a batch in which integers, True and False have their type, if none is missing."""
        if not self.named or self.missing == "use":  # a later batch may have gaps
            return batch
        for j, name in enumerate(self.columns):
            cells = sheet.typed(name)
            if cells is not None:
                batch = batch.set_column(j, name, cells.filter(kept))
        return batch

    def _kept(
        self,
        sheet: Sheet,
        rows: NDArray[np.float64],
        columns: list[str],
        gaps: dict[str, NDArray[np.bool_]],
        *,
        some: bool = True,
    ) -> NDArray[np.bool_]:
        """Return which rows are used; raise where a number is infinite, or missing if it must not.

        ``gaps`` are those of the columns of text.
        """
        import numpy as np

        kept = np.ones(len(rows), dtype=bool)
        sheet.check_finite(rows, columns)
        if self.weights is not None and (rows[:, -1] < 0).any():
            place = sheet.place(int(np.argmax(rows[:, -1] < 0)), self.weights)
            raise UsageError(f"--weights: {place}: a weight must not be negative")
        if self.missing != "use":
            cells = np.column_stack((rows, *(np.where(gap, np.nan, 0) for gap in gaps.values())))
            names, skip = [*columns, *gaps], self.missing == "skip"
            kept = sheet.complete(cells, names, skip=skip, some=some)
        elif self.weights is not None:
            sheet.complete(rows[:, -1:], [self.weights], skip=False)
        self.total += len(rows)
        self.used += int(kept.sum())
        return kept


@contextmanager
def processes(data: str) -> Iterator[Shard]:
    """Yield the part of the rows that this process reads, where several were launched.

    `torchrun` and `accelerate launch` set the environment for this.
    """
    from oism.data.files import Shard

    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        yield Shard()
        return
    if data == STANDARD:
        raise UsageError("DATA: several processes cannot share standard input: name a file")
    import torch.distributed as dist

    dist.init_process_group("gloo")
    try:
        with warnings.catch_warnings():
            if dist.get_rank() > 0:  # the first process prints them
                warnings.simplefilter("ignore")
            yield Shard(dist.get_rank(), count)
    finally:
        dist.destroy_process_group()


def counts(rows: FitRows) -> tuple[int, int]:
    """Return the number of rows that were used and of all, by all processes."""
    from oism.estimation import gathered

    used, total = zip(*gathered((rows.used, rows.total)), strict=True)
    return sum(used), sum(total)
