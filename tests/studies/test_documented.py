"""The reports in docs/studies are those of the studies as they are."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from oism._core.plain import plain
from oism.studies import STUDIES, by_name

DOCS = Path(__file__).parents[2] / "docs" / "studies"


@pytest.mark.parametrize("name", STUDIES)
def test_what_is_documented_was_run_in_full_and_holds(name: str) -> None:
    numbers = json.loads((DOCS / name / "numbers.json").read_text(encoding="utf-8"))
    assert numbers["settings"] == plain(asdict(by_name(name)))
    assert numbers["seconds"] < 30 * 60
    assert all(claim["holds"] for claim in numbers["claims"])
    report = (DOCS / name / "report.md").read_text(encoding="utf-8")
    for claim in numbers["claims"]:
        assert f"- yes: {claim['words']} (" in report
    assert (DOCS / name / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert f"[{name}]({name}/report.md)" in (DOCS / "README.md").read_text(encoding="utf-8")
