"""Checkpoints: whole or not there, and what is said of those that are neither."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from oism.training import CheckpointError
from oism.training import _checkpoint as checkpoint
from oism.training._checkpoint import Checkpoint, optimiser_state, restore_optimiser

NAMES = ["average.safetensors", "net.safetensors", "optimiser.safetensors", "state.json"]


def made(step: int, size: int = 50) -> Checkpoint:
    def tensors(name: str) -> dict[str, Tensor]:
        source = torch.Generator().manual_seed(step)
        return {f"{name}.weight": torch.randn(size, 3, generator=source), "bias": torch.tensor(1.5)}

    return Checkpoint(step, {"rate": 0.1, "net": {"kind": "MLP"}}, *map(tensors, checkpoint.PARTS))


def saved(folder: Path, *steps: int, keep: int = 9) -> None:
    for step in steps:
        checkpoint.write(folder, made(step), keep)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = checkpoint.write(tmp_path / "new" / "checkpoints", made(7), keep=2)
    assert path.name == "step-00000007"
    assert names(path) == NAMES
    found, wanted = checkpoint.read(path), made(7)
    assert (found.step, found.settings) == (7, wanted.settings)
    for part in checkpoint.PARTS:
        one, other = getattr(found, part), getattr(wanted, part)
        assert set(one) == set(other)
        assert all(torch.equal(one[name], other[name]) for name in one)


def test_the_newest_stay(tmp_path: Path) -> None:
    for step in range(1, 6):
        saved(tmp_path, step, keep=3)
    assert names(tmp_path) == ["step-00000003", "step-00000004", "step-00000005"]
    saved(tmp_path, 6, keep=1)
    assert names(tmp_path) == ["step-00000006"]


def test_steps_are_counted_and_other_folders_are_not_theirs(tmp_path: Path) -> None:
    for name in ("step-final", "step-00000050-copy", "step-7"):
        (tmp_path / name).mkdir()
    saved(tmp_path, 99_999_999, 100_000_000, keep=1)
    assert [path.name for path in checkpoint.all_of(tmp_path)] == ["step-100000000"]
    assert len(names(tmp_path)) == 4
    assert checkpoint.latest(tmp_path / "nowhere") is None
    assert checkpoint.read_latest(tmp_path / "nowhere") is None


def test_an_older_one_of_the_same_step_is_replaced(tmp_path: Path) -> None:
    saved(tmp_path, 3)
    (tmp_path / "step-00000003" / "net.safetensors").write_bytes(b"")
    saved(tmp_path, 3)
    assert checkpoint.read(tmp_path / "step-00000003").step == 3
    assert names(tmp_path) == ["step-00000003"]


def test_drafts_of_runs_that_were_killed_are_removed_first(tmp_path: Path) -> None:
    """Even where the name is one that this process would have taken: containers reuse numbers."""
    for owner in (os.getpid(), 1):
        stale = tmp_path / f".step-00000003-{owner}.part"
        stale.mkdir()
        (stale / "net.safetensors").write_bytes(b"half")
    saved(tmp_path, 3)
    assert names(tmp_path) == ["step-00000003"]


def spoil(path: Path, how: str) -> None:
    name, change, _ = SPOILT[how]
    file = path / name
    content = change(file.read_bytes())
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)


def told_otherwise(**changes: object) -> Callable[[bytes], bytes]:
    return lambda content: json.dumps({**json.loads(content), **changes}).encode()


SPOILT: dict[str, tuple[str, Callable[[bytes], bytes | None], str]] = {
    "truncated": (
        "optimiser.safetensors", lambda content: content[:-7],
        r"optimiser\.safetensors: truncated: \d+ bytes of \d+",
    ),
    "missing": (
        "average.safetensors", lambda _: None, r"average\.safetensors: damaged: .*No such file",
    ),
    "garbage tensors": (
        "net.safetensors", lambda content: b"\xff" * len(content), r"net\.safetensors: damaged",
    ),
    "garbage": (
        "state.json", lambda _: b'{"format": \xff\x00',
        r"not a checkpoint: state\.json cannot be read",
    ),
    "no state": ("state.json", lambda _: None, r"not a checkpoint: state\.json cannot be read"),
    "a list": ("state.json", lambda _: b"[1, 2]", "not a checkpoint of oism"),
    "another format": (
        "state.json", told_otherwise(format="somebody.Else"), "not a checkpoint of oism",
    ),
    "another version": (
        "state.json", told_otherwise(version=99),
        "a checkpoint of version 99, and this release reads version 1",
    ),
    "no step": ("state.json", told_otherwise(step=None), r"damaged: state\.json lacks"),
    "no sizes": (
        "state.json", told_otherwise(sizes={"net": 5}),
        r"damaged: state\.json lacks step, settings or sizes",
    ),
}  # fmt: skip


@pytest.mark.parametrize("how", SPOILT)
def test_a_spoilt_one_is_named_and_so_is_the_one_before(how: str, tmp_path: Path) -> None:
    saved(tmp_path, 1, 2, 3)
    spoil(tmp_path / "step-00000003", how)
    with pytest.raises(CheckpointError, match=SPOILT[how][2]) as caught:
        checkpoint.read(tmp_path / "step-00000003")
    assert "step-00000003" in str(caught.value)
    spoil(tmp_path / "step-00000002", "truncated")
    with pytest.raises(CheckpointError, match=SPOILT[how][2]) as caught:
        checkpoint.read_latest(tmp_path)
    whole = f"{tmp_path / 'step-00000001'} is whole: remove step-00000003 to go on from it"
    assert whole in str(caught.value)
    shutil.rmtree(tmp_path / "step-00000001")
    with pytest.raises(CheckpointError, match="and no earlier one can be read"):
        checkpoint.read_latest(tmp_path)


@pytest.mark.parametrize("after", range(4))
def test_a_full_disk_leaves_the_last_and_no_draft(
    after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path, 1)
    calls: list[int] = []

    def fsync(handle: int) -> None:
        calls.append(handle)
        if len(calls) > after:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("oism.training._checkpoint.os.fsync", fsync)
    message = (
        f"the checkpoint of step 2 could not be written to {tmp_path}: No space left on device"
    )
    with pytest.raises(CheckpointError, match=re.escape(message)) as caught:
        saved(tmp_path, 2)
    assert str(caught.value).endswith(f"the last one is {tmp_path / 'step-00000001'}")
    assert names(tmp_path) == ["step-00000001"]
    assert checkpoint.read(tmp_path / "step-00000001").step == 1


FULL = """
import resource, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_checkpoint import made
from oism.training import checkpoint
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
    assert f"the last one is {tmp_path / 'step-00000001'}" in found.stdout
    assert names(tmp_path) == ["step-00000001"]


