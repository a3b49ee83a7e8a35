"""``oism plot``: a figure of a model of a table, or of a prior."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from oism.cli.exit_codes import UsageError
from oism.cli.options import (
    STANDARD,
    ColumnNames,
    Command,
    Format,
    Missing,
    ModelFile,
    Output,
    Report,
    ReportOptions,
    Seed,
    check_file,
    check_not_given,
    check_one_stdin,
    options,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from oism.cli.models import Stored

TABLES_ONLY = ("data", "columns", "missing", "format")
FORMATS = ("png", "svg", "pdf")


@options
class Table:
    """The rows and columns that are shown, for a model of a table."""

    data: Annotated[str | None, arg(metavar="FILE")] = None
    """A table whose rows are shown too."""
    columns: ColumnNames = ()
    """The columns of the model to show, by name or number from 0; two where it has two."""
    missing: Missing = "error"
    """Refuse rows with an empty cell, skip them, or show their other cells."""
    format: Format = None
    """The format of the table, if the suffix does not determine it."""


@options
class Plot(Command):
    """Draw the density, the scores and samples of a model of a table, or the errors of a prior.

    Of more than two columns the figure is a corner plot: the density of each column, for each pair
    the densest regions of the model with the rows of --data as dots below the diagonal, and samples
    above it.

    For a prior of images the figure shows its expected error of the predicted noise over the noise
    level, the gate and the output scale for a network, and samples. The figure is PNG, SVG or PDF,
    by its suffix.

    Examples:
      oism plot moons.safetensors -o moons.png
      oism plot moons.safetensors --data moons.csv --columns x y -o moons.pdf
      oism plot prior.safetensors -o prior.png
    """

    model: ModelFile
    """The file of the model; - is standard input."""
    output: Output
    """The file of the figure."""
    seed: Seed = 0
    """The seed of the samples."""
    dpi: Annotated[int, arg(metavar="N")] = 150
    """Dots per inch of a PNG."""
    table: Table = Table()
    report: ReportOptions = Report()

    def hint(self, word: str) -> str:
        """Return the option of the table, which is no positional argument here."""
        return "" if word.startswith("-") else f"a table of rows to show is given by --data {word}"

    def run(self) -> None:
        """Load, draw and write."""
        kind = _format(self.output)
        if self.dpi < 1:
            raise UsageError(f"--dpi: expected at least 1, got {self.dpi}")
        check_one_stdin(self.model, self.table.data)
        check_file(self.output)
        import matplotlib as mpl

        mpl.use("Agg")
        from oism._core.atomic import replacing
        from oism.cli import models

        with models.opened(self.model) as stored, self.report.bars():
            figure = self._figure(stored)
        with replacing(self.output) as draft:
            figure.savefig(draft, format=kind, dpi=self.dpi)
        text = f"figure written to {self.output}"
        self.report.print(text, {"output": self.output})

    def _figure(self, stored: Stored) -> Figure:
        from oism.cli import models
        from oism.cli.rows import read_rows
        from oism.plot import overview, prior_overview

        if stored.kind == "prior":
            why = f"an option for tables, and {self.model} is a prior"
            check_not_given(self.table, TABLES_ONLY, why)
            return prior_overview(stored.prior(), random_state=self.seed)
        model = stored.table()
        columns = _columns(self.table.columns, models.column_labels(model), self.model)
        rows = None
        if self.table.data is not None:
            missing, kind = self.table.missing, self.table.format
            rows = read_rows(self.table.data, model, missing=missing, format=kind).values
        return overview(model, rows, columns=columns, random_state=self.seed)


def _columns(chosen: tuple[str, ...], names: list[str], model: str) -> list[int] | None:
    """Return the numbers of the columns that were chosen."""
    if not chosen:
        return None
    if len(names) <= 2 and len(chosen) != len(names):
        raise UsageError(f"--columns: expected {len(names)}, got {len(chosen)}")
    from oism.data.files import called, find_column

    found = [find_column(column, names, called(model)) for column in chosen]
    if len(set(found)) < len(found):
        raise UsageError(f"--columns: a column is chosen twice in {' '.join(chosen)}")
    return found


def _format(output: str) -> str:
    """Return the format of a figure, from its suffix."""
    if output == STANDARD:
        raise UsageError("-o: a figure is not written to standard output: name a file")
    kind = Path(output).suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        known = ", ".join(f".{name}" for name in FORMATS)
        raise UsageError(f"-o: {output}: the suffix of a figure must be one of {known}")
    return kind
