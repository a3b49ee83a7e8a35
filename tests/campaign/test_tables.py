"""The campaign: cases follow from seeds, records are kept, and a wrong model is a failure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from campaign import report, tables
from oism import OISM


def test_a_case_follows_from_its_seed() -> None:
    for seed in range(30):
        one, other = tables.drawn(seed), tables.drawn(seed)
        pd.testing.assert_frame_equal(pd.DataFrame(one.rows), pd.DataFrame(other.rows))
        assert one.settings == other.settings
        assert len(one.kinds) == pd.DataFrame(one.rows).shape[1]
    kinds = {kind for seed in range(100) for kind in tables.drawn(seed).kinds}
    assert kinds == set(tables.KINDS)


def test_a_mass_that_is_not_one_is_seen() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 2)) * [1e6, 1e-3] + [0.0, 5.0]
    case = tables.Case(x, x, {}, None, ("normal", "normal"), outlier=False)

    class Gaussian(OISM):
        """The exact density, times a number."""

        factor = 1.0

        def score_samples(self, X: Any) -> Any:  # noqa: N803
            z = (np.asarray(X) - [0.0, 5.0]) / [1e6, 1e-3]
            logs = -0.5 * (z**2).sum(axis=1) - np.log(2 * np.pi) - np.log([1e6, 1e-3]).sum()
            return logs + np.log(self.factor)

    for factor in (1.0, 1.3):
        model = Gaussian()
        model.factor = factor
        mass, error = tables.mass_of(model, case, x, rng)
        assert mass == pytest.approx(factor, abs=4 * error)
        assert 0 < error < 0.05


def test_samples_out_of_range_are_seen() -> None:
    x = np.random.default_rng(0).normal(size=(50, 1))
    case = tables.Case(x, x, {}, None, ("normal",), outlier=False)
    rows = pd.DataFrame(x)
    assert tables._in_range(case, rows, pd.DataFrame(x))
    for wrong in (1e3 + x, 100 * x, np.where(x > 1, np.nan, x)):
        assert not tables._in_range(case, rows, pd.DataFrame(wrong))


def test_errors_are_records(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(OISM, "fit", fail)
    record = tables.judged(3)
    assert record["failed"] == ["error"]
    assert record["error"] == "RuntimeError: no"
    json.dumps(record)


def test_the_page_names_seeds(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    records = [
        {"kind": "tables", "seed": 1, "failed": [], "cpu_seconds": 2.0},
        {"kind": "tables", "seed": 7, "failed": ["mass", "file"], "cpu_seconds": 9.0},
    ]
    path.write_text("".join(json.dumps(one) + "\n" for one in records) + '{"kind": "tab')
    assert report.read(path) == records
    page = report.page(report.read(path))
    assert "| tables | 2 | 1 | file 1, mass 1 | 9.0, 9.0 |" in page
    assert "- tables, mass: seeds 7" in page
