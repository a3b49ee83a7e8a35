"""Checkpoints: complete or absent, and the errors about damaged ones."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from oism import VariancePreserving, storage
from oism.training import CheckpointError
from oism.training import _checkpoint as checkpoint
from oism.training._checkpoint import Checkpoint, optimiser_state, restore_optimiser


def made(step: int, size: int = 50) -> Checkpoint:
    def tensors(name: str) -> dict[str, Tensor]:
        source = torch.Generator().manual_seed(step)
        return {f"{name}.weight": torch.randn(size, 3, generator=source), "bias": torch.tensor(1.5)}

    settings = {"rate": 0.1, "network": {"kind": "MLP", "sizes": [1, 2]}}
    return Checkpoint(step, settings, *map(tensors, checkpoint.PARTS))


def saved(folder: Path, *steps: int, keep: int = 9) -> None:
    for step in steps:
        checkpoint.write(folder, made(step), keep)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def file(step: int) -> str:
    return f"step-{step:08d}.safetensors"


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = checkpoint.write(tmp_path / "new" / "checkpoints", made(7), keep=2)
    assert path.name == file(7)
    assert checkpoint.step_of(path) == 7
    found, wanted = checkpoint.read(path), made(7)
    assert (found.step, found.settings) == (7, wanted.settings)
    for part in checkpoint.PARTS:
        one, other = getattr(found, part), getattr(wanted, part)
        assert set(one) == set(other)
        assert all(torch.equal(one[name], other[name]) for name in one)


def test_the_newest_are_kept(tmp_path: Path) -> None:
    for step in range(1, 6):
        saved(tmp_path, step, keep=3)
    assert names(tmp_path) == [file(3), file(4), file(5)]
    saved(tmp_path, 6, keep=1)
    assert names(tmp_path) == [file(6)]


def test_steps_are_ordered_as_numbers_and_other_files_are_left_alone(tmp_path: Path) -> None:
    others = ("step-final.safetensors", "step-00000050-copy.safetensors", "step-7.safetensors")
    for name in others:
        (tmp_path / name).write_bytes(b"")
    (tmp_path / file(60)).mkdir()
    saved(tmp_path, 99_999_999, 100_000_000, keep=1)
    assert [path.name for path in checkpoint.all_of(tmp_path)] == [file(100_000_000)]
    assert len(names(tmp_path)) == 5
    assert checkpoint.latest(tmp_path / "nowhere") is None
    assert checkpoint.read_latest(tmp_path / "nowhere") is None


def test_an_older_one_of_the_same_step_is_replaced(tmp_path: Path) -> None:
    saved(tmp_path, 3)
    (tmp_path / file(3)).write_bytes(b"")
    saved(tmp_path, 3)
    assert checkpoint.read(tmp_path / file(3)).step == 3
    assert names(tmp_path) == [file(3)]


def test_drafts_of_killed_runs_are_removed_first(tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / f".oism-{number}.part").write_bytes(b"half")
    saved(tmp_path, 3)
    assert names(tmp_path) == [file(3)]


def changed(path: Path, text: bytes, other: bytes) -> bytes:
    content = path.read_bytes()
    assert text in content
    return content.replace(text, other)


DAMAGED: dict[str, tuple[Callable[[Path], bytes], str]] = {
    "truncated": (lambda path: path.read_bytes()[:-7], r"is truncated: \d+ bytes of \d+"),
    "too long": (
        lambda path: path.read_bytes() + b"1234567",
        "is too long: 7 bytes follow its end",
    ),
    "a changed byte": (
        lambda path: path.read_bytes()[:-1] + b"\x55",
        "is damaged: its content does not have the SHA-256",
    ),
    "empty": (lambda _: b"", "is empty"),
    "no safetensors": (lambda path: b"\xff" * len(path.read_bytes()), "is not a safetensors file"),
    "another version": (
        lambda path: changed(path, b'\\"version\\":3', b'\\"version\\":9'),
        "version 9; this oism reads",
    ),
    "another class": (
        lambda _: storage.to_bytes(VariancePreserving()),
        "not 'oism.training.Checkpoint'",
    ),
    "no step": (lambda path: changed(path, b'\\"step\\":3', b'\\"stop\\":3'), "SHA-256|'step'"),
}


@pytest.mark.parametrize("how", DAMAGED)
def test_a_damaged_one_is_named_and_so_is_the_one_before(how: str, tmp_path: Path) -> None:
    saved(tmp_path, 1, 2, 3)
    change, message = DAMAGED[how]
    (tmp_path / file(3)).write_bytes(change(tmp_path / file(3)))
    with pytest.raises(CheckpointError, match=message) as caught:
        checkpoint.read(tmp_path / file(3))
    assert str(tmp_path / file(3)) in str(caught.value)
    (tmp_path / file(2)).write_bytes(DAMAGED["truncated"][0](tmp_path / file(2)))
    with pytest.raises(CheckpointError, match=message) as caught:
        checkpoint.read_latest(tmp_path)
    usable = f"{tmp_path / file(1)} can be read: remove {file(3)} to continue from it"
    assert usable in str(caught.value)
    (tmp_path / file(1)).unlink()
    with pytest.raises(CheckpointError, match="and no earlier one can be read"):
        checkpoint.read_latest(tmp_path)


def test_a_file_that_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CheckpointError, match=r"step-00000003.safetensors: No such file"):
        checkpoint.read(tmp_path / file(3))


@pytest.mark.parametrize("after", range(2))
def test_a_full_disk_leaves_the_last_and_no_draft(
    after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the file or the name in its folder does not reach the disk."""
    saved(tmp_path, 1)
    calls: list[int] = []

    def fsync(handle: int) -> None:
        calls.append(handle)
        if len(calls) > after:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("oism._core.atomic.os.fsync", fsync)
    message = (
        f"the checkpoint of step 2 could not be written to {tmp_path}: No space left on device"
    )
    with pytest.raises(CheckpointError, match=re.escape(message)) as caught:
        saved(tmp_path, 2)
    last = 2 if after else 1  # renamed already, and complete
    assert str(caught.value).endswith(f"the last one is {tmp_path / file(last)}")
    assert names(tmp_path) == [file(step) for step in range(1, last + 1)]
    monkeypatch.undo()
    for step in range(1, last + 1):
        assert checkpoint.read(tmp_path / file(step)).step == step


