"""The configuration of a training run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from oism._core import checks

CHANGEABLE = ("steps", "log_every", "save_every", "sample_every", "keep", "compile")
"""The settings that may differ when a run is resumed: weights change by rounding at most."""


@dataclass(frozen=True)
class TrainingConfig:
    """The settings of a run; the defaults are the paper's for CIFAR-10, except for the warm-up.

    ``batch`` is the number of rows of a step, over all processes. ``rate`` increases linearly over
    ``warmup`` steps. ``clip`` bounds the norm of the gradient, ``decay`` is that of the average
    weights, ``first`` the smallest clock time. ``precision`` is "no" or "bf16". A share
    ``dropped_labels`` of labels is left out, where there are any, so that the network also learns
    the distribution without labels, as guidance needs. Every ``log_every``
    steps a line of metrics is written, every ``save_every`` a checkpoint and every ``sample_every``
    a picture of samples, and after the last step; 0 stands for after the last step only, and for
    no samples. The newest ``keep`` checkpoints are kept.
    """

    steps: int = 500_000
    batch: int = 128
    rate: float = 2e-4
    warmup: int = 500
    clip: float = 1.0
    decay: float = 0.9999
    first: float = 1e-5
    flip: bool = True
    dequantise: bool = True
    seed: int = 0
    precision: str = "no"
    dropped_labels: float = 0.1
    compile: bool = False
    log_every: int = 50
    save_every: int = 5000
    sample_every: int = 5000
    keep: int = 2

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "log_every", "keep"):
            checks.integer(getattr(self, name), name, minimum=1)
        for name in ("warmup", "seed", "save_every", "sample_every"):
            checks.integer(getattr(self, name), name, minimum=0)
        for name in ("flip", "dequantise", "compile"):
            checks.instance(getattr(self, name), bool, name)
        for name in ("rate", "clip", "first"):
            checks.assign(self, **{name: checks.positive(getattr(self, name), name)})
        if not 0 <= checks.number(self.decay, "decay") < 1:
            raise ValueError(f"decay must be in [0, 1), got {self.decay!r}")
        if not 0 <= checks.number(self.dropped_labels, "dropped_labels") < 1:
            raise ValueError(f"dropped_labels must be in [0, 1), got {self.dropped_labels!r}")
        if self.precision not in ("no", "bf16"):
            raise ValueError(f"precision must be 'no' or 'bf16', got {self.precision!r}")

    def rate_at(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        return self.rate * min(1.0, (step + 1) / max(1, self.warmup))

    def fixed(self) -> dict[str, Any]:
        """Return the settings that determine the weights and must not change on resumption."""
        return {name: value for name, value in asdict(self).items() if name not in CHANGEABLE}

    def saves_at(self, step: int) -> bool:
        """Return whether a checkpoint is due after a number of steps."""
        return step == self.steps or bool(self.save_every and step % self.save_every == 0)

    def draws_at(self, step: int) -> bool:
        """Return whether samples are due after a number of steps."""
        return bool(self.sample_every and (step == self.steps or step % self.sample_every == 0))
