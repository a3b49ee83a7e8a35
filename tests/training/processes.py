"""Runs in processes of their own: ``python -m tests.training.processes VERB FOLDER``.

killed    a run that is killed and resumed many times, beside one that never is
pair      one of several processes of a run, as the environment says
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.utils import tensorboard  # noqa: F401 (once, for all that are forked)

from oism.images import Prior
from oism.objectives import DenoisingScoreMatching, UniformLogSNR
from oism.training import Loop, Rows, new_accelerator, read_settings
from oism.training import _checkpoint as checkpoint

from .small import PIXELS, config, fitted, images, predictor, short_run

LONG: dict[str, Any] = {"steps": 60, "save_every": 2, "log_every": 1}
"""What is killed: half of its time it writes checkpoints."""

PATIENCE = 60.0
"""How many seconds a child may take."""

PAIRED: dict[str, Any] = {"steps": 6, "save_every": 3, "rate": 1e-3}
"""What several processes do together."""


def forked(work: Callable[[], None]) -> int:
    """Do work in a child; return its number."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    try:
        work()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def ended(pid: int, file: Path | None = None, lines: int = 0, later: float = 0.0) -> int:
    """Return how a child ended; it is killed a while after it wrote some lines to a file."""
    before = None
    last = time.monotonic() + PATIENCE
    while time.monotonic() < last:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if file is not None and file.exists():
            size = file.read_bytes().count(b"\n")
            before = size if before is None else min(before, size)  # some are forgotten at first
            if size >= before + lines:
                time.sleep(later)
                break
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def trap(owner: Any, name: str, calls: int, half: bool = False) -> None:
    """Have this process die in a call of a function, with ``half`` of its bytes written."""
    real, count = getattr(owner, name), iter(range(calls))

    def deadly(*arguments: Any, **more: Any) -> Any:
        if next(count, None) is None:
            if half:
                path, content = arguments
                with open(path, "wb") as file:
                    file.write(content[: len(content) // 2])
            die()
        return real(*arguments, **more)

    setattr(owner, name, deadly)


def traps() -> Iterator[tuple[Any, str, int, bool]]:
    """Yield every call that brings a checkpoint and its model to the disk, of several in a row."""
    yield from ((os, "fsync", calls, False) for calls in range(3, 11))
    yield from ((Path, "write_bytes", calls, True) for calls in range(4))
    yield from ((Path, "replace", calls, False) for calls in range(3))
    yield from ((Path, "unlink", calls, False) for calls in range(4))


def first_traps() -> Iterator[tuple[Any, str, int, bool]]:
    """Yield every call that brings the lock, the prior and the settings to the disk."""
    yield from ((os, "fsync", calls, False) for calls in range(5))
    yield from ((Path, "replace", calls, False) for calls in range(3))
    yield from ((os, "open", calls, False) for calls in range(6))


def again_traps() -> Iterator[tuple[Any, str, int, bool]]:
    """Yield every call that replaces the settings and the prior of a run without a checkpoint."""
    yield from ((os, "fsync", calls, False) for calls in range(5))
    yield from ((Path, "replace", calls, False) for calls in range(3))
    yield from ((Path, "unlink", calls, False) for calls in range(7))


def killed(folder: Path) -> None:
    """Run in ``folder/whole`` at once; in ``trapped`` and ``chance`` with many deaths.

    In ``begun-0`` and so on it dies at the start, and then runs to its end. So it does in
    ``again-0`` and so on, where another run without a checkpoint has left its settings and prior.
    """
    prior, source = fitted(), random.Random(0)
    warmed()  # what accelerate and torch import at first use need not be imported by every child

    def train(name: str, **changes: Any) -> None:
        settings = {**LONG, **changes}
        short_run(folder / name, predictor(prior), resume=True, **settings).run()

    def trapped(place: tuple[Any, str, int, bool], name: str, **changes: Any) -> None:
        trap(*place)
        train(name, **changes)

    ends: dict[str, list[int]] = {"whole": [ended(forked(lambda: train("whole")))]}
    ends["trapped"] = []
    for place in traps():
        ends["trapped"].append(ended(forked(lambda place=place: trapped(place, "trapped"))))  # type: ignore[misc]
        check_readable(folder / "trapped")
    ends["trapped"].append(ended(forked(lambda: train("trapped"))))
    ends["begun"] = [ended(forked(lambda: train("begun", steps=2)))]
    for k, place in enumerate(first_traps()):
        begin = partial(trapped, place, f"begun-{k}", steps=2)
        ends["begun"].append(ended(forked(begin)))
        ends["begun"].append(ended(forked(partial(train, f"begun-{k}", steps=2))))
    other = fitted(images(seed=1))
    ends["again"] = []
    for k, place in enumerate(again_traps()):
        left = folder / f"again-{k}"
        short_run(left, predictor(other), **{**LONG, "steps": 3}).close()
        old = (left / "prior.safetensors").read_bytes()
        ends["again"].append(ended(forked(partial(trapped, place, left.name, steps=2))))
        check_together(left, old)
        ends["again"].append(ended(forked(partial(train, left.name, steps=2))))
    ends["chance"] = []
    while not ends["chance"] or ends["chance"][-1] == -signal.SIGKILL:
        pid = forked(lambda: train("chance"))
        file = folder / "chance" / "metrics.jsonl"
        ends["chance"].append(ended(pid, file, source.randint(1, 12), source.uniform(0, 0.03)))
        check_readable(folder / "chance")
    (folder / "ends.json").write_text(json.dumps(ends))


def check_together(folder: Path, old: bytes) -> None:
    """Raise where new settings are beside an old prior, or old ones beside a new prior."""
    path = folder / "prior.safetensors"
    if path.exists():
        is_new = read_settings(folder)["config"]["steps"] == 2
        assert (path.read_bytes() != old) == is_new


def check_readable(folder: Path) -> None:
    """Raise unless every file with the name of a checkpoint can be read."""
    for path in checkpoint.all_of(folder / "checkpoints"):
        checkpoint.read(path)


@contextmanager
def written(folder: Path) -> Iterator[list[str]]:
    """Note every file and folder under ``folder`` that is opened to be written, made or renamed."""
    found: list[str] = []

    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in {"open", "os.mkdir", "os.rename"} or str(folder) not in str(arguments[0]):
            return
        if event != "open" or arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            found.append(f"{event} {Path(str(arguments[0])).name}")

    sys.addaudithook(hear)
    yield found


def gradients(loop: Loop) -> dict[str, Tensor]:
    """Return the loss and the gradients of the first step."""
    loss = loop.differentiate(loop.draws.step(0))
    found = {name: part.grad for name, part in loop.net.named_parameters() if part.grad is not None}
    return {**{name: part.contiguous() for name, part in found.items()}, "loss": loss.detach()}


def warmed(accelerator: Any = None, prior: Prior | None = None) -> Loop:
    """Return a loop whose weights are not those of a beginning, where most gradients vanish."""
    prior = fitted() if prior is None else prior
    net = predictor(prior, dropout=0.0)
    source = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for part in net.parameters():
            part.add_(0.1 * torch.randn(part.shape, generator=source))
    objective = DenoisingScoreMatching(UniformLogSNR(prior.noising))
    accelerator = new_accelerator(cpu=True) if accelerator is None else accelerator
    return Loop(net, Rows(images(), PIXELS), objective, config(**PAIRED), accelerator)


def pair(folder: Path) -> None:
    """Write what one of several processes found: its prior, its gradients, and what it wrote."""
    accelerator = new_accelerator(cpu=True)
    rank = accelerator.process_index
    mine = images()[rank :: accelerator.num_processes]
    prior = fitted(mine, shared=True)
    save_file({**prior.state_dict()}, folder / f"prior-{rank}.safetensors")
    save_file(gradients(warmed(accelerator, prior)), folder / f"gradients-{rank}.safetensors")
    with written(folder / "run") as heard:
        run = short_run(folder / "run", predictor(prior, dropout=0.0), **PAIRED)
        run.run()
    weights = {name: part.detach().contiguous() for name, part in run.loop.net.named_parameters()}
    save_file(weights, folder / f"weights-{rank}.safetensors")
    seen_here = {"processes": accelerator.num_processes, "written": heard}
    (folder / f"seen-{rank}.json").write_text(json.dumps(seen_here))


if __name__ == "__main__":
    torch.set_num_threads(1)
    {"killed": killed, "pair": pair}[sys.argv[1]](Path(sys.argv[2]))
