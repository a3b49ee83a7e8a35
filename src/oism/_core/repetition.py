"""A short sequence of operations that is repeated many times, recorded once on a GPU.

An iteration of conjugate gradients has about thirty short operations. Launching them one by one
takes several times as long as a fast device needs for them; a CUDA graph launches all at once.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

WARM_UPS = 1
"""The number of repetitions before the recording: libraries choose their methods at first use."""


class _Streams(threading.local):
    """The streams of a thread by device, for what is not run on the main one."""

    def __init__(self) -> None:
        self.by_device: dict[torch.device, torch.cuda.Stream] = {}


_streams = _Streams()


class Repeated:
    """Repetitions of ``work``, a function without arguments that changes tensors in place.

    ``work`` must not read a number from the device, and what it reads and changes must stay in the
    same memory. On other devices than CUDA it is called.
    """

    def __init__(self, work: Callable[[], None], device: torch.device) -> None:
        self._work, self._device = work, device
        self._left = WARM_UPS
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, times: int) -> None:
        """Repeat the work."""
        for _ in range(times):
            if self._device.type != "cuda":
                self._work()
            elif self._left:
                self._left -= 1
                self._warm_up()
            else:
                self._graph = self._graph or self._record()
                self._graph.replay()

    def _warm_up(self) -> None:
        with _aside(self._device):
            self._work()

    def _record(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        # Not `torch.cuda.graph`, which returns all free memory to the device before it records.
        with nothing_collected(), _aside(self._device):
            graph.capture_begin(capture_error_mode="thread_local")  # others may use the device
            try:
                self._work()
            finally:
                graph.capture_end()
        return graph


class _Collection:
    """How many recordings need Python's garbage collector to be off."""

    def __init__(self) -> None:
        self._lock, self._count, self._was_on = threading.Lock(), 0, False

    def stop(self) -> None:
        with self._lock:
            if not self._count:
                self._was_on = gc.isenabled()
                gc.disable()
            self._count += 1

    def resume(self) -> None:
        with self._lock:
            self._count -= 1
            if not self._count and self._was_on:
                gc.enable()


_collection = _Collection()


@contextmanager
def nothing_collected() -> Iterator[None]:
    """Within, the garbage collector is off: it may free another recording.

    That is not permitted while a stream records, and makes the new recording invalid.
    """
    _collection.stop()
    try:
        yield
    finally:
        _collection.resume()


@contextmanager
def _aside(device: torch.device) -> Iterator[None]:
    """Within, operations on a device run on a stream of their own, which recordings need.

    Each thread has one for a device: libraries allocate memory for every stream that they see.
    """
    main, known = torch.cuda.current_stream(device), _streams.by_device
    if main.device not in known:
        known[main.device] = torch.cuda.Stream(main.device)  # type: ignore[no-untyped-call]
    side = known[main.device]
    side.wait_stream(main)
    with torch.cuda.stream(side):
        yield
    main.wait_stream(side)
