"""Samples by class: how often a classifier recognises the class, by the weight of guidance.

A network with class labels is trained beside a prior with a Gaussian for every class, `Combined`.
Its samples, as many of each class, are given to a classifier that was trained on the same images.
The prior alone is sampled too.

    python benchmarks/classes.py --data FOLDER --out classes.json --seconds 120

FOLDER has train*.parquet and test*.parquet; without it the images are scikit-learn's digits. On a
CPU networks and classifiers are small, and images larger than digits need long training.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent.parent))

from oism.images import ClassPrior, fit_prior
from oism.nn import Combined, Diffusion, unet_for
from oism.objectives import DenoisingScoreMatching, UniformLogSNR
from oism.training import Loop, Rows, TrainingConfig, fit_classifier
from studies.images import DIGITS, device
from studies.labelled import Labelled, labelled_sets

GUIDANCE = (0.0, 1.0, 1.5, 2.0, 3.0)
"""The weights of guidance; with 0 a sample has no class, and is recognised by chance."""


@dataclass(frozen=True)
class Size:
    """The sizes of a network and its classifier, the batch and the learning rate."""

    network: Mapping[str, Any] = field(default_factory=dict)
    judge: Mapping[str, Any] = field(default_factory=dict)
    batch: int = 128
    rate: float = 2e-4


SMALL = Size({"width": 16, "multipliers": (1, 2), "blocks": 1, "attention": ()}, {}, 64, 2e-3)
"""For digits."""

MEDIUM = Size(
    {"width": 32, "multipliers": (1, 2, 2), "blocks": 1, "attention": ()},
    {"width": 16, "epochs": 3}, 64, 1e-3,
)  # fmt: skip
"""For other images on a CPU."""


def trained(data: Labelled, size: Size, *, steps: int, seconds: float) -> tuple[Combined, int]:
    """Return a network combined with a prior, and the number of its steps."""
    sets, labels = data.sets, data.train_labels
    prior = fit_prior(
        sets.train.to(device()), labels=labels, pixels=sets.pixels, order=2, progress=False
    )
    torch.manual_seed(0)
    classes = int(labels.max()) + 1
    net = unet_for(prior.shape, classes=classes, **size.network)
    fast = device() == "cuda"
    config = TrainingConfig(
        steps=steps, batch=size.batch, rate=size.rate, warmup=100, decay=0.999, flip=False,
        precision="bf16" if fast else "no", compile=fast,
    )  # fmt: skip
    combined = Combined(net, prior)
    objective = DenoisingScoreMatching(UniformLogSNR(prior.noising, config.first))
    loop = Loop(combined, Rows(sets.train, sets.pixels, labels=labels), objective, config)
    loop.step()
    start = time.perf_counter()  # without the time to compile
    while loop.step_number < steps and time.perf_counter() - start < seconds:
        for _ in range(min(20, steps - loop.step_number)):
            loop.step()
        loop.report()  # waits for the device
    loop.finish()
    return combined.eval(), loop.step_number


def main() -> None:
    """Train, sample, classify and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=DIGITS, help="a folder, or digits")
    parser.add_argument("--out", type=Path, required=True, help="the JSON file of the results")
    parser.add_argument("--steps", type=int, default=100_000, help="at most so many steps")
    parser.add_argument("--seconds", type=float, default=90.0, help="of training")
    parser.add_argument("--each", type=int, default=100, help="samples of a class")
    parser.add_argument("--evaluations", type=int, default=20)
    options = parser.parse_args()
    data, small = labelled_sets(options.data), options.data == DIGITS
    size = SMALL if small else Size() if device() == "cuda" else MEDIUM
    sets = data.sets
    judge = fit_classifier(
        sets.train, data.train_labels, flip=False, device=device(), progress=False, **size.judge
    )
    combined, steps = trained(data, size, steps=options.steps, seconds=options.seconds)
    each = options.each
    classes = list(range(int(data.train_labels.max()) + 1))
    labels = torch.tensor(classes).repeat_interleave(each)
    results: dict[str, Any] = {
        "images": options.data if small else Path(options.data).name,
        "steps": steps,
        "evaluations": options.evaluations,
        "samples": len(labels),
        "test_images": judge.accuracy(sets.test, data.test_labels),
        "recognised": {},
    }

    def add(name: str, drawn: Tensor) -> None:
        results["recognised"][name] = judge.accuracy(sets.pixels.values(drawn), labels)
        options.out.write_text(json.dumps(results, indent=1), encoding="utf-8")
        print(f"{name}: {results['recognised'][name]:.4f}", flush=True)

    prior, source = cast("ClassPrior", combined.prior), torch.Generator().manual_seed(0)
    add("prior alone", torch.cat([prior.given(one).sample(each, source) for one in classes]))
    model = Diffusion(combined)
    for weight in GUIDANCE:
        with torch.compiler.set_stance("force_eager"):  # batches of other sizes
            drawn = model.sample(
                len(labels), torch.Generator().manual_seed(0), labels=labels, guidance=weight,
                evaluations=options.evaluations, progress=False,
            )  # fmt: skip
        add(f"guidance {weight:g}", drawn)


if __name__ == "__main__":
    main()