def test_a_first_one_that_fails(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("in the way")
    with pytest.raises(CheckpointError, match="there is no earlier one"):
        saved(tmp_path / "checkpoints", 1)


def test_a_folder_that_may_not_be_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a patched `mkdir`, for root may write anywhere."""
    saved(tmp_path, 1)

    def refuse(self: Path, *arguments: Any, **more: Any) -> None:
        if self.name.endswith(checkpoint.DRAFT):
            raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(CheckpointError, match="Permission denied; the last one is"):
        saved(tmp_path, 2)
    assert names(tmp_path) == ["step-00000001"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupt_leaves_no_draft(
    error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path, 1)

    def interrupt(handle: int) -> None:
        raise error

    monkeypatch.setattr("oism.training._checkpoint.os.fsync", interrupt)
    with pytest.raises(error):
        saved(tmp_path, 2)
    assert names(tmp_path) == ["step-00000001"]


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc which file a handle is of")
def test_everything_is_brought_to_the_disk_before_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files, then their folder, then the name, then the folder of that; older ones go last."""
    saved(tmp_path, 1)
    told: list[str] = []
    real_fsync, real_rename = os.fsync, Path.rename

    def fsync(handle: int) -> None:
        told.append(re.sub(r"-[0-9a-f]{32}", "", Path(os.readlink(f"/proc/self/fd/{handle}")).name))
        real_fsync(handle)

    def rename(self: Path, target: Path) -> Path:
        told.append(f"{'draft' if self.name.startswith('.') else self.name} ->")
        return real_rename(self, target)

    monkeypatch.setattr("oism.training._checkpoint.os.fsync", fsync)
    monkeypatch.setattr(Path, "rename", rename)
    saved(tmp_path, 2, keep=1)
    files = ["net.safetensors", "average.safetensors", "optimiser.safetensors", "state.json"]
    wanted = [*files, ".step-00000002.part", "draft ->", tmp_path.name, "step-00000001 ->"]
    assert told == wanted


def test_an_optimiser_is_restored_in_the_layout_of_its_parameters() -> None:
    """Fused steps demand it, and so does going on bit for bit."""

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
    found = load_file(tmp_path / "step-00000001" / "net.safetensors")
    assert set(found) == {"net.weight", "bias"}
