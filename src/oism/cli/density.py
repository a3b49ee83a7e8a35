"""``oism density``: the log-density of each row of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from oism.cli.options import (
    STANDARD,
    ColumnNames,
    Command,
    DataFile,
    Format,
    Missing,
    ModelFile,
    Output,
    Report,
    ReportOptions,
    check_one_stdin,
    check_table,
    options,
)

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from oism.data.files import Sheet


@options
class Density(Command):
    """Append the log-density of each row to a table.

    Columns are found by the names that the model was fitted with, in any order, or by position if
    there are no names. Other columns are copied. An NPY file gets the log-densities only.

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
    """The table to write; - is standard output."""
    columns: ColumnNames = ()
    """The columns of the table in the model's order, by name or number."""
    name: Annotated[str, arg(metavar="NAME")] = "log_density"
    """The name of the new column."""
    missing: Missing = "error"
    """Refuse rows with an empty cell, leave their log-density empty, or use the others."""
    format: Format = None
    """The format of the table."""
    output_format: Format = None
    """The format to write, if the suffix does not determine it."""
    report: ReportOptions = Report()

    def run(self) -> None:
        """Load, evaluate and write."""
        from oism.cli import models
        from oism.cli.rows import read_rows
        from oism.data import files

        self.report.check_stdout(self.output)
        check_one_stdin(self.model, self.data)
        format_out = self.output_format or (self.format if self.output == STANDARD else None)
        kind = check_table(self.output, format_out)
        model = models.load_table_model(self.model)
        missing, format_in = self.missing, self.format
        read = read_rows(self.data, model, chosen=self.columns, missing=missing, format=format_in)
        sheet = read.sheet
        if self.name in sheet.names and kind != "npy":
            raise files.FileError(
                f"{sheet.source}: there is a column {self.name!r} already: choose another --name"
            )
        with self.report.bars():
            found = model.score_samples(read.values)
        densities = _one_per_row(found, read.kept)
        if kind == "npy":
            files.write_array(densities, self.output)
        else:
            # Cells are copied as they are, but other formats get numbers instead of text.
            numbers = {}
            if kind not in files.TEXT_FORMATS:
                numeric = [name for name in read.numeric if sheet.holds_text(name)]
                numbers = dict(zip(numeric, sheet.numbers(numeric).T, strict=True))
            files.write(_extended(sheet, numbers, self.name, densities), self.output, kind)
        if self.output != STANDARD:
            _report(found, len(read.kept), self.output, self.report)


def _extended(
    sheet: Sheet,
    numbers: dict[str, NDArray[np.float64]],
    name: str,
    densities: NDArray[np.float64],
) -> pa.Table:
    """Return a table with some columns replaced by numbers, and a new one."""
    import pyarrow as pa

    table = sheet.table
    for column, values in numbers.items():
        array = pa.array(values.copy(), from_pandas=True)
        table = table.set_column(table.column_names.index(column), column, array)
    return table.append_column(name, pa.array(densities, from_pandas=True))


def _report(found: NDArray[np.float64], rows: int, output: str, report: Report) -> None:
    mean, lowest = float(found.mean()), float(found.min())
    facts = {"rows": rows, "skipped": rows - len(found), "mean": mean, "lowest": lowest}
    text = (
        f"{rows} rows written to {output}, {rows - len(found)} skipped: log-densities "
        f"{mean:.4g} on average, {lowest:.4g} the lowest"
    )
    report.print(text, {**facts, "output": output}, output)


def _one_per_row(found: NDArray[np.float64], kept: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return one value for each row, NaN for those left out."""
    import numpy as np

    values = np.full(len(kept), np.nan)
    values[kept] = found
    return values
