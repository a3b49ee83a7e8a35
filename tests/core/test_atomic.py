"""Atomic writing: files appear complete or not at all."""

from __future__ import annotations

import errno
import os
import signal
import stat
import threading
from pathlib import Path

import pytest

from oism._core.atomic import _passes_through, check_writable, replacing, replacing_together


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def write_together(paths: list[Path]) -> None:
    with replacing_together(*paths) as drafts:
        for draft in drafts:
            draft.write_text("new")


def test_a_new_file_gets_the_permissions_of_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "new.txt"
    before = os.umask(0o027)
    try:
        with replacing(str(path)) as draft:
            assert draft.parent == tmp_path
            assert not path.exists()
            draft.write_text("whole")
    finally:
        os.umask(before)
    assert path.read_text() == "whole"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert names(tmp_path) == ["new.txt"]


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o755, 0o464])
def test_a_replaced_file_keeps_its_permissions(
    mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "oism._core.atomic.os.access", lambda place, mode: True
    )  # by the group's right
    path = tmp_path / "old.txt"
    path.write_text("old")
    path.chmod(mode)
    with replacing(path) as draft:
        draft.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt(), SystemExit(1)])
def test_a_failure_keeps_the_old_file_and_removes_the_draft(
    error: BaseException, tmp_path: Path
) -> None:
    path = tmp_path / "old.txt"
    path.write_text("old")

    def write() -> None:
        with replacing(path) as draft:
            draft.write_text("half")
            raise error

    with pytest.raises(type(error)):
        write()
    assert path.read_text() == "old"
    assert names(tmp_path) == ["old.txt"]


def test_a_missing_draft_is_an_error_and_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "old.txt"
    path.write_text("old")

    def write() -> None:
        with replacing(path) as draft:
            draft.unlink()

    with pytest.raises(FileNotFoundError):
        write()
    assert path.read_text() == "old"


