"""Files that appear under their name only once they are whole; an older one stays until then.

A draft is written beside the target, brought to the disk and renamed. Whatever goes wrong before
the rename, an interrupt included, removes the draft and leaves the target as it was.
"""

from __future__ import annotations

import errno
import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

StrPath = str | os.PathLike[str]


@contextmanager
def replacing(path: StrPath) -> Iterator[Path]:
    """Give a path to write to; when the block ends well, what was written replaces ``path``.

    Links are followed. What exists and is no regular file, a pipe or a device, is written to
    directly. An older file hands its permissions on.

    >>> with replacing("letter.txt") as draft:
    ...     size = draft.write_text("Dear reader")
    >>> Path("letter.txt").read_text()
    'Dear reader'
    """
    demand_writable(path)
    if _passes_through(path):
        yield Path(path)
        return
    target = Path(os.path.realpath(path))
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
    draft = target.with_name(f".oism-{uuid.uuid4().hex}.part")
    try:
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        if mode is not None:
            draft.chmod(mode | stat.S_IWUSR)  # before there is anything in it to read
        yield draft
        with draft.open("rb+") as file:
            os.fsync(file.fileno())
        if mode is not None:
            draft.chmod(mode)
        draft.replace(target)
    except OSError as error:
        if error.errno is not None and error.filename is None:  # a full disk says no name
            error.filename = str(path)
        raise
    finally:
        draft.unlink(missing_ok=True)


def demand_writable(path: StrPath) -> None:
    """Raise what writing to a path would raise, as far as that can be told in advance."""
    if _passes_through(path):
        return
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder, not a file", str(path))
    if target.is_symlink():  # `realpath` gives up on links that lead to each other
        raise OSError(errno.ELOOP, "is a link that leads to itself", str(path))
    folder = target.parent
    if not folder.is_dir():
        raise FileNotFoundError(errno.ENOENT, "no such folder", str(folder))
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "no permission to write in this folder", str(folder))
    if target.exists() and not os.access(target, os.W_OK):  # a rename would not ask
        raise PermissionError(errno.EACCES, "no permission to write to this file", str(path))


def _passes_through(path: StrPath) -> bool:
    """Tell whether a path is a pipe, a device or a descriptor: something no file may replace."""
    absolute = os.path.abspath(path)
    if absolute.startswith(("/dev/fd/", "/dev/std", "/proc/")):  # even where it is a file today
        return os.path.exists(path)
    try:
        kind = os.stat(path).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(kind) and not stat.S_ISDIR(kind)
