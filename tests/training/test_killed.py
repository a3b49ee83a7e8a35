"""A run that is killed at any moment, and taken up again, is the run that never was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .processes import LONG, traps
from .small import assert_same, steps_and_losses

pytestmark = pytest.mark.skipif(os.name != "posix", reason="there is no fork")


def test_killed_at_any_moment(tmp_path: Path) -> None:
    """In every call that brings a checkpoint to the disk, half-way through files, and by chance."""
    above = Path(__file__).parents[1]
    paths = os.pathsep.join([str(above), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [sys.executable, "-m", "training.processes", "killed", str(tmp_path)],
        env=environment, timeout=240, check=True,
    )  # fmt: skip
    ends = json.loads((tmp_path / "ends.json").read_text())
    trapped, by_chance, last = ends[: len(list(traps()))], ends[len(list(traps())) : -1], ends[-1]
    assert set(trapped) == {-9}, "every trap was sprung"
    assert by_chance.count(-9) >= 5
    assert last == 0
    assert_same(tmp_path / "whole", tmp_path / "parts")
    found = steps_and_losses(tmp_path / "parts")
    assert [step for step, _ in found] == list(range(1, LONG["steps"] + 1))
    assert found == steps_and_losses(tmp_path / "whole")
    names = sorted(path.name for path in (tmp_path / "parts" / "checkpoints").iterdir())
    assert names == ["step-00000088", "step-00000090"], "no draft is left"
