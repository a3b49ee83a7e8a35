"""Atomic writing of files and folders: they appear under their name only when complete.

A draft is written next to the target, flushed to the disk and renamed. On an error or an interrupt
before the rename the draft is removed and the target is unchanged. The draft of a process that was
killed remains, a hidden file or folder that `remove_drafts` removes.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import stat
import threading
import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

StrPath = str | os.PathLike[str]

DRAFTS = ".oism-*.part"
"""The names of drafts."""


@contextmanager
def replacing(path: StrPath) -> Iterator[Path]:
    """Yield a path to write to; at the end of the block the file there replaces ``path``.

    Links are followed. A pipe or a device is written to directly. The new file has the permissions
    of the file that it replaces.

    >>> with replacing("letter.txt") as draft:
    ...     size = draft.write_text("Dear reader")
    >>> Path("letter.txt").read_text()
    'Dear reader'
    """
    with replacing_together(path) as (draft,):
        yield draft


@contextmanager
def replacing_together(*paths: StrPath, removing: Collection[StrPath] = ()) -> Iterator[list[Path]]:
    """Yield paths to write to; at the end of the block the files there replace ``paths``.

    All are on the disk before the first is renamed, and signals wait until the last is. If a later
    rename fails, earlier ones remain.

    Files of ``removing`` that exist are removed just before the first rename. Links among them are
    removed, not followed.

    >>> with replacing_together("letter.txt", "answer.txt") as (letter, answer):
    ...     sizes = letter.write_text("Dear reader"), answer.write_text("Dear author")
    >>> Path("answer.txt").read_text()
    'Dear author'
    """
    for path in paths:
        check_writable(path)
    drafts = [_Draft(path, follows=path not in removing) for path in paths]
    try:
        for draft in drafts:
            draft.create()
        yield [draft.path for draft in drafts]
        for draft in drafts:
            draft.finish()
        with _signals_wait():
            for path in removing:
                Path(path).unlink(missing_ok=True)
            for draft in drafts:
                draft.rename()
        for folder in {draft.target.parent for draft in drafts if not draft.is_direct}:
            _flush_folder(folder)
    except OSError as error:
        _name(error, drafts)
        raise
    finally:
        for draft in drafts:
            draft.remove()


def _name(error: OSError, drafts: Sequence[_Draft]) -> None:
    """Have an error name the files that were to be written, not their hidden drafts."""
    if error.errno is None:
        return
    if error.filename is None:  # for example a full disk
        error.filename = ", ".join(str(draft.name) for draft in drafts)
    for draft in drafts:
        if str(error.filename) == str(draft.path):
            error.filename = str(draft.name)
            if error.filename2 is not None:  # a rename, whose other file is the target
                del error.filename2


class _Draft:
    """The draft of a file; that of a pipe or a device is itself."""

    def __init__(self, path: StrPath, *, follows: bool) -> None:
        self.name = path
        self.is_direct = _passes_through(path)
        self.target = Path(os.path.realpath(path) if follows else os.path.abspath(path))
        self.path = Path(path) if self.is_direct else _draft(self.target)
        self.mode: int | None = None

    def create(self) -> None:
        """Create the file, with the permissions of the target before anything is written."""
        if self.is_direct:
            return
        os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        if self.target.exists():
            self.mode = stat.S_IMODE(self.target.stat().st_mode)
            self.path.chmod(self.mode | stat.S_IWUSR)

    def finish(self) -> None:
        """Flush the file to the disk."""
        if self.is_direct:
            return
        with self.path.open("rb+") as file:
            os.fsync(file.fileno())
        if self.mode is not None:
            self.path.chmod(self.mode)

    def rename(self) -> None:
        """Replace the target."""
        if not self.is_direct:
            self.path.replace(self.target)

    def remove(self) -> None:
        """Remove the file if it was not renamed."""
        if not self.is_direct:
            self.path.unlink(missing_ok=True)


@contextmanager
def _signals_wait() -> Iterator[None]:
    """Within, SIGINT and SIGTERM wait for the end of the block; other threads never get them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    before: dict[int, Any] = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not None:  # None: a handler that is not Python's
                before[number] = signal.signal(number, lambda one, _frame: received.append(one))
        yield
    finally:
        for own, handler in before.items():
            signal.signal(own, handler)
        for one in received:
            signal.raise_signal(one)


@contextmanager
def replacing_folder(path: StrPath) -> Iterator[Path]:
    """Yield a folder to write in; at the end of the block it becomes ``path``.

    ``path`` may be an empty folder, which is replaced, but nothing else that exists.

    >>> with replacing_folder("letters") as draft:
    ...     size = (draft / "first.txt").write_text("Dear reader")
    >>> [file.name for file in Path("letters").iterdir()]
    ['first.txt']
    """
    check_new_folder(path)
    target = Path(os.path.realpath(path))
    draft = _draft(target)
    try:
        draft.mkdir()
        yield draft
        if target.is_dir():
            target.rmdir()
        draft.rename(target)
        _flush_folder(target.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def check_new_folder(path: StrPath) -> None:
    """Raise the errors of `replacing_folder` that can be detected before writing."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        if any(target.iterdir()):
            raise FileExistsError(errno.ENOTEMPTY, "the folder is not empty", os.fspath(path))
    elif os.path.lexists(target):
        raise NotADirectoryError(errno.ENOTDIR, "is a file, not a folder", os.fspath(path))
    else:
        check_writable(path)


def remove_drafts(folder: StrPath) -> None:
    """Remove the drafts that killed processes left in a folder."""
    for draft in Path(folder).glob(DRAFTS):
        if draft.is_dir():
            shutil.rmtree(draft, ignore_errors=True)
        else:
            draft.unlink(missing_ok=True)


def _draft(target: Path) -> Path:
    return target.with_name(DRAFTS.replace("*", uuid.uuid4().hex))


def _flush_folder(folder: Path) -> None:
    """Flush the entries of a folder to the disk, on systems that support it."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # not supported by some file systems
            raise
    finally:
        os.close(handle)


def check_writable(path: StrPath) -> None:
    """Raise the errors of writing to a path that can be detected before writing."""
    if _passes_through(path):
        return
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder, not a file", str(path))
    if target.is_symlink():  # `realpath` does not resolve circular links
        raise OSError(errno.ELOOP, "is a circular link", str(path))
    folder = target.parent
    if not folder.is_dir():
        raise FileNotFoundError(errno.ENOENT, "no such folder", str(folder))
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "no permission to write in this folder", str(folder))
    if target.exists() and not os.access(target, os.W_OK):  # a rename does not check this
        raise PermissionError(errno.EACCES, "no permission to write to this file", str(path))


def _passes_through(path: StrPath) -> bool:
    """Return whether a path is a pipe, a device or a descriptor, which must not be replaced."""
    absolute = os.path.abspath(path)
    if absolute.startswith(("/dev/fd/", "/dev/std", "/proc/")):  # even if it is a file
        return os.path.exists(path)
    try:
        kind = os.stat(path).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(kind) and not stat.S_ISDIR(kind)
