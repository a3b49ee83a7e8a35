"""Locks: one holder, who is named; a holder that is killed holds nothing."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from oism._core.locking import FileLock, LockedError, check_unlocked

HOLD = "import sys, time; from oism._core.locking import FileLock; one = FileLock(sys.argv[1]); "


def holder(path: Path) -> subprocess.Popen[str]:
    """Return a process that holds a lock."""
    code = HOLD + "print('held', flush=True); time.sleep(60)"
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_one_holder_at_a_time_who_is_named(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with FileLock(path) as lock:
        for taking in (FileLock, check_unlocked):
            with pytest.raises(LockedError, match=f"held by process {os.getpid()} on "):
                taking(path)
        lock.release()
        FileLock(path).release()
    assert not path.exists()
    check_unlocked(path)


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    process = holder(path)
    try:
        with pytest.raises(LockedError, match=f"process {process.pid} on {socket.gethostname()}"):
            FileLock(path)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    before = path.read_text()
    check_unlocked(path)
    assert path.read_text() == before, "what is left of it stays"
    with FileLock(path):
        assert f"process {os.getpid()} " in path.read_text()


def test_a_lock_that_nobody_refers_to_is_released(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = FileLock(path)
    del lock
    FileLock(path).release()


def test_the_lock_of_a_file_that_was_removed_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between opening and locking, another process may remove the file and make a new one."""
    path, seen = tmp_path / "lock", []

    def removed_once(self: FileLock, file: object) -> bool:
        seen.append(file)
        if len(seen) == 1:
            path.unlink()
        return original(self, file)  # type: ignore[arg-type]

    original = FileLock._is_at_path
    monkeypatch.setattr(FileLock, "_is_at_path", removed_once)
    with FileLock(path), pytest.raises(LockedError):
        FileLock(path)
    assert len(seen) >= 2
