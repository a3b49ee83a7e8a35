"""What a run is told: everything that decides about its weights, and how it is watched."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from oism._core import checks

WATCHING = ("steps", "log_every", "save_every", "sample_every", "keep", "compile")
"""What may change when a run is resumed: weights change by rounding at most."""


@dataclass(frozen=True)
class Training:
    """The settings of a run; the defaults are the paper's for CIFAR-10, but for the warm-up.

    ``batch`` is that of all processes together. ``rate`` rises linearly over ``warmup`` steps.
    ``clip`` bounds the norm of the gradient, ``decay`` is that of the average weights, ``first``
    the least clock time. ``precision`` is "no" or "bf16".
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
            checks.settle(self, **{name: checks.positive(getattr(self, name), name)})
        if not 0 <= checks.number(self.decay, "decay") < 1:
            raise ValueError(f"decay must be in [0, 1), got {self.decay!r}")
        if self.precision not in ("no", "bf16"):
            raise ValueError(f"precision must be 'no' or 'bf16', got {self.precision!r}")

    def rate_at(self, step: int) -> float:
        """Return the rate of step k, the first being 0."""
        return self.rate * min(1.0, (step + 1) / max(1, self.warmup))

    def deciding(self) -> dict[str, Any]:
        """Return what decides about the weights, and must not change when a run is resumed."""
        return {name: value for name, value in asdict(self).items() if name not in WATCHING}
