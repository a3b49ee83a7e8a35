"""Densities of torsion angles: OISM, von Mises KDE and a circular spline flow on CSV files.

Angles are in degrees, one column each, with a header. A random four fifths of the rows are fitted,
the others tested; rows with a missing angle are dropped and counted. Nothing is chosen on test
points: the width of the KDE is cross-validated on the training points (30 widths from 1.26° to
36°), the flow holds out a tenth of them, OISM has its defaults.

All methods are given degrees. The tables have the negative log-likelihood per radian in each angle,
which is that per degree minus d log(180/π). The sums of the KDE are exact, and its times include
the choice of the width. Its mean depends on a few isolated test points; "KDE + uniform" is a KDE
mixed with the uniform distribution of weight 1/(n + 1), with a width chosen for the mixture.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import comparison
import numpy as np
import tyro
from baselines import KDE, Array
from comparison import Options, Record

PERIOD = 360.0


@dataclass(frozen=True)
class Torsion(Options):
    """Compare densities of angles."""

    paths: tyro.conf.Positional[tuple[Path, ...]] = ()
    """CSV files."""
    columns: tuple[str, ...] = ()
    """The columns to use, of every file; all by default."""
    flow_seconds: float = 180.0
    """The time of the flow's training."""


def read(path: Path, columns: tuple[str, ...]) -> Array:
    """Return the complete rows of a file."""
    header = path.open(encoding="utf-8").readline().strip().split(",")
    wanted = columns or tuple(header)
    if missing := [name for name in wanted if name not in header]:
        raise SystemExit(f"{path} has no column {missing[0]!r}, only {', '.join(header)}")
    places = [header.index(name) for name in wanted]
    rows: Array = np.genfromtxt(path, delimiter=",", skip_header=1, usecols=places, ndmin=2)
    complete = np.isfinite(rows).all(axis=1)
    dropped = int((~complete).sum())
    print(f"{path.name}, {', '.join(wanted)}: {len(rows):,} rows, {dropped:,} incomplete, dropped")
    kept: Array = rows[complete]
    return kept


def split(options: Torsion, name: str, x: Array, seed: int) -> Record:
    """Return the record of one file and seed."""
    order, dim = np.random.default_rng(seed).permutation(len(x)), x.shape[1]
    test, train = np.split(x[order], [len(x) // 5])
    record = Record(name, seed)
    periodic = dict.fromkeys(range(dim), PERIOD)
    methods = comparison.methods_of(options, seed, periodic=periodic)
    methods["KDE + uniform"] = KDE(periodic=periodic, background=True)
    comparison.compare(record, methods, train, test)
    for outcome in record.outcomes.values():
        outcome.nll -= dim * math.log(180 / math.pi)
        outcome.lowest += dim * math.log(180 / math.pi)
    return record


def main(options: Torsion) -> None:
    if not options.paths:
        raise SystemExit("no CSV files given: torsion.py PATH...")
    tables = {path.stem: read(path, options.columns) for path in options.paths}
    records = comparison.run(
        options, tables, lambda name, seed: split(options, name, tables[name], seed)
    )
    comparison.report(records, allowed=0.0)
    print("likelihoods are per radian in each angle")


if __name__ == "__main__":
    main(tyro.cli(Torsion))