def test_an_interruption_keeps_all_old_files(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old")

    def write() -> None:
        with replacing_together(tmp_path / "a.txt", tmp_path / "b.txt") as (a, b):
            a.write_text("new")
            b.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert names(tmp_path) == ["a.txt"]
    assert (tmp_path / "a.txt").read_text() == "old"


@pytest.mark.parametrize("at", [0, 1, 2])
def test_an_interruption_of_the_renaming_keeps_all_new_files(
    at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal comes just before one of three renames, and is not lost."""
    paths = [tmp_path / f"{name}.txt" for name in "abc"]
    rename = Path.replace
    done: list[Path] = []

    def interrupted(self: Path, target: Path) -> Path:
        if len(done) == at:
            signal.raise_signal(signal.SIGINT)
        done.append(target)
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", interrupted)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        write_together(paths)
    assert names(tmp_path) == ["a.txt", "b.txt", "c.txt"]
    assert signal.getsignal(signal.SIGINT) is before


def test_files_are_replaced_together_in_other_threads(tmp_path: Path) -> None:
    """Only the main thread may set handlers, and only it is interrupted."""

    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    thread = threading.Thread(target=write_together, args=(paths,))
    thread.start()
    thread.join(timeout=30)
    assert names(tmp_path) == ["a.txt", "b.txt"]


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    target, link = tmp_path / "far" / "target.txt", tmp_path / "link.txt"
    link.symlink_to(target)
    for text in ("first", "second"):  # a link to nothing yet, then to a file
        with replacing(link) as draft:
            assert draft.parent == target.parent
            draft.write_text(text)
        assert link.is_symlink()
        assert target.read_text() == text
    assert names(tmp_path / "far") == ["target.txt"]


def test_circular_links_are_rejected(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.symlink_to(second)
    second.symlink_to(first)
    with pytest.raises(OSError, match="is a circular link"):
        check_writable(first)
    assert first.is_symlink()


@pytest.mark.parametrize("linked", [False, True])
def test_pipes_are_written_to_directly(linked: bool, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    path = pipe
    if linked:
        path = tmp_path / "link"
        path.symlink_to(pipe)
    heard: list[bytes] = []
    listener = threading.Thread(target=lambda: heard.append(pipe.read_bytes()))
    listener.start()
    with replacing(path) as draft:
        assert draft == path
        draft.write_bytes(b"through")
    listener.join(timeout=30)
    assert heard == [b"through"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_descriptors_are_written_to_directly(tmp_path: Path) -> None:
    path = tmp_path / "stdout.txt"
    with path.open("wb") as file, replacing(f"/dev/fd/{file.fileno()}") as draft:
        inode = path.stat().st_ino
        draft.write_bytes(b"through")
    assert path.read_bytes() == b"through"
    assert path.stat().st_ino == inode


def test_devices_are_not_replaced() -> None:
    """Tested without writing: an error would replace /dev/null on this machine."""
    assert _passes_through("/dev/null")
    assert _passes_through("/dev/stdout")


def test_folders_and_missing_folders_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match="is a folder") as caught:
        check_writable(tmp_path)
    assert caught.value.filename == str(tmp_path)
    with pytest.raises(FileNotFoundError, match="no such folder") as missing:
        check_writable(tmp_path / "nowhere" / "file.txt")
    assert missing.value.filename == str(tmp_path / "nowhere")


def test_missing_permissions_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a patched `os.access`, because root may write anywhere; tests/cli drops privileges."""
    path = tmp_path / "old.txt"
    path.write_text("old")
    monkeypatch.setattr("oism._core.atomic.os.access", lambda place, mode: Path(place) != path)
    with pytest.raises(PermissionError, match="to this file"), replacing(path):
        pass
    monkeypatch.setattr("oism._core.atomic.os.access", lambda place, mode: Path(place) != tmp_path)
    with pytest.raises(PermissionError, match="in this folder"), replacing(path):
        pass
    assert path.read_text() == "old"
    assert names(tmp_path) == ["old.txt"]


def test_the_error_of_a_full_disk_contains_the_file(tmp_path: Path) -> None:
    target = tmp_path / "table.csv"
    with pytest.raises(OSError, match=r"table\.csv") as failure, replacing(target):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert failure.value.errno == errno.ENOSPC


def test_the_error_of_a_nested_draft_contains_the_file(tmp_path: Path) -> None:
    """What is written within a block is often written atomically as well."""
    target = tmp_path / "table.csv"
    full = OSError(errno.ENOSPC, "No space left on device")
    with (
        pytest.raises(OSError, match="No space") as failure,
        replacing_together(tmp_path / "other", target) as (_, outer),
        replacing(outer),
    ):
        raise full
    assert failure.value.filename == str(target)
    assert ".part" not in str(failure.value)


def test_the_error_of_a_draft_that_cannot_be_renamed_contains_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: Path, target: Path) -> Path:
        raise PermissionError(errno.EPERM, "not permitted", str(self), None, str(target))

    monkeypatch.setattr(Path, "replace", fails)
    with pytest.raises(PermissionError) as failure, replacing(tmp_path / "table.csv"):
        pass
    assert str(failure.value) == f"[Errno 1] not permitted: '{tmp_path / 'table.csv'}'"


@pytest.mark.parametrize("fails", [False, True])
def test_files_are_removed_when_all_drafts_are_on_the_disk(
    fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stale.txt").write_text("stale")
    (tmp_path / "far.txt").write_text("far")
    link = tmp_path / "link.txt"
    link.symlink_to(tmp_path / "far.txt")
    removed = [tmp_path / "stale.txt", link, tmp_path / "missing.txt"]

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def write() -> None:
        with replacing_together(tmp_path / "new.txt", link, removing=removed) as drafts:
            for draft in drafts:
                draft.write_text("new")
            if fails:
                monkeypatch.setattr("oism._core.atomic.os.fsync", full)

    if fails:
        with pytest.raises(OSError, match="No space"):
            write()
        assert names(tmp_path) == ["far.txt", "link.txt", "stale.txt"]
        assert link.read_text() == "far"
    else:
        write()
        assert names(tmp_path) == ["far.txt", "link.txt", "new.txt"]
        assert link.read_text() == "new"
    assert (tmp_path / "far.txt").read_text() == "far"


def test_after_a_rename_that_fails_earlier_ones_remain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / f"{name}.txt" for name in "abc"]
    rename = Path.replace

    def fails(self: Path, target: Path) -> Path:
        if target.name == "b.txt":
            raise OSError(errno.EIO, "failed", str(self))
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", fails)
    with pytest.raises(OSError, match=r"failed: '.*b\.txt'"):
        write_together(paths)
    assert names(tmp_path) == ["a.txt"]
