"""Tables in NPY and NPZ files; pickled objects are refused."""

from __future__ import annotations

import errno
import io
import math
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

import numpy as np
import pyarrow as pa
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from oism.data.files._columns import FileError, check_count, numbering

KINDS = {
    "O": "Python objects, which are not loaded because that could run any code",
    "c": "complex numbers",
    "V": "records",
}


@dataclass(frozen=True)
class Header:
    """The header of an NPY file, and the number of bytes after it."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[np.generic]
    left: int

    @classmethod
    def read(cls, stream: IO[bytes], size: int) -> Header:
        """Return the header at the beginning of a stream of some bytes."""
        version = npy_format.read_magic(stream)
        if version == (1, 0):
            shape, fortran, dtype = npy_format.read_array_header_1_0(stream)
        else:  # version 3 only adds names of fields, which our arrays do not have
            shape, fortran, dtype = npy_format.read_array_header_2_0(stream)
        return cls(shape, fortran, dtype, size - stream.tell())

    @property
    def may_be_images(self) -> bool:
        """Whether the array has as many axes as an array of images."""
        return len(self.shape) in (3, 4)

    def check_size(self, source: str) -> None:
        """Raise unless the file ends where its array does: no memory is used before."""
        size = math.prod(self.shape) * self.dtype.itemsize
        if self.left != size:
            fault = "ends before" if self.left < size else "goes on after"
            raise FileError(f"{source}: damaged: the file {fault} its array of shape {self.shape}")


@contextmanager
def damage_explained(source: str) -> Iterator[None]:
    """Turn the errors of NumPy and zipfile about a damaged file into a `FileError`."""
    try:
        yield
    except FileError:
        raise
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError) as error:
        raise FileError(f"{source}: damaged, or not an NPZ file: {error}") from error
    except (ValueError, EOFError, SyntaxError, KeyError, tokenize.TokenError) as error:
        raise FileError(f"{source}: damaged, or not an NPY file: {error}") from error
    except OSError as error:
        if error.errno != errno.EINVAL:  # zipfile goes to a place before the beginning
            raise
        raise FileError(f"{source}: damaged, or not an NPZ file") from error


def read_npy(content: bytes, source: str) -> pa.Table:
    """Return an array of shape (n,) or (n, d) as numbered columns."""
    array = _array(content, source)
    _check_kind(array, source)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2:
        raise FileError(
            f"{source}: an array must have shape (rows,) or (rows, columns), got {array.shape}"
        )
    return _numbered(array, source)


def read_npz(content: bytes, source: str) -> pa.Table:
    """Return one array of shape (n, d), or several of shape (n,) as named columns."""
    arrays = {}
    with damage_explained(source), zipfile.ZipFile(io.BytesIO(content)) as archive:
        for entry in archive.namelist():
            name = entry.removesuffix(".npy")
            arrays[name] = _array(archive.read(entry), f"{source}, array {name!r}")
    for name, array in arrays.items():
        _check_kind(array, f"{source}, array {name!r}")
    shapes = {array.shape for array in arrays.values()}
    if len(arrays) == 1 and len(next(iter(shapes))) == 2:
        (array,) = arrays.values()
        return _numbered(array, source)
    if len(shapes) != 1 or len(next(iter(shapes))) != 1:
        found = ", ".join(f"{name} {array.shape}" for name, array in arrays.items()) or "nothing"
        raise FileError(
            f"{source}: an archive must hold one array of shape (rows, columns), or arrays of one "
            f"shape (rows,) as columns; it holds {found}"
        )
    return _table(arrays)


def npy(array: NDArray[np.generic]) -> bytes:
    """Return an array as the content of an NPY file."""
    sink = io.BytesIO()
    np.lib.format.write_array(sink, np.ascontiguousarray(array), allow_pickle=False)
    return sink.getvalue()


def npz(table: pa.Table, path: str) -> bytes:
    """Return the columns of a table as the content of an NPZ file, one array for each.

    Missing numbers are NaN there, and missing text is empty.
    """
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:  # `numpy.savez` cannot write a column named "file"
        for name, column in zip(table.column_names, table.columns, strict=True):
            array = _plain(column)
            if array.dtype.kind == "O":
                raise FileError(
                    f"{path}: column {name!r} holds {column.type}, which NPZ cannot: choose "
                    "another format"
                )
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), npy(array))
    return sink.getvalue()


def _plain(column: pa.ChunkedArray) -> NDArray[np.generic]:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return np.array(column.fill_null("").to_pylist(), dtype=np.str_)
    if pa.types.is_decimal(kind) or pa.types.is_null(kind):
        column = column.cast(pa.float64())
    if pa.types.is_boolean(kind) and column.null_count:
        column = column.cast(pa.int8())
    array: NDArray[np.generic] = column.to_numpy()
    return array


def _array(content: bytes, source: str) -> NDArray[np.generic]:
    if content[:6] != b"\x93NUMPY":  # NumPy's message would be about pickles
        raise FileError(f"{source}: damaged, or not an NPY file")
    with damage_explained(source):
        header = Header.read(io.BytesIO(content), len(content))
        if header.dtype.hasobject:
            raise FileError(f"{source}: the array holds {KINDS['O']}")
        header.check_size(source)
        array: NDArray[np.generic] = np.load(io.BytesIO(content), allow_pickle=False)
    return array


def _check_kind(array: NDArray[np.generic], source: str) -> None:
    if array.dtype.kind in KINDS:
        raise FileError(f"{source}: the array holds {KINDS[array.dtype.kind]}, not real numbers")


def _numbered(array: NDArray[np.generic], source: str) -> pa.Table:
    check_count(array.shape[1], source)
    return _table(dict(zip(numbering(array.shape[1]), array.T, strict=True)))


def _table(arrays: dict[str, NDArray[np.generic]]) -> pa.Table:
    return pa.table({name: _native(array) for name, array in arrays.items()})


def _native(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return an array that Arrow accepts: in the machine's byte order, at most float64."""
    if array.dtype == np.longdouble:
        return array.astype(np.float64)
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
