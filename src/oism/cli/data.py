"""``oism data``: rows of a toy distribution."""

from __future__ import annotations

from tyro.conf import Positional

from oism.cli.options import (
    STANDARD,
    Command,
    Count,
    Format,
    Output,
    Seed,
    ToyName,
    check_count,
    check_table,
    options,
)


@options
class Data(Command):
    """Draw rows from one of eight toy distributions of the plane, columns x and y.

    Examples:
      oism data moons -n 1000 -o moons.csv
      oism data pinwheel -n 500 --seed 1 -o pinwheel.parquet
      oism data rings -n 300 | oism fit - -o rings.safetensors
    """

    name: Positional[ToyName]
    """swissroll, circles, rings, moons, 8gaussians, pinwheel, 2spirals or checkerboard."""
    n: Count = 1000
    """The number of rows."""
    output: Output = STANDARD
    """The table to write; - is standard output."""
    seed: Seed = 0
    """The seed."""
    format: Format = None
    """The format, if the suffix does not determine it."""

    def run(self) -> None:
        """Draw and write."""
        check_count(self.n, 1)
        check_table(self.output, self.format)
        import pyarrow as pa
        import torch

        from oism.data import files
        from oism.data.toys import PLANE

        rows = PLANE[self.name].sample(self.n, torch.Generator().manual_seed(self.seed))
        x, y = rows.numpy().T.copy()
        files.write(pa.table({"x": x, "y": y}), self.output, self.format)
