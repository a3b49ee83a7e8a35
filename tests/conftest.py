from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import settings

from tests.browser import browser

__all__ = ["browser"]  # a fixture

# One profile for everyone: derandomised, so a failure here is a failure anywhere.
settings.register_profile("oism", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("oism")

# The problems are small, and threads that wait for each other on a busy machine take far longer.
torch.set_num_threads(1)

# What one of several processes does: `work` of a test's file, with the others.
CHILD = """
import datetime, runpy, sys, torch
script, place, rank, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
torch.set_num_threads(1)
torch.distributed.init_process_group(
    "gloo", init_method=f"file://{place}/meeting", rank=rank, world_size=size,
    timeout=datetime.timedelta(seconds=60),
)
torch.save(runpy.run_path(script)["work"](rank), f"{place}/{rank}.pt")
torch.distributed.destroy_process_group()
"""


@pytest.fixture
def generator() -> torch.Generator:
    """The only source of randomness of a test."""
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="session")
def on_ranks(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], list[Any]]:
    """Run ``work(rank)`` of a file in so many processes at once; return what each returned."""

    def run(script: str, size: int) -> list[Any]:
        place = tmp_path_factory.mktemp("ranks")
        children = []
        for rank in range(size):
            with (place / f"{rank}.log").open("wb") as log:
                words = [sys.executable, "-c", CHILD, script, str(place), str(rank), str(size)]
                children.append(subprocess.Popen(words, stdout=log, stderr=log))
        try:
            for child in children:
                child.wait(timeout=150)
        finally:
            for child in children:
                child.kill()
                child.wait()
        logs = "\n".join((place / f"{rank}.log").read_text() for rank in range(size))
        assert [child.returncode for child in children] == [0] * size, logs
        return [torch.load(place / f"{rank}.pt", weights_only=True) for rank in range(size)]

    return run
