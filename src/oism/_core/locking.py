"""Locks of files: one holder at a time, named in the error of others.

The lock is the operating system's, on an open file (`flock`, on Windows `msvcrt.locking`). The
system releases it when the holder ends, however it ends: nobody waits for a process that was
killed. The file holds the name of the holder, for messages only. It is removed while the lock is
still held; so a process that has opened it before, and gets the lock of a file that is no longer at
the path, opens the path again.

A check takes the lock for a moment, where it can in a way that other checks share. Therefore a lock
that is held is tried again for a while before there is an error.
"""

from __future__ import annotations

import datetime
import errno
import os
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

if sys.platform == "win32":
    import msvcrt

    NAME_AT = 1  # Windows locks bytes: the first one is the lock, the name follows it

    def _lock(file: IO[str], *, shared: bool) -> None:  # noqa: ARG001 (no lock is shared)
        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    NAME_AT = 0

    def _lock(file: IO[str], *, shared: bool) -> None:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)


BUSY = (errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK)

PATIENCE, PAUSE = 0.2, 0.002
"""For how many seconds a lock that is held is tried again, and the seconds between two attempts."""


class LockedError(BlockingIOError):
    """Another process, or another object of this one, holds a lock; the message names it."""


class FileLock:
    """The lock of a path, taken when made and held until `release` or the end of a block.

    >>> with FileLock("run.lock"):
    ...     FileLock("run.lock")
    Traceback (most recent call last):
    oism._core.locking.LockedError: held by process ...
    >>> Path("run.lock").exists()
    False
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._file: IO[str] | None = None
        while self._file is None:
            file = _locked(self._path, os.O_CREAT)
            if self._is_at_path(file):
                self._file = file
            else:
                file.close()
        self._file.truncate(0)
        self._file.seek(NAME_AT)
        self._file.write(_own_name())
        self._file.flush()

    def _is_at_path(self, file: IO[str]) -> bool:
        try:
            return os.path.samestat(os.fstat(file.fileno()), self._path.stat())
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Remove the file and release the lock; does nothing where it is not held."""
        if self._file is None:
            return
        if sys.platform != "win32":  # Windows cannot remove an open file
            self._path.unlink(missing_ok=True)
        self._file.close()
        self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def __del__(self) -> None:
        if getattr(self, "_file", None) is not None:
            self.release()


def check_unlocked(path: str | os.PathLike[str]) -> None:
    """Raise `LockedError` if the lock of a path is held.

    The file that a killed holder left is not removed.
    """
    with suppress(FileNotFoundError):
        _locked(path, shared=True).close()


def _locked(path: str | os.PathLike[str], flags: int = 0, *, shared: bool = False) -> IO[str]:
    """Open a file and lock it, until the file is closed.

    Raises `LockedError` if the lock is held.
    """
    handle = os.open(path, os.O_RDWR | flags, 0o666)
    file = open(handle, "r+", encoding="utf-8", errors="replace")  # noqa: SIM115
    last = time.monotonic() + PATIENCE
    try:
        while not _takes(file, shared=shared):
            if time.monotonic() > last:
                file.seek(NAME_AT)
                holder = file.read().strip("\0\n") or "another process"
                raise LockedError(f"held by {holder}")
            time.sleep(PAUSE)
    except BaseException:
        file.close()
        raise
    return file


def _takes(file: IO[str], *, shared: bool) -> bool:
    """Return whether the lock of a file could be taken."""
    try:
        _lock(file, shared=shared)
    except OSError as error:
        if error.errno not in BUSY:  # a file system without locks, for example
            raise
        return False
    return True


def _own_name() -> str:
    now = datetime.datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
    return f"process {os.getpid()} on {socket.gethostname()} since {now}"
