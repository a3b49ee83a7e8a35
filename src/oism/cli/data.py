"""``oism data``: rows to try things with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from oism.cli.options import STANDARD, Command, Count, Format, Law, Output, demand_count


@dataclass(frozen=True)
class Data(Command):
    """Draw rows from one of eight toy laws of the plane, columns x and y.

    Examples:
      oism data moons -n 1000 -o moons.csv
      oism data pinwheel -n 500 --random-state 1 -o pinwheel.parquet
      oism data rings -n 300 | oism fit - -o rings.safetensors
    """

    law: Annotated[Positional[Law], arg(metavar="NAME")]
    """The law: swissroll, circles, rings, moons, 8gaussians, pinwheel, 2spirals, checkerboard."""
    n: Count = 1000
    """How many rows."""
    output: Output = STANDARD
    """Where to write them; - is standard output."""
    random_state: int = 0
    """The seed."""
    format: Format | None = None
    """The format, where the suffix does not say it."""

    def run(self) -> None:
        """Draw and write."""
        from oism.cli.outputs import demand_table

        demand_count(self.n, 1)
        demand_table(self.output, self.format)
        import pyarrow as pa
        import torch

        from oism.data import files
        from oism.data.toys import PLANE

        rows = PLANE[self.law].sample(self.n, torch.Generator().manual_seed(self.random_state))
        x, y = rows.numpy().T.copy()
        files.write(pa.table({"x": x, "y": y}), self.output, self.format)
