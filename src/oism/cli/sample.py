"""``oism sample``: rows drawn from a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from oism.cli.options import (
    STANDARD,
    Command,
    Count,
    Format,
    ModelFile,
    Output,
    Pairs,
    demand_count,
    demand_one_stdout,
    number,
    pairs,
    report,
)


@dataclass(frozen=True)
class Sample(Command):
    """Draw rows from a model, with the names of its columns.

    Examples:
      oism sample moons.safetensors -n 5
      oism sample moons.safetensors -n 100 --density -o samples.parquet
      oism sample moons.safetensors -n 10 --given x=0.5 --random-state 1 -o given.csv
      oism sample moons.safetensors -n 20 --method sde --format npy > samples.npy
    """

    model: ModelFile
    """The file of the model; - is standard input."""
    n: Count = 1
    """How many rows."""
    output: Output = STANDARD
    """Where to write them; - is standard output."""
    given: Pairs = ()
    """Values of some columns: the others are drawn given these (torus, at most three columns)."""
    method: Literal["ode", "sde"] = "ode"
    """The probability flow, or the reverse SDE."""
    random_state: int | None = None
    """The seed; without one every run draws other rows, unless the model was fitted with one."""
    density: bool = False
    """Append the column log_density."""
    format: Format | None = None
    """The format, where the suffix does not say it."""
    json: bool = False
    """Report as JSON."""
    quiet: bool = False
    """Show no bar and no report."""

    def run(self) -> None:
        """Load, draw and write."""
        from oism.cli.outputs import demand_table

        demand_count(self.n, 0)
        demand_one_stdout(self.output, json=self.json)
        given = pairs(self.given, "--given", number)
        demand_table(self.output, self.format)
        self._draw(given)
        if self.output != STANDARD:
            text = f"{self.n} rows written to {self.output}"
            facts = {"rows": self.n, "output": self.output}
            report(text, facts, self.output, json=self.json, quiet=self.quiet)

    def _draw(self, given: dict[str, float]) -> None:
        import pyarrow as pa

        from oism import files
        from oism.cli import models

        model = models.load(self.model)
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
