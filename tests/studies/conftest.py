"""Studies in their quick form: each runs once, for all tests and all workers of pytest-xdist."""

from __future__ import annotations

import fcntl
import json
import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from studies import STUDIES, make_study
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
    """Run a study when it is first used; other workers wait and read its results."""
    base = tmp_path_factory.getbasetemp()
    place = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "studies"
    place.mkdir(exist_ok=True)

    @cache
    def run(name: str) -> Run:
        one, stored = make_study(name, quick=True), place / f"{name}.pickle"
        with (place / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not stored.exists():
                stored.write_bytes(pickle.dumps(run_study(one, place / name)))
        results: Results = pickle.loads(stored.read_bytes())
        return Run(one, results)

    return run


@pytest.fixture(scope="session", params=STUDIES)
def each_run(request: pytest.FixtureRequest, runs: Runs) -> Run:
    """The run of every study; pytest groups tests by the parameter."""
    return runs(request.param)
