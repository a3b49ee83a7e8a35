"""A step of a device, recorded once and replayed: the host launches one graph, not thousands.

A step of the network for CIFAR-10 is some three thousand short operations, and a host takes longer
to launch them than a fast device to do them. What is recorded is the loss and its gradients, which
stay where the recording left them; the batch is copied to where it was read from. Dropout draws
anew in every replay, from the generator's state at that time; recording leaves it as it was, so
that a run that is resumed, and recorded anew, drops the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from oism.training._draws import Batch

WARM_UPS = 3
"""How often work is done before it is recorded: libraries choose their methods at first use."""


class Recording:
    """The loss of a batch as a CUDA graph."""

    def __init__(self, work: Callable[[Batch], Tensor], batch: Batch) -> None:
        self._batch = Batch(batch.x.clone(), batch.tau.clone(), batch.noise.clone())
        drawn = torch.cuda.get_rng_state(batch.x.device)
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        self._graph = torch.cuda.CUDAGraph()
        with _fastest_methods():
            with torch.cuda.stream(side):
                for _ in range(WARM_UPS):
                    work(self._batch)
            torch.cuda.current_stream().wait_stream(side)
            with torch.cuda.graph(self._graph):
                self._loss = work(self._batch)
        torch.cuda.set_rng_state(drawn, batch.x.device)

    def __call__(self, batch: Batch) -> Tensor:
        """Return the loss of a batch; gradients are with the parameters."""
        self._batch.x.copy_(batch.x)
        self._batch.tau.copy_(batch.tau)
        self._batch.noise.copy_(batch.noise)
        self._graph.replay()
        return self._loss


@contextmanager
def _fastest_methods() -> Iterator[None]:
    """Within, cuDNN tries its methods for every new shape: here shapes stay as they are."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
