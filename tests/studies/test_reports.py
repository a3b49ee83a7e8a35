"""The committed reports are what the studies write: settings, words, claims and figures."""

from __future__ import annotations

import json
import re
import string
from dataclasses import asdict
from typing import Any

import pytest

from studies import STUDIES, folder_of, make_study
from studies.study import Claim, Findings, plain, report

MINUTES = {"sampling": 60, "training": 150}
"""The longest times of studies on a GPU that store their parts."""


def numbers_of(name: str) -> Any:
    return json.loads((folder_of(name) / "numbers.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", STUDIES)
def test_committed_results_are_of_the_full_form_and_hold(name: str) -> None:
    folder, numbers = folder_of(name), numbers_of(name)
    assert numbers["settings"] == plain(asdict(make_study(name)))
    assert numbers["seconds"] < MINUTES.get(name, 30) * 60
    assert all(claim["holds"] for claim in numbers["claims"])
    written = (folder / "report.md").read_text(encoding="utf-8")
    for claim in numbers["claims"]:
        assert f"- yes: {claim['words']} (" in written
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")
    index = (folder.parent / "README.md").read_text(encoding="utf-8")
    assert f"[{name}]({folder.name}/report.md)" in index


@pytest.mark.parametrize("name", STUDIES)
def test_the_report_has_the_words_of_the_study(name: str) -> None:
    """All of it but for what is filled into the text: numbers and tables."""
    folder, numbers, study = folder_of(name), numbers_of(name), make_study(name)
    claims = [Claim(one["words"], one["lower"], one["upper"]) for one in numbers["claims"]]
    figures = re.findall(r"!\[(\w+)\]\(\1\.png\)", written := (folder / "report.md").read_text())
    assert figures
    assert {path.stem for path in folder.glob("*.png")} == set(figures)
    words = (folder / "text.md").read_text(encoding="utf-8").strip()
    summary = numbers.get("summary", "")
    found = Findings({}, dict.fromkeys(figures), claims, "TEXT", summary)  # type: ignore[arg-type]
    page = re.escape(report(study, found, numbers["seconds"]))
    filled = "".join(
        re.escape(part) + ("" if blank is None else ".+?")
        for part, blank, _, _ in string.Formatter().parse(words)
    )
    assert re.fullmatch(page.replace("TEXT", filled, 1), written, re.DOTALL)
