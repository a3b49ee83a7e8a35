"""Densities of the plane: OISM, kernels and a spline flow on the eight laws of `oism.data.toys`.

10,000 training and 5,000 test points, three seeds, all methods on the same points. Nothing is
chosen on test points: the width of the kernels is cross-validated on the training points (30
widths from 0.0175 to 0.5), the flow stops by a tenth of them set aside, OISM is as it comes.

"entropy" is that of the law, "truth" the mean of -log p over the same test points. The likelihood
of the kernels is from exact sums; their times are those of scikit-learn's ``KernelDensity`` with
the width already chosen.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import cast

import comparison
import numpy as np
import torch
import tyro
from baselines import KDE
from comparison import Estimator, Options, Record
from sklearn.neighbors import KernelDensity

from oism.data.toys import PLANE


@dataclass(frozen=True)
class Density(Options):
    """Compare densities of the plane."""

    sets: tuple[str, ...] = tuple(PLANE)
    """The laws, by name."""
    points: int = 10_000
    """The number of training points."""
    tested: int = 5_000
    """The number of test points, and of points drawn."""


@cache
def entropy(name: str) -> float:
    return PLANE[name].entropy()


def split(options: Density, name: str, seed: int) -> Record:
    """Return the record of one law and seed."""
    law, generator = PLANE[name], torch.Generator().manual_seed(seed)
    train, test = (law.sample(n, generator) for n in (options.points, options.tested))
    truth = -float(law.log_density(test).mean())
    record = Record(name, seed, known={"entropy": entropy(name), "truth": truth})
    methods = comparison.contenders(options, seed)
    comparison.contend(record, methods, train.numpy(), test.numpy())
    # Exact sums are for the likelihood; the times are those of the usual implementation.
    exact, kernels = record.outcomes["kernels"], cast(KDE, methods["kernels"])
    tree = cast(Estimator, KernelDensity(bandwidth=kernels.bandwidth_))
    _, outcome = comparison.measure(tree, train.numpy(), test.numpy())
    outcome.notes = {**exact.notes, "choosing": exact.fit, "nll of the tree": outcome.nll}
    outcome.nll, outcome.lowest = exact.nll, exact.lowest
    record.outcomes["kernels"] = outcome
    return record


def main(options: Density) -> None:
    if unknown := [name for name in options.sets if name not in PLANE]:
        raise SystemExit(f"--sets must be among {', '.join(PLANE)}, got {unknown[0]!r}")
    records = comparison.run(options, options.sets, lambda name, seed: split(options, name, seed))
    comparison.report(records, allowed=0.01)
    choosing = [record.outcomes["kernels"].notes["choosing"] for record in records]
    print(f"choosing the width, not counted above: {np.mean(choosing):.2f} s")


if __name__ == "__main__":
    main(tyro.cli(Density))
