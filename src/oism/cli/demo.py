"""``oism demo``: a first model, from data to a report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from oism.cli.options import (
    Command,
    Folder,
    Seed,
    ToyName,
    check_count,
    options,
    print_json,
)


@options
class Demo(Command):
    """Fit a toy distribution, compare with a kernel density estimate, and write a report.

    The folder gets report.html (one page that opens offline), picture.png, numbers.json and
    model.safetensors.

    Examples:
      oism demo
      oism demo --name pinwheel --rows 5000 -o pinwheel
    """

    name: ToyName = "2spirals"
    """The distribution, one of those of `oism data`."""
    rows: Annotated[int, arg(metavar="N")] = 10_000
    """The number of rows that are fitted."""
    test_rows: Annotated[int, arg(metavar="N")] = 5000
    """The number of rows that are held out."""
    output: Folder = "runs/demo"
    """The folder."""
    seed: Seed = 0
    """The seed of the rows."""
    json: bool = False
    """Print the numbers as JSON."""

    def run(self) -> None:
        """Fit, compare and write."""
        check_count(self.rows, 20, "--rows")
        check_count(self.test_rows, 2, "--test-rows")
        import matplotlib as mpl

        mpl.use("Agg")
        from oism.cli.demo_report import run

        folder = Path(self.output)
        report = run(self.name, self.rows, self.test_rows, self.seed, folder)
        if self.json:
            print_json(report.numbers())
            return
        print(f"{self.name}: {self.rows:,} rows, {self.test_rows:,} held out\n")
        print(report.table())
        print(f"\nreport: {folder / 'report.html'}\npicture: {folder / 'picture.png'}")
