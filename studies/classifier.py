"""The classifier whose features measure the distance of samples from images, kept as a small file.

Inception's weights, which FID uses, may not be at hand; so it is `oism.training.fit_classifier`,
trained on the images themselves. Fréchet distances in its features are compared with each other
only. Weights are stored in float16, so that the file is small enough to be kept with results.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from oism.training import Classifier, fit_classifier
from studies.images import device
from studies.labelled import Labelled
from studies.study import draft_of, write_json

EPOCHS = 30
"""The number of passes over the images; after these it recognises 94% of CIFAR-10's."""


def fit(
    data: Labelled,
    path: Path,
    *,
    flip: bool,
    epochs: int = EPOCHS,
    width: int = 64,
    report: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Train a classifier, store it, and return its accuracy on test images and other numbers."""
    begin, sets = time.perf_counter(), data.sets
    net = fit_classifier(
        sets.train, data.train_labels, width=width, epochs=epochs, flip=flip, device=device(),
        progress=False,
    )  # fmt: skip
    state = {
        name: part.half() if part.is_floating_point() else part
        for name, part in net.state_dict().items()
    }
    net.load_state_dict(state)  # as it will be read
    found = {
        "train_seconds": time.perf_counter() - begin,
        "epochs": epochs,
        "features": 8 * width,
        "accuracy": net.accuracy(sets.test, data.test_labels),
    }
    report(f"classifier: accuracy {found['accuracy']:.4f} after {found['train_seconds']:.0f} s")
    with draft_of(path) as draft:
        torch.save({"settings": net.to_config(), "state": state}, draft)
    write_json(path.with_suffix(".json"), found)
    return found


def load(path: Path) -> Classifier:
    """Return a stored classifier in evaluation mode."""
    found = torch.load(path, weights_only=True, map_location=device())
    net = Classifier(**found["settings"])
    net.load_state_dict(found["state"])
    return net.to(device()).eval()
