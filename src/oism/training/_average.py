"""The exponential moving average of weights.

    w̄ ← w̄ + (1 - d_k)(w - w̄),    d_k = min(d, (1 + k)/(10 + k)),

so that the average follows the weights closely in the first steps and forgets the initial weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from oism._core import checks


class Average:
    """The average of the parameters of a module, in their dtype and on their device.

    It refers to the memory of the parameters: a module must be on its device before.
    """

    def __init__(self, module: nn.Module, decay: float = 0.9999) -> None:
        if not 0 <= checks.number(decay, "decay") < 1:
            raise ValueError(f"decay must be in [0, 1), got {decay!r}")
        self.decay = decay
        self.names = [name for name, _ in module.named_parameters()]
        self._weights = [part.detach() for _, part in module.named_parameters()]
        self.values = [part.clone(memory_format=torch.preserve_format) for part in self._weights]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Include the weights after a step."""
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self.values, self._weights, 1 - decay)

    def state(self) -> dict[str, Tensor]:
        """Return the averages by name."""
        return dict(zip(self.names, self.values, strict=True))

    @torch.no_grad()
    def load(self, state: dict[str, Tensor]) -> None:
        """Set the averages."""
        for name, value in self.state().items():
            value.copy_(state[name])

    @torch.no_grad()
    def copy_to_module(self) -> None:
        """Replace the weights of the module by their averages."""
        torch._foreach_copy_(self._weights, self.values)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Within, the module has the average weights."""
        kept = [part.clone(memory_format=torch.preserve_format) for part in self._weights]
        self.copy_to_module()
        try:
            yield
        finally:
            with torch.no_grad():
                torch._foreach_copy_(self._weights, kept)
