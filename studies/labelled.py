"""Images with their classes, decoded once and stored as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from oism.flow import Pixels
from studies.images import DIGITS, ImageSets, image_sets
from studies.study import draft_of


@dataclass(frozen=True, eq=False)
class Labelled:
    """Training and test images and the number of the class of each."""

    sets: ImageSets
    train_labels: Tensor
    test_labels: Tensor


def labelled_sets(data: str, stored: Path | None = None) -> Labelled:
    """Return the images and classes of a folder, from the file ``stored`` if there is one."""
    if stored is not None and stored.exists():
        with np.load(stored) as found:
            parts = {name: torch.from_numpy(found[name]) for name in found.files}
        pixels = Pixels(*parts["pixels"].tolist())
        sets = ImageSets(parts["train"], parts["test"], pixels)
        return Labelled(sets, parts["train_labels"], parts["test_labels"])
    sets = image_sets(data)
    labels = _digit_labels(len(sets.train)) if data == DIGITS else _labels(Path(data))
    if stored is not None:
        stored.parent.mkdir(parents=True, exist_ok=True)
        with draft_of(stored) as draft, draft.open("wb") as file:
            np.savez(
                file,
                train=sets.train.numpy(),
                test=sets.test.numpy(),
                train_labels=labels[0].numpy(),
                test_labels=labels[1].numpy(),
                pixels=np.array([sets.pixels.low, sets.pixels.high]),
            )
    return Labelled(sets, *labels)


def _labels(folder: Path) -> tuple[Tensor, Tensor]:
    """Return the column "label" of the Parquet files, in the order of the images."""
    from pyarrow import parquet  # noqa: PLC0415 (not needed for digits)

    def of(part: str) -> Tensor:
        tables = (parquet.read_table(path, columns=["label"]) for path in paths(part))
        return torch.from_numpy(np.concatenate([one["label"].to_numpy() for one in tables]))

    def paths(part: str) -> list[Path]:
        return sorted(folder.glob(f"{part}*.parquet"), key=str)

    return of("train"), of("test")


def _digit_labels(train: int) -> tuple[Tensor, Tensor]:
    from sklearn.datasets import load_digits  # noqa: PLC0415 (not needed for other images)

    labels = torch.from_numpy(load_digits().target)
    mixed = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))]
    return mixed[:train], mixed[train:]
