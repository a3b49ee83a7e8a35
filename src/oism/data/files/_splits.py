"""Splits of a dataset, as the names of its Parquet files tell them.

The Hub's shards are called ``train-00000-of-00005.parquet``, whatever the split is called. Other
names tell a split by a word of their own, ``train.parquet``, ``cifar_test_1.parquet``, or by a
folder, ``validation/0.parquet``; the words are those that the `datasets` library knows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

from oism.data.files._columns import FileError

Split = str | tuple[str, ...]
"""The split that is asked for, or several, of which the first that there is will do."""

TRAINING = ("train",)
TESTING = ("test", "validation", "train")

SYNONYMS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
    **dict.fromkeys(("validation", "valid", "val", "dev"), "validation"),
}
SHARD = re.compile(r"(?P<split>\w[\w.]*)-\d{5}-of-(?P<count>\d{5})(-[0-9a-f]+)?")
WORD = re.compile(rf"(?<![a-z])({'|'.join(sorted(SYNONYMS, key=len, reverse=True))})(?![a-z])")


def split_of(name: str) -> str | None:
    """Return the split that a file's path in its dataset tells, if any.

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


def chosen(names: Sequence[str], wish: Split, source: str) -> tuple[str | None, list[str]]:
    """Return the split that is meant and the files of it; all files where none tells a split."""
    found: dict[str, list[str]] = {}
    others: list[str] = []
    for name in names:
        split = split_of(name)
        (others if split is None else found.setdefault(split, [])).append(name)
    known = ", ".join(repr(split) for split in sorted(found))
    if isinstance(wish, str):
        split = SYNONYMS.get(wish, wish)
        if split not in found:
            held = f"only {known}" if found else "and no Parquet file is named by one"
            raise FileError(f"{source}: there is no split {wish!r}, {held}")
        return split, found[split]
    if not found:
        return None, others
    if others:
        raise FileError(
            f"{source}: some Parquet files are named by a split, {known}, and {others[0]} is not: "
            "--split chooses"
        )
    split = next(split for split in (*wish, *found) if split in found)
    if split not in wish and len(found) > 1:
        raise FileError(f"{source}: there is more than one split, choose with --split: {known}")
    return split, found[split]


def are_whole(names: Sequence[str]) -> bool:
    """Tell whether shards are as many as their names say."""
    shards = [SHARD.fullmatch(PurePath(name).stem) for name in names]
    return all(shard is None or int(shard["count"]) == len(names) for shard in shards)
