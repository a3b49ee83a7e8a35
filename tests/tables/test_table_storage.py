"""One file per estimator: what was saved comes back bit for bit."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import safetensors
import safetensors.torch
import torch
from sklearn.model_selection import KFold

import oism
from oism import (
    OISM,
    Fourier,
    Linear,
    OrnsteinUhlenbeck,
    Torus,
    VarianceExploding,
    VariancePreserving,
    fit,
    storage,
)
from oism.process import Process
from oism.score import OperatorScore
from oism.tables import Columns, TableModel
from oism.tables._parameters import from_plain, to_plain

X = np.random.default_rng(0).uniform(0.05, 0.95, size=(80, 5))
SMALL: dict[str, Any] = {"max_eigenvalue": 4, "flow_steps": 4}

CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "torus": (2, {"random_state": 3, "cv": 4}),
    "ornstein-uhlenbeck": (
        5,
        {"process": "ou", "order": 3, "frame": "identity", "device": torch.device("cpu")},
    ),
    "principal": (
        4,
        {
            "process": "ou",
            "order": np.int64(3),
            "ridge": np.float64(0.1),
            "shrinkage": "monotone",
        },
    ),
    "periodic": (3, {"periodic": {0: 360.0, -1: np.float64(2.0)}, "cv": None}),
    "one period": (2, {"periodic": 360}),
    "bounded": (2, {"bounds": {1: [0, 1]}, "device": "cpu"}),
    "no background": (2, {"periodic": {0: 1.0}, "bounds": {1: (0.0, 1.0)}}),
    "box": (1, {"box": (-math.pi, math.pi), "shrinkage": "james-stein"}),
    "arrays": (1, {"box": np.array([-5.0, 5.0]), "random_state": np.int64(3)}),
    "clock": (1, {"clock": VarianceExploding(0.05, 4.0), "process": Torus()}),
    "process": (
        4,
        {"process": OrnsteinUhlenbeck(0.5, 2.0), "clock": VariancePreserving(0.2, 9.0), "order": 3},
    ),
    "linear": (
        2,
        {"process": Linear(torch.tensor([[-1.0, -0.5], [0.5, -1.0]]), torch.eye(2)), "order": 3},
    ),
}


def same(left: object, right: object) -> bool:
    """Return whether parameters mean the same: files have no lists, arrays and devices."""
    if isinstance(left, np.ndarray):
        left = left.tolist()
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return list(left) == list(right) and all(same(left[k], right[k]) for k in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, torch.device):
        left = str(left)
    return bool(left == right)


@pytest.mark.parametrize(("dim", "settings"), CASES.values(), ids=CASES.keys())
def test_round_trip(dim: int, settings: dict[str, Any], tmp_path: Path) -> None:
    path, x = tmp_path / "model.safetensors", X[:, :dim]
    model = OISM(**{**SMALL, **settings}).fit(x)
    model.save(path)
    again = OISM.load(str(path))
    for name, value in model.get_params().items():
        assert same(value, again.get_params()[name]), name
    assert again.n_features_in_ == dim
    assert not hasattr(again, "feature_names_in_")
    queries = np.concatenate([x, [[1e6] * dim]])
    np.testing.assert_array_equal(again.score_samples(queries), model.score_samples(queries))
    one, two = (m.sample(20, random_state=1) for m in (model, again))
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(again.score_function(x, 0.5), model.score_function(x, 0.5))
    assert again.summary() == model.summary()
    assert again.facts() == model.facts()
    assert again.model_.span == model.model_.span
    if model.model_.chart.can_condition and dim > 1:
        given = {0: 0.4}
        one, two = (m.sample(20, random_state=1, given=given) for m in (model, again))
        np.testing.assert_array_equal(one, two)
    assert again.check_copies(x, x) == model.check_copies(x, x)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    again.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    "settings", [{"bounds": {1: (0, None)}, "periodic": {0: 2.0}}, {"process": "mixture"}]
)
def test_a_model_without_a_flow(settings: dict[str, Any], tmp_path: Path) -> None:
    path, x = tmp_path / "model.safetensors", X[:, :4]
    model = OISM(**settings).fit(x)
    model.save(path)
    again = OISM.load(str(path))
    np.testing.assert_array_equal(again.score_samples(x), model.score_samples(x))
    for given in (None, {0: 0.4}):
        one, two = (m.sample(20, random_state=1, given=given) for m in (model, again))
        np.testing.assert_array_equal(one, two)
    assert again.summary() == model.summary()
    assert again.facts() == model.facts()
    assert again.check_copies(x, x) == model.check_copies(x, x)
    again.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()


def test_the_file_names_the_estimator(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    model = OISM(**SMALL).fit(X[:, :2])
    model.save(path)
    assert storage.class_of(path) == "oism.tables.OISM"
    again = oism.load(path)
    assert type(again) is OISM
    np.testing.assert_array_equal(again.score_samples(X[:, :2]), model.score_samples(X[:, :2]))


def test_a_loaded_model_can_be_fitted_anew(tmp_path: Path) -> None:
    model = OISM(**SMALL).fit(X[:, :2])
    model.save(tmp_path / "model.safetensors")
    again = OISM.load(tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="partial_fit needs the moments of the rows seen before"):
        again.partial_fit(X[:, :2])
    again.fit(X[:, :2]).partial_fit(X[:, :2])


def test_column_names_are_kept(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X[:, :2], columns=["angle", "size"])
    model = OISM(periodic={"angle": 1.0}, **SMALL).fit(frame)
    model.save(tmp_path / "model.safetensors")
    again = OISM.load(tmp_path / "model.safetensors")
    assert list(again.feature_names_in_) == ["angle", "size"]
    assert again.periodic == {"angle": 1.0}
    np.testing.assert_array_equal(again.score_samples(frame), model.score_samples(frame))
    given = {"angle": 0.3}
    one, two = (m.sample(5, random_state=0, given=given) for m in (model, again))
    np.testing.assert_array_equal(one, two)


def test_the_model_alone_is_a_file_too(tmp_path: Path) -> None:
    model = OISM(**SMALL).fit(X[:, :2])
    model.model_.save(tmp_path / "model.safetensors")
    table = oism.load(tmp_path / "model.safetensors")
    assert isinstance(table, TableModel)
    rows = torch.from_numpy(X[:5, :2])
    assert torch.equal(table.score(rows, 0.1), model.model_.score(rows, 0.1))
    assert torch.equal(table.log_density(rows), model.model_.log_density(rows))
    model.model_.operator_score.save(tmp_path / "score.safetensors")
    score = oism.load(tmp_path / "score.safetensors")
    assert isinstance(score, OperatorScore)
    u = model.model_.chart.to_process(rows)
    assert torch.equal(score.score(u, 0.1), model.model_.operator_score.score(u, 0.1))


def test_a_mere_score_is_not_an_estimator(tmp_path: Path) -> None:
    fit(torch.from_numpy(X[:, :2]), Fourier.lattice(2, 4)).save(tmp_path / "score.safetensors")
    message = r"score.safetensors: holds an object of class 'oism.score.FourierScore', not 'oism"
    with pytest.raises(ValueError, match=message):
        OISM.load(tmp_path / "score.safetensors")


def test_files_that_are_no_models(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    with pytest.raises(FileNotFoundError, match=r"model\.safetensors"):
        OISM.load(path)
    OISM(**SMALL).fit(X[:, :1]).save(path)
    whole = path.read_bytes()
    for length in (0, 5, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(
            ValueError, match=r"model\.safetensors: is (empty|truncated|damaged|not)"
        ):
            OISM.load(path)
    safetensors.torch.save_file({"x": torch.zeros(1)}, path)
    with pytest.raises(ValueError, match="is not a file of oism"):
        OISM.load(path)


def test_a_failure_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.safetensors"
    model = OISM(**SMALL).fit(X[:, :1])
    model.save(path)
    kept = path.read_bytes()

    def fail(draft: Path, content: bytes) -> None:
        with draft.open("wb") as file:
            file.write(content[: len(content) // 2])
        raise OSError("disk full")

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(OSError, match="disk full"):
        model.save(path)
    assert path.read_bytes() == kept
    assert len(list(tmp_path.iterdir())) == 1


def test_nothing_is_pickled(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    OISM(process=Torus(), clock=VarianceExploding(0.1, 3.0), **SMALL).fit(X[:, :1]).save(path)
    with safetensors.safe_open(path, framework="pt") as file:
        saved = json.loads(file.metadata()["oism"])["config"]["parameters"]
    assert saved["process"]["$object"]["class"] == "oism.process.Torus"
    assert saved["clock"]["$object"]["config"]["sigma_max"] == 3.0
    assert saved["max_eigenvalue"] == 4


def config(**changes: Any) -> dict[str, Any]:
    """Return the configuration of an estimator, with changes."""
    return {**OISM(**SMALL).fit(X[:, :2]).to_config(), **changes}


def test_stored_parameters_are_validated() -> None:
    kept = config()["parameters"]
    for parameters, message in (
        ({**kept, "order": 1}, "The 'order' parameter of OISM must be"),
        ({**kept, "process": "brownian"}, "The 'process' parameter of OISM must be"),
        (
            {**kept, "periodic": ((0, 1.0, 2.0),)},
            "'periodic' must be pairs of a column and a value",
        ),
        ({**kept, "n_times": 4}, "parameter 'n_times' is unknown"),
        ({k: v for k, v in kept.items() if k != "cv"}, "parameter 'cv' is missing"),
    ):
        with pytest.raises(ValueError, match=message):
            OISM.from_config(**config(parameters=parameters))
    with pytest.raises(ValueError, match="columns must be 2, as many as those of the model"):
        OISM.from_config(**config(columns=Columns.of(1, ["a"], None, None, None)))


def test_parts_of_a_model_must_go_together() -> None:
    two, one = (OISM(**SMALL).fit(X[:, :d]).model_ for d in (2, 1))
    with pytest.raises(ValueError, match="chart must have the 2 columns of the score, got 1"):
        TableModel(two.operator_score, one.chart, two.background, two.span, 4)
    with pytest.raises(ValueError, match="background must have the 2 columns of the score, got 1"):
        TableModel(two.operator_score, two.chart, one.background, two.span, 4)
    with pytest.raises(ValueError, match="span must lie in"):
        TableModel(two.operator_score, two.chart, two.background, (0.5, 0.2), 4)
    with pytest.raises(ValueError, match="steps must be an integer >= 1"):
        TableModel(two.operator_score, two.chart, two.background, two.span, 0)


@dataclass(frozen=True)
class OwnProcess(OrnsteinUhlenbeck):
    pass


@dataclass(frozen=True)
class OwnClock(VariancePreserving):
    pass


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cv": KFold(3)}, "cv must be made of numbers and text to be saved"),
        ({"cv": list(KFold(3).split(X))}, "cv must be made of numbers and text to be saved"),
        ({"process": OwnProcess(), "order": 3}, r"process' is of class .*OwnProcess'.* register"),
        ({"process": "ou", "clock": OwnClock(), "order": 3}, r"clock' is of class .* register"),
    ],
)
def test_what_cannot_be_restored_is_not_saved(
    settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    model = OISM(**{**SMALL, **settings}).fit(X[:, :2])
    with pytest.raises(TypeError, match=message):
        model.save(tmp_path / "model.safetensors")
    assert not list(tmp_path.iterdir())


def test_parameters_survive_storage() -> None:
    given: dict[str, Any] = {
        "periodic": {0: 1.0, "b": 2.0},
        "bounds": {1: (0.0, 1.0)},
        "box": None,
        "process": OrnsteinUhlenbeck(0.5, 2.0),
        "random_state": np.random.RandomState(0),
        "max_eigenvalue": np.float64(3.5),
        "cv": np.int64(4),
        "device": torch.device("cpu"),
        "sphere": np.array(["lat", "lon"]),
        "discrete": pd.Index(["a", "b"]),
    }
    found = from_plain(to_plain(given), given)
    assert found["random_state"] is None, "a generator's state is not a parameter"
    assert found["device"] == "cpu"
    assert isinstance(found["process"], Process)
    assert (found["sphere"], found["discrete"]) == (("lat", "lon"), ("a", "b"))
    other = ("random_state", "device", "sphere", "discrete")
    kept = {name: value for name, value in given.items() if name not in other}
    assert {name: found[name] for name in kept} == kept
    assert type(found["cv"]) is int
    assert to_plain({"random_state": np.int64(3)}) == {"random_state": 3}
