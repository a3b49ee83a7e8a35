"""The commands, run in this process."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from oism import OISM, VarianceExploding, load
from oism.cli import options
from oism.cli.options import ToyName
from oism.data import files
from oism.data.toys import PLANE

Run = Callable[..., Any]
SMALL = "--max-eigenvalue 25 --flow-steps 16"


def rows_of(path: Path, *columns: str) -> np.ndarray:
    return files.read(str(path)).numbers(columns)


def strict(text: str) -> Any:
    """Return the value of a JSON text without NaN."""

    def refuse(word: str) -> None:
        raise AssertionError(word)

    return json.loads(text, parse_constant=refuse)


def test_fit_is_that_of_the_estimator(oism: Run, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "m"
    ended = oism(
        f"fit angles.csv --columns psi 1 --periodic phi=360 --bounds psi=0:300 --weights weight "
        f"--clock ve:0.05:4 --cv 3 --shrinkage modulation --seed 7 -o {out} {SMALL}"
    )
    assert ended.code == 0
    x = rows_of(folder / "angles.csv", "psi", "phi", "weight")
    expected = OISM(
        periodic={1: 360.0}, bounds={0: (0.0, 300.0)}, clock=VarianceExploding(0.05, 4.0), cv=3,
        shrinkage="modulation", max_eigenvalue=25, flow_steps=16,
    ).fit(x[:, :2], sample_weight=x[:, 2])  # fmt: skip
    found = load(out)
    assert list(found.feature_names_in_) == ["psi", "phi"]
    assert found.random_state == 7
    frame = pa.table({"psi": x[:, 0].copy(), "phi": x[:, 1].copy()})
    np.testing.assert_array_equal(found.score_samples(frame), expected.score_samples(x[:, :2]))
    assert "120 rows fitted in" in ended.text
    assert found.summary() in ended.text
    assert ended.text.endswith(f"model written to {out}\n")
    assert ended.err == ""


def test_every_parameter_of_the_estimator_is_an_option(oism: Run, tmp_path: Path) -> None:
    out = tmp_path / "m"
    ended = oism(
        f"fit moons.csv --process ou --order 3 --frame identity --ridge 0.5 --device cpu "
        f"--clock vp:0.2:9 --flow-steps 8 -o {out}"
    )
    assert ended.code == 0, ended.err
    found = load(out).get_params()
    assert (found["process"], found["order"], found["frame"]) == ("ou", 3, "identity")
    assert (found["ridge"], found["device"], found["flow_steps"]) == (0.5, "cpu", 8)
    assert (found["clock"].beta_0, found["clock"].beta_1) == (0.2, 9.0)
    text = oism("fit --help-all").text
    for name in OISM().get_params():
        option = "seed" if name == "random_state" else name.replace("_", "-")
        assert f"--{option} " in text


def test_a_box_of_angles(oism: Run, tmp_path: Path) -> None:
    out = tmp_path / "m"
    assert oism(f"fit angles.csv --columns phi --box -180 180 -o {out} {SMALL}").code == 0
    assert load(out).facts()["columns"] == [
        {"name": "phi", "kind": "periodic", "period": pytest.approx(360)}
    ]


def test_fit_reports_as_json(oism: Run, tmp_path: Path) -> None:
    out = tmp_path / "m"
    ended = oism(f"fit gaps.csv --columns phi psi --missing skip --json -o {out} {SMALL}")
    found = strict(ended.text)
    assert (found["rows"], found["skipped"], found["output"]) == (120, 1, str(out))
    assert found["seconds"] > 0
    assert [column["name"] for column in found["model"]["columns"]] == ["phi", "psi"]
    assert oism(f"fit moons.csv -o {out} --quiet {SMALL}").text == ""


def test_columns_without_names(oism: Run, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(100, 2))
    np.save(tmp_path / "a.npy", rows)
    np.savetxt(tmp_path / "a.csv", rows, delimiter=",", fmt="%.17g")
    for name in ("a.npy", "a.csv"):
        out = tmp_path / f"{name}.model"
        assert oism(f"fit {tmp_path / name} --bounds 1=-9:9 -o {out} {SMALL}").code == 0
        model = load(out)
        assert not hasattr(model, "feature_names_in_")
        assert model.bounds == {1: (-9.0, 9.0)}
        scores = tmp_path / "scores.npy"
        assert oism(f"density {out} {tmp_path / 'a.npy'} -o {scores}").code == 0
        np.testing.assert_allclose(np.load(scores), model.score_samples(rows), rtol=1e-12)


def test_chosen_numbers_are_names_only_where_they_must_be(oism: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.random.default_rng(0).normal(size=(100, 3)))
    out = tmp_path / "m"
    assert oism(f"fit {tmp_path / 'a.npy'} --columns 0 1 -o {out} {SMALL}").code == 0
    assert not hasattr(load(out), "feature_names_in_")
    assert oism(f"fit {tmp_path / 'a.npy'} --columns 2 0 -o {out} {SMALL}").code == 0
    assert list(load(out).feature_names_in_) == ["2", "0"]
    assert oism(f"density {out} {tmp_path / 'a.npy'}").code == 0, "found by number"


def test_sample_is_that_of_the_estimator(oism: Run, folder: Path, tmp_path: Path) -> None:
    model = load(folder / "angles.safetensors")
    csv = oism("sample angles.safetensors -n 4 --seed 3 --density")
    assert csv.err == ""
    (tmp_path / "s.csv").write_bytes(csv.out)
    x = rows_of(tmp_path / "s.csv", "phi", "psi", "log_density")
    np.testing.assert_array_equal(x[:, :2], model.sample(4, random_state=3))
    frame = pa.table({"phi": x[:, 0].copy(), "psi": x[:, 1].copy()})
    np.testing.assert_allclose(x[:, 2], model.score_samples(frame), rtol=1e-12)
    npy = oism("sample angles.safetensors -n 4 --seed 3 --method sde --format npy")
    expected = model.sample(4, random_state=3, method="sde")
    np.testing.assert_array_equal(np.load(io.BytesIO(npy.out)), expected)
    out = tmp_path / "g.parquet"
    given = oism(f"sample angles.safetensors -n 4 --seed 3 --given psi=-20 --json -o {out}")
    assert strict(given.text) == {"rows": 4, "method": "ode", "steps": 16, "output": str(out)}
    expected = model.sample(4, random_state=3, given={1: -20.0})
    np.testing.assert_array_equal(rows_of(out, "phi", "psi"), expected)
    numbered = oism("sample angles.safetensors -n 4 --seed 3 --given 1=-20 --format npy")
    np.testing.assert_array_equal(np.load(io.BytesIO(numbered.out)), expected)


def test_no_samples_are_a_header(oism: Run) -> None:
    assert oism("sample moons.safetensors -n 0").text == "x,y\n"
    assert oism("sample moons.safetensors -n 0 --density").text == "x,y,log_density\n"


def test_density_keeps_what_it_does_not_use(oism: Run, folder: Path) -> None:
    ended = oism("density angles.safetensors angles.csv")
    before = (folder / "angles.csv").read_text().splitlines()
    after = ended.text.splitlines()
    assert [line.rpartition(",")[0] for line in after] == before, "cells come out as they went in"
    assert after[0].endswith(",log_density")
    x = rows_of(folder / "angles.csv", "phi", "psi")
    model = load(folder / "angles.safetensors")
    expected = model.score_samples(pa.table({"phi": x[:, 0].copy(), "psi": x[:, 1].copy()}))
    found = [float(line.rpartition(",")[2]) for line in after[1:]]
    np.testing.assert_array_equal(found, expected)


def test_density_leaves_the_cell_of_an_incomplete_row_empty(oism: Run, tmp_path: Path) -> None:
    out = tmp_path / "d.parquet"
    ended = oism(f"density angles.safetensors gaps.csv --missing skip --name nats --json -o {out}")
    found = strict(ended.text)
    assert (found["rows"], found["skipped"]) == (121, 1)
    table = pq.read_table(out)
    assert table.column_names == ["id", "phi", "weight", "psi", "nats"]
    assert table.schema.field("phi").type == pa.float64(), "numbers where numbers are meant"
    assert table.column("id")[2].as_py() == "gap"
    values = table.column("nats").to_pylist()
    assert [i for i, value in enumerate(values) if value is None] == [2]
    kept = [value for value in values if value is not None]
    assert found["mean"] == pytest.approx(np.mean(kept))
    assert found["lowest"] == min(kept)


def test_json_has_no_infinities(oism: Run, tmp_path: Path) -> None:
    model, data, out = (tmp_path / name for name in ("m", "d.csv", "o.csv"))
    assert oism(f"fit moons.csv --bounds x=-9:9 -o {model} {SMALL}").code == 0
    data.write_text("y,x\n0,0\n0,99\n")
    found = strict(oism(f"density {model} {data} --json -o {out}").text)
    assert (found["mean"], found["lowest"]) == (None, None)
    assert rows_of(out, "log_density")[1, 0] == -np.inf


def test_columns_are_matched_by_name_or_else_by_position(oism: Run, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n0.5,1.5\n")
    (tmp_path / "b.csv").write_text("y,id,x\n1.5,7,0.5\n")
    (tmp_path / "c.csv").write_text("0.5,1.5\n")
    (tmp_path / "d.csv").write_text("u,v,w\n1.5,7,0.5\n")
    values = [
        np.load(io.BytesIO(oism(f"density moons.safetensors {tmp_path / words}").out))[0]
        for words in (
            "a.csv --output-format npy",
            "b.csv --output-format npy",
            "c.csv --output-format npy",
            "d.csv --columns w u --output-format npy",
        )
    ]
    assert len(set(values)) == 1


def test_info(oism: Run, folder: Path) -> None:
    model = load(folder / "angles.safetensors")
    text = oism("info angles.safetensors").text
    assert text.startswith(model.summary())
    assert "max_eigenvalue=25.0" in text
    found = strict(oism("info angles.safetensors --json").text)
    assert found["columns"][1] == {"name": "psi", "kind": "periodic", "period": 360.0}
    assert found["process"] == {"kind": "Torus"}
    assert found["clock"]["kind"] == "VarianceExploding"
    assert found["steps"] == 16
    assert found["functions"]["count"] == model.model_.operator_score.basis.size
    assert found["parameters"]["periodic"] == {"phi": 360.0, "psi": 360.0}


def test_the_options_have_the_names_of_the_library() -> None:
    """The options repeat them: the help is printed without importing the library."""
    formats, *_ = get_args(options.Format)
    assert get_args(get_args(formats)[0]) == files.FORMATS
    assert options.STANDARD == files.STANDARD


def test_data_are_the_toy_distributions(oism: Run) -> None:
    names, *_ = get_args(ToyName)
    assert list(get_args(names)) == list(PLANE)
    first, again, other = (oism(f"data 8gaussians -n 5 --seed {seed}").text for seed in (1, 1, 2))
    assert first == again != other
    assert first.splitlines()[0] == "x,y"
    assert len(first.splitlines()) == 6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("suffix", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")]
)
def test_plot(oism: Run, suffix: str, start: bytes, tmp_path: Path) -> None:
    out = tmp_path / f"picture.{suffix}"
    ended = oism(f"plot moons.safetensors --data moons.csv --columns y x --dpi 40 -o {out}")
    assert ended.code == 0, ended.err
    assert ended.err == ""
    assert out.read_bytes().startswith(start)
    assert ended.text == f"figure written to {out}\n"


def test_models_go_through_pipes(oism: Run, folder: Path) -> None:
    fitted = oism(f"fit moons.csv -o - {SMALL}")
    assert "150 rows fitted" in fitted.err, "the report goes where the model does not"
    straight = oism("sample moons.safetensors -n 3 --seed 0")
    assert oism("sample - -n 3 --seed 0", fitted.out).out == straight.out
    assert oism("info -", fitted.out).text == oism("info moons.safetensors").text
    assert oism(f"fit moons.csv -o - --quiet {SMALL}").err == ""
    cut = oism("info -", fitted.out[:-9])
    assert cut.code == 1
    assert cut.err.startswith("oism: error: standard input: is truncated: ")
