"""Two processes are one: the same prior, gradients and weights, in one folder."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from oism.training import _checkpoint as checkpoint
from oism.training import read_metrics

from .processes import PAIRED, gradients, warmed
from .small import fitted, predictor, short_run, steps_and_losses

pytestmark = pytest.mark.slow

WORLD = 2


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes wrote; nothing of it hangs longer than a minute or two."""
    folder = tmp_path_factory.mktemp("pair")
    above = Path(__file__).parents[2]
    common = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(above), os.environ.get("PYTHONPATH", "")]),
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(WORLD),
    }
    command = [sys.executable, "-m", "tests.training.processes", "pair", str(folder)]
    processes = [
        subprocess.Popen(
            command,
            env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(WORLD)
    ]
    try:
        said = [process.communicate(timeout=120)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for process, text in zip(processes, said, strict=True):
        assert process.returncode == 0, text
    return folder


def close(one: dict[str, Tensor], other: dict[str, Tensor], tolerance: float) -> None:
    assert set(one) == set(other)
    for name, value in one.items():
        torch.testing.assert_close(value, other[name], rtol=tolerance, atol=tolerance)


def seen(folder: Path, rank: int) -> dict[str, object]:
    content: dict[str, object] = json.loads((folder / f"seen-{rank}.json").read_text())
    return content


@pytest.mark.parametrize("rank", range(WORLD))
def test_the_same_prior(rank: int, found: Path) -> None:
    assert seen(found, rank)["processes"] == WORLD
    close(load_file(found / f"prior-{rank}.safetensors"), fitted().state_dict(), 1e-6)


@pytest.mark.parametrize("rank", range(WORLD))
def test_the_same_gradients(rank: int, found: Path) -> None:
    """The loss is each process's own; their mean is that of one process."""
    both = [load_file(found / f"gradients-{r}.safetensors") for r in range(WORLD)]
    alone = gradients(warmed())
    losses = [float(each.pop("loss")) for each in both]
    assert losses[0] != losses[1], "each has seen rows of its own"
    assert sum(losses) / WORLD == pytest.approx(float(alone.pop("loss")), rel=1e-6)
    assert min(float(part.abs().max()) for part in alone.values()) > 1e-4, (
        "there is something to see"
    )
    close(both[rank], alone, 1e-6)


def test_the_same_weights_after_a_few_steps(found: Path, tmp_path: Path) -> None:
    alone = short_run(tmp_path, predictor(fitted(), dropout=0.0), **PAIRED)
    alone.run()
    weights = {name: part.detach() for name, part in alone.loop.net.named_parameters()}
    for rank in range(WORLD):
        close(load_file(found / f"weights-{rank}.safetensors"), weights, 1e-5)
    moved = predictor(fitted(), dropout=0.0)
    started = {name.removeprefix("net."): part for name, part in moved.named_parameters()}
    assert max(float((weights[n] - p.detach()).abs().max()) for n, p in started.items()) > 1e-3
    for (step, loss), (other, expected) in zip(
        steps_and_losses(found / "run"), steps_and_losses(tmp_path), strict=True
    ):
        assert step == other
        assert loss == pytest.approx(expected, rel=1e-5), "over all processes"


def test_one_of_them_writes(found: Path) -> None:
    first, second = (seen(found, rank)["written"] for rank in range(WORLD))
    assert isinstance(first, list)
    for name in ("open metrics.jsonl", "os.mkdir checkpoints"):
        assert name in first
    assert len([name for name in first if re.fullmatch(r"os.rename \.oism-.*\.part", name)]) >= 2
    assert second == []


def test_one_process_resumes_a_run_of_two(found: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(found / "run", folder)
    longer = {**PAIRED, "steps": 9}
    run = short_run(folder, predictor(fitted(), dropout=0.0), resume=True, **longer)
    assert run.loop.step_number == 6
    run.run()
    alone = short_run(tmp_path / "alone", predictor(fitted(), dropout=0.0), **longer)
    alone.run()
    close(dict(run.loop.net.state_dict()), dict(alone.loop.net.state_dict()), 1e-5)
    assert [line["step"] for line in read_metrics(folder)] == list(range(1, 10))
    last = folder / "checkpoints" / "step-00000009.safetensors"
    assert checkpoint.latest(folder / "checkpoints") == last
