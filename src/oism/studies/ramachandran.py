"""A Ramachandran plot without training: the density of backbone angles, and samples from it.

Run it with ``python -m oism.studies.ramachandran FILE.csv --columns phi psi``. The file has a
header and angles in degrees; the picture shows the rows, the fitted density and as many samples.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from numpy.typing import NDArray

from oism.estimator import OISM

PERIOD = 360.0
SIDE = 181
FLOOR = 10.0
"""How many nats below the mode the map of the density ends."""


def read(path: Path, columns: tuple[str, str]) -> NDArray[np.float64]:
    """Return two columns of a CSV file, without incomplete rows."""
    table = np.genfromtxt(path, delimiter=",", names=True, encoding="utf-8")
    known = table.dtype.names or ()
    for name in columns:
        if name not in known:
            raise SystemExit(f"{path} has no column {name!r}, only {', '.join(known)}")
    rows: NDArray[np.float64] = np.stack([table[name] for name in columns], axis=1)
    kept: NDArray[np.float64] = rows[np.isfinite(rows).all(axis=1)]
    return kept


def draw(rows: NDArray[np.float64], model: OISM, names: tuple[str, str]) -> Any:  # noqa: ANN401
    """Return a figure of rows, density and samples, side by side."""
    import matplotlib.pyplot as plt  # noqa: PLC0415 (the rest of the package needs no pictures)

    axis = np.linspace(-180, 180, SIDE)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    density = model.score_samples(grid).reshape(SIDE, SIDE)
    samples = model.sample(len(rows), random_state=0)
    figure, panels = plt.subplots(1, 3, figsize=(12, 4.2), sharey=True, layout="constrained")
    for panel, points, title in (
        (panels[0], rows, f"{len(rows):,} residues"),
        (panels[2], samples, f"{len(samples):,} samples"),
    ):
        panel.plot(*points.T, ",", color="#1f3b73", alpha=0.35, rasterized=True)
        panel.set_title(title)
    below = density - density.max()
    levels = np.linspace(-FLOOR, 0, 11)
    shade = panels[1].contourf(axis, axis, below, levels=levels, cmap="magma_r")
    panels[1].set_title("fitted density, in closed form")
    figure.colorbar(shade, ax=panels, shrink=0.8, label="log-density below the mode [nats]")
    for panel in panels:
        panel.set(xlim=(-180, 180), ylim=(-180, 180), aspect="equal", xlabel=f"{names[0]} [°]")
        panel.set_xticks(range(-180, 181, 90))
        panel.set_yticks(range(-180, 181, 90))
    panels[0].set_ylabel(f"{names[1]} [°]")
    return figure


def report(
    path: tyro.conf.Positional[Path],
    columns: tuple[str, str] = ("phi", "psi"),
    picture: Path = Path("ramachandran.png"),
) -> None:
    """Fit the angles of a file, print what was chosen and write the picture."""
    rows = read(path, columns)
    start = time.perf_counter()
    model = OISM(periodic={0: PERIOD, 1: PERIOD}).fit(rows)
    print(f"{len(rows):,} rows fitted in {time.perf_counter() - start:.1f} s\n")
    print(model.summary())
    print(f"\n{model.check_copies(rows)}")
    draw(rows, model, columns).savefig(picture, dpi=150)
    print(f"wrote {picture}")


if __name__ == "__main__":
    tyro.cli(report)