FULL = """
import resource, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_checkpoint import made
from oism.training import _checkpoint as checkpoint
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    checkpoint.write(Path(sys.argv[1]), made(2, 10_000), 2)
except checkpoint.CheckpointError as error:
    print(error)
"""


def test_a_file_that_grows_too_large(tmp_path: Path) -> None:
    """The system itself stops the write half-way."""
    saved(tmp_path, 1)
    found = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path), str(Path(__file__).parent)],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert "step 2 could not be written" in found.stdout
    assert "File too large" in found.stdout
    assert f"the last one is {tmp_path / file(1)}" in found.stdout
    assert names(tmp_path) == [file(1)]


def test_a_first_one_that_fails(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("in the way")
    with pytest.raises(CheckpointError, match="there is no earlier one"):
        saved(tmp_path / "checkpoints", 1)


def test_a_folder_that_may_not_be_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a patched `os.open`, because root may write anywhere."""
    saved(tmp_path, 1)
    real = os.open

    def refuse(path: Any, *arguments: Any, **more: Any) -> int:
        if str(path).endswith(".part"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, *arguments, **more)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(CheckpointError, match="Permission denied; the last one is"):
        saved(tmp_path, 2)
    assert names(tmp_path) == [file(1)]


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupt_leaves_no_draft(
    error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path, 1)

    def interrupt(handle: int) -> None:
        raise error

    monkeypatch.setattr("oism._core.atomic.os.fsync", interrupt)
    with pytest.raises(error):
        saved(tmp_path, 2)
    assert names(tmp_path) == [file(1)]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc for the file of a handle")
def test_everything_is_brought_to_the_disk_before_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file, then its name, then the folder; older ones are removed last."""
    saved(tmp_path, 1)
    calls: list[str] = []
    real_fsync, real_replace, real_unlink = os.fsync, Path.replace, Path.unlink

    def name(path: str | Path) -> str:
        return re.sub(r"[0-9a-f]{32}", "", Path(path).name)

    def fsync(handle: int) -> None:
        calls.append(name(os.readlink(f"/proc/self/fd/{handle}")))
        real_fsync(handle)

    def replace(self: Path, target: Path) -> Path:
        calls.append(f"{name(self)} -> {target.name}")
        return real_replace(self, target)

    def unlink(self: Path, *, missing_ok: bool = False) -> None:
        if self.exists():
            calls.append(f"{name(self)} removed")
        real_unlink(self, missing_ok=missing_ok)

    monkeypatch.setattr("oism._core.atomic.os.fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    monkeypatch.setattr(Path, "unlink", unlink)
    saved(tmp_path, 2, keep=1)
    draft = ".oism-.part"
    assert calls == [draft, f"{draft} -> {file(2)}", tmp_path.name, f"{file(1)} removed"]


def test_an_optimiser_is_restored_in_the_layout_of_its_parameters() -> None:
    """Fused steps require it, and so does a continuation that is equal bit for bit."""

    def trained(restored: dict[str, Tensor] | None = None) -> tuple[nn.Module, torch.optim.Adam]:
        torch.manual_seed(0)
        net = nn.Conv2d(3, 4, 3)
        net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        optimiser = torch.optim.Adam(net.parameters(), lr=0.1)
        if restored is not None:
            restore_optimiser(optimiser, restored, ["weight", "bias"])
        return net, optimiser

    def step(net: nn.Module, optimiser: torch.optim.Adam) -> None:
        net(torch.ones(1, 3, 5, 5)).square().sum().backward()
        optimiser.step()

    net, optimiser = trained()
    step(net, optimiser)
    state = optimiser_state(optimiser, ["weight", "bias"])
    assert set(state) == {
        f"{name}/{key}" for name in ("weight", "bias") for key in ("step", "exp_avg", "exp_avg_sq")
    }
    contiguous = {name: value.contiguous() for name, value in state.items()}
    _, restored = trained(contiguous)
    for part, own in restored.state.items():
        assert own["exp_avg"].stride() == part.stride()
        assert own["exp_avg"].data_ptr() not in {value.data_ptr() for value in contiguous.values()}
    for name, value in optimiser_state(restored, ["weight", "bias"]).items():
        assert torch.equal(value, state[name])


def test_files_are_safetensors(tmp_path: Path) -> None:
    """Anyone can open them."""
    saved(tmp_path, 1)
    found = load_file(tmp_path / file(1))
    assert {"net.net.weight", "net.bias", "average.bias", "optimiser.bias"} <= set(found)
