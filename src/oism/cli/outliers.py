"""``oism outliers``: the rows of a table that have a low density."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from oism.cli.exit_codes import UsageError
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
    Seed,
    check_one_stdin,
    check_table,
    options,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from oism.cli.rows import Rows
    from oism.tables import OISM, OutlierDetector

NEW_COLUMNS = ("log_density", "outlier")


GAPS = "; rows with gaps have thresholds of their own, those of the columns that they have"


@options
class Outliers(Command):
    """Flag the rows of a table that have a low density.

    A row is flagged if its log-density is below a threshold. The threshold is such that the given
    share of new rows of the same distribution is below it: by held-out rows, by the rows that the
    model was fitted to (which fits up to five more models), or without either by samples of the
    model, which is right as far as the model is. Two columns are appended, log_density and outlier,
    1 for flagged rows; with --only just the flagged rows are written, the lowest density first.

    Examples:
      oism outliers moons.safetensors moons.csv --share 0.01
      oism outliers moons.safetensors moons.csv --train moons.csv --only -o unusual.csv
    """

    model: ModelFile
    """The file of the model; - is standard input."""
    data: DataFile
    """The table; - is standard input."""
    output: Output = STANDARD
    """The table to write; - is standard output."""
    share: Annotated[float, arg(metavar="SHARE")] = 0.05
    """The share of new rows that is flagged, at most 0.5."""
    train: Annotated[str | None, arg(metavar="FILE")] = None
    """The rows that the model was fitted to: folds of them set the threshold."""
    held_out: Annotated[str | None, arg(metavar="FILE")] = None
    """Rows that the model was not fitted to: they set the threshold."""
    only: bool = False
    """Write the flagged rows only."""
    columns: ColumnNames = ()
    """The columns of the table in the model's order, by name or number."""
    missing: Missing = "error"
    """Refuse rows with an empty cell, leave them out, or judge their other cells."""
    seed: Seed = 0
    """The seed of folds and samples."""
    format: Format = None
    """The format of the table."""
    output_format: Format = None
    """The format to write, if the suffix does not determine it."""
    report: ReportOptions = Report()

    def run(self) -> None:
        """Load, set the threshold, evaluate and write."""
        from oism.cli import models
        from oism.cli.rows import read_rows
        from oism.data import files

        self.report.check_stdout(self.output)
        self._check()
        format_out = self.output_format or (self.format if self.output == STANDARD else None)
        kind = check_table(self.output, format_out)
        if kind == "npy":
            raise UsageError("-o: an NPY file has no names: write CSV, TSV, Parquet or NPZ")
        model = models.load_table_model(self.model)
        rows = read_rows(
            self.data, model, chosen=self.columns, missing=self.missing, format=self.format
        )
        for name in NEW_COLUMNS:
            if name in rows.sheet.names:
                raise files.FileError(
                    f"{rows.sheet.source}: there is a column {name!r} already: rename it"
                )
        with self.report.bars():
            detector = self._detector(model)
            table, flagged = _flagged(rows, detector, only=self.only)
        files.write(table, self.output, kind)
        self._report(len(rows.kept) - rows.skipped, flagged, detector)

    def _check(self) -> None:
        for other in (self.data, self.train, self.held_out):
            check_one_stdin(self.model, other)
        if not 0 < self.share <= 0.5:
            raise UsageError(f"--share: expected more than 0 and at most 0.5, got {self.share:g}")
        if self.train is not None and self.held_out is not None:
            raise UsageError("--held-out: sets the threshold alone: not together with --train")

    def _detector(self, model: OISM) -> OutlierDetector:
        from oism.cli.rows import read_rows
        from oism.tables import OutlierDetector

        # The columns of the table are named by --columns, those of other files by the model.
        train, held_out = (
            None if path is None else read_rows(path, model, missing=self.missing).values
            for path in (self.train, self.held_out)
        )
        return OutlierDetector.from_fitted(
            model,
            contamination=self.share,
            train=train,
            held_out=held_out,
            random_state=self.seed,
        )

    def _report(self, rows: int, flagged: int, detector: OutlierDetector) -> None:
        source = "samples of the model"
        if self.train is not None:
            source = f"held-out folds of {self.train}"
        elif self.held_out is not None:
            source = self.held_out
        facts = {
            "rows": rows,
            "flagged": flagged,
            "share": self.share,
            "threshold": detector.offset_,
            "threshold_source": source,
            "share_error": detector.offset_error_,
            "output": self.output,
        }
        by_rows = self.train is not None or self.held_out is not None
        error = f" ± {detector.offset_error_:.1g}" if by_rows else ""  # the model's is unknown
        text = (
            f"{flagged} of {rows} rows ({flagged / rows:.2%}) have a log-density below "
            f"{detector.offset_:.4g}, the threshold for {self.share:.3g}{error} of new rows by "
            f"{source}" + (GAPS if self.missing == "use" else "")
        )
        self.report.print(text, facts, self.output)


def _flagged(rows: Rows, detector: OutlierDetector, *, only: bool) -> tuple[pa.Table, int]:
    """Return the complete rows with their log-densities and flags, and the number of flags."""
    import numpy as np
    import pyarrow as pa

    density = detector.score_samples(rows.values)
    outlier = (detector.predict(rows.values) < 0).astype(np.int8)
    table = rows.sheet.table.filter(pa.array(rows.kept))
    for name, values in zip(NEW_COLUMNS, (density, outlier), strict=True):
        table = table.append_column(name, pa.array(values))
    if only:
        table = table.filter(pa.array(outlier == 1)).sort_by(NEW_COLUMNS[0])
    return table, int(outlier.sum())
