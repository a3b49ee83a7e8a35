"""Datasets of the Hugging Face Hub: the Parquet files of one split, downloaded or from the cache.

A dataset is given by its id, ``uoft-cs/cifar10``, where no such path exists, or by
``hf://uoft-cs/cifar10``. One request, with a timeout of a few seconds, lists the files; the client
downloads those of the split, unless its cache has them. Where the Hub cannot be reached, or must
not be (``HF_HUB_OFFLINE=1``), the files in the cache are used.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from oism._core.extras import require
from oism._core.progress import progress_bar
from oism.data.files import _image_folder as image_folder
from oism.data.files import _splits as splits
from oism.data.files._columns import FileError
from oism.data.files._formats import SUFFIXES
from oism.data.files._splits import Split

HUB_PREFIX = "hf://"
"""What the path of a dataset of the Hub may start with."""

DATASETS = "datasets/"
NAME = re.compile(r"(?!.{97})[A-Za-z0-9]([\w.-]*\w)?/[A-Za-z0-9]([\w.-]*\w)?", re.ASCII)
FILES = (*SUFFIXES, *image_folder.IMAGE_SUFFIXES, ".gz", ".zip", ".tar", ".safetensors")
"""Suffixes of paths to files; the id of a dataset has none of them."""

PATIENCE = 5.0
"""The number of seconds that the Hub has to accept a connection, and to answer."""

LOCAL = "a local folder of images or a Parquet file does as well"


def is_dataset_id(path: str) -> bool:
    """Return whether a path is the id of a dataset of the Hub; the Hub is not asked.

    >>> is_dataset_id("uoft-cs/cifar10"), is_dataset_id("hf://uoft-cs/cifar10")
    (True, True)
    >>> is_dataset_id("images/nowhere.npy")
    False
    """
    if path.startswith(HUB_PREFIX):
        return True
    if path.lower().endswith(FILES) or os.path.exists(path):
        return False
    return _is_name(path)


def open_dataset(path: str, wanted: Split, column: str | None) -> image_folder.Shards:
    """Return the images of a split of a dataset."""
    require("huggingface_hub", "images", purpose="a dataset of the Hub", package="huggingface-hub")
    name = path.removeprefix(HUB_PREFIX).removeprefix(
        DATASETS if path.startswith(HUB_PREFIX) else ""
    )
    if not _is_name(name):
        raise FileError(f"{path}: expected {HUB_PREFIX}OWNER/NAME, the id of a dataset")
    try:
        names = _listed(name)
    except Exception as error:  # of several libraries, and of several kinds without a network
        split, paths = _cached(path, name, wanted, error)
    else:
        split, chosen = _chosen(names, wanted, path)
        with _failure_explained(path), _bars():
            folder = _snapshot(name, chosen)
        paths = [os.path.join(folder, one) for one in chosen]
    return image_folder.open_shards(path, paths, column, split)


def _is_name(name: str) -> bool:
    return bool(NAME.fullmatch(name)) and "--" not in name and ".." not in name


def _listed(name: str) -> list[str]:
    """Return the files of a dataset, by one request that is not repeated."""
    import huggingface_hub  # noqa: PLC0415 (local images need none)

    info = huggingface_hub.HfApi().dataset_info(name, timeout=PATIENCE)
    return sorted(file.rfilename for file in info.siblings or ())


def _snapshot(name: str, names: list[str] | None) -> str:
    """Return the folder of a dataset in the cache: with these files, or as it lies there."""
    import huggingface_hub  # noqa: PLC0415

    return huggingface_hub.snapshot_download(
        name,
        repo_type="dataset",
        allow_patterns=[glob.escape(one) for one in names or ()],  # of the cache, all that it has
        local_files_only=names is None,
    )


def _chosen(
    names: list[str], wanted: Split, path: str, where: str = ""
) -> tuple[str | None, list[str]]:
    shards = [name for name in names if name.lower().endswith(image_folder.SHARDS)]
    if not shards:
        raise FileError(f"{path}: the dataset has no Parquet files{where}; {LOCAL}")
    split, chosen = splits.chosen(shards, wanted, f"{path}{where}")
    folders = sorted({os.path.dirname(name) or "." for name in chosen})
    if len(folders) > 1:  # configurations of one dataset, which need not hold the same images
        raise FileError(
            f"{path}: the Parquet files lie in {len(folders)} folders, {', '.join(folders)}; "
            "download one of them, and give its path"
        )
    return split, chosen


def _cached(path: str, name: str, wanted: Split, error: Exception) -> tuple[str | None, list[str]]:
    """Return the split and its files in the cache, or raise the error of the Hub."""
    try:
        folder = _snapshot(name, None)
    except Exception:  # nothing is there, or not all of it
        _refuse(path, error)
    found = [
        os.path.relpath(one, folder) for one in image_folder.listed(folder, image_folder.SHARDS)
    ]
    if not isinstance(wanted, str) and any(map(splits.split_of, found)):
        wanted = wanted[0]  # the Hub may have it, though the cache does not: take no other
    split, chosen = _chosen(found, wanted, path, " in the cache, and the Hub could not be asked")
    if not splits.are_whole(chosen):
        _refuse(path, error)
    return split, [os.path.join(folder, one) for one in chosen]


@contextmanager
def _failure_explained(path: str) -> Iterator[None]:
    """Turn the error of a download into a `FileError` of one line."""
    try:
        yield
    except Exception as error:
        _refuse(path, error, "the download failed")


def _refuse(
    path: str,
    error: Exception,
    why: str = "the Hub could not be reached, and its cache does not hold the dataset",
) -> NoReturn:
    """Raise for a dataset that cannot be loaded."""
    from huggingface_hub import errors  # noqa: PLC0415

    here = "" if path.startswith(HUB_PREFIX) else "no such file or folder here; "
    if isinstance(error, errors.GatedRepoError):
        why = "the dataset is gated: accept its conditions on its page and `hf auth login`"
    elif isinstance(error, errors.RepositoryNotFoundError):
        why = "the Hub has no dataset of this id, or a private one, for which `hf auth login`"
    else:
        reason = " ".join(str(error).split()) or type(error).__name__
        why = f"{why}; {LOCAL} ({reason})"
    raise FileError(f"{path}: {here}{why}") from error


@contextmanager
def _bars() -> Iterator[None]:
    """Show the bars of the client only where this library shows bars."""
    from huggingface_hub.utils import (  # type: ignore[attr-defined] # noqa: PLC0415
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    with progress_bar(None) as bar:
        silent = not bar.shown and not are_progress_bars_disabled()
    if silent:
        disable_progress_bars()
    try:
        yield
    finally:
        if silent:
            enable_progress_bars()
