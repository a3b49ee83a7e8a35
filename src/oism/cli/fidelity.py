"""Samples beside images for ``oism evaluate``: features, distances, precision, recall, neighbours.

The features ``classifier`` are those of a network that is trained on the images of the run with
their labels, by a fixed recipe. It is stored in the folder of the run and used again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from oism.cli.exit_codes import UsageError
from oism.cli.options import ImageFiles, naming_options
from oism.cli.reports import count_text
from oism.cli.sample import generator
from oism.data.files import TRAINING, FileError
from oism.images import as_images
from oism.nn import Diffusion
from oism.plot import write_image_grid
from oism.storage import load
from oism.training import (
    Classifier,
    Extractor,
    FeatureMoments,
    PrecisionRecall,
    extractor_of,
    feature_rows,
    fit_classifier,
    frechet_distance,
    holds_run,
    nearest_rows,
    precision_recall,
    read_settings,
    stacked,
)

CLASSIFIER = "classifier"
FILE = "classifier.safetensors"
SHOWN, NEIGHBOURS = 10, 7
"""The number of samples in the picture of neighbours, and that of neighbours of each."""

LEAST = 4
"""The least number of images and samples for precision and recall, with the third neighbour."""


@dataclass(frozen=True)
class TrainingImages:
    """Where the images are that a model was trained on, and whether they were mirrored."""

    data: str
    files: ImageFiles
    folder: Path | None
    flip: bool

    def open(self) -> tuple[Tensor, Any]:
        """Return the images as bytes ``(n, channels, height, width)``, and their file."""
        images = self.files.open(self.data, TRAINING)
        return stacked(iter(images)), images


@dataclass(frozen=True)
class Fidelity:
    """What was measured of samples beside images."""

    features: str
    samples: int
    method: str
    distance: float
    precision_recall: PrecisionRecall | None
    nearest: Mapping[str, Any] | None

    def facts(self) -> dict[str, Any]:
        """Return the numbers for JSON."""
        found = self.precision_recall
        return {
            "frechet": {
                "distance": self.distance,
                "features": self.features,
                "samples": self.samples,
                "method": self.method,
            },
            "precision": None if found is None else found.precision,
            "recall": None if found is None else found.recall,
            "neighbours": None if found is None else found.neighbours,
            "nearest": self.nearest,
        }

    def lines(self, count: int) -> list[str]:
        """Return the numbers as text; ``count`` is that of the images."""
        lines = [f"Fréchet distance    {self.distance:.4g}"]
        found = self.precision_recall
        if found is not None:
            lines.append(f"precision, recall   {found.precision:.3f}, {found.recall:.3f}")
        lines.append(f"  features {self.features}, {count_text(count)}, {self.samples} samples")
        if self.nearest is not None:
            lines += [
                f"nearest training images written to {self.nearest['output']}; median distance "
                f"{self.nearest['samples']:.4g} of samples, {self.nearest['images']:.4g} of images",
            ]
        return lines


def training_images(path: Path, train: str | None, files: ImageFiles) -> TrainingImages | None:
    """Return the images that a model was trained on: those named, or those of its run."""
    folder = path if holds_run(path) else None
    settings: Mapping[str, Any] = {} if folder is None else read_settings(folder)
    notes, flip = settings.get("notes") or {}, bool(settings.get("config", {}).get("flip", False))
    if train is not None:
        return TrainingImages(train, files, folder, flip)
    if "data" not in notes:
        return None
    return TrainingImages(notes["data"], ImageFiles(**notes["files"]), folder, flip)


def needed(known: TrainingImages | None, option: str) -> TrainingImages:
    """Return the training images, or raise if they are not known."""
    if known is None:
        raise UsageError(f"{option}: needs the images that the model was trained on: --train DATA")
    return known


def extractor(name: str, known: TrainingImages | None, device: torch.device) -> Extractor:
    """Return the extractor of features that ``--features`` names."""
    if name != CLASSIFIER:
        with naming_options({"extractor": "features"}):
            found = extractor_of(name)
        return found.to(device) if isinstance(found, nn.Module) else found
    known = needed(known, "--features classifier")
    stored = None if known.folder is None else known.folder / FILE
    if stored is not None and stored.is_file():
        net: Classifier = load(stored, expected=Classifier)
        return net.to(device).eval()
    values, images = known.open()
    try:
        labels = images.labels(known.files.label_column).numbers
    except FileError as error:
        raise FileError(f"{error}; --features classifier is trained with labels") from error
    net = fit_classifier(values, labels, flip=known.flip, device=device)
    if stored is not None:
        from oism import storage

        storage.save(net, stored)
    return net


def drawn(model: Diffusion, count: int, seed: int, sampling: Mapping[str, Any]) -> Tensor:
    """Return samples as bytes; a model with classes draws as many of each."""
    from oism.cli.classes import every_class

    labels = None if model.classes is None else every_class(count, model.classes)
    x = model.sample(count, generator(seed), labels=labels, **sampling)
    return as_images(model.spec, x)


def measured(  # noqa: PLR0913, PLR0917
    values: Tensor,
    samples: Tensor,
    name: str,
    found: Extractor,
    method: str,
    batch: int,
    nearest: str | None,
    known: TrainingImages | None,
) -> Fidelity:
    """Return what the features of images and samples, both bytes, tell about them."""

    def rows(images: Tensor) -> Tensor:
        return feature_rows(found, torch.split(images, batch))

    first, second = rows(values), rows(samples)
    moments = [FeatureMoments(part.shape[1], device=part.device).update(part)
               for part in (first, second)]  # fmt: skip
    enough = min(len(first), len(second)) >= LEAST
    near = None
    if nearest is not None:
        train, _ = needed(known, "--nearest").open()
        theirs = rows(train)
        near = {
            "output": nearest,
            "samples": float(nearest_rows(second, theirs)[0].median()),
            "images": float(nearest_rows(first, theirs)[0].median()),
        }
        shown = torch.linspace(0, len(samples) - 1, min(SHOWN, len(samples))).long()
        _picture(nearest, samples[shown], second[shown.to(second.device)], train, theirs)
    return Fidelity(
        name, len(samples), method, frechet_distance(*moments),
        precision_recall(first, second) if enough else None, near,
    )  # fmt: skip


def _picture(path: str, samples: Tensor, own: Tensor, train: Tensor, theirs: Tensor) -> None:
    """Write samples, each at the left of its nearest training images."""
    count = min(NEIGHBOURS, len(train))
    _, places = nearest_rows(own, theirs, count)
    others = train[places.cpu()]
    grid = torch.cat((samples.cpu()[:, None], others), dim=1).flatten(0, 1)
    write_image_grid(path, grid.numpy(), columns=1 + count)
