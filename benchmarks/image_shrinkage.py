"""Shrinkage of the averages of images, and the error of the predicted noise with and without it.

The paper shrinks averages in low dimensions and remarks that on images this "did not help". Here
the priors of its image experiments, polynomials of each pixel, are fitted to few and to many images
with each of its rules and without, at its fixed ridge; and with the order chosen by
cross-validation instead. Printed is the mean squared error of the predicted noise on test images,
as the mean over noise levels, relative to that of the prior without shrinkage.

    python benchmarks/image_shrinkage.py --data FOLDER --out shrinkage.json

FOLDER has train*.parquet and test*.parquet; without it the images are scikit-learn's digits.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

from oism.basis import IdentityFrame
from oism.estimation import JamesStein, Modulation, Monotone, Shrinkage
from oism.images import fit_prior
from studies.images import DIGITS, image_sets, noise_errors

RULES: Mapping[str, Shrinkage | None] = {
    "none": None,
    "James-Stein": JamesStein(),
    "modulation": Modulation(),
    "monotone": Monotone(),
}
LEVELS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.5, 0.9)
"""The clock times at which errors are measured."""

ORDERS = (3, 6)
RIDGE = 1e-6
"""The ridge of the paper's image experiments."""


def main() -> None:
    """Fit, measure and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=DIGITS, help="a folder, or digits")
    parser.add_argument("--out", type=Path, required=True, help="the JSON file of the results")
    parser.add_argument("--sizes", type=int, nargs="+", default=(200, 1000, 5000))
    parser.add_argument("--tested", type=int, default=1000)
    options = parser.parse_args()
    sets = image_sets(options.data)
    test = sets.test[: options.tested]
    mixed = sets.train[torch.randperm(len(sets.train), generator=torch.Generator().manual_seed(0))]
    results: list[dict[str, Any]] = []
    print("images | order | prior | error | relative | seconds")
    for size in options.sizes:
        images = mixed[:size]
        for order in ORDERS:
            ways: list[tuple[str, Shrinkage | None, float | None]]
            ways = [(name, rule, RIDGE) for name, rule in RULES.items()]
            first: float | None = None
            for name, rule, ridge in [*ways, ("cross-validated", None, None)]:
                start = time.perf_counter()
                prior = fit_prior(
                    images, order=order, frame=IdentityFrame(), pixels=sets.pixels,
                    shrinkage=rule, ridge=ridge, progress=False,
                )  # fmt: skip
                took = time.perf_counter() - start
                errors = noise_errors(prior, test, LEVELS)
                mean = fmean(errors)
                first = mean if first is None else first
                results.append(
                    {"images": len(images), "order": order, "prior": name, "errors": errors}
                )
                options.out.write_text(json.dumps(results, indent=1), encoding="utf-8")
                cells = (len(images), order, name, f"{mean:.5f}", f"{mean / first:.4f}")
                print(*cells, f"{took:.1f}", sep=" | ", flush=True)


if __name__ == "__main__":
    main()
