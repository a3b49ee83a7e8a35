"""Classes in the shell: which of them `oism sample` draws, by number, by name or all in turn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import arg

from oism.cli.exit_codes import UsageError
from oism.cli.options import options

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from oism.data.files import Labels
    from oism.images import Prior
    from oism.nn import Diffusion

ALL = "all"


@options
class Classes:
    """Which classes of images are drawn."""

    label: Annotated[str | None, arg(metavar="CLASS")] = None
    """Draw this class: its number from 0, its name, or all, each in turn."""
    guidance: Annotated[float | None, arg(metavar="NUMBER")] = None
    """Guidance towards the class: 1 for none, 2 for more typical images."""

    def check(self) -> None:
        """Raise if options contradict each other."""
        if self.guidance is not None and self.label is None:
            raise UsageError("--guidance: guides towards a class, which needs --label")
        if self.guidance is not None and not 0 <= self.guidance < float("inf"):
            raise UsageError(f"--guidance: expected a number from 0, got {self.guidance:g}")


def numbers(text: str, n: int, classes: int | None, names: Sequence[str], model: str) -> Tensor:
    """Return the labels of n images from the option ``--label``: one, or one for each."""
    import torch

    if classes is None:
        raise UsageError(f"--label: {model} has no classes; `oism train --labels` trains by class")
    if text == ALL and text not in names:
        return every_class(n, classes)
    if text in names:
        return torch.tensor(list(names).index(text))
    if text.isdecimal() and int(text) < classes:
        return torch.tensor(int(text))
    known = f": {', '.join(names)}" if names else ""
    raise UsageError(
        f"--label: expected a class from 0 to {classes - 1}{known}, or all, got {text!r}"
    )


def names_in(path: Path) -> list[str]:
    """Return the names of the classes of the run in a folder, if it stores any."""
    from oism.training import holds_run, read_settings

    if not holds_run(path):
        return []
    notes: Any = read_settings(path).get("notes") or {}
    return [str(name) for name in notes.get("classes") or []]


def numbered(labels: Labels, path: Path, classes: int) -> Tensor:
    """Return labels of images by the numbers that their classes have in a run."""
    import torch

    own = names_in(path) or [str(k) for k in range(classes)]
    for name in labels.names:
        if name not in own:
            raise UsageError(
                f"--labels: the images have a class {name!r}, the model only {', '.join(own)}"
            )
    numbers = torch.tensor([own.index(name) for name in labels.names])
    return numbers[torch.from_numpy(labels.numbers)]


def given(model: Diffusion, chosen: Classes, n: int, path: Path, name: str) -> Diffusion:
    """Return the model of the classes that options name."""
    chosen.check()
    if chosen.label is None:
        return model
    labels = numbers(chosen.label, n, model.classes, names_in(path), name)
    return model.given(labels, 1.0 if chosen.guidance is None else chosen.guidance)


def sampled(prior: Prior, chosen: Classes, n: int, generator: torch.Generator, name: str) -> Tensor:
    """Return samples of a prior, of the classes that options name."""
    import torch

    chosen.check()
    if chosen.guidance is not None:
        raise UsageError(f"--guidance: an option for trained models, and {name} is a prior")
    if chosen.label is None:
        return prior.sample(n, generator)
    labels = numbers(chosen.label, n, prior.classes, (), name).expand(n)
    several: Any = prior
    counts = torch.bincount(labels)
    return torch.cat(
        [several.given(k).sample(int(c), generator) for k, c in enumerate(counts) if int(c)]
    )


def every_class(n: int, classes: int) -> Tensor:
    """Return labels of n images, as many of each class, in order."""
    import torch

    return torch.arange(n) * classes // max(n, classes)
