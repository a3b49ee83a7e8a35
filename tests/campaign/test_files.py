"""Damaged files: damage is damage, a silent change is seen, and no reader makes one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from campaign import files
from campaign.damage import SHARES, WAYS
from campaign.files import Subject, fault_of
from oism.data.files import FileError


@pytest.mark.parametrize("way", WAYS)
def test_damage_follows_from_its_generator_and_changes_the_content(way: str) -> None:
    content, other = np.random.default_rng(0).bytes(900), b"another file"
    changed = 0
    for seed in range(30):
        one, two = (WAYS[way](content, other, np.random.default_rng(seed)) for _ in range(2))
        assert one == two
        changed += one != content
    assert changed >= 29
    assert sum(SHARES) == pytest.approx(1)


def test_short_files_can_be_damaged() -> None:
    for way in WAYS.values():
        for seed in range(20):
            way(b"ab", b"c", np.random.default_rng(seed))


def read_number(path: Path) -> float:
    if not path.read_text().strip():
        raise FileError(f"{path}: the file is empty")
    return float(path.read_text())


def test_silent_changes_and_unclear_errors_are_seen(tmp_path: Path) -> None:
    path = tmp_path / "number.txt"
    subject = Subject(path, read_number)
    for content, fault in (("1", None), ("2", "silent"), ("x", "unclear"), ("", None)):
        path.write_text(content)
        found = fault_of(subject, path, 1.0)
        assert (None if found is None else found[0]) == fault
    path.write_text("2")
    assert fault_of(Subject(path, read_number, other=lambda _: 2.0), path, 1.0) is None
    assert fault_of(Subject(path, read_number, other=lambda _: 3.0), path, 1.0) is not None
    assert fault_of(Subject(path, read_number, other=read_number), path, 1.0) is None


def test_contents_are_compared_to_the_bit() -> None:
    nan, x = float("nan"), np.arange(3.0)
    assert files.same({"a": [1.0, nan]}, {"a": [1.0, nan]})
    assert not files.same({"a": [1.0, nan]}, {"a": [1.0, 2.0]})
    assert not files.same({"a": 1.0}, {"b": 1.0})
    assert files.same(x, x.copy())
    assert not files.same(x, x + 1e-16 * np.array([0, 1, 10]))
    assert not files.same(1, 1.0)


def test_tables_and_images(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    known = {**files._tables(tmp_path), **files._images(tmp_path)}
    monkeypatch.setattr(files, "subjects", lambda: known)
    files.expected.cache_clear()
    for name, subject in known.items():
        if subject.other is not None:
            assert files.same(subject.other(subject.path), files.expected(name))
    records = [files.judged(seed) for seed in range(150)]
    files.expected.cache_clear()
    assert [one for one in records if one["failed"]] == []
    assert {one["damage"] for one in records} == set(WAYS)
    assert len({one["file"].split(",")[0] for one in records}) == len(known)
