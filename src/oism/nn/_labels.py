"""Class labels of a noise predictor, and classifier-free guidance.

A predictor that takes labels is a module ε̂(x, τ, c) with the attribute ``classes``, the number C of
classes. Labels are integers from 0; the label C, and no labels at all, stand for "no class". It is
trained with some labels replaced by C, so that it has learned the distribution without labels as
well. Guidance (Ho and Salimans, 2022) with weight w predicts

    ε̂ = ε̂(x, τ) + w (ε̂(x, τ, c) - ε̂(x, τ)),

which is the score of ρ(x) (ρ(x | c)/ρ(x))^w at each noise level: w = 1 is the distribution of the
class, and a larger w prefers samples that look like their class, at the cost of variety. It is
linear in the predictions, so a residual beside a Gaussian is guided in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from oism._core import checks
from oism._core.labels import as_labels, check_range, labels_of_rows


def classes_of(predictor: nn.Module) -> int | None:
    """Return the number of classes of a predictor that takes labels, otherwise None."""
    found: int | None = getattr(predictor, "classes", None)
    return found


def with_labels(labels: Tensor | None) -> tuple[Tensor, ...]:
    """Return the arguments of a network after x and τ: none if there are no labels."""
    return () if labels is None else (labels,)


@dataclass(frozen=True, eq=False)
class Condition:
    """Labels, one number or one per row, and the weight of guidance."""

    labels: Tensor
    classes: int
    guidance: float = 1.0

    @classmethod
    def of(cls, predictor: nn.Module, labels: object, guidance: float) -> Condition:
        """Return a condition on a predictor that takes labels."""
        classes = classes_of(predictor)
        if classes is None:
            raise ValueError(
                "labels must not be given for a model without classes: train it with a network "
                "that takes labels, DDPMpp(..., classes=N)"
            )
        found = as_labels(labels)
        check_range(found, classes)
        weight = checks.number(guidance, "guidance")
        if weight < 0:
            raise ValueError(f"guidance must be at least 0, got {guidance!r}")
        return cls(found, classes, weight)

    @property
    def has_rows(self) -> bool:
        """Whether there is a label for every row, not one for all."""
        return bool(self.labels.ndim)

    def rows(self, rows: slice) -> Condition:
        """Return the condition of some rows."""
        return Condition(self.labels[rows], self.classes, self.guidance)

    def __call__(self, predictor: nn.Module, x: Tensor, tau: Tensor) -> Tensor:
        """Return the guided prediction; guidance 1 takes one evaluation, others two."""
        labels = labels_of_rows(self.labels, len(x), self.classes, x.device)
        if self.guidance == 1:
            given: Tensor = predictor(x, tau, labels)
            return given
        free: Tensor = predictor(x, tau, torch.full_like(labels, self.classes))
        if self.guidance == 0:
            return free
        return torch.lerp(free, predictor(x, tau, labels), self.guidance)
