"""Repeated work: on the CPU it is called, on a GPU it is recorded after its first repetitions."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import nullcontext
from threading import Thread
from typing import Any

import pytest
import torch

from oism._core import repetition
from oism._core.repetition import WARM_UPS, Repeated, nothing_collected


def test_on_the_cpu_work_is_called() -> None:
    calls: list[int] = []
    work = Repeated(counted(calls), torch.device("cpu"))
    for times in (3, 0, 1):
        work(times)
    assert len(calls) == 4


class Graph:
    """A graph that counts what CUDA would do."""

    made: list[Graph]

    def __init__(self) -> None:
        self.begun = self.ended = self.replayed = 0
        self.made.append(self)

    def capture_begin(self, *, capture_error_mode: str) -> None:
        assert capture_error_mode == "thread_local"
        self.begun += 1

    def capture_end(self) -> None:
        self.ended += 1

    def replay(self) -> None:
        assert self.ended
        self.replayed += 1


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[Graph]:
    Graph.made = []
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(repetition, "_aside", nullcontext)
    return Graph.made


def test_no_garbage_is_collected_while_work_is_recorded(graphs: list[Graph]) -> None:
    """Else another recording may be freed, which makes this one invalid."""
    seen: list[bool] = []
    Repeated(lambda: seen.append(gc.isenabled()), torch.device("cuda"))(WARM_UPS + 2)
    assert seen == [True] * WARM_UPS + [False]
    assert gc.isenabled()
    assert len(graphs) == 1


def test_the_collector_stays_off_until_the_last_recording_ends() -> None:
    first, second = nothing_collected(), nothing_collected()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()
    gc.disable()
    try:
        with nothing_collected():
            pass
        assert not gc.isenabled(), "it was off before"
    finally:
        gc.enable()


def counted(calls: list[int], fault: type[Exception] | None = None) -> Callable[[], None]:
    def work() -> None:
        calls.append(1)
        if fault is not None and len(calls) > WARM_UPS:
            raise fault

    return work


@pytest.mark.parametrize("parts", [(1, 1, 1, 8, 8), (20,), (WARM_UPS,)])
def test_on_a_gpu_work_is_recorded_once_and_replayed(
    graphs: list[Graph], parts: tuple[int, ...]
) -> None:
    calls: list[int] = []
    work = Repeated(counted(calls), torch.device("cuda"))
    for times in parts:
        work(times)
    later = sum(parts) - WARM_UPS
    assert len(calls) == WARM_UPS + (later > 0)  # a recording runs nothing
    assert [graph.replayed for graph in graphs] == [later] * (later > 0)


def test_a_recording_that_fails_is_ended(graphs: list[Any]) -> None:
    work = Repeated(counted([], MemoryError), torch.device("cuda"))
    with pytest.raises(MemoryError):
        work(WARM_UPS + 1)
    assert (graphs[0].begun, graphs[0].ended, graphs[0].replayed) == (1, 1, 0)


def test_each_thread_has_one_stream_for_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    class Stream:
        def __init__(self, device: torch.device) -> None:
            self.device = device
            made.append(self)

        def wait_stream(self, other: Stream) -> None:
            assert other is not self

    devices = [torch.device("cuda", number) for number in (0, 1)]
    main = {device: Stream(device) for device in devices}
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", main.get)
    monkeypatch.setattr(torch.cuda, "stream", nullcontext)

    def work() -> None:
        for device in (*devices, *devices):
            with repetition._aside(device):
                pass

    for number in (1, 2):
        thread = Thread(target=work)
        thread.start()
        thread.join()
        assert [stream.device for stream in made[2:]] == number * devices
