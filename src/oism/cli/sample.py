"""``oism sample``: rows or images drawn from a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import arg

from oism.cli.classes import Classes
from oism.cli.exit_codes import UsageError
from oism.cli.options import (
    STANDARD,
    Command,
    Count,
    Device,
    Format,
    ModelFile,
    Number,
    OptionalSeed,
    Output,
    Report,
    ReportOptions,
    check_count,
    check_file,
    check_not_given,
    check_table,
    given,
    naming_options,
    number_or_level,
    options,
    pairs,
    rows_text,
    text_of_value,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from oism.cli.models import Stored
    from oism.flow import TensorSpec
    from oism.nn import Diffusion
    from oism.tables import OISM

IMAGES_ONLY = ("label", "guidance")
ROWS_ONLY = ("given", "method", "density", "format")
TRAINED_ONLY = ("evaluations", "order", "eta", "device")
OUTPUTS = "samples of images go to a grid (.png), an array (.npy) or a folder (without suffix)"


@options
class Rows:
    """How rows of a table are drawn."""

    given: Annotated[tuple[str, ...], arg(metavar="COL=X ...")] = ()
    """Draw the other columns given these: numbers, or levels of a category."""
    method: Annotated[Literal["ode", "sde"], arg(metavar="ode|sde")] = "ode"
    """The probability flow, or the reverse SDE."""
    density: bool = False
    """Append the column log_density."""
    format: Format = None
    """The format, if the suffix does not determine it."""


@options
class Trained:
    """How images of a trained model are drawn."""

    evaluations: Number = None
    """Evaluations of the network (default: 20 with a prior, 96 without)."""
    order: Number = None
    """Extrapolate by polynomials, of order 1 to 3, instead of measured statistics."""
    eta: Annotated[float | None, arg(metavar="NUMBER")] = None
    """Add noise in every step: 0 for none, 1 for the reverse SDE."""
    device: Device = None
    """Where the network runs; by default a GPU if there is one."""


@options
class Sample(Command):
    """Draw rows or images from a model, a prior, or the folder of a training run.

    Images are written as one grid (.png), an array (.npy), or a folder of PNG files (a path without
    suffix).

    Examples:
      oism sample moons.safetensors -n 5
      oism sample moons.safetensors -n 100 --density -o samples.parquet
      oism sample moons.safetensors -n 10 --given x=0.5 --seed 1 -o given.csv
      oism sample moons.safetensors -n 20 --method sde --format npy > samples.npy
      oism sample prior.safetensors -n 64 -o grid.png
      oism sample prior.safetensors -n 10 --seed 1 -o drawn
      oism sample run -n 16 --evaluations 8 -o grid.png
      oism sample by-class -n 16 --label 3 --guidance 2 -o threes.png
    """

    model: ModelFile
    """The file of the model, or the folder of a run; - is standard input."""
    n: Count = 1
    """The number of rows or images."""
    output: Output = STANDARD
    """The file or folder to write; - is standard output, for rows."""
    seed: OptionalSeed = None
    """The seed; by default samples differ from run to run."""
    rows: Rows = Rows()
    trained: Trained = Trained()
    classes: Classes = Classes()
    report: ReportOptions = Report()

    def run(self) -> None:
        """Load, draw and write."""
        from oism.cli import models

        check_count(self.n, 0)
        self.report.check_stdout(self.output)
        given = pairs(self.rows.given, "--given", text_of_value)
        with models.opened(self.model) as stored:
            if stored.kind in ("prior", "trained"):
                self._write_images(stored)
            else:
                self._write_rows(stored, given)

    def _write_rows(self, stored: Stored, given: dict[str, str]) -> None:
        import pyarrow as pa

        from oism.cli import models
        from oism.data import files

        check_not_given(self, TRAINED_ONLY, f"an option for trained models, not for {self.model}")
        check_not_given(self, IMAGES_ONLY, f"an option for images, not for {self.model}")
        if stored.kind is None:
            stored.table()  # raises: a damaged file is the first thing to report
        check_table(self.output, self.rows.format)
        model = stored.table()
        names = models.column_labels(model)
        keys = _by_column(model, given, names, self.model)
        with self.report.bars():
            rows = model.sample(self.n, self.seed, given=keys or None, method=self.rows.method)
            table = models.table_of(rows, model)
            if self.rows.density:
                named = rows if models.column_names(model) is None else table
                found: Any = model.score_samples(named) if len(rows) else []
                table = table.append_column("log_density", pa.array(found, pa.float64()))
        files.write(table, self.output, self.rows.format)
        if self.output != STANDARD:
            steps = model.model_.steps  # None where there is no flow and rows are drawn directly
            how = {"method": "exact" if steps is None else self.rows.method, "steps": steps}
            facts = {"rows": self.n, **how, "output": self.output}
            self.report.print(f"{rows_text(self.n)} written to {self.output}", facts, self.output)

    def _write_images(self, stored: Stored) -> None:
        from oism.cli import classes, reports

        self.classes.check()
        what = "a prior" if stored.kind == "prior" else "a trained model"
        check_not_given(self, ROWS_ONLY, f"an option for tables, and {self.model} is {what}")
        if stored.kind == "prior":
            check_not_given(self, TRAINED_ONLY, "an option for trained models, not for a prior")
        check_count(self.n, 1)
        check_image_output(self.output)
        source = generator(self.seed)
        how: dict[str, Any] = {"method": "exact", "evaluations": 0, "expected_error": None}
        with self.report.bars():
            if stored.kind == "prior":
                prior = stored.prior()
                check_drawable(prior.spec, self.output)
                x = classes.sampled(prior, self.classes, self.n, source, self.model)
                spec = prior.spec
            else:
                model = on_device(stored.trained(), self.trained.device)
                check_drawable(model.spec, self.output)
                arguments = sampling(self.trained)
                model = classes.given(model, self.classes, self.n, stored.file, self.model)
                how = reports.sampling_facts(model, **arguments)
                spec, x = model.spec, model.sample(self.n, source, **arguments)
        write_images(spec, x, self.output)
        facts = {"images": self.n, **given(self.classes), **how, "output": self.output}
        text = f"{reports.count_text(self.n)} written to {self.output}"
        text += "" if how["method"] == "exact" else f": {reports.sampling_text(how)}"
        self.report.print(text, facts, self.output)


def _by_column(
    model: OISM, given: dict[str, str], names: list[str], path: str
) -> dict[str | int, Any]:
    """Return given values by column: numbers, and levels of categorical columns."""
    from oism.cli.models import level_of
    from oism.data import files

    found: dict[str | int, Any] = {}
    for column, text in given.items():
        j = files.find_column(column, names, f"--given: {files.called(path)}")
        levels = model.columns_[j].levels if model.columns_[j].categorical else None
        value = number_or_level(text) if levels is None else text
        if levels is not None:  # levels of a model that Python has fitted need not be text
            level = level_of(text, levels)
            value = text if level is None else level
        # Numbers may be names of other columns; counted from the end they are none.
        place = j if model.columns_.names is None else j - len(names)
        found[place if model.columns_.texts is None else names[j]] = value
    return found


def generator(seed: int | None) -> torch.Generator:
    """Return a source of random numbers; without a seed another one every time."""
    import torch

    source = torch.Generator()
    if seed is None:
        source.seed()
    else:
        source.manual_seed(seed)
    return source


def on_device(model: Diffusion, device: str | None) -> Diffusion:
    """Return a model on a device, by default a GPU if there is one."""
    import torch

    from oism._core import checks

    default = "cuda" if torch.cuda.is_available() else "cpu"
    return model.to(checks.device(default if device is None else device))


def sampling(given: Trained) -> dict[str, Any]:
    """Return the arguments of `Diffusion.sample` from the options."""
    from oism.sampling import Polynomial

    if given.evaluations is not None:
        check_count(given.evaluations, 1, "--evaluations")
    if given.order is None and given.eta is None:
        return {"evaluations": given.evaluations}
    with naming_options({"order": "order", "eta": "eta"}):
        method = Polynomial(
            order=2 if given.order is None else given.order,
            eta=0.0 if given.eta is None else given.eta,
        )
    return {"evaluations": given.evaluations, "sampler": method}


def check_image_output(output: str) -> None:
    """Raise unless samples of images can be written there."""
    from oism.data import files

    if output == STANDARD:
        raise UsageError(f"-o: {OUTPUTS}, not to standard output: name one")
    suffix = Path(output).suffix.lower()
    if suffix == ".png":
        check_file(output)
    elif suffix not in ("", ".npy") and not Path(output).is_dir():
        raise UsageError(f"-o: {output}: {OUTPUTS}")
    else:
        files.check_images(output)


def check_drawable(spec: TensorSpec, output: str) -> None:
    """Raise if samples are not images, and the output must be."""
    from oism.cli.reports import shape_text
    from oism.images import image_shape

    if image_shape(spec) is None and Path(output).suffix.lower() != ".npy":
        what = "pixels" if spec.pixels is None else "1 or 3 channels"
        raise UsageError(
            f"-o: {output}: samples of shape {shape_text(spec.shape)} without {what} are not "
            "images; they go to an .npy file"
        )


def write_images(spec: TensorSpec, x: Tensor, output: str) -> None:
    """Write samples, in the units of a model, as a grid, an array or a folder."""
    from oism.data import files
    from oism.images import as_images
    from oism.plot import write_image_grid

    suffix = Path(output).suffix.lower()
    if suffix == ".npy":
        files.write_array(_array(spec, x).numpy(), output)
    elif suffix == ".png":
        write_image_grid(output, as_images(spec, x).numpy())
    else:
        files.write_images(output, as_images(spec, x).numpy())


def _array(spec: TensorSpec, x: Tensor) -> Tensor:
    """Return images as integers with channels last, other tensors in the model's units."""
    from oism.images import image_shape

    shape = image_shape(spec)
    if shape is None or spec.pixels is None:
        return x.cpu()
    levels = spec.pixels.values(x).reshape(len(x), *shape).cpu()
    return levels[:, 0] if shape[0] == 1 else levels.permute(0, 2, 3, 1).contiguous()
