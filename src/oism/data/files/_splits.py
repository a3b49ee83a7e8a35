"""Splits of a dataset, from the names of its Parquet files, or of its folders of images.

Shards on the Hub are named ``train-00000-of-00005.parquet``, with any name of a split. In other
names a split is a word, ``train.parquet``, ``cifar_test_1.parquet``, or a folder,
``validation/0.parquet``; the words are those of the `datasets` library. A folder of images has
splits if the folders in it are named by them, ``test/dog/1.png``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import PurePath

from oism.data.files._columns import FileError

Split = str | tuple[str, ...]
"""The name of a split, or several names, of which the first that exists is taken."""

TRAINING = ("train",)
"""The split that models are fitted to."""

TESTING = ("test", "validation", "train")
"""The splits that models are measured on, the first that exists."""

SYNONYMS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
    **dict.fromkeys(("validation", "valid", "val", "dev"), "validation"),
}
SHARD = re.compile(r"(?P<split>\w[\w.]*)-\d{5}-of-(?P<count>\d{5})(-[0-9a-f]+)?")
WORD = re.compile(rf"(?<![a-z])({'|'.join(sorted(SYNONYMS, key=len, reverse=True))})(?![a-z])")


def split_of(name: str) -> str | None:
    """Return the split of a file from its path in the dataset, or None.

    >>> split_of("data/extra-00000-of-00002.parquet"), split_of("val/7.pq"), split_of("7.pq")
    ('extra', 'validation', None)
    """
    path = PurePath(name)
    shard = SHARD.fullmatch(path.stem)
    if shard:
        return SYNONYMS.get(shard["split"], shard["split"])
    word = WORD.search(path.stem.lower())
    if word:
        return SYNONYMS[word[0]]
    folders = [part.lower() for part in reversed(path.parts[:-1])]
    return next((SYNONYMS[part] for part in folders if part in SYNONYMS), None)


def split_of_folder(name: str) -> str | None:
    """Return the split that a folder is named by, or None.

    >>> split_of_folder("Val"), split_of_folder("train-cars")
    ('validation', None)
    """
    return SYNONYMS.get(name.lower())


def chosen(
    names: Sequence[str],
    wanted: Split,
    source: str,
    split_of: Callable[[str], str | None] = split_of,
    kind: str = "Parquet file",
) -> tuple[str | None, list[str]]:
    """Return the chosen split and its files; None and all files where none is named by a split.

    ``split_of`` returns the split of a name, and ``kind`` is what messages call the files.
    """
    found: dict[str, list[str]] = {}
    others: list[str] = []
    for name in names:
        split = split_of(name)
        (others if split is None else found.setdefault(split, [])).append(name)
    known = ", ".join(repr(split) for split in sorted(found))
    if isinstance(wanted, str):
        split = SYNONYMS.get(wanted, wanted)
        if split not in found:
            held = f"only {known}" if found else f"and no {kind} is named by one"
            raise FileError(f"{source}: there is no split {wanted!r}, {held}")
        return split, found[split]
    if not found:
        return None, others
    if others:
        raise FileError(
            f"{source}: some {kind}s are named by a split, {known}, and {others[0]} is not: "
            "--split chooses"
        )
    split = next(split for split in (*wanted, *found) if split in found)
    if split not in wanted and len(found) > 1:
        raise FileError(f"{source}: there is more than one split, choose with --split: {known}")
    return split, found[split]


def are_whole(names: Sequence[str]) -> bool:
    """Return whether there are as many shards as their names state."""
    shards = [SHARD.fullmatch(PurePath(name).stem) for name in names]
    return all(shard is None or int(shard["count"]) == len(names) for shard in shards)
