"""Datasets of the Hugging Face Hub: the Parquet files of one split, downloaded or from the cache.

A dataset is named by its id, ``uoft-cs/cifar10``, where there is no such path, or by
``hf://uoft-cs/cifar10``. One request, of a few seconds at most, asks which files there are; the
client downloads those of the split, unless its cache has them. Where the Hub cannot be reached, or
must not be (``HF_HUB_OFFLINE=1``), what is in the cache counts.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from oism._core.progress import progress_bar
from oism.data.files import _image_folder as image_folder
from oism.data.files import _splits as splits
from oism.data.files._columns import FileError
from oism.data.files._formats import SUFFIXES
from oism.data.files._splits import Split

HUB_PREFIX = "hf://"
DATASETS = "datasets/"
NAME = re.compile(r"(?!.{97})[A-Za-z0-9]([\w.-]*\w)?/[A-Za-z0-9]([\w.-]*\w)?", re.ASCII)
FILES = (*SUFFIXES, *image_folder.IMAGE_SUFFIXES, ".gz", ".zip", ".tar", ".safetensors")
"""What a name that is meant as a path may end with; no dataset's does."""

PATIENCE = 5.0
"""How many seconds the Hub has to accept a connection, and to answer."""

LOCAL = "a local folder of images or a Parquet file does as well"


def is_dataset_id(path: str) -> bool:
    """Tell whether a dataset of the Hub is meant: nothing is asked there.

    >>> is_dataset_id("uoft-cs/cifar10"), is_dataset_id("hf://uoft-cs/cifar10"), is_dataset_id("images/nowhere.npy")
    (True, True, False)
    """
    if path.startswith(HUB_PREFIX):
        return True
    if path.lower().endswith(FILES) or os.path.exists(path):
        return False
    return _is_name(path)


def open_dataset(path: str, wish: Split, column: str | None) -> image_folder.Shards:
    """Return the images of a split of a dataset."""
    name = path.removeprefix(HUB_PREFIX).removeprefix(DATASETS if path.startswith(HUB_PREFIX) else "")
    if not _is_name(name):
        raise FileError(f"{path}: expected {HUB_PREFIX}OWNER/NAME, the id of a dataset")
    try:
        names = _listed(name)
    except Exception as error:  # of more than one library, and not of one kind without a network
        split, paths = _cached(path, name, wish, error)
    else:
        split, chosen = _chosen(names, wish, path)
        with _told(path), _bars():
            folder = _snapshot(name, chosen)
        paths = [os.path.join(folder, one) for one in chosen]
    return image_folder.open_shards(path, paths, column, split)


def _is_name(name: str) -> bool:
    return bool(NAME.fullmatch(name)) and "--" not in name and ".." not in name


def _listed(name: str) -> list[str]:
    """Return the files of a dataset, by one request that is not tried again."""
    import huggingface_hub  # noqa: PLC0415 (local images need none)

    info = huggingface_hub.HfApi().dataset_info(name, timeout=PATIENCE)
    return sorted(file.rfilename for file in info.siblings or ())


def _snapshot(name: str, names: list[str] | None) -> str:
    """Return the folder of a dataset in the cache: with these files, or as it lies there."""
    import huggingface_hub  # noqa: PLC0415

    return huggingface_hub.snapshot_download(
        name,
        repo_type="dataset",
        allow_patterns=[glob.escape(one) for one in names or ()],  # of the cache, none is demanded
        local_files_only=names is None,
    )


def _chosen(
    names: list[str], wish: Split, path: str, where: str = ""
) -> tuple[str | None, list[str]]:
    shards = [name for name in names if name.lower().endswith(image_folder.SHARDS)]
    if not shards:
        raise FileError(f"{path}: the dataset has no Parquet files{where}; {LOCAL}")
    split, chosen = splits.chosen(shards, wish, f"{path}{where}")
    folders = sorted({os.path.dirname(name) or "." for name in chosen})
    if len(folders) > 1:  # configurations of one dataset, which need not hold the same images
        raise FileError(
            f"{path}: the Parquet files lie in {len(folders)} folders, {', '.join(folders)}; "
            "download one of them, and give its path"
        )
    return split, chosen


def _cached(path: str, name: str, wish: Split, error: Exception) -> tuple[str | None, list[str]]:
    """Return the split as the cache holds it, or raise what kept the Hub from being asked."""
    try:
        folder = _snapshot(name, None)
    except Exception:  # nothing is there, or not all of it
        _refuse(path, error)
    found = [os.path.relpath(one, folder) for one in image_folder.listed(folder, image_folder.SHARDS)]
    if not isinstance(wish, str) and any(map(splits.split_of, found)):
        wish = wish[0]  # one that is not in the cache may yet be there, and no other will do
    split, chosen = _chosen(found, wish, path, " in the cache, and the Hub could not be asked")
    if not splits.are_whole(chosen):
        _refuse(path, error)
    return split, [os.path.join(folder, one) for one in chosen]


@contextmanager
def _told(path: str) -> Iterator[None]:
    """Say in one line why a download failed."""
    try:
        yield
    except Exception as error:
        _refuse(path, error, "the download failed")


def _refuse(
    path: str,
    error: Exception,
    why: str = "the Hub could not be reached, and its cache does not hold the dataset",
) -> NoReturn:
    """Raise for a dataset that cannot be had."""
    from huggingface_hub import errors  # noqa: PLC0415

    here = "" if path.startswith(HUB_PREFIX) else "no such file or folder here; "
    if isinstance(error, errors.GatedRepoError):
        why = "the dataset is gated: accept its conditions on its page and `hf auth login`"
    elif isinstance(error, errors.RepositoryNotFoundError):
        why = "the Hub has no dataset of this id, or a private one, for which `hf auth login`"
    else:
        told = " ".join(str(error).split()) or type(error).__name__
        why = f"{why}; {LOCAL} ({told})"
    raise FileError(f"{path}: {here}{why}") from error


@contextmanager
def _bars() -> Iterator[None]:
    """Let the client show bars only where this library would."""
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
