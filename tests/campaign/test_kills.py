"""Killed trainings: a difference is seen, and there is none."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from campaign import kills
from campaign.small_run import trained


def test_differences_and_damaged_checkpoints_are_seen(tmp_path: Path) -> None:
    for name, steps in (("one", 2), ("two", 2), ("three", 3)):
        trained(tmp_path / name, "points", steps=steps, save_every=2)
    states = [kills.state_of(tmp_path / name) for name in ("one", "two", "three")]
    assert states[0] == states[1]
    assert all(states[0][key] != states[2][key] for key in states[0])
    assert kills._checkpoints_are_whole(tmp_path / "one")
    (path,) = (tmp_path / "one" / "checkpoints").iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    assert not kills._checkpoints_are_whole(tmp_path / "one")


@pytest.mark.skipif(os.name != "posix", reason="there are no signals")
def test_a_process_is_killed_in_time() -> None:
    def started(seconds: float) -> kills.Poll:
        return kills.as_poll(subprocess.Popen(["sleep", str(seconds)]))

    start = time.monotonic()
    assert kills._ended(started(60), 0.2) == -9
    assert time.monotonic() - start < 20
    assert kills._ended(started(0.01), 60) == 0
