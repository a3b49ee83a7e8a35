"""A run that is killed at any moment and resumed equals a run that was never stopped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .processes import LONG, again_traps, first_traps, traps
from .small import assert_same, steps_and_losses

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name != "posix", reason="there is no fork"),
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs that were killed in every call that brings a checkpoint to the disk, and by chance."""
    folder = tmp_path_factory.mktemp("runs")
    above = Path(__file__).parents[2]
    paths = os.pathsep.join([str(above), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [sys.executable, "-m", "tests.training.processes", "killed", str(folder)],
        env=environment, timeout=300, check=True,
    )  # fmt: skip
    return folder


@pytest.mark.parametrize("name", ["trapped", "chance"])
def test_killed_at_any_moment(name: str, runs: Path) -> None:
    ends = json.loads((runs / "ends.json").read_text())
    assert ends["whole"] == [0]
    *deaths, last = ends[name]
    assert set(deaths) == {-9}, "every trap was sprung"
    assert len(deaths) >= (len(list(traps())) if name == "trapped" else 5)
    assert last == 0
    assert_same(runs / "whole", runs / name)
    found = steps_and_losses(runs / name)
    assert [step for step, _ in found] == list(range(1, LONG["steps"] + 1))
    assert found == steps_and_losses(runs / "whole")
    names = sorted(path.name for path in (runs / name / "checkpoints").iterdir())
    assert names == [f"step-000000{k}.safetensors" for k in (58, 60)], "no draft is left"


@pytest.mark.parametrize(("name", "traps"), [("begun", first_traps), ("again", again_traps)])
def test_killed_at_the_start(name: str, traps: Callable[[], Iterator[object]], runs: Path) -> None:
    """The killed run has no checkpoint, and another one begins where it left its files."""
    ends, count = json.loads((runs / "ends.json").read_text()), len(list(traps()))
    assert ends["begun"][0] == 0
    assert ends[name][-2 * count :] == [-9, 0] * count
    for k in range(count):
        assert_same(runs / "begun", runs / f"{name}-{k}")
        names = [path.name for path in (runs / f"{name}-{k}").iterdir()]
        assert "run.lock" not in names
        assert not any(name.startswith(".oism-") for name in names), "no draft is left"
