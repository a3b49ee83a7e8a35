"""Loss and gradients of a step as a CUDA graph, which is recorded once and replayed.

A step of the network for CIFAR-10 has about three thousand short operations, and launching them one
by one takes longer than a fast device needs for them. The graph computes the loss and its gradients
in place; batches are copied to its input. Dropout draws new masks in every replay, from the present
state of the generator. Recording restores that state, so that a resumed run, which is recorded
again, draws the same masks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from oism._core.repetition import nothing_collected
from oism.training._draws import Batch

WARM_UPS = 3
"""The number of runs before the recording: libraries choose their methods at the first use."""


class Recording:
    """The loss of a batch as a CUDA graph."""

    def __init__(self, work: Callable[[Batch], Tensor], batch: Batch) -> None:
        labels = None if batch.labels is None else batch.labels.clone()
        self._batch = Batch(batch.x.clone(), batch.tau.clone(), batch.noise.clone(), labels)
        drawn = torch.cuda.get_rng_state(batch.x.device)
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        self._graph = torch.cuda.CUDAGraph()
        with _fastest_methods():
            with torch.cuda.stream(side):
                for _ in range(WARM_UPS):
                    work(self._batch)
            torch.cuda.current_stream().wait_stream(side)
            with nothing_collected(), torch.cuda.graph(self._graph):
                self._loss = work(self._batch)
        torch.cuda.set_rng_state(drawn, batch.x.device)

    def __call__(self, batch: Batch) -> Tensor:
        """Return the loss of a batch, and set the gradients of the parameters."""
        self._batch.x.copy_(batch.x)
        self._batch.tau.copy_(batch.tau)
        self._batch.noise.copy_(batch.noise)
        if self._batch.labels is not None and batch.labels is not None:
            self._batch.labels.copy_(batch.labels)
        self._graph.replay()
        return self._loss


@contextmanager
def _fastest_methods() -> Iterator[None]:
    """Within, cuDNN compares its methods for every shape; in a recording shapes do not change."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
