"""The header of a file and the digest of its content, as `oism.storage` defines them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from oism.storage._entry import WORDS, Entry, StorageError, shown

FORMAT, VERSION = "oism", 3


def canonical(value: object) -> str:
    """Return the JSON text of a value with sorted keys and no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest_of(described: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 that the docstring of `oism.storage` defines."""
    sha = hashlib.sha256(canonical(described).encode())
    for name in sorted(tensors):
        part = tensors[name]
        dtype = str(part.dtype).removeprefix("torch.")
        sha.update(canonical([name, dtype, list(part.shape)]).encode())
        sha.update(part.reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()


def parse(text: str | None) -> tuple[dict[str, Any], str]:
    """Return {"class", "config"} and the digest from the entry ``oism`` of a header."""
    if text is None:
        raise StorageError("is not a file of oism: its header has no entry 'oism'")
    try:
        about = json.loads(text)
        canonical(about)  # what can be read need not be writable: 1e999, arrays that are too deep
    except (ValueError, RecursionError) as error:
        raise StorageError("is damaged: its header is not JSON that oism writes") from error
    if not isinstance(about, dict):
        raise StorageError(f"is damaged: its header must hold an object, got {shown(about)}")
    form, version = about.get("format"), about.get("version")
    if form != FORMAT or version != VERSION:
        newer = form == FORMAT and isinstance(version, int) and version > VERSION
        raise StorageError(
            f"has format {shown(form)}, version {shown(version)}; this oism reads format "
            f"{FORMAT!r}, version {VERSION}: {'upgrade oism' if newer else 'fit again'}"
        )
    kinds = {"format": str, "version": int, "class": str, "config": dict, "sha256": str}
    for name, kind in kinds.items():
        if not isinstance(about.get(name), kind):
            Entry(name).wrong(WORDS[kind], about.get(name))
    for name in set(about) - set(kinds):
        Entry(name).fail("is unknown")
    return {name: about[name] for name in ("class", "config")}, about["sha256"]
