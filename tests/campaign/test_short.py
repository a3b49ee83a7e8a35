"""The short form of the campaign: some cases of every kind, without a failure."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from campaign import report, runner

COUNTS = {"files": 60, "kills": 2, "interruptions": 1, "tables": 5}


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="there are no signals")
@pytest.mark.parametrize("kind", COUNTS)
def test_short_form(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    runner.run([kind], tmp_path, seconds=600.0, processes=1, count=COUNTS[kind])
    records = report.read(tmp_path)
    assert len(records) == COUNTS[kind]
    assert [one for one in records if one["failed"]] == []
