"""Locks: one holder, who is named; a holder that is killed holds nothing."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from oism._core.locking import FileLock, LockedError, check_unlocked

HOLD = "import sys, time; from oism._core.locking import FileLock; one = FileLock(sys.argv[1]); "
CHECK = """
import sys, time
from oism._core.locking import check_unlocked
print("ready", flush=True)
while True:
    check_unlocked(sys.argv[1])
    time.sleep(0.001)
"""


def holder(path: Path) -> subprocess.Popen[str]:
    """Return a process that holds a lock."""
    code = HOLD + "print('held', flush=True); time.sleep(60)"
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


@contextmanager
def checkers(path: Path, count: int) -> Iterator[None]:
    """Within, processes check a lock again and again; an error of one is an error."""
    words = [sys.executable, "-c", CHECK, str(path)]
    processes = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        yield
        assert [process.poll() for process in processes] == [None] * count
    finally:
        for process in processes:
            process.kill()
            process.communicate()


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


def test_checks_at_once_of_what_a_killed_holder_left(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_text("process 1 on elsewhere since yesterday")
    together = threading.Barrier(8)

    def check(_: int) -> None:
        together.wait()
        for _ in range(200):
            check_unlocked(path)

    with checkers(path, 2), ThreadPoolExecutor(8) as pool:
        list(pool.map(check, range(8)))


def test_a_check_does_not_keep_others_from_checking_or_taking(tmp_path: Path) -> None:
    fcntl = pytest.importorskip("fcntl", reason="there is no shared lock")
    path = tmp_path / "lock"
    path.write_text("process 1 on elsewhere since yesterday")
    with path.open() as file:  # as a check does, but slowly
        fcntl.flock(file, fcntl.LOCK_SH)
        check_unlocked(path)
        with pytest.raises(LockedError):
            FileLock(path)
        timer = threading.Timer(0.05, fcntl.flock, (file, fcntl.LOCK_UN))
        timer.start()
        with FileLock(path), pytest.raises(LockedError, match=f"held by process {os.getpid()} on"):
            check_unlocked(path)
        timer.join()


def test_a_lock_that_is_checked_can_be_taken(tmp_path: Path) -> None:
    path, over = tmp_path / "lock", threading.Event()

    def check() -> int:
        """Return how often a holder was seen."""
        seen = 0
        while not over.is_set():
            try:
                check_unlocked(path)
            except LockedError:
                seen += 1
        return seen

    with ThreadPoolExecutor(4) as pool:
        counts = [pool.submit(check) for _ in range(4)]
        try:
            for _ in range(100):
                path.write_text("process 1 on elsewhere since yesterday")
                FileLock(path).release()
                time.sleep(0.002)
            with FileLock(path):
                time.sleep(0.5)
        finally:
            over.set()
    assert all(one.result() for one in counts), "a real holder is seen by all"


def test_a_holder_whose_name_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with FileLock(path):
        path.write_bytes(b"process \xff\xfe")
        for taking in (FileLock, check_unlocked):
            with pytest.raises(LockedError, match="held by process \ufffd\ufffd"):
                taking(path)
