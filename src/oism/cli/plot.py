"""``oism plot``: a picture of a model, or of a prior."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from oism.cli.ending import UsageError
from oism.cli.options import (
    STANDARD,
    ColumnNames,
    Command,
    Format,
    Missing,
    ModelFile,
    Output,
    Seed,
    demand_default,
    demand_one_stdin,
)

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from oism.cli.models import Stored
    from oism.tables import OISM

TABLES_ONLY = ("data", "columns", "missing", "format")
PICTURES = ("png", "svg", "pdf")


@dataclass(frozen=True)
class Plot(Command):
    """Draw the density of a model, samples, and the rows of a table beside them.

    Of a prior of images: the error of the predicted noise that it expects of itself over the noise
    level, with gate and output scale for a network on top of it, and samples.

    The picture is PNG, SVG or PDF, by its suffix.

    Examples:
      oism plot moons.safetensors -o moons.png
      oism plot moons.safetensors --data moons.csv --columns x y -o moons.pdf
      oism plot prior.safetensors -o prior.png
    """

    model: ModelFile
    """The file of the model; - is standard input."""
    output: Output
    """The picture."""
    data: str | None = None
    """A table whose rows are shown too."""
    columns: ColumnNames = ()
    """The two columns of the model to show, by name or number from 0."""
    missing: Missing = "error"
    """Refuse rows of the table that lack a number, or leave them out."""
    format: Format | None = None
    """The format of the table, where the suffix does not say it."""
    random_state: Seed = 0
    """The seed of the samples."""
    dpi: int = 150
    """Dots per inch of a PNG."""
    quiet: bool = False
    """Show no bar and no report."""

    def run(self) -> None:
        """Load, draw and write."""
        kind = self._picture()
        demand_one_stdin(self.model, self.data)
        import matplotlib as mpl

        from oism.cli import models
        from oism.cli.outputs import demand_file

        demand_file(self.output)
        mpl.use("Agg")
        from oism._core.atomic import replacing

        with models.opened(self.model) as stored, models.bars(quiet=self.quiet):
            figure = self._prior_figure(stored) if stored.is_prior else self._figure(stored)
        with replacing(self.output) as draft:
            figure.savefig(draft, format=kind, dpi=self.dpi)
        if not self.quiet:
            print(f"picture written to {self.output}")

    def _figure(self, stored: Stored) -> Figure:
        from oism.cli import models
        from oism.plot import overview

        model = stored.model()
        chosen = self._chosen(models.names_of(model))
        rows = None if self.data is None else self._rows(self.data, model)
        return overview(model, rows, columns=chosen, random_state=self.random_state)

    def _prior_figure(self, stored: Stored) -> Figure:
        from oism.plot import prior_overview

        demand_default(self, TABLES_ONLY, f"an option for tables, and {self.model} is a prior")
        return prior_overview(stored.prior(), random_state=self.random_state)

    def _rows(self, data: str, model: OISM) -> NDArray[np.float64]:
        """Return the rows of the table in the model's columns."""
        from oism.cli import models
        from oism.data import files

        sheet = files.read(data, self.format)
        columns = models.matching(sheet, model)
        rows = sheet.numbers(columns)
        sheet.demand_finite(rows, columns)
        return rows[sheet.complete(rows, columns, skip=self.missing == "skip")]

    def _picture(self) -> str:
        if self.output == STANDARD:
            raise UsageError("-o: a picture is not written to standard output: name a file")
        if self.dpi < 1:
            raise UsageError(f"--dpi: expected at least 1, got {self.dpi}")
        kind = Path(self.output).suffix.lower().removeprefix(".")
        if kind not in PICTURES:
            known = ", ".join(f".{name}" for name in PICTURES)
            raise UsageError(f"-o: {self.output}: the suffix of a picture must be one of {known}")
        return kind

    def _chosen(self, names: list[str]) -> tuple[int, int] | None:
        if not self.columns:
            return None
        if len(self.columns) != 2:
            raise UsageError(f"--columns: expected two, got {len(self.columns)}")
        from oism.data.files import called, find_column

        first, second = (find_column(said, names, called(self.model)) for said in self.columns)
        return first, second
