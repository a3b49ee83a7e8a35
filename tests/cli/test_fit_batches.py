"""``oism fit`` on batches: the model of the whole table, several processes, one-line errors."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from oism import load

Run = Callable[..., Any]
SMALL = "--max-eigenvalue 25 --flow-steps 16"


def densities(path: Path | str, x: Any) -> Any:
    model: Any = load(path)
    return model.model_.log_density(x).numpy()


@pytest.mark.parametrize("name", ["moons.csv", "moons.parquet", "moons.npz"])
def test_batches_have_the_model_of_the_table(oism: Run, tmp_path: Path, name: str) -> None:
    assert oism("data moons -n 900 -o moons.parquet").code == 0
    assert oism("data moons -n 900 -o moons.npz").code == 0
    more = f"{SMALL} --ridge 1e-3 --json"
    whole = oism(f"fit {name} -o {tmp_path}/a {more} --batch 0")
    parts = oism(f"fit {name} -o {tmp_path}/b {more} --batch 70")
    assert (whole.code, parts.code) == (0, 0), parts.err
    found, facts = json.loads(whole.text), json.loads(parts.text)
    assert (found["passes"], facts["passes"]) == (1, 2)
    assert facts["rows"] == found["rows"]
    x = torch.randn(50, 2, dtype=torch.float64)
    np.testing.assert_allclose(
        densities(tmp_path / "b", x), densities(tmp_path / "a", x), atol=1e-4
    )


def test_columns_weights_and_gaps_in_batches(oism: Run, tmp_path: Path) -> None:
    ended = oism(
        f"fit gaps.csv --columns psi phi --weights weight --missing skip --batch 50 {SMALL} "
        f"--bounds phi=-100: psi=:400 --json -o {tmp_path}/m"
    )
    assert ended.code == 0, ended.err
    facts = json.loads(ended.text)
    assert (facts["rows"], facts["skipped"]) == (120, 1)
    model: Any = load(tmp_path / "m")
    assert list(model.feature_names_in_) == ["psi", "phi"]
    assert model.bounds == {"psi": (None, 400.0), "phi": (-100.0, None)}


def test_passes_are_reported(oism: Run, tmp_path: Path) -> None:
    ended = oism(f"fit moons.csv --batch 50 {SMALL} -o {tmp_path}/m")
    assert ended.text.startswith("150 rows fitted in 2 passes in ")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("fit angles.csv --batch 50", 1, "line 2, column 'id': 'r000' is not a number; --columns"),
        ("fit angles.csv --batch 50 --columns id", 1, "--batch 0 reads texts as categories"),
        ("fit gaps.csv --batch 2 --columns phi", 1, "line 4, column 'phi': the value is missing"),
        ("fit header.csv --batch 9", 1, "header.csv: it has no rows"),
        ("fit empty.csv --batch 9", 1, "empty.csv: the file is empty"),
        ("fit hollow.csv --batch 9 --missing skip", 1, "hollow.csv: no row is complete in x, y"),
        ("fit moons.csv --batch -1", 2, "--batch: expected at least 0, got -1"),
        ("fit moons.csv --batch 9 --discrete z", 1, "there is no column 'z', only 'x', 'y'"),
        ("fit moons.csv --bounds x=:", 2, "--bounds: expected low:high, increasing, in 'x=:'"),
        ("fit moons.csv --batch 9 --bounds x=0:", 1, "bounds of column 'x' are (0, inf), but"),
    ],
)
def test_mistakes(oism: Run, tmp_path: Path, words: str, code: int, message: str) -> None:
    for name, text in {"header": "x,y\n", "empty": "", "hollow": "x,y\n1,\n,2\n"}.items():
        Path(f"{name}.csv").write_text(text)
    ended = oism(f"{words} -o {tmp_path}/m")
    assert ended.code == code
    assert message in ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.slow
def test_several_processes_write_one_model(folder: Path, tmp_path: Path) -> None:
    words = ["-m", "oism", "fit", "moons.csv", "--batch", "20", *SMALL.split(), "-o"]
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    for name, more in {"one": [], "two": launch}.items():
        ended = subprocess.run(
            [sys.executable, *more, *words, str(tmp_path / name)],
            cwd=folder, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.count("150 rows fitted in 2 passes") == 1
    x = torch.randn(1000, 2, dtype=torch.float64)
    np.testing.assert_allclose(
        densities(tmp_path / "two", x), densities(tmp_path / "one", x), atol=1e-12
    )


def test_several_processes_cannot_share_a_pipe(oism: Run, monkeypatch: Any) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    ended = oism("fit - -o m")
    assert (ended.code, "cannot share standard input" in ended.err) == (2, True)
