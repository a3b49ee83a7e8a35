"""``oism fit``: a model of the rows of a table."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import arg

from oism.cli.exit_codes import UsageError
from oism.cli.options import (
    STANDARD,
    ClockText,
    ColumnNames,
    Command,
    DataFile,
    Device,
    Format,
    OptionalSeed,
    Output,
    Report,
    ReportOptions,
    check_count,
    check_file,
    check_not_input,
    clock_of,
    given,
    interval,
    option_of,
    options,
    pairs,
    periods,
    rows_text,
)

if TYPE_CHECKING:
    from oism.cli.fit_rows import FitRows
    from oism.data.files import Shard, Sheet, TableFile
    from oism.tables import OISM

Auto = Literal["auto"]

LEAST = {"max_eigenvalue": 1, "order": 2, "ridge": 0, "cv": 2, "flow_steps": 1}
"""The least values of parameters of the model."""

FREE_ONLY = ("ou", "mixture")
"""Processes of columns without periods and bounds."""


@options
class Table:
    """Which rows and columns are fitted, and what is known about the columns."""

    columns: ColumnNames = ()
    """The columns to fit, by name or number from 0; all by default."""
    periodic: Annotated[tuple[str, ...], arg(metavar="COL=P ...")] = ()
    """Periods of columns, as phi=360; one number is that of all."""
    bounds: Annotated[tuple[str, ...], arg(metavar="COL=A:B ...")] = ()
    """Intervals that columns cannot leave: x=0:1; x=0: has a low end only."""
    box: Annotated[tuple[float, float] | None, arg(metavar="LOW HIGH")] = None
    """One period for all columns, from LOW to HIGH."""
    sphere: Annotated[str | None, arg(metavar="LAT,LON")] = None
    """Points of a sphere: the columns of latitude and longitude, or x,y,z."""
    discrete: Annotated[tuple[str, ...], arg(metavar="COL ...")] = ()
    """Numeric columns of few values; detected if not given; - for none."""
    weights: Annotated[str | None, arg(metavar="COL")] = None
    """A column with a weight for each row."""
    missing: Annotated[Literal["error", "skip", "use"], arg(metavar="error|skip|use")] = "error"
    """Refuse rows with an empty cell, skip them, or use them."""
    batch: Annotated[int | None, arg(metavar="N")] = None
    """Rows read at a time, in two passes; 0: all at once."""
    format: Format = None
    """The format, if the suffix does not determine it."""


@options
class Model:
    """The parameters of `OISM`."""

    process: Annotated[
        Literal["auto", "torus", "ou", "joint", "mixture"], arg(metavar="PROCESS")
    ] = "auto"
    """torus, ou, joint or mixture; auto: torus (or mixture) up to 3 columns, else joint."""
    sphere_unit: Annotated[Literal["degrees", "radians"], arg(metavar="UNIT")] = "degrees"
    """sphere: the unit of latitude and longitude, degrees or radians."""
    max_eigenvalue: Annotated[float | Auto, arg(metavar="NUMBER")] = "auto"
    """torus: the largest squared frequency; sphere: the largest l(l + 1)."""
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
    network: Annotated[float | Auto | None, arg(metavar="SECONDS")] = None
    """Train networks beside the model: seconds, or auto (30, or 60)."""


@options
class Fit(Command):
    """Fit a model to the rows of a table and write it to one file.

    Parameters that are not given are chosen automatically. Columns of text with at most 50
    different values are categories. Parquet and text above 128 MB are read in batches, in two
    passes. Several processes: `torchrun --nproc_per_node N -m oism fit ...`. `oism fit --help-all`
    lists the parameters of the model; `oism fit-images` is for images.

    Examples:
      oism fit moons.csv -o moons.safetensors
      oism fit angles.csv --columns phi psi --periodic phi=360 psi=360 -o angles.safetensors
      oism fit angles.csv --columns phi psi --periodic 360 -o angles.safetensors --json
      oism fit moons.csv --network 60 -o moons.safetensors
      oism fit moons.csv --bounds x=-6:6 y=-4:4 --max-eigenvalue 100 -o bounded.safetensors
      oism fit moons.csv -o - | oism sample - -n 5
    """

    further = ("model",)

    data: DataFile
    """The table: CSV, TSV, Parquet, NPY, NPZ; - is standard input."""
    output: Output
    """The file of the model; - is standard output."""
    seed: OptionalSeed = None
    """The seed of samples drawn without one; the fit is not random."""
    device: Device = None
    """Where up to three columns are fitted, for example cuda."""
    table: Table = Table()
    model: Model = Model()
    report: ReportOptions = Report()

    def run(self) -> None:
        """Read, fit, write and report."""
        from oism.cli import models
        from oism.cli.fit_rows import counts, processes
        from oism.data import files
        from oism.tables import OISM

        self.report.check_stdout(self.output)
        check_not_input(self.output, self.data)
        check_file(self.output)
        check_is_table(self.data, self.table.columns)
        self._check()
        seconds = self.model.network
        if isinstance(seconds, float | int) and not seconds > 0:
            raise UsageError(f"--network: expected more than 0 seconds, got {seconds:g}")
        with processes(self.data) as shard, self.report.bars(also=shard.rank == 0):
            rows = self._rows(files.open_table(self.data, self.table.format), shard)
            model = OISM(**self._parameters(rows))
            start = time.perf_counter()
            passes = self._fit(model, rows)
            counted = counts(rows)
            if shard.rank > 0:
                return
            _ = model.model_  # solves the equations
            seconds = time.perf_counter() - start
        models.save(model, self.output)
        _report(model, counted, passes, seconds, self.output, self.report)

    def _check(self) -> None:
        """Raise where the parameters of the model are out of range, or contradict each other."""
        for name, least in LEAST.items():
            value = getattr(self.model, name)
            if not isinstance(value, str) and not value >= least:
                raise UsageError(f"{option_of(name)}: expected at least {least}, got {value:g}")
        known = ("periodic", "bounds", "box")
        found = [name for name in known if name in given(self.table)]
        if self.model.process in FREE_ONLY and found:
            raise UsageError(
                f"--process {self.model.process}: needs columns without {option_of(found[0])}; "
                "--process torus serves up to three columns with it, and joint any number"
            )

    def _rows(self, table: TableFile, shard: Shard) -> FitRows:
        """Return the columns of a table that are fitted."""
        from oism.cli.fit_rows import FitRows
        from oism.data.files import BATCH

        if self.table.batch is not None:
            check_count(self.table.batch, 0, "--batch")
        head, options = table.head, self.table
        weights = None if options.weights is None else head.find(options.weights)
        chosen = options.columns or _sphere(options.sphere)
        columns = head.choose(chosen, without=[] if weights is None else [weights])
        whole = options.batch == 0 or (options.batch is None and not table.is_large)
        return FitRows(
            table,
            columns,
            weights,
            missing=options.missing,
            advice="" if options.columns else "; --columns chooses others",
            batch=0 if whole and shard.count == 1 else options.batch or BATCH,
            shard=shard,
        )

    def _fit(self, model: OISM, rows: FitRows) -> int:
        """Fit a model, and return the number of passes over the rows."""
        if not rows.batch:
            values, weight = rows.whole()
            model.fit(values, sample_weight=weight)
            return 1
        from oism.tables import PASSES

        if self.model.network is not None:
            raise UsageError("--network: needs all rows at once, in one process: --batch 0")
        model.fit_batches(rows)
        return PASSES

    def _parameters(self, rows: FitRows) -> dict[str, Any]:
        """Return the parameters of `OISM`."""
        return {
            **vars(self.model),
            "clock": clock_of(self.model.clock),
            **_domain(self.table, rows.table.head, rows.columns, named=rows.named),
            "random_state": self.seed,
            "device": self.device,
        }


def check_is_table(data: str, columns: tuple[str, ...]) -> None:
    """Raise if the data are images; a Parquet file may hold images beside columns to fit."""
    from oism.data import files

    named = data.lower()
    if data == STANDARD or (columns and named.endswith((".parquet", ".pq"))):
        return
    if not data.startswith(files.HUB_PREFIX):
        os.stat(data)  # a missing file is an error of its own
    if os.path.isdir(data):
        _check_holds_images(data)
    if named.endswith(files.IMAGE_SUFFIXES) or files.is_images(data):
        raise files.FileError(f"{data}: holds images, not a table; `oism fit-images` fits images")


def _check_holds_images(folder: str) -> None:
    """Raise for a folder of tables, of which one has to be named."""
    from oism.data import files

    suffixes = tuple(f".{name}" for name in files.FORMATS)
    tables = []
    for place, _, names in os.walk(folder):
        if any(name.lower().endswith(files.IMAGE_SUFFIXES) for name in names):
            return
        tables += [os.path.join(place, name) for name in names if name.lower().endswith(suffixes)]
    tables = sorted(path for path in tables if not files.is_images(path))
    if tables:
        raise files.FileError(
            f"{folder}: a folder, not a table: name one of its files, as {tables[0]}"
        )


def _domain(table: Table, sheet: Sheet, columns: list[str], *, named: bool) -> dict[str, Any]:
    """Return the parameters of `OISM` that describe single columns."""
    from oism.data.files import find_column, unknown_column

    def by_column(option: str, values: dict[str, Any]) -> dict[str | int, Any] | None:
        found: dict[str | int, Any] = {}
        for word, value in values.items():
            name = sheet.names[find_column(word, sheet.names, f"{option}: {sheet.source}")]
            if name not in columns:
                raise unknown_column(word, columns, f"{option}: {sheet.source}, columns to fit")
            found[name if named else columns.index(name)] = value
        return found or None

    turns = by_column("--periodic", periods(table.periodic, columns))
    bounds = by_column("--bounds", pairs(table.bounds, "--bounds", interval))
    both = sorted(map(str, set(turns or ()) & set(bounds or ())))
    if both:
        raise UsageError(f"--bounds: column {both[0]} has a period by --periodic: give one of both")
    return {
        "periodic": turns,
        "bounds": bounds,
        "box": table.box,
        "sphere": list(by_column("--sphere", dict.fromkeys(_sphere(table.sphere))) or ()) or None,
        "discrete": _discrete(table.discrete, by_column),
    }


def _sphere(text: str | None) -> tuple[str, ...]:
    """Return the columns of points of a sphere."""
    if text is None:
        return ()
    found = tuple(word.strip() for word in text.split(","))
    if len(set(found)) < len(found) or len(found) not in (2, 3) or not all(found):
        raise UsageError(
            f"--sphere: expected two columns LAT,LON, or three X,Y,Z of unit vectors, got {text}"
        )
    return found


def _discrete(
    words: tuple[str, ...], by_column: Callable[[str, dict[str, Any]], dict[str | int, Any] | None]
) -> str | list[str | int]:
    """Return the parameter `discrete` of `OISM`."""
    if words == ("-",):
        return []
    return list(by_column("--discrete", dict.fromkeys(words)) or ()) if words else "auto"


def _report(
    model: OISM,
    counted: tuple[int, int],
    passes: int,
    seconds: float,
    output: str,
    report: Report,
) -> None:
    rows, all_rows = counted
    read = f" in {passes} passes" if passes > 1 else ""
    skipped = f", {all_rows - rows} skipped" if all_rows > rows else ""
    facts = {
        "rows": rows,
        "skipped": all_rows - rows,
        "passes": passes,
        "seconds": seconds,
        "output": output,
        "model": model.facts(),
    }
    text = (
        f"{rows_text(rows)} fitted{read} in {seconds:.1f} s{skipped}\n{model.summary()}\n"
        f"model written to {output}"
    )
    report.print(text, facts, output)
