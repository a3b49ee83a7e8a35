"""Studies in their quick form: each runs once, for all tests of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from oism.studies import by_name
from oism.studies.study import Study, Written, reproduce


@dataclass(frozen=True)
class Run:
    """What came of a study."""

    study: Study
    written: Written

    @property
    def numbers(self) -> Any:
        content = (self.written.folder / "numbers.json").read_text(encoding="utf-8")
        return json.loads(content, parse_constant=pytest.fail)  # NaN and Infinity are no JSON


Runs = Callable[[str], Run]


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Run a study, the first time it is asked for."""

    @cache
    def run(name: str) -> Run:
        one = by_name(name, quick=True)
        return Run(one, reproduce(one, tmp_path_factory.mktemp(name)))

    return run
