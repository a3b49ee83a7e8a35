"""``oism sample``: rows drawn from a model, images drawn from a prior or a trained model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from oism.cli.options import (
    STANDARD,
    Command,
    Count,
    Format,
    ModelFile,
    Output,
    Pairs,
    SeedOrNone,
    demand_count,
    demand_default,
    demand_one_stdout,
    naming_options,
    number,
    pairs,
    report,
)

if TYPE_CHECKING:
    from torch import Tensor

    from oism.cli.models import Stored
    from oism.images import Prior
    from oism.nn import Diffusion

TABLES_ONLY = ("given", "method", "density", "format")
TRAINED_ONLY = ("steps", "device")


@dataclass(frozen=True)
class Sample(Command):
    """Draw rows from a model, with the names of its columns, or images.

    Images come from a prior, a trained model, or the folder of a run, whatever it has reached.
    Images go to a picture of all of them (.png), to an array (.npy), or to a folder of PNG files,
    which is a path without suffix.

    Examples:
      oism sample moons.safetensors -n 5
      oism sample moons.safetensors -n 100 --density -o samples.parquet
      oism sample moons.safetensors -n 10 --given x=0.5 --random-state 1 -o given.csv
      oism sample moons.safetensors -n 20 --method sde --format npy > samples.npy
      oism sample prior.safetensors -n 64 -o grid.png
      oism sample prior.safetensors -n 10 --seed 1 -o drawn
      oism sample run -n 16 --steps 8 -o grid.png
    """

    model: ModelFile
    """The file of the model, or the folder of a run; - is standard input."""
    n: Count = 1
    """How many rows or images."""
    output: Output = STANDARD
    """Where to write them; - is standard output, for rows."""
    given: Pairs = ()
    """Values of some columns: the others are drawn given these (torus, at most three columns)."""
    method: Literal["ode", "sde"] = "ode"
    """The probability flow, or the reverse SDE."""
    random_state: SeedOrNone = None
    """The seed; without one every run draws other rows, unless the model was fitted with one."""
    density: bool = False
    """Append the column log_density."""
    steps: int | None = None
    """Trained models: the Runge-Kutta steps of the flow, four evaluations each; 24 by default."""
    device: str | None = None
    """Trained models: where they work, as cpu; by default a GPU where there is one."""
    format: Format | None = None
    """The format, where the suffix does not say it."""
    json: bool = False
    """Report as JSON."""
    quiet: bool = False
    """Show no bar and no report."""

    def run(self) -> None:
        """Load, draw and write."""
        from oism.cli import models

        demand_count(self.n, 0)
        demand_one_stdout(self.output, json=self.json)
        given = pairs(self.given, "--given", number)
        with models.opened(self.model) as stored:
            if stored.is_prior or stored.is_trained:
                self._draw_images(stored)
            else:
                self._draw_rows(stored, given)

    def _draw_rows(self, stored: Stored, given: dict[str, float]) -> None:
        from oism.cli.outputs import demand_table
        from oism.data.files import format_of

        demand_default(self, TRAINED_ONLY, f"an option for trained models, not for {self.model}")
        if format_of(stored.file) is None:
            stored.model()  # raises: what is damaged may be a model of images, and -o right for it
        demand_table(self.output, self.format)
        self._draw(stored, given)
        if self.output != STANDARD:
            text = f"{self.n} rows written to {self.output}"
            facts = {"rows": self.n, "output": self.output}
            report(text, facts, self.output, json=self.json, quiet=self.quiet)

    def _draw_images(self, stored: Stored) -> None:
        from oism.cli import models, priors

        kind = "a prior" if stored.is_prior else "a trained model"
        demand_default(self, TABLES_ONLY, f"an option for tables, and {self.model} is {kind}")
        if stored.is_prior:
            demand_default(self, TRAINED_ONLY, f"an option for trained models, not for {kind}")
        demand_count(self.n, 1)
        priors.demand_pictures(self.output)
        model = stored.prior() if stored.is_prior else stored.trained()
        priors.demand_drawable(model, self.output)
        with models.bars(quiet=self.quiet):
            x = self._images(model)
        priors.write_samples(model, x, self.output)
        text = f"{priors.images_text(self.n)} written to {self.output}"
        facts = {"images": self.n, "output": self.output}
        report(text, facts, self.output, json=self.json, quiet=self.quiet)

    def _images(self, model: Prior | Diffusion) -> Tensor:
        from oism.cli import priors, trained
        from oism.flow import RungeKutta4
        from oism.nn import Diffusion
        from oism.nn._model import METHOD

        source = priors.seeded(self.random_state)
        if not isinstance(model, Diffusion):
            return model.sample(self.n, source)
        with naming_options({"steps": "steps"}):
            method = METHOD if self.steps is None else RungeKutta4(self.steps)
        return trained.placed(model, self.device).sample(self.n, source, method=method)

    def _draw(self, stored: Stored, given: dict[str, float]) -> None:
        import pyarrow as pa

        from oism.cli import models
        from oism.data import files

        model = stored.model()
        own, names = models.own_names(model), models.names_of(model)
        keys = {
            files.find_column(said, names, files.called(self.model)): value
            for said, value in given.items()
        }
        with models.bars(quiet=self.quiet):
            rows = model.sample(self.n, self.random_state, given=keys or None, method=self.method)
            table = pa.table(dict(zip(names, rows.T.copy(), strict=True)))
            if self.density:
                found = model.score_samples(models.frame(rows, own)) if len(rows) else rows[:, 0]
                table = table.append_column("log_density", pa.array(found))
        files.write(table, self.output, self.format)
