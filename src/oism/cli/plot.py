"""``oism plot``: a picture of a model."""

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
    demand_one_stdin,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from oism.estimator import OISM

PICTURES = ("png", "svg", "pdf")


@dataclass(frozen=True)
class Plot(Command):
    """Draw the density of a model, samples, and the rows of a table beside them.

    The picture is PNG, SVG or PDF, by its suffix.

    Examples:
      oism plot moons.safetensors -o moons.png
      oism plot moons.safetensors --data moons.csv --columns x y -o moons.pdf
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
    random_state: int = 0
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
        from oism.atomic import replacing
        from oism.plot import overview

        model = models.load(self.model)
        chosen = self._chosen(models.names_of(model))
        rows = None if self.data is None else self._rows(self.data, model)
        with models.bars(quiet=self.quiet):
            figure = overview(model, rows, columns=chosen, random_state=self.random_state)
        with replacing(self.output) as draft:
            figure.savefig(draft, format=kind, dpi=self.dpi)
        if not self.quiet:
            print(f"picture written to {self.output}")

    def _rows(self, data: str, model: OISM) -> NDArray[np.float64]:
        """Return the rows of the table in the model's columns."""
        from oism import files
        from oism.cli import models

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
        from oism.files import called, find_column

        first, second = (find_column(said, names, called(self.model)) for said in self.columns)
        return first, second
