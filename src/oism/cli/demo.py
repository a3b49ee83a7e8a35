"""``oism demo``: a model from data to a report, for a person who has never seen one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from oism.cli.options import Command, Law, demand_count, print_json


@dataclass(frozen=True)
class Demo(Command):
    """Fit a toy law without training, compare with kernels, and write a picture and a report.

    The folder then holds report.html (one page that opens offline), picture.png, numbers.json and
    model.safetensors.

    Examples:
      oism demo
      oism demo --law pinwheel --points 5000 -o pinwheel
    """

    law: Law = "2spirals"
    """What is fitted."""
    points: int = 10_000
    """How many rows."""
    tested: int = 5000
    """How many rows are held out."""
    output: Annotated[str, arg(aliases=["-o"], metavar="FOLDER")] = "runs/demo"
    """The folder."""
    random_state: int = 0
    """The seed."""
    json: bool = False
    """Print the numbers as JSON."""

    def run(self) -> None:
        """Fit, compare, write."""
        demand_count(self.points, 20, "--points")
        demand_count(self.tested, 2, "--tested")
        import matplotlib as mpl

        mpl.use("Agg")
        from oism.studies import demo

        folder = Path(self.output)
        outcome = demo.Demo(self.law, self.points, self.tested, self.random_state).run(folder)
        if self.json:
            print_json(outcome.numbers())
            return
        print(f"{self.law}: {self.points:,} rows, {self.tested:,} held out\n")
        print(outcome.table())
        print(f"\nreport: {folder / 'report.html'}\npicture: {folder / 'picture.png'}")
