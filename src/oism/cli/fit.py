"""``oism fit``: from a table to a model, or from images to a prior."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import arg

from oism.cli.options import (
    ClockName,
    ColumnNames,
    Command,
    DataFile,
    Format,
    ImageColumn,
    Intervals,
    Missing,
    Mode,
    Output,
    Pairs,
    Split,
    clock_of,
    demand_one_stdout,
    interval,
    pairs,
    periods,
    report,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from oism.data.files import Sheet
    from oism.tables import OISM

Auto = Literal["auto"]


@dataclass(frozen=True)
class Fit(Command):
    """Fit a model to the rows of a table, or a prior to images, and write it to one file.

    Everything is chosen by itself unless it is given. All columns must be numbers, unless some are
    chosen by --columns. Rows that lack a number are refused, or left out with --missing skip.
    Messages count the lines of a text and the rows of other files, from 1.

    Images are those in a folder, Parquet with encoded images as on the Hub (a file or a folder of
    them), NPY and NPZ arrays of three or four axes, or a dataset of the Hub by its id, as
    uoft-cs/cifar10; all of one size, grey or colour. They are read in batches, twice. Options
    marked "images" are for them; of the others these apply: order, frame, ridge, cv, clock (vp),
    device.

    Examples:
      oism fit moons.csv -o moons.safetensors
      oism fit angles.csv --columns phi psi --periodic phi=360 psi=360 -o angles.safetensors
      oism fit angles.csv --columns phi psi --periodic 360 -o angles.safetensors --json
      oism fit moons.csv --bounds x=-6:6 y=-4:4 --max-eigenvalue 100 -o bounded.safetensors
      oism fit moons.csv -o - | oism sample - -n 5
      oism fit images -o prior.safetensors
      oism fit images --components 4 --top 20 --flip -o mixture.safetensors
      oism fit images --local -o local.safetensors
    """

    data: DataFile
    """The table: CSV, TSV, Parquet, NPY or NPZ; - is standard input. Or images."""
    output: Output
    """The file of the model, any name; - is standard output."""
    columns: ColumnNames = ()
    """The columns to fit, by name or number from 0; all by default."""
    periodic: Pairs = ()
    """Columns that count modulo a period, as phi=360; a bare number is the period of all."""
    bounds: Intervals = ()
    """Columns that cannot leave an interval, as x=0:1."""
    box: Annotated[tuple[float, float] | None, arg(metavar="LOW HIGH")] = None
    """One period for all columns, from LOW to HIGH: -180 180 means angles in degrees."""
    weights: Annotated[str | None, arg(metavar="COLUMN")] = None
    """A column with a weight for each row."""
    missing: Missing = "error"
    """Refuse rows that lack a number, or leave them out."""
    process: Literal["auto", "torus", "ou"] = "auto"
    """What diffuses: the torus for at most three columns, Ornstein-Uhlenbeck above."""
    max_eigenvalue: float | Auto = "auto"
    """Torus: the largest squared frequency; what is used of it is cross-validated."""
    order: int | Auto = "auto"
    """Ornstein-Uhlenbeck, images: the largest degree of the polynomials; 4 for images."""
    frame: Literal["pca", "identity", "cosine"] = "pca"
    """Ornstein-Uhlenbeck, images: along principal directions, or along columns or pixels; images
    also along cosines."""
    shrinkage: Literal["none", "james-stein", "modulation", "monotone"] = "none"
    """How averages are estimated."""
    ridge: float | Literal["cv"] = "cv"
    """Chosen by cross-validation at every noise level, or one number for all."""
    cv: int = 5
    """The number of folds."""
    clock: ClockName = None
    """The range of noise levels: variance exploding or preserving."""
    n_times: int | Auto = "auto"
    """The number of steps of the flow."""
    random_state: int | None = None
    """The seed of samples that are drawn without one; fitting has no randomness."""
    device: str | None = None
    """Where scores are evaluated, and images are fitted, as cuda."""
    components: Annotated[int | None, arg(metavar="K")] = None
    """Images: fit a mixture of K Gaussians instead of polynomials."""
    top: Annotated[int | None, arg(metavar="K")] = None
    """Images: the leading principal directions only; along all others one variance."""
    local: bool = False
    """Images: add functions of responses to small filters, the same at all positions, to the
    polynomials or the mixture: edges, at the price of densities and samples that follow a flow."""
    flip: bool = False
    """Images: count each together with its mirror image."""
    no_dequantise: bool = False
    """Images: do not spread each pixel over one level, as densities of bytes need."""
    column: ImageColumn = None
    """Images: the column of a Parquet file or the array of an NPZ file, where there is a choice."""
    split: Split = None
    """Images: the part of a dataset whose Parquet files are named by such, train by default."""
    mode: Mode | None = None
    """Images: convert all to grey (L) or colour (RGB)."""
    skip_broken: bool = False
    """Images: leave damaged ones out."""
    format: Format | None = None
    """The format of the table, where the suffix does not say it."""
    json: bool = False
    """Report as JSON."""
    quiet: bool = False
    """Show no bar and no report."""

    def run(self) -> None:
        """Read, fit, write and report."""
        from oism.cli import images
        from oism.cli.outputs import demand_file, demand_other

        demand_one_stdout(self.output, json=self.json)
        demand_other(self.output, self.data)
        demand_file(self.output)
        if images.are_meant(self):
            images.fit(self)
        else:
            images.demand_table_options(self)
            self._fit_table()

    def _fit_table(self) -> None:
        from oism.cli import models
        from oism.data import files

        sheet = files.read(self.data, self.format)
        weights = None if self.weights is None else sheet.find(self.weights)
        columns = sheet.choose(self.columns, without=[] if weights is None else [weights])
        named = columns != files.numbering(len(columns))
        rows, weight = self._rows(sheet, columns, weights)
        model = self._model(sheet, columns, named=named)
        total = sheet.table.num_rows
        del sheet  # a large text need not wait for the fit to end
        start = time.perf_counter()
        with models.bars(quiet=self.quiet):
            model.fit(models.frame(rows, columns if named else None), sample_weight=weight)
        seconds = time.perf_counter() - start
        models.save(model, self.output)
        self._tell(model, len(rows), total, seconds)

    def _rows(
        self, sheet: Sheet, columns: list[str], weights: str | None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """Return the rows to fit and their weights."""
        used = [*columns, weights] if weights is not None else columns
        rows = sheet.numbers(used, advice="" if self.columns else "; --columns chooses others")
        kept = sheet.complete(rows, used, skip=self.missing == "skip")
        sheet.demand_finite(rows, used)
        rows = rows[kept]
        return (rows, None) if weights is None else (rows[:, :-1], rows[:, -1])

    def _model(self, sheet: Sheet, columns: list[str], *, named: bool) -> OISM:
        from oism.data.files import unknown_column
        from oism.tables import OISM

        def by_column(said: dict[str, Any]) -> dict[str | int, Any] | None:
            found: dict[str | int, Any] = {}
            for word, value in said.items():
                name = sheet.find(word)
                if name not in columns:
                    raise unknown_column(word, columns, f"{sheet.source}, columns to fit")
                found[name if named else columns.index(name)] = value
            return found or None

        return OISM(
            process=self.process,
            periodic=by_column(periods(self.periodic, columns)),
            bounds=by_column(pairs(self.bounds, "--bounds", interval)),
            box=self.box,
            max_eigenvalue=self.max_eigenvalue,
            order=self.order,
            frame=self.frame,
            shrinkage=self.shrinkage,
            ridge=self.ridge,
            cv=self.cv,
            clock=clock_of(self.clock),
            n_times=self.n_times,
            random_state=self.random_state,
            device=self.device,
        )

    def _tell(self, model: OISM, rows: int, all_rows: int, seconds: float) -> None:
        skipped = f", {all_rows - rows} skipped" if all_rows > rows else ""
        facts = {
            "rows": rows,
            "skipped": all_rows - rows,
            "seconds": seconds,
            "output": self.output,
            "model": model.facts(),
        }
        text = (
            f"{rows} rows fitted in {seconds:.1f} s{skipped}\n{model.summary()}\n"
            f"model written to {self.output}"
        )
        report(text, facts, self.output, json=self.json, quiet=self.quiet)
