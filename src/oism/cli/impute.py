"""``oism impute``: missing cells of a table, drawn given the other cells of their row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oism.cli.options import (
    STANDARD,
    ColumnNames,
    Command,
    DataFile,
    Format,
    ModelFile,
    OptionalSeed,
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


@options
class Impute(Command):
    """Fill the missing cells of a table with draws from a model, given the other cells of the row.

    Columns are found by the names that the model was fitted with, in any order, or by position if
    there are no names. All other cells are copied. Several seeds give several filled tables, which
    show how uncertain the missing cells are.

    Examples:
      oism impute moons.safetensors moons.csv -o filled.csv
      oism impute moons.safetensors moons.csv --seed 1 -o filled.parquet --json
    """

    model: ModelFile
    """The file of the model; - is standard input."""
    data: DataFile
    """The table; - is standard input."""
    output: Output = STANDARD
    """The table to write; - is standard output."""
    seed: OptionalSeed = None
    """The seed; by default draws differ from run to run."""
    columns: ColumnNames = ()
    """The columns of the table in the model's order, by name or number."""
    format: Format = None
    """The format of the table."""
    output_format: Format = None
    """The format to write, if the suffix does not determine it."""
    report: ReportOptions = Report()

    def run(self) -> None:
        """Load, fill and write."""
        import numpy as np

        from oism.cli import models
        from oism.cli.rows import read_rows
        from oism.data import files

        self.report.check_stdout(self.output)
        check_one_stdin(self.model, self.data)
        format_out = self.output_format or (self.format if self.output == STANDARD else None)
        kind = check_table(self.output, format_out)
        model = models.load_table_model(self.model)
        read = read_rows(self.data, model, chosen=self.columns, missing="use", format=self.format)
        with self.report.bars():
            filled = np.asarray(model.impute(read.values, self.seed), dtype=object)
        written = models.table_of(filled, model)
        table, count = read.sheet.table, 0
        for j, name in enumerate(models.matching(read.sheet, model, self.columns)):
            numeric = name in read.numeric
            gaps, cells = read.sheet.gaps(name, numeric=numeric), table.column(name)
            as_written = _is_text(cells) and kind in files.TEXT_FORMATS
            if gaps.any() or (numeric and _is_text(cells) and not as_written):
                drawn = np.asarray(written.column(j).to_pylist(), dtype=object)
                if numeric:  # cells that are there are not rounded
                    drawn = np.where(gaps, drawn, filled[:, j])
                new = _filled(cells, drawn, gaps, text=as_written or not numeric)
                table = table.set_column(table.column_names.index(name), name, new)
            count += int(gaps.sum())
        files.write(table, self.output, kind)
        if self.output != STANDARD:
            facts = {"rows": len(filled), "filled": count, "output": self.output}
            text = f"{len(filled)} rows written to {self.output}, {count} missing cells filled"
            self.report.print(text, facts, self.output)


def _filled(
    cells: pa.ChunkedArray, drawn: NDArray[np.object_], gaps: NDArray[np.bool_], *, text: bool
) -> pa.Array | pa.ChunkedArray:
    """Return a column without gaps: numbers, or texts as they are written."""
    import pyarrow as pa
    import pyarrow.compute as pc

    whole = pa.types.is_integer(cells.type) and all(float(x).is_integer() for x in drawn[gaps])
    if not text and whole:
        old = cells.to_pylist()  # beyond 2⁵³ a float64 does not hold them
        merged = [int(x) if gap else y for x, y, gap in zip(drawn, old, gaps, strict=True)]
        return pa.array(merged, cells.type)
    if not text:
        return pa.array(drawn.astype(float))
    if pa.types.is_boolean(cells.type):
        return pa.array(drawn.tolist(), cells.type)
    return pc.if_else(pa.array(gaps), pa.array(map(str, drawn), pa.string()), cells.cast("string"))


def _is_text(cells: pa.ChunkedArray) -> bool:
    return str(cells.type) in ("string", "large_string")
