"""Densities in two dimensions: OISM, KDE and a spline flow on the toys of `oism.data.toys`.

10,000 training and 5,000 test points, three seeds, all methods on the same points. Nothing is
chosen on test points: the width of the KDE is cross-validated on the training points (30 widths
from 0.0175 to 0.5), the flow holds out a tenth of them, OISM has its defaults.

"entropy" is that of the distribution, "exact" the mean of -log p over the same test points. The
likelihood of the KDE is from exact sums; its times are those of scikit-learn's ``KernelDensity``
with the chosen width.
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
from comparison import KERNEL, Estimator, Options, Record
from sklearn.neighbors import KernelDensity

from oism.data.toys import PLANE


@dataclass(frozen=True)
class Density(Options):
    """Compare densities in two dimensions."""

    sets: tuple[str, ...] = tuple(PLANE)
    """The distributions, by name."""
    points: int = 10_000
    """The number of training points."""
    tested: int = 5_000
    """The number of test points, and of points drawn."""


@cache
def entropy(name: str) -> float:
    return PLANE[name].entropy()


def split(options: Density, name: str, seed: int) -> Record:
    """Return the record of one distribution and seed."""
    distribution, generator = PLANE[name], torch.Generator().manual_seed(seed)
    train, test = (distribution.sample(n, generator) for n in (options.points, options.tested))
    known = -float(distribution.log_density(test).mean())
    record = Record(name, seed, known={"entropy": entropy(name), "exact": known})
    methods = comparison.methods_of(options, seed)
    comparison.compare(record, methods, train.numpy(), test.numpy())
    # The likelihood is from exact sums, the times are those of the usual implementation.
    exact, kde = record.outcomes[KERNEL], cast(KDE, methods[KERNEL])
    tree = cast(Estimator, KernelDensity(bandwidth=kde.bandwidth_))
    _, outcome = comparison.measure(tree, train.numpy(), test.numpy())
    outcome.notes = {**exact.notes, "choosing": exact.fit, "nll of the tree": outcome.nll}
    outcome.nll, outcome.lowest = exact.nll, exact.lowest
    record.outcomes[KERNEL] = outcome
    return record


def main(options: Density) -> None:
    if unknown := [name for name in options.sets if name not in PLANE]:
        raise SystemExit(f"--sets must be among {', '.join(PLANE)}, got {unknown[0]!r}")
    records = comparison.run(options, options.sets, lambda name, seed: split(options, name, seed))
    comparison.report(records, allowed=0.01)
    choosing = [record.outcomes[KERNEL].notes["choosing"] for record in records]
    print(f"choosing the width, not counted above: {np.mean(choosing):.2f} s")


if __name__ == "__main__":
    main(tyro.cli(Density))
