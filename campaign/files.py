"""Damaged files: what is read is an error that names the file, or the same content.

CSV, TSV and NPY have no checksums, and the metadata of Parquet have none either: there a changed
digit cannot be seen. What is read must then be what another program finds in the damaged file.

    silent     other content was read, without a word
    unclear    the error is not one of the library, or does not name the file
"""

from __future__ import annotations

import ast
import atexit
import csv
import io
import json
import math
import shutil
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import torch

from campaign.columns import Array
from campaign.damage import SHARES, WAYS
from campaign.small_run import MODELS, pictures, trained
from oism import OISM, fit_prior, load, storage
from oism.data.files import open_images, read, write, write_images
from oism.training import read_metrics, read_settings

Content = Any
"""What is read of a file, as plain data that can be compared."""

MISSING = ("", "na", "n/a", "#n/a", "nan", "null", "none")
"""Words for a missing number in a text file."""


@dataclass(frozen=True)
class Subject:
    """A kind of file: what is damaged, and how it is read.

    ``path`` is a file, or a folder of which ``files`` are damaged. ``other`` reads the same content
    by another program, for formats without a checksum, and raises where it cannot.
    """

    path: Path
    read: Callable[[Path], Content]
    files: tuple[str, ...] = ()
    other: Callable[[Path], Content] | None = None


def judged(seed: int) -> dict[str, Any]:
    """Return the record of a case: what was damaged, how, and what failed."""
    rng = np.random.default_rng([seed, 1])
    known = subjects()
    kind = str(rng.choice(sorted(known)))
    subject = known[kind]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / subject.path.name
        if subject.files:
            shutil.copytree(subject.path, place)
            target = place / str(rng.choice(subject.files))
        else:
            target = place
            shutil.copy(subject.path, place)
        before = target.read_bytes()
        others = [name for name in sorted(known) if known[name].path.suffix != target.suffix]
        foreign = known[str(rng.choice(others))].path
        other = foreign.read_bytes() if foreign.is_file() else b"Dear reader,\nthis is a letter.\n"
        way = str(rng.choice(list(WAYS), p=SHARES))
        target.write_bytes(WAYS[way](before, other, rng))
        record = {"file": f"{kind}, {target.name}", "damage": way, "failed": []}
        if target.read_bytes() != before:
            fault = fault_of(subject, place, expected(kind))
            record |= {"failed": [fault[0]], "detail": fault[1]} if fault else {}
    return record


def fault_of(subject: Subject, place: Path, content: Content) -> tuple[str, str] | None:
    """Return what is wrong with reading a damaged file, in a word and with details, or None."""
    try:
        with warnings.catch_warnings(record=True) as spoken:
            warnings.simplefilter("always")
            found = subject.read(place)
    except Exception as error:  # whatever it is, it is judged
        own = isinstance(error, OSError) or type(error).__module__.startswith("oism.")
        if own and place.name in str(error):
            return None
        return "unclear", f"{type(error).__name__}: {error}"[:300]
    if same(found, content) or any(place.name in str(one.message) for one in spoken):
        return None
    if subject.other is not None:
        try:
            if same(found, subject.other(place)):
                return None
        except Exception as error:  # another program refuses what was read here
            return "silent", f"another program: {type(error).__name__}: {error}"[:300]
    return "silent", difference(found, content)


def same(one: Content, other: Content) -> bool:
    """Return whether contents are equal; NaN equals NaN."""
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return type(one) is type(other) and bool(one == other)


def difference(found: Content, content: Content) -> str:
    """Return a few words about how contents differ."""
    return f"read {str(found)[:140]!r} instead of {str(content)[:140]!r}"


@cache
def expected(kind: str) -> Content:
    """Return the content of a file that is not damaged."""
    subject = subjects()[kind]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / subject.path.name
        (shutil.copytree if subject.files else shutil.copy)(subject.path, place)
        return subject.read(place)


