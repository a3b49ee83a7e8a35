"""The safetensors file of an object: written atomically, compared with its digest when read."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import safetensors
import safetensors.torch
from torch import Tensor

from oism._core.atomic import StrPath, replacing
from oism.storage._entry import StorageError
from oism.storage._header import FORMAT, VERSION, canonical, digest_of, parse
from oism.storage._reader import Given, restore
from oism.storage._writer import describe

MODEL = "model.safetensors"
LONGEST_HEADER = 100_000_000  # bytes; safetensors reads no longer one


class Storable:
    """Adds ``save`` and ``load`` to a registered class, or to the base class of several."""

    __slots__ = ()

    def save(self, path: StrPath) -> None:
        """Write the object to one file, atomically."""
        save(self, path)

    @classmethod
    def load(cls, path: StrPath, *, given: Given | None = None) -> Self:
        """Return the object in a file, on the CPU, if it is of this class; see `storage.load`."""
        obj: Self = load(path, expected=cls, given=given)
        return obj


def save(obj: object, path: StrPath) -> None:
    """Write an object of a registered class to one file, atomically."""
    content = to_bytes(obj)
    # Not safetensors' `save_file`: it renames a draft of its own, over pipes and devices as well.
    with replacing(path) as draft:
        draft.write_bytes(content)


def to_bytes(obj: object) -> bytes:
    """Return the content of the file that `save` writes."""
    described, tensors = describe(obj)
    digest = digest_of(described, tensors)
    about = {"format": FORMAT, "version": VERSION, **described, "sha256": digest}
    # One entry: safetensors writes several in any order, and equal models are to be equal files.
    return safetensors.torch.save(tensors, metadata={"oism": canonical(about)})


def load(path: StrPath, *, expected: type[Any] | None = None, given: Given | None = None) -> Any:  # noqa: ANN401
    """Return the object in a file, on the CPU.

    Parameters
    ----------
    path
        A file that `save` wrote, or a folder with the file ``model.safetensors``, as that of a
        training run.
    expected
        The class that the object must be of.
    given
        The parts that the file does not hold, see `External`, by the last name of their entry or by
        its dotted path: ``{"net": net}`` or ``{"predictor.net": net}``. The weights in the file are
        copied into modules.
    """
    path = _file_of(path)
    with _naming(path):
        described, digest, tensors = _read(path, with_tensors=True)
        if digest_of(described, tensors) != digest:
            raise StorageError("is damaged: its content does not have the SHA-256 that it states")
        return restore(described, tensors, expected=expected, given=given)


def config_of(path: StrPath) -> dict[str, Any]:
    """Return {"class", "config"} of a file, as `describe` does, from its header alone.

    The digest is not compared: it covers the tensors, which are not read.
    """
    path = _file_of(path)
    with _naming(path):
        return _read(path, with_tensors=False)[0]


def class_of(path: StrPath) -> str | None:
    """Return the class that the header of a file names, or None where it cannot be read."""
    try:
        return str(config_of(path)["class"])
    except (OSError, StorageError):
        return None


@contextmanager
def _naming(path: StrPath) -> Iterator[None]:
    """Put the name of a file before what is wrong with it."""
    try:
        yield
    except StorageError as error:
        raise StorageError(f"{os.fspath(path)}: {error}") from error


def _file_of(path: StrPath) -> StrPath:
    """Return the file itself, or that of the model in a folder."""
    if not os.path.isdir(path):
        return path
    file = os.path.join(path, MODEL)
    if not os.path.isfile(file):
        why = f"is a folder without {MODEL}, which a training run writes with every checkpoint"
        raise IsADirectoryError(errno.EISDIR, why, os.fspath(path))
    return file


def _read(path: StrPath, *, with_tensors: bool) -> tuple[dict[str, Any], str, dict[str, Tensor]]:
    """Return {"class", "config"}, the digest and the tensors of a file."""
    if not stat.S_ISREG(os.stat(path).st_mode):  # a missing file is a FileNotFoundError
        raise StorageError("is not a regular file")
    open(path, "rb").close()  # safetensors calls a file that may not be read missing
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            described, digest = parse((file.metadata() or {}).get("oism"))
            names = file.keys() if with_tensors else ()
            # Copied: a tensor in a file need not be aligned as complex arithmetic expects.
            return described, digest, {name: file.get_tensor(name).clone() for name in names}
    except (MemoryError, OSError, StorageError):
        raise
    except Exception as error:  # safetensors', and torch's for a dtype or shape it does not have
        raise StorageError(_diagnosis(path) or f"is damaged: {error}") from error


def _diagnosis(path: StrPath) -> str:
    """Return what is wrong with the length of a file that safetensors refuses, or an empty text."""
    with open(path, "rb") as file:
        start, size = file.read(8), os.fstat(file.fileno()).st_size
        length = int.from_bytes(start, "little")
        if not start or length > LONGEST_HEADER:
            return "is not a safetensors file" if start else "is empty"
        header = file.read(length)
    if header[:1] not in {b"", b"{"}:
        return "is not a safetensors file"
    end = 8 + length
    if size >= end:
        try:
            about = json.loads(header)
            end += max(about[name]["data_offsets"][1] for name in about if name != "__metadata__")
        except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError):
            return ""
    if size < end:
        return f"is truncated: {size} bytes of {end}"
    return f"is too long: {size - end} bytes follow its end" if size > end else ""
