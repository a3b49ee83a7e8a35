"""The training loop of the networks that studies compare with: Adam on a loss, a rate per step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


def minimise(
    network: nn.Module,
    loss: Callable[[], Tensor],
    rates: Iterable[float],
    *,
    clip: float | None = None,
) -> int:
    """Take one step of Adam for each learning rate, and return the number of steps.

    ``loss`` draws a batch and returns its loss. ``clip`` is the largest norm of the gradient.
    """
    optimiser, steps = torch.optim.Adam(network.parameters()), 0
    for steps, rate in enumerate(rates, start=1):  # noqa: B007 (the last is returned)
        for group in optimiser.param_groups:
            group["lr"] = rate
        optimiser.zero_grad()
        loss().backward()  # type: ignore[no-untyped-call]
        if clip is not None:
            nn.utils.clip_grad_norm_(network.parameters(), clip)
        optimiser.step()
    return steps


def cosine(rate: float, steps: int, warm_up: int = 1) -> Iterator[float]:
    """Yield learning rates: rising over ``warm_up`` steps to ``rate``, times a cosine to zero.

    >>> [round(rate, 3) for rate in cosine(1.0, 4)]
    [1.0, 0.854, 0.5, 0.146]
    """
    for step in range(steps):
        decay = (1 + math.cos(math.pi * step / steps)) / 2
        yield rate * min(1.0, (step + 1) / warm_up) * decay


@contextmanager
def seeded(generator: torch.Generator) -> Iterator[None]:
    """Draw torch's global seed from a generator, for the weights of a network; restore it after."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**31, (), generator=generator)))
        yield


@contextmanager
def one_thread() -> Iterator[None]:
    """Run on one thread: the layers of small networks are too short for several."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
