"""Studies in their quick form: each runs once, for all its tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from studies import make_study
from studies.study import Results, Study, run_study


@dataclass(frozen=True)
class Run:
    """A study and its results."""

    study: Study
    results: Results

    @property
    def numbers(self) -> Any:
        content = (self.results.folder / "numbers.json").read_text(encoding="utf-8")
        return json.loads(content, parse_constant=pytest.fail)  # JSON has no NaN and no Infinity


Runs = Callable[[str], Run]


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Run a study when it is first used."""

    @cache
    def run(name: str) -> Run:
        one = make_study(name, quick=True)
        return Run(one, run_study(one, tmp_path_factory.mktemp(name)))

    return run