@cache
def subjects() -> dict[str, Subject]:
    """Return the files that are damaged, made once for each process."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return {**_models(folder), **_tables(folder), **_images(folder)}


def _models(folder: Path) -> dict[str, Subject]:
    rng = np.random.default_rng(0)
    plane = OISM(max_eigenvalue=25, flow_steps=16).fit(rng.normal(size=(60, 2)))
    plane.save(folder / "plane.safetensors")
    frame = pd.DataFrame(rng.normal(size=(30, 2)), columns=["x", "y"])
    frame["colour"] = rng.choice(["red", "blue"], size=30)
    OISM().fit(frame).save(folder / "joint.safetensors")
    fit_prior(torch.from_numpy(pictures()), order=2).save(folder / "prior.safetensors")
    trained(folder / "run", MODELS[0], steps=2, save_every=2)
    (step,) = (folder / "run" / "checkpoints").iterdir()
    files = ("settings.json", "metrics.jsonl", "model.safetensors", "prior.safetensors")
    return {
        "model of the plane": Subject(folder / "plane.safetensors", _stored),
        "model of a frame": Subject(folder / "joint.safetensors", _stored),
        "prior": Subject(folder / "prior.safetensors", _stored),
        "checkpoint": Subject(step, _stored),
        "run": Subject(folder / "run", _run, (*files, f"checkpoints/{step.name}"), _other_run),
    }


def _tables(folder: Path) -> dict[str, Subject]:
    rng = np.random.default_rng(1)
    numbers: dict[str, Any] = {name: rng.normal(size=40) for name in ("x", "y")}
    table = pa.table({**numbers, "name": [f"row {i}" for i in range(40)]})
    for name in ("t.csv", "t.csv.gz", "t.tsv", "t.parquet", "t.npz"):
        write(table, str(folder / name))
    write(pa.table(numbers), str(folder / "t.npy"))
    others: dict[str, Callable[[Path], Content] | None] = {
        "t.csv": lambda path: _other_text(path, ","),
        "t.tsv": lambda path: _other_text(path, "\t"),
        "t.npy": _other_npy,
        "t.parquet": lambda path: pl.read_parquet(path).to_dict(as_series=False),
        "t.csv.gz": None,
        "t.npz": None,
    }
    return {
        name[2:]: Subject(folder / name, _read_table, other=other) for name, other in others.items()
    }


def _images(folder: Path) -> dict[str, Subject]:
    write_images(str(folder / "pictures"), pictures()[:6])
    np.savez_compressed(folder / "pictures.npz", images=pictures())
    write_images(str(folder / "pictures.npy"), pictures())
    content = [path.read_bytes() for path in sorted((folder / "pictures").iterdir())]
    write(pa.table({"image": content}), str(folder / "pictures.parquet"))
    names = tuple(sorted(path.name for path in (folder / "pictures").iterdir()))
    return {
        "PNG": Subject(folder / "pictures", _read_images, names),
        "images in NPZ": Subject(folder / "pictures.npz", _read_images),
        "images in NPY": Subject(folder / "pictures.npy", _read_images, other=_other_images),
        "images in Parquet": Subject(folder / "pictures.parquet", _read_images),
    }


def _stored(path: Path) -> Content:
    return storage.to_bytes(load(path))


def _run(folder: Path) -> Content:
    """Return the model of a run, its settings and metrics, and the model after more steps."""
    found = [_stored(folder), dict(read_settings(folder)), read_metrics(folder)]
    trained(folder, MODELS[0], steps=4, save_every=2, resume=True)
    steps = [line["step"] for line in read_metrics(folder)]
    return [*found, steps, (folder / "model.safetensors").read_bytes()]


def _other_run(folder: Path) -> Content:
    """Return the same with the metrics as they are: their numbers have no checksum."""
    whole = expected("run")
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [*whole[:2], [json.loads(line) for line in lines][:2], *whole[3:]]


def _read_table(path: Path) -> Content:
    sheet = read(str(path))
    texts = {name for name in sheet.names if name not in ("0", "1", "x", "y")}
    return {
        name: sheet.table[name].to_pylist()
        if name in texts
        else sheet.numbers([name])[:, 0].tolist()
        for name in sheet.names
    }


def _other_text(path: Path, delimiter: str) -> Content:
    text = path.read_bytes().decode("utf-8-sig")
    rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if row]
    numeric = _is_data(rows[0])
    names = [str(i) for i in range(len(rows[0]))] if numeric else rows.pop(0)
    if any(len(row) != len(names) for row in rows):
        raise ValueError("rows of different lengths")
    return {
        name: [_number(row[i]) if name in ("0", "1", "x", "y") else row[i] for row in rows]
        for i, name in enumerate(names)
    }


def _is_data(cells: list[str]) -> bool:
    try:
        numbers = [_number(cell) for cell in cells]
    except ValueError:
        return False
    return any(map(math.isfinite, numbers))


def _number(cell: str) -> float:
    return math.nan if cell.strip().lower() in MISSING else float(cell)


def _parsed_npy(content: bytes) -> Any:  # noqa: ANN401
    """Return the array in the bytes of an NPY file, version 1; it must end where they end."""
    if content[:8] != b"\x93NUMPY\x01\x00":
        raise ValueError("not an NPY file of version 1")
    start = 10 + int.from_bytes(content[8:10], "little")
    header = ast.literal_eval(content[10:start].decode("latin-1"))
    flat = np.frombuffer(content[start:], dtype=np.dtype(header["descr"]))
    order = "F" if header["fortran_order"] else "C"
    return flat.reshape(header["shape"], order=order)  # type: ignore[call-overload]


def _other_npy(path: Path) -> Content:
    array: Array = _parsed_npy(path.read_bytes()).astype(np.float64)
    return {str(j): column.tolist() for j, column in enumerate(array.reshape(len(array), -1).T)}


def _read_images(path: Path) -> Content:
    images = open_images(str(path))
    return np.concatenate([batch.copy() for batch in images])


def _other_images(path: Path) -> Content:
    array = _parsed_npy(path.read_bytes())
    return array[:, None] if array.ndim == 3 else np.moveaxis(array, -1, 1)
