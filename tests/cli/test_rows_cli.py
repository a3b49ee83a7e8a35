"""``oism evaluate`` on rows, ``oism outliers``, and corner plots, run in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from oism import OISM, load
from oism.cli.rows import read_rows
from oism.data import files
from oism.tables import Column, Columns, OutlierDetector

Run = Callable[..., Any]


def rows_of(path: Path, *columns: str) -> np.ndarray:
    return files.read(str(path)).numbers(columns)


@pytest.fixture
def densities(folder: Path) -> np.ndarray:
    table = files.read(str(folder / "moons.csv")).table
    found: np.ndarray = load(folder / "moons.safetensors").score_samples(table)
    return found


def test_the_likelihood_of_rows(oism: Run, densities: np.ndarray) -> None:
    ended = oism("evaluate moons.safetensors moons.csv")
    assert ended.code == 0, ended.err
    error = densities.std(ddof=1) / np.sqrt(150)
    assert ended.text.startswith(f"log-likelihood {densities.mean():.4f} ± {error:.4f} nats per r")
    assert "--train FILE compares it" in ended.text


def test_baselines_beside_a_model(oism: Run, densities: np.ndarray, folder: Path) -> None:
    words = "evaluate moons.safetensors moons.csv --train moons.csv --baselines mixture kde"
    found = json.loads(oism(f"{words} --json").text)
    model, mixture, kde = found["methods"]
    assert (found["rows"], found["file"]) == (150, "moons.safetensors")
    assert [one["name"] for one in (model, mixture, kde)] == ["model", "mixture", "kde"]
    assert model["mean"] == pytest.approx(densities.mean())
    assert mixture["difference"] == pytest.approx(model["mean"] - mixture["mean"])
    table = files.read(str(folder / "moons.csv")).table
    alone = load(folder / "moons.safetensors").compare(table, table, baselines=["kde"])
    assert kde["difference_error"] == pytest.approx(alone.difference("kde").error)
    text = oism(words).text.splitlines()
    assert text[0] == "log-likelihood in nats per row, 150 test rows"
    assert [line.split()[0] for line in text[2:]] == ["model", "mixture", "kde"]


def test_rows_with_gaps_are_skipped_where_that_is_asked_for(oism: Run) -> None:
    ended = oism("evaluate angles.safetensors gaps.csv --missing skip --train gaps.csv "
                 "--baselines kde --json")  # fmt: skip
    assert ended.code == 0, ended.err
    assert (json.loads(ended.text)["rows"], json.loads(ended.text)["skipped"]) == (120, 1)
    text = oism("evaluate angles.safetensors gaps.csv --missing skip").text
    assert "120 rows, 1 left out" in text


def test_rows_below_a_threshold_of_samples(oism: Run, densities: np.ndarray, folder: Path) -> None:
    ended = oism("outliers moons.safetensors moons.csv --share 0.1 --seed 3")
    assert ended.code == 0, ended.err
    header, *lines = ended.text.splitlines()
    assert header == "x,y,log_density,outlier"
    model = load(folder / "moons.safetensors")
    offset = OutlierDetector.from_fitted(model, contamination=0.1, random_state=3).offset_
    flags = [int(line.rpartition(",")[2]) for line in lines]
    np.testing.assert_array_equal(flags, densities < offset)
    assert f"{sum(flags)} of 150 rows" in ended.err
    assert f"below {offset:.4g}, the threshold for 0.1 of new rows by samples" in ended.err


def test_rows_below_a_threshold_of_other_rows(oism: Run, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "o.parquet"
    words = f"outliers moons.safetensors moons.csv --share 0.1 --only -o {out} --json"
    ended = oism(f"{words} --held-out moons.csv")
    facts = json.loads(ended.text)
    log = load(folder / "moons.safetensors").score_samples(
        files.read(str(folder / "moons.csv")).table
    )
    assert facts["threshold"] == pytest.approx(np.quantile(log, 0.1, method="weibull"))
    found = rows_of(out, "log_density", "outlier")
    assert len(found) == facts["flagged"] == (log < facts["threshold"]).sum()
    assert (np.diff(found[:, 0]) >= 0).all(), "the lowest first"
    assert (found[:, 1] == 1).all()
    facts = json.loads(oism(f"{words} --train moons.csv").text)
    assert facts["threshold_source"] == "held-out folds of moons.csv"
    assert facts["threshold"] < np.quantile(log, 0.1), "rows of the fit are denser"


def test_other_columns_are_kept_and_gaps_left_out(oism: Run) -> None:
    ended = oism("outliers angles.safetensors gaps.csv --missing skip")
    header, *lines = ended.text.splitlines()
    assert header == "id,phi,weight,psi,log_density,outlier"
    assert len(lines) == 120
    assert not any(line.startswith("gap") for line in lines)


def test_levels_are_read_as_texts(tmp_path: Path) -> None:
    """A stand-in for a model with a categorical column: numbers beside texts, by name."""

    class Levels(OISM):
        n_features_in_ = 2
        feature_names_in_ = np.array(["size", "kind"], dtype=object)
        columns_ = Columns((Column("size"), Column("kind", levels=("1", "b"), categorical=True)))

    file = tmp_path / "a.csv"
    file.write_text("kind,size\nb,1.5\n1,2\n,3\nb,4\n")
    with pytest.raises(files.FileError, match="line 4, column 'kind': the value is missing"):
        read_rows(str(file), Levels())
    found = read_rows(str(file), Levels(), missing="skip")
    assert found.values.equals(pa.table({"size": [1.5, 2.0, 4.0], "kind": ["b", "1", "b"]}))
    assert found.skipped == 1


def test_a_corner_plot_of_three_columns(oism: Run, tmp_path: Path) -> None:
    model, out = tmp_path / "m", tmp_path / "p.png"
    rows = np.random.default_rng(0).normal(size=(80, 3))
    np.save(tmp_path / "a.npy", rows)
    fit = f"fit {tmp_path}/a.npy -o {model} --max-eigenvalue 4 --flow-steps 4 --quiet"
    assert oism(fit).code == 0
    for columns in ("", "--columns 2 0"):
        ended = oism(f"plot {model} --data {tmp_path}/a.npy {columns} --dpi 20 -o {out}")
        assert ended.code == 0, ended.err
        assert out.read_bytes().startswith(b"\x89PNG")
    ended = oism(f"plot {model} --columns 1 1 -o {out}")
    assert (ended.code, ended.err) == (
        2, "oism: error: --columns: a column is chosen twice in 1 1\n"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("evaluate moons.safetensors moons.csv --baselines kde", 2, "--baselines: needs --train"),
        ("evaluate moons.safetensors moons.csv --seconds 9", 2, "--seconds: needs --train"),
        ("evaluate moons.safetensors moons.csv --levels 0.1", 2, "--levels: an option for images"),
        ("evaluate moons.safetensors moons.csv -n 9", 2, "--limit: an option for images, not for"),
        ("evaluate moons.safetensors - --train -", 2, "the data and the training rows cannot both"),
        (
            "evaluate moons.safetensors moons.csv --train moons.csv --seconds 0",
            2,
            "--seconds: must",
        ),
        ("evaluate moons.safetensors angles.csv", 1, "angles.csv: there is no column 'x'"),
        ("evaluate moons.safetensors moons.csv --train angles.csv", 1, "angles.csv: there is no"),
        ("evaluate angles.safetensors gaps.csv", 1, "--missing skip leaves such rows out"),
        ("evaluate moons.safetensors nowhere", 1, "nowhere"),
        ("outliers moons.safetensors moons.csv --share 0.7", 2, "--share: expected more than 0"),
        ("outliers moons.safetensors moons.csv --share 0", 2, "--share: expected more than 0"),
        ("outliers moons.safetensors moons.csv --json", 2, "--json and the output would both"),
        ("outliers - -", 2, "cannot both be standard input"),
        (
            "outliers moons.safetensors moons.csv --train moons.csv --held-out moons.csv",
            2,
            "--held-out: sets the threshold alone",
        ),
        ("outliers moons.safetensors moons.csv -o x.npy", 2, "-o: an NPY file has no names"),
        ("outliers moons.safetensors moons.csv -o nowhere/x.csv", 1, "nowhere: no such folder"),
        ("outliers moons.safetensors angles.csv", 1, "angles.csv: there is no column 'x'"),
    ],
)
def test_mistakes(words: str, code: int, message: str, oism: Run) -> None:
    ended = oism(words)
    assert ended.code == code
    assert message in ended.err
    assert ended.err.count("\n") == 1
    assert ended.out == b""


def test_new_columns_that_are_there_already(oism: Run, tmp_path: Path) -> None:
    out = tmp_path / "o.csv"
    assert oism(f"outliers moons.safetensors moons.csv -o {out} --quiet").code == 0
    ended = oism(f"outliers moons.safetensors {out}")
    assert ended.code == 1
    assert "there is a column 'log_density' already: rename it" in ended.err
