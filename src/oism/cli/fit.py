"""``oism fit``: a model of the rows of a table."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import arg

from oism.cli.options import (
    STANDARD,
    ClockText,
    ColumnNames,
    Command,
    DataFile,
    Device,
    Format,
    Missing,
    OptionalSeed,
    Output,
    Report,
    ReportOptions,
    check_file,
    check_not_input,
    clock_of,
    interval,
    options,
    pairs,
    periods,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from oism.data.files import Sheet
    from oism.tables import OISM

Auto = Literal["auto"]


@options
class Table:
    """Which rows and columns are fitted, and what is known about the columns."""

    columns: ColumnNames = ()
    """The columns to fit, by name or number from 0; all by default."""
    periodic: Annotated[tuple[str, ...], arg(metavar="COL=P ...")] = ()
    """Periods of columns, as phi=360; one number is that of all."""
    bounds: Annotated[tuple[str, ...], arg(metavar="COL=A:B ...")] = ()
    """Intervals that columns cannot leave, as x=0:1."""
    box: Annotated[tuple[float, float] | None, arg(metavar="LOW HIGH")] = None
    """One period for all columns, from LOW to HIGH."""
    weights: Annotated[str | None, arg(metavar="COL")] = None
    """A column with a weight for each row."""
    missing: Missing = "error"
    """Refuse rows with an empty cell, or skip them."""
    format: Format = None
    """The format, if the suffix does not determine it."""


@options
class Model:
    """The parameters of `OISM`."""

    process: Annotated[Literal["auto", "torus", "ou"], arg(metavar="auto|torus|ou")] = "auto"
    """Noise; auto: torus up to 3 columns, else Ornstein-Uhlenbeck."""
    max_eigenvalue: Annotated[float | Auto, arg(metavar="NUMBER")] = "auto"
    """torus: the largest squared frequency."""
    order: Annotated[int | Auto, arg(metavar="N")] = "auto"
    """ou: the largest degree of the polynomials."""
    frame: Annotated[Literal["pca", "identity"], arg(metavar="FRAME")] = "pca"
    """ou: principal directions (pca) or columns (identity)."""
    shrinkage: Annotated[
        Literal["none", "james-stein", "modulation", "monotone"], arg(metavar="RULE")
    ] = "none"
    """Of the averages: james-stein, modulation or monotone."""
    ridge: Annotated[float | Literal["cv"], arg(metavar="NUMBER")] = "cv"
    """One number, or cv: cross-validated at every noise level."""
    cv: Annotated[int, arg(metavar="N")] = 5
    """The number of folds of cross-validation."""
    clock: ClockText = None
    """Noise levels: ve:SIGMA_MIN:SIGMA_MAX or vp:BETA_0:BETA_1."""
    flow_steps: Annotated[int | Auto, arg(metavar="N")] = "auto"
    """The number of steps of the flow."""


@options
class Fit(Command):
    """Fit a model to the rows of a table and write it to one file.

    Parameters that are not given are chosen automatically. `oism fit-images` is for images.

    Examples:
      oism fit moons.csv -o moons.safetensors
      oism fit angles.csv --columns phi psi --periodic phi=360 psi=360 -o angles.safetensors
      oism fit angles.csv --columns phi psi --periodic 360 -o angles.safetensors --json
      oism fit moons.csv --bounds x=-6:6 y=-4:4 --max-eigenvalue 100 -o bounded.safetensors
      oism fit moons.csv -o - | oism sample - -n 5
    """

    data: DataFile
    """The table: CSV, TSV, Parquet, NPY, NPZ; - is standard input."""
    output: Output
    """The file of the model; - is standard output."""
    seed: OptionalSeed = None
    """The seed of samples drawn without one; the fit is not random."""
    device: Device = None
    """Where scores are evaluated, for example cuda."""
    table: Table = Table()
    model: Model = Model()
    report: ReportOptions = Report()

    def run(self) -> None:
        """Read, fit, write and report."""
        from oism.cli import models
        from oism.data import files

        self.report.check_stdout(self.output)
        check_not_input(self.output, self.data)
        check_file(self.output)
        check_is_table(self.data, self.table.columns)
        sheet = files.read(self.data, self.table.format)
        weights = None if self.table.weights is None else sheet.find(self.table.weights)
        columns = sheet.choose(self.table.columns, without=[] if weights is None else [weights])
        named = columns != files.numbering(len(columns))
        rows, weight = _rows(sheet, columns, weights, self.table)
        parameters = {
            **_parameters(self.model),
            **_domain(self.table, sheet, columns, named=named),
            "random_state": self.seed,
            "device": self.device,
        }
        from oism.tables import OISM

        model = OISM(**parameters)
        total = sheet.table.num_rows
        del sheet  # releases the memory of a large text during the fit
        start = time.perf_counter()
        with self.report.bars():
            model.fit(models.frame(rows, columns if named else None), sample_weight=weight)
        seconds = time.perf_counter() - start
        models.save(model, self.output)
        _report(model, len(rows), total, seconds, self.output, self.report)


def check_is_table(data: str, columns: tuple[str, ...]) -> None:
    """Raise if the data are images; a Parquet file may hold images beside columns to fit."""
    from oism.data import files

    named = data.lower()
    if data == STANDARD or (columns and named.endswith((".parquet", ".pq"))):
        return
    if not data.startswith(files.HUB_PREFIX):
        os.stat(data)  # a missing file is an error of its own
    if named.endswith(files.IMAGE_SUFFIXES) or files.is_images(data):
        raise files.FileError(f"{data}: holds images, not a table; `oism fit-images` fits images")


def _rows(
    sheet: Sheet, columns: list[str], weights: str | None, table: Table
) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """Return the rows to fit and their weights."""
    used = [*columns, weights] if weights is not None else columns
    rows = sheet.numbers(used, advice="" if table.columns else "; --columns chooses others")
    kept = sheet.complete(rows, used, skip=table.missing == "skip")
    sheet.check_finite(rows, used)
    rows = rows[kept]
    return (rows, None) if weights is None else (rows[:, :-1], rows[:, -1])


def _parameters(model: Model) -> dict[str, Any]:
    """Return the parameters of `OISM` that options give directly."""
    return {**vars(model), "clock": clock_of(model.clock)}


def _domain(table: Table, sheet: Sheet, columns: list[str], *, named: bool) -> dict[str, Any]:
    """Return the parameters of `OISM` that describe single columns."""
    from oism.data.files import unknown_column

    def by_column(values: dict[str, Any]) -> dict[str | int, Any] | None:
        found: dict[str | int, Any] = {}
        for word, value in values.items():
            name = sheet.find(word)
            if name not in columns:
                raise unknown_column(word, columns, f"{sheet.source}, columns to fit")
            found[name if named else columns.index(name)] = value
        return found or None

    return {
        "periodic": by_column(periods(table.periodic, columns)),
        "bounds": by_column(pairs(table.bounds, "--bounds", interval)),
        "box": table.box,
    }


def _report(
    model: OISM, rows: int, all_rows: int, seconds: float, output: str, report: Report
) -> None:
    skipped = f", {all_rows - rows} skipped" if all_rows > rows else ""
    facts = {
        "rows": rows,
        "skipped": all_rows - rows,
        "seconds": seconds,
        "output": output,
        "model": model.facts(),
    }
    text = (
        f"{rows} rows fitted in {seconds:.1f} s{skipped}\n{model.summary()}\n"
        f"model written to {output}"
    )
    report.print(text, facts, output)
