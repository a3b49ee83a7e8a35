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
    import numpy as np
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from oism.cli.models import Stored
    from oism.tables import OISM

TABLES_ONLY = ("data", "columns", "missing", "format")
FORMATS = ("png", "svg", "pdf")


@options
class Table:
    """The rows and columns that are shown, for a model of a table."""

    data: Annotated[str | None, arg(metavar="FILE")] = None
    """A table whose rows are shown too."""
    columns: ColumnNames = ()
    """The two columns of the model to show, by name or number from 0."""
    missing: Missing = "error"
    """Refuse rows with an empty cell, or skip them."""
    format: Format = None
    """The format of the table, if the suffix does not determine it."""


@options
class Plot(Command):
    """Draw the density, the scores and samples of a model of a table, or the errors of a prior.

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
        from oism.plot import overview, prior_overview

        if stored.kind == "prior":
            why = f"an option for tables, and {self.model} is a prior"
            check_not_given(self.table, TABLES_ONLY, why)
            return prior_overview(stored.prior(), random_state=self.seed)
        model = stored.table()
        columns = _columns(self.table.columns, models.column_labels(model), self.model)
        rows = None if self.table.data is None else _rows(self.table.data, self.table, model)
        return overview(model, rows, columns=columns, random_state=self.seed)


def _rows(data: str, table: Table, model: OISM) -> NDArray[np.float64]:
    """Return the rows of a table in the model's columns."""
    from oism.cli import models
    from oism.data import files

    sheet = files.read(data, table.format)
    columns = models.matching(sheet, model)
    rows = sheet.numbers(columns)
    sheet.check_finite(rows, columns)
    return rows[sheet.complete(rows, columns, skip=table.missing == "skip")]


def _columns(chosen: tuple[str, ...], names: list[str], model: str) -> tuple[int, int] | None:
    """Return the numbers of the two columns that were chosen."""
    if not chosen:
        return None
    if len(chosen) != 2:
        raise UsageError(f"--columns: expected two, got {len(chosen)}")
    from oism.data.files import called, find_column

    first, second = (find_column(column, names, called(model)) for column in chosen)
    return first, second


def _format(output: str) -> str:
    """Return the format of a figure, from its suffix."""
    if output == STANDARD:
        raise UsageError("-o: a figure is not written to standard output: name a file")
    kind = Path(output).suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        known = ", ".join(f".{name}" for name in FORMATS)
        raise UsageError(f"-o: {output}: the suffix of a figure must be one of {known}")
    return kind
