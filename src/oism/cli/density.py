"""``oism density``: the log-density of each row of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from oism.cli.options import (
    STANDARD,
    ColumnNames,
    Command,
    DataFile,
    Format,
    Missing,
    ModelFile,
    Output,
    demand_one_stdin,
    demand_one_stdout,
    report,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from oism.data.files import Sheet


@dataclass(frozen=True)
class Density(Command):
    """Append the log-density of each row to a table.

    Columns of the table are found by the names that the model was fitted with, in any order, or by
    position where there are no names; the others pass through. To NPY only the log-densities are
    written.

    Examples:
      oism density moons.safetensors moons.csv -o scored.csv
      oism density moons.safetensors moons.csv --json -o scores.npy
      oism sample moons.safetensors -n 5 | oism density moons.safetensors -
    """

    model: ModelFile
    """The file of the model; - is standard input."""
    data: DataFile
    """The table; - is standard input."""
    output: Output = STANDARD
    """Where to write; - is standard output."""
    columns: ColumnNames = ()
    """Columns of the table, by name or number from 0, in the order of the model's."""
    name: str = "log_density"
    """What to call the new column."""
    missing: Missing = "error"
    """Refuse rows that lack a number, or leave their log-density empty."""
    format: Format | None = None
    """The format of the table."""
    output_format: Format | None = None
    """The format to write; by default that of the suffix, or of --format on standard output."""
    json: bool = False
    """Report rows, mean and lowest log-density as JSON."""
    quiet: bool = False
    """Show no bar and no report."""

    def run(self) -> None:
        """Load, evaluate and write."""
        from oism.cli import models
        from oism.cli.outputs import demand_table
        from oism.data import files

        demand_one_stdout(self.output, json=self.json)
        demand_one_stdin(self.model, self.data)
        format_out = self.output_format or (self.format if self.output == STANDARD else None)
        kind = demand_table(self.output, format_out)
        model = models.load(self.model)
        sheet = files.read(self.data, self.format)
        if self.name in sheet.names and kind != "npy":
            raise files.FileError(
                f"{sheet.source}: there is a column {self.name!r} already: choose another --name"
            )
        columns = models.matching(sheet, model, self.columns)
        rows = sheet.numbers(columns)
        kept = sheet.complete(rows, columns, skip=self.missing == "skip")
        sheet.demand_finite(rows, columns)
        with models.bars(quiet=self.quiet):
            found = model.score_samples(models.frame(rows[kept], models.own_names(model)))
        self._write(sheet, columns, rows, _spread(found, kept), kind)
        self._tell(found, len(rows))

    def _write(
        self,
        sheet: Sheet,
        columns: list[str],
        rows: NDArray[np.float64],
        densities: NDArray[np.float64],
        kind: str,
    ) -> None:
        import pyarrow as pa

        from oism.data import files

        if kind == "npy":
            files.write_array(densities, self.output)
            return
        table = sheet.table
        if kind not in files.TEXT_FORMATS:  # text goes from text to text as it is written
            for name, column in zip(columns, rows.T, strict=True):
                numbers = pa.array(column.copy(), from_pandas=True)
                table = table.set_column(table.column_names.index(name), name, numbers)
        table = table.append_column(self.name, pa.array(densities, from_pandas=True))
        files.write(table, self.output, kind)

    def _tell(self, found: NDArray[np.float64], rows: int) -> None:
        if self.output == STANDARD:
            return
        mean, lowest = float(found.mean()), float(found.min())
        facts = {"rows": rows, "skipped": rows - len(found), "mean": mean, "lowest": lowest}
        text = (
            f"{rows} rows written to {self.output}, {rows - len(found)} skipped: log-densities "
            f"{mean:.4g} on average, {lowest:.4g} the lowest"
        )
        facts_out = {**facts, "output": self.output}
        report(text, facts_out, self.output, json=self.json, quiet=self.quiet)


def _spread(found: NDArray[np.float64], kept: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return one value for each row, NaN for those left out."""
    import numpy as np

    values = np.full(len(kept), np.nan)
    values[kept] = found
    return values
