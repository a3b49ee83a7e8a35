"""The scikit-learn estimator `OISM`; its densities are tested in test_model.py."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
import random
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    LeaveOneOut,
    ShuffleSplit,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from oism import OISM, Brownian, OrnsteinUhlenbeck, Torus
from oism.score import OperatorScore
from oism.tables import JointModel, TableModel
from oism.tables._choices import choose_folds
from oism.tables._contract import TabularModel
from oism.tables._torus import LARGEST_EIGENVALUE, LEAST_EIGENVALUE, TorusFamily

Array = np.ndarray
SMALL: dict[str, Any] = {"max_eigenvalue": 9, "flow_steps": 8}
LONG = {"check_sample_weight_equivalence_on_dense_data", "check_fit2d_1sample"}


def rows(n: int = 100, dim: int = 2, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=(n, dim))


def named(check: Any) -> str:
    return str(getattr(check, "func", check).__name__)


def all_checks(estimator: OISM, long: set[str]) -> list[Any]:
    found = estimator_checks_generator(estimator, legacy=True, mark="skip")
    return [
        pytest.param(one, check, id=named(check), marks=[pytest.mark.slow] * (named(check) in long))
        for one, check in found
    ]


@pytest.mark.filterwarnings("ignore:.*(more than 20|linear functions|fewer than)")
@pytest.mark.parametrize(
    ("estimator", "check"), all_checks(OISM(max_eigenvalue=1, order=2, flow_steps=2), set())
)
def test_scikit_learn(estimator: OISM, check: Callable[[OISM], None]) -> None:
    check(estimator)


@pytest.mark.filterwarnings("ignore:.*(more than 20|linear functions|fewer than)")
@pytest.mark.parametrize(("estimator", "check"), all_checks(OISM(), LONG))
def test_scikit_learn_with_defaults(estimator: OISM, check: Callable[[OISM], None]) -> None:
    check(estimator)


def test_few_rows_take_no_time() -> None:
    x = rows(20, 3)
    start = time.process_time()
    OISM().fit(x)
    assert time.process_time() - start < 3.0


@pytest.mark.parametrize(("dim", "kind"), [(1, TableModel), (3, TableModel), (4, JointModel)])
def test_the_model_that_is_chosen(dim: int, kind: type) -> None:
    model = OISM(max_eigenvalue=2, order=2, flow_steps=2).fit(rows(30, dim)).model_
    assert type(model) is kind
    if isinstance(model, TableModel):
        assert isinstance(model.operator_score.basis.process, Torus)


@pytest.mark.parametrize(
    ("settings", "process"),
    [
        ({"process": "ou"}, OrnsteinUhlenbeck),
        ({"process": "torus"}, Torus),
        ({"process": Torus()}, Torus),
        ({"process": OrnsteinUhlenbeck(0.5, 2.0)}, OrnsteinUhlenbeck),
    ],
)
def test_the_process_that_is_given(settings: dict[str, Any], process: type) -> None:
    model = OISM(**SMALL, **settings).fit(rows())
    assert isinstance(model.model_.operator_score.basis.process, process)
    if isinstance(settings["process"], process):
        assert model.model_.operator_score.basis.process == settings["process"]
    assert np.isfinite(model.score_samples(rows())).all()


def test_the_number_of_functions_grows_with_the_rows_and_is_bounded() -> None:
    def bound(n: int, dim: int) -> float:
        basis = TorusFamily(Torus()).basis(dim, n)
        return -float(basis.eigenvalues.min())

    assert bound(10_000, 2) == pytest.approx(600, rel=0.01)
    for dim in (1, 2, 3):
        sizes = [bound(n, dim) for n in (1, 100, 10_000, 10**9)]
        assert sizes == sorted(sizes)
        assert sizes[0] == pytest.approx(LEAST_EIGENVALUE[dim], rel=0.05)
        assert sizes[-1] == pytest.approx(LARGEST_EIGENVALUE[dim], rel=0.05)
    assert TorusFamily(Torus(), max_eigenvalue=25).basis(1, 10).size == 10


def test_one_period_is_that_of_all_columns() -> None:
    x = 360 * np.random.default_rng(0).beta(2, 3, size=(60, 2))
    one = OISM(**SMALL, periodic=360).fit(x)
    each = OISM(**SMALL, periodic={0: 360.0, 1: 360.0}).fit(x)
    np.testing.assert_array_equal(one.score_samples(x), each.score_samples(x))
    assert one.model_.chart.periods.tolist() == [360.0, 360.0]
    with pytest.raises(ValueError, match="the torus serves at most 3 columns, got 4"):
        OISM(periodic=360, process="torus").fit(rows(20, 4))
    with pytest.raises(ValueError, match="box must be None where periodic or bounds are given"):
        OISM(periodic=360, box=(0, 1)).fit(x)


def test_every_shrinkage_is_another_estimate() -> None:
    names = ["none", "james-stein", "modulation", "monotone"]
    logs = [OISM(**SMALL, shrinkage=name).fit(rows(60)).score_samples(rows(5)) for name in names]
    for one, other in itertools.combinations(logs, 2):
        assert np.abs(one - other).max() > 1e-4


def test_scores_go_where_they_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []
    move = OperatorScore.to

    def spy(self: OperatorScore, *where: Any, **more: Any) -> OperatorScore:
        sent.append(where)
        moved: OperatorScore = move(self, *where, **more)
        return moved

    monkeypatch.setattr(OperatorScore, "to", spy)
    OISM(**SMALL).fit(rows())
    assert not sent
    OISM(**SMALL, device="cpu").fit(rows())
    assert sent == [("cpu",)]


def test_clone_keeps_parameters_and_nothing_else() -> None:
    periods = {0: 360.0}
    model = OISM(periodic=periods, ridge=0.1, **SMALL).fit(rows())
    again = clone(model)
    assert again.get_params() == model.get_params()
    assert model.periodic is periods
    assert not hasattr(again, "model_")


def test_pickle_and_copy() -> None:
    inside: dict[str, Any] = {"box": (-math.pi, math.pi), **SMALL}
    for model in (OISM(**inside).fit(rows()), OISM(**inside).partial_fit(rows())):
        logs = model.score_samples(rows())
        for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
            np.testing.assert_array_equal(again.score_samples(rows()), logs)
            again.partial_fit(rows(seed=1))
            assert not np.allclose(again.score_samples(rows()), logs)
        np.testing.assert_array_equal(model.score_samples(rows()), logs)


def test_in_a_pipeline() -> None:
    x = rows() * [10.0, 0.1] + 5
    pipeline = make_pipeline(StandardScaler(), OISM(**SMALL, cv=KFold(3))).fit(x)
    direct = OISM(**SMALL, cv=KFold(3)).fit(x)
    shift = float(np.log(x.std(axis=0)).sum())
    expected = direct.score_samples(x) + shift
    np.testing.assert_allclose(pipeline.score_samples(x), expected, atol=1e-6)
    assert pipeline.score(x) == pytest.approx(expected.sum(), abs=1e-4)


def test_score_is_the_sum() -> None:
    model = OISM(**SMALL).fit(rows())
    assert model.score(rows(7)) == pytest.approx(model.score_samples(rows(7)).sum())
    assert model.score_samples(rows(7)).shape == (7,)


def test_search_finds_the_resolution_that_is_needed() -> None:
    x = np.sign(rows(300, 1)) * 2 + 0.3 * rows(300, 1, seed=1)
    search = GridSearchCV(OISM(ridge=1e-3, flow_steps=16), {"max_eigenvalue": [1, 36]}, cv=3).fit(x)
    assert search.best_params_ == {"max_eigenvalue": 36}
    assert search.best_estimator_.model_.operator_score.basis.size == 12
    scores = cross_val_score(OISM(max_eigenvalue=36, flow_steps=16), x, cv=3)
    truth = -0.5 * math.log(2 * math.pi) - 0.5 - math.log(0.3) - math.log(2)
    assert scores.mean() / 100 == pytest.approx(truth, abs=0.1)


def check_names(make: Callable[[Array, list[str]], Any]) -> None:
    frame = make(rows(), ["wind", "rain"])
    model = OISM(periodic={"wind": 9.0}, **SMALL).fit(frame)
    assert list(model.feature_names_in_) == ["wind", "rain"]
    assert model.model_.chart.periodic.tolist() == [True, False]
    plain = OISM(periodic={0: 9.0}, **SMALL).fit(rows())
    np.testing.assert_array_equal(model.score_samples(frame), plain.score_samples(rows()))
    one = model.sample(5, random_state=0, given={"rain": 1.0})
    np.testing.assert_array_equal(one, plain.sample(5, random_state=0, given={1: 1.0}))
    assert "wind: periodic" in model.summary()
    assert not model.check_copies(frame, n_samples=50).are_copies  # and no warning about names
    assert model.check_copies(frame, frame).are_copies
    model.partial_fit(frame)
    with pytest.raises(ValueError, match="feature names should match"):
        model.score_samples(make(rows(), ["rain", "wind"]))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.score_samples(rows())
    with pytest.raises(ValueError, match=r"periodic names column 'wnid'; the columns are \['wind"):
        OISM(periodic={"wnid": 9.0}).fit(frame)


def test_names_of_a_pandas_frame() -> None:
    pandas = pytest.importorskip("pandas")
    check_names(lambda x, names: pandas.DataFrame(x, columns=names))


def test_names_of_a_polars_frame() -> None:
    polars = pytest.importorskip("polars")
    check_names(lambda x, names: polars.DataFrame(dict(zip(names, x.T, strict=True))))


@pytest.mark.parametrize(
    ("dim", "extra"),
    [(1, {}), (2, {}), (2, {"bounds": {0: (-30, 30)}}), (5, {"order": 4, "process": "ou"})],
)
def test_integer_weights_are_repeated_rows(dim: int, extra: dict[str, Any]) -> None:
    x = rows(80, dim)
    counts = np.random.default_rng(1).integers(0, 4, size=80)
    model = OISM(**SMALL, **extra)
    weighted = clone(model).fit(x, sample_weight=counts)
    repeated = clone(model).fit(np.repeat(x, counts, axis=0))
    y = np.concatenate([rows(20, dim, seed=2), np.full((1, dim), 20.0)])
    expected = repeated.score_samples(y)
    np.testing.assert_allclose(weighted.score_samples(y), expected, rtol=1e-6, atol=1e-6)
    unweighted = clone(model).fit(x).score_samples(y)
    assert np.abs(unweighted - expected).max() > 1e-2, "weights matter"


@pytest.mark.parametrize("dim", [2, 5])
def test_rows_of_no_weight_are_not_there(dim: int) -> None:
    x, y = rows(80, dim), rows(20, dim, seed=2)
    weights = np.ones(81)
    weights[40] = 0.0
    with_one = np.insert(x, 40, 1e5, axis=0)
    model, without = OISM(**SMALL).fit(with_one, sample_weight=weights), OISM(**SMALL).fit(x)
    np.testing.assert_allclose(model.score_samples(y), without.score_samples(y), atol=1e-6)


@pytest.mark.parametrize("factor", [1e-3, 7.0])
def test_the_unit_of_weights_matters_little(factor: float) -> None:
    x, y = rows(200), rows(50, seed=2)
    weights = 1 + np.random.default_rng(1).uniform(size=200)
    one, two = (
        OISM(**SMALL).fit(x, sample_weight=scale * weights).score_samples(y)
        for scale in (1.0, factor)
    )
    # A larger sum of weights counts as more rows: a narrower margin and less background.
    assert np.abs(one - two).max() < 0.1


def test_random_states() -> None:
    model = OISM(**SMALL).fit(rows())
    for method in ("ode", "sde"):
        one, two = (model.sample(9, random_state=5, method=method) for _ in range(2))
        np.testing.assert_array_equal(one, two)
        other = model.sample(9, random_state=6, method=method)
        assert not np.allclose(one, other)
    state = np.random.RandomState(5)
    np.testing.assert_array_equal(model.sample(9, random_state=state), model.sample(9, 5))
    assert not np.allclose(model.sample(9, random_state=state), model.sample(9, 5))
    assert not np.allclose(model.sample(9), model.sample(9)), "fresh unless a seed is given"
    own = OISM(**SMALL, random_state=5).fit(rows())
    np.testing.assert_array_equal(own.sample(9), model.sample(9, random_state=5))
    np.testing.assert_array_equal(own.sample(9, random_state=6), model.sample(9, random_state=6))


@pytest.mark.parametrize("dim", [2, 5])
def test_fitting_is_deterministic_in_any_order(dim: int) -> None:
    x, y = rows(100, dim), rows(20, dim, seed=2)
    logs = OISM(**SMALL).fit(x).score_samples(y)
    np.testing.assert_array_equal(OISM(**SMALL).fit(x).score_samples(y), logs)
    shuffled = np.random.default_rng(3).permutation(x)
    np.testing.assert_allclose(OISM(**SMALL).fit(shuffled).score_samples(y), logs, atol=1e-6)


def test_global_generators_are_left_alone() -> None:
    def states() -> tuple[bytes, ...]:
        numpy = np.random.get_state()  # noqa: NPY002
        torchs = torch.get_rng_state().numpy().tobytes()
        return pickle.dumps(random.getstate()), pickle.dumps(numpy), torchs

    before = states()
    model = OISM(max_eigenvalue=9).fit(rows())
    model.sample(3, random_state=0)
    model.sample(3, random_state=0, method="sde")
    model.sample(3, random_state=0, given={0: 1.0})
    model.check_copies(rows(), n_samples=20)
    assert states() == before


def test_the_data_are_left_alone() -> None:
    x, weights = rows(), np.ones(100)
    x.setflags(write=False)
    weights.setflags(write=False)
    model = OISM(periodic={0: 1.0}, **SMALL)
    with pytest.warns(UserWarning, match="is wrapped"):
        model.fit(x, sample_weight=weights)
    model.score_samples(x)
    model.partial_fit(x)


@pytest.mark.filterwarnings("ignore:.*(constant in all|fewer than|linear functions)")
@settings(max_examples=10)
@given(
    x=hnp.arrays(
        st.sampled_from([np.float32, np.float64, np.int16]),
        st.tuples(st.integers(1, 6), st.integers(1, 4)),
        elements=st.integers(-3, 3),
    )
)
def test_any_little_table_has_a_density(x: Array) -> None:
    model = OISM(max_eigenvalue=2, order=3, flow_steps=4).fit(x)
    logs = model.score_samples(x)
    assert logs.dtype == np.float64
    assert np.isfinite(logs).all()
    samples = model.sample(3, random_state=0)
    assert samples.shape == (3, x.shape[1])
    assert np.isfinite(samples).all()


@pytest.mark.filterwarnings("ignore:.*(constant in all|fewer than|linear functions)")
@pytest.mark.parametrize(
    "x",
    [[[1.0]], [[1.0], [2.0]], [[0.0, 0.0]], [[1.0, 2.0]] * 20, [[1.0, 2.0, 3.0, 4.0]] * 2],
    ids=["one", "two", "zero", "equal", "four columns"],
)
def test_tiny_data(x: list[list[float]]) -> None:
    model = OISM(flow_steps=16).fit(x)
    near, far = (model.score_samples(np.array(x[:1]) + shift)[0] for shift in (0.0, 50.0))
    assert math.isfinite(near)
    assert near > far
    assert np.isfinite(model.sample(10, random_state=0)).all()


def test_folds_can_be_chosen() -> None:
    x, y = rows(), rows(30, seed=1)
    by_content = OISM(**SMALL).fit(x).score_samples(y)
    np.testing.assert_array_equal(OISM(**SMALL, cv=None).fit(x).score_samples(y), by_content)
    by_place = OISM(**SMALL, cv=KFold(5)).fit(x).score_samples(y)
    assert np.abs(by_place - by_content).max() > 1e-4
    splits = OISM(**SMALL, cv=list(KFold(5).split(x))).fit(x).score_samples(y)
    np.testing.assert_array_equal(splits, by_place)
    assert OISM(**SMALL, cv=3).fit(x).collector_.folds == 3


def test_folds_of_a_splitter() -> None:
    assert choose_folds(None, 7) == (5, None)
    assert choose_folds(3, 7) == (3, None)
    folds, place = choose_folds(KFold(3), 7)
    assert folds == 3
    assert place is not None
    assert place.tolist() == [0, 0, 0, 1, 1, 2, 2]
    folds, place = choose_folds(LeaveOneOut(), 4)
    assert place is not None
    assert (folds, place.tolist()) == (4, [0, 1, 2, 3])
    for cv in (ShuffleSplit(3, random_state=0), [(np.arange(3), np.array([0, 1, 1]))], []):
        with pytest.raises(ValueError, match="cv must have test sets that hold every row exactly"):
            choose_folds(cv, 7)


UNFITTED: list[Callable[[OISM], object]] = [
    lambda model: model.score_samples(rows()),
    lambda model: model.score(rows()),
    lambda model: model.sample(3),
    lambda model: model.score_function(rows(), 0.1),
    lambda model: model.check_copies(rows()),
    lambda model: model.impute(rows()),
    lambda model: model.summary(),
    lambda model: model.save("nowhere.safetensors"),
]


@pytest.mark.parametrize("use", UNFITTED)
def test_an_unfitted_model_is_an_error(use: Callable[[OISM], object]) -> None:
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        use(OISM())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("process", "brownian"),
        ("process", Torus),
        ("periodic", "all"),
        ("periodic", 0.0),
        ("periodic", -360.0),
        ("bounds", [(0, 1)]),
        ("box", 3.0),
        ("max_eigenvalue", 0.5),
        ("max_eigenvalue", math.nan),
        ("max_eigenvalue", math.inf),
        ("max_eigenvalue", "all"),
        ("order", 1),
        ("order", 2.5),
        ("frame", "svd"),
        ("shrinkage", "stein"),
        ("ridge", -1.0),
        ("ridge", math.inf),
        ("ridge", "auto"),
        ("cv", 1),
        ("clock", "ve"),
        ("flow_steps", 0),
        ("flow_steps", 2.5),
        ("random_state", "zero"),
        ("device", 0),
    ],
)
def test_wrong_parameters_are_named(name: str, value: object) -> None:
    for use in (OISM.fit, OISM.partial_fit):
        with pytest.raises(ValueError, match=f"The '{name}' parameter of OISM must be"):
            use(OISM(**{name: value}), rows())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "dim", "message"),
    [
        ({"process": "torus"}, 4, "the torus serves at most 3 columns, got 4"),
        (
            {"process": "torus", "periodic": {0: 1.0}},
            5,
            "the torus serves at most 3 columns, got 5",
        ),
        ({"process": "torus", "box": (0, 1)}, 4, "the torus serves at most 3 columns, got 4"),
        ({"process": Brownian()}, 2, r"process must be one of 'auto', 'torus', .*got Brownian\(\)"),
        ({"process": "ou", "periodic": {0: 1.0}}, 2, "periodic, bounds and box need process='toru"),
        ({"process": "ou", "bounds": {0: (-9, 9)}}, 2, "periodic, bounds and box need process"),
        ({"bounds": {1: (-0.1, 0.1)}}, 2, "bounds of column 1 are"),
    ],
)
def test_settings_that_do_not_go_together(settings: dict[str, Any], dim: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OISM(**settings).fit(rows(20, dim))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"n_samples": -1}, ValueError, "n_samples must be an integer >= 0, got -1"),
        ({"n_samples": 2.0}, TypeError, "n_samples must be an integer >= 0, got float 2.0"),
        ({"n_samples": True}, TypeError, "n_samples must be an integer >= 0"),
        ({"method": "euler"}, ValueError, "method must be 'ode' or 'sde', got 'euler'"),
        ({"random_state": "zero"}, ValueError, "random_state must be None, an integer"),
    ],
)
def test_samples_that_cannot_be_drawn(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        OISM(**SMALL).fit(rows(30)).sample(**arguments)


def test_no_samples() -> None:
    for dim in (2, 5):
        model = OISM(**SMALL, process="torus" if dim == 2 else "ou").fit(rows(30, dim))
        for method in ("ode", "sde"):
            assert model.sample(0, method=method).shape == (0, dim)
        assert model.sample().shape == (1, dim)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_bad_entries_are_refused(bad: float) -> None:
    x = rows()
    model = OISM(**SMALL).fit(x)
    x[3, 1] = bad
    scored = model.score_samples if math.isinf(bad) else model.score_function  # gaps have densities
    for use in (model.fit, model.partial_fit, scored, model.check_copies):
        with pytest.raises(ValueError, match=r"Input X contains (NaN|infinity)"):
            use(x, 1.0) if use == model.score_function else use(x)
    with pytest.raises(ValueError, match=r"contains (NaN|infinity)"):
        model.check_copies(rows(), x)


def test_bad_weights_are_refused() -> None:
    for weights, message in (
        (np.zeros(100), "at least one non-zero"),
        (-np.ones(100), "Negative values"),
        (np.ones(3), r"sample_weight\.shape == \(3,\)"),
        (np.full(100, np.nan), "contains NaN"),
    ):
        with pytest.raises(ValueError, match=message):
            OISM(**SMALL).fit(rows(), sample_weight=weights)


def test_a_column_in_other_units_than_its_period_gives_one_warning() -> None:
    x = 100 * rows()
    with pytest.warns(UserWarning, match="column 0 is periodic with period 6.28") as found:
        model = OISM(periodic={0: 2 * math.pi}, **SMALL).fit(x)
    assert len(found) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        turned = model.score_samples(x + np.array([2 * math.pi, 0.0]))
    np.testing.assert_allclose(turned, model.score_samples(x), atol=1e-6)


def test_copies_are_found() -> None:
    x = np.stack([360 * np.random.default_rng(0).uniform(size=200), rows(200)[:, 0]], axis=1)
    model = OISM(periodic={0: 360.0}, **SMALL).fit(x)
    assert not model.check_copies(x).are_copies
    assert model.check_copies(x) == model.check_copies(x, random_state=0), "reproducible"
    assert model.check_copies(x, x[:50] + np.array([1e-6, 0.0])).are_copies
    assert model.check_copies(x, x[:50] + np.array([720.0, 0.0])).are_copies, "turns do not count"
    many = OISM(order=2, flow_steps=4).fit(rows(100, 4))
    assert many.check_copies(rows(100, 4), rows(100, 4)[:50]).are_copies
    assert not many.check_copies(rows(100, 4), n_samples=100).are_copies
    with pytest.raises(ValueError, match="X has 3 features, but OISM is expecting 2"):
        model.check_copies(x, rows(10, 3))


PARTS: dict[str, tuple[int, dict[str, Any]]] = {
    "periodic": (2, {"periodic": {0: 8.0, 1: 9.0}}),
    "bounded": (2, {"bounds": {0: (-6, 6), 1: (-6, 6)}}),
    "box": (3, {"box": (-math.pi, math.pi)}),
    "no folds": (1, {"box": (-math.pi, math.pi), "ridge": 0.1}),
    "cv is None": (1, {"box": (-math.pi, math.pi), "cv": None}),
    "shrunk": (1, {"box": (-math.pi, math.pi), "shrinkage": "modulation"}),
}


@pytest.mark.parametrize(("dim", "extra"), PARTS.values(), ids=PARTS.keys())
def test_batches_are_one_fit(dim: int, extra: dict[str, Any]) -> None:
    x, y = rows(150, dim), rows(20, dim, seed=2)
    weights = 1 + np.random.default_rng(1).uniform(size=150)
    model = OISM(max_eigenvalue=5, flow_steps=8, **extra)
    whole = clone(model).fit(x, sample_weight=weights).score_samples(y)
    for cuts in ([50, 51], [120]):
        for order in (1, -1):
            parts = clone(model)
            batches = zip(np.split(x, cuts), np.split(weights, cuts), strict=True)
            for batch, own in list(batches)[::order]:
                parts.partial_fit(batch, sample_weight=own)
            np.testing.assert_allclose(parts.score_samples(y), whole, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("dim", [2, 5])
def test_batches_of_free_columns(dim: int) -> None:
    # The chart is that of the first batch; what follows is nearly the same.
    x, y = rows(900, dim), rows(300, dim, seed=2)
    x[0], x[1] = -5.0, 5.0
    blank = OISM(max_eigenvalue=9, flow_steps=16, order=4, process="torus" if dim == 2 else "ou")
    model = clone(blank).partial_fit(x[:600]).partial_fit(x[600:])
    whole = clone(blank).fit(x)
    assert abs(model.score(y) - whole.score(y)) / 300 < 0.05
    first = clone(blank).fit(x[:600])
    assert not np.allclose(first.score_samples(y), model.score_samples(y), atol=1e-3)
    assert model.model_.background is not None
    assert model.model_.background.share == pytest.approx(1 / 901)
    np.testing.assert_allclose(model.model_.background.mean, x.mean(axis=0), atol=1e-12)


def test_equations_are_solved_when_they_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    solved = []
    finalise = OISM._finalise

    def counted(self: OISM) -> TabularModel:
        solved.append(1)
        return finalise(self)

    monkeypatch.setattr(OISM, "_finalise", counted)
    model = OISM(box=(-math.pi, math.pi), **SMALL)
    for part in np.split(rows(), 4):
        assert model.partial_fit(part) is model
    assert not solved
    logs = model.score_samples(rows(5))
    model.sample(2)
    assert len(solved) == 1
    model.partial_fit(rows(seed=1))
    assert len(solved) == 1
    assert not np.allclose(model.score_samples(rows(5)), logs)
    assert len(solved) == 2
    model.fit(rows())
    afresh = clone(model).fit(rows())
    np.testing.assert_array_equal(model.score_samples(rows(5)), afresh.score_samples(rows(5)))


def test_partial_fit_goes_on_where_fit_ended() -> None:
    model = OISM(box=(-math.pi, math.pi), **SMALL)
    parts = clone(model).fit(rows()).partial_fit(rows(seed=1))
    whole = clone(model).fit(np.concatenate([rows(), rows(seed=1)]))
    np.testing.assert_allclose(parts.score(rows(9)), whole.score(rows(9)), rtol=1e-8)


def test_rows_outside_of_the_first_box_give_a_warning() -> None:
    model = OISM(**SMALL).partial_fit(rows())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.partial_fit(0.5 * rows(seed=1))
        model.partial_fit([[50.0, 0.0], [0.0, 0.0]], sample_weight=[0.0, 1.0])
    with pytest.warns(UserWarning, match=r"50.0% of 2 rows lie outside of the box that the"):
        model.partial_fit([[50.0, 0.0], [0.0, 0.0]])
    assert np.isfinite(model.score_samples(rows())).all()
    assert model.model_.background is not None
    assert model.model_.background.share == pytest.approx(2 / (model.collector_.count + 1))


@pytest.mark.slow
def test_outliers_do_not_stretch_the_box() -> None:
    regular = np.random.default_rng(0).normal(size=(2000, 2))
    outlying = np.concatenate((regular, [[1e6, 0.0], [0.0, -1e6]]))
    plain, model = (OISM(max_eigenvalue=100).fit(x) for x in (regular, outlying))
    assert float(model.model_.chart.scale.min()) > 0.7 * float(plain.model_.chart.scale.min())
    assert model.model_.background.share == pytest.approx(3 / 2003)
    test = np.random.default_rng(1).normal(size=(500, 2))
    gap = plain.score_samples(test).mean() - model.score_samples(test).mean()
    assert abs(gap) < 0.05
    far = [float(own.score_samples([[1e6, 0.0]])[0]) for own in (plain, model)]
    assert far[0] < -1e9, "no row has been there"
    assert far[1] > -500, "one row of 2,002 has"
    fixed = OISM(max_eigenvalue=100, ridge=0.01)  # the choice is one of iterations, to 1e-3
    repeated = clone(fixed).fit(np.repeat(outlying, 2, axis=0))
    weighted = clone(fixed).fit(outlying, sample_weight=np.full(len(outlying), 2.0))
    np.testing.assert_allclose(
        weighted.score_samples(test), repeated.score_samples(test), rtol=1e-6
    )


def test_every_batch_must_keep_the_bounds() -> None:
    model = OISM(bounds={1: (-9, 9)}, **SMALL).partial_fit(rows())
    logs = model.score_samples(rows())
    with pytest.raises(ValueError, match=r"bounds of column 1 are \(-9, 9\), but the data reach"):
        model.partial_fit([[0.0, 0.0], [0.0, 9.5]])
    np.testing.assert_array_equal(model.score_samples(rows()), logs)


def test_batches_that_do_not_go_together() -> None:
    with pytest.raises(ValueError, match="partial_fit needs a number of folds: cv must be an int"):
        OISM(cv=KFold(3)).partial_fit(rows())
    model = OISM(**SMALL).partial_fit(rows())
    with pytest.raises(ValueError, match="X has 3 features, but OISM is expecting 2"):
        model.partial_fit(rows(5, 3))


def test_a_missing_device_is_an_error() -> None:
    with pytest.raises(ValueError, match="device 'cuda:99' cannot be used here"):
        OISM(device="cuda:99").fit(np.zeros((3, 1)))


def test_a_whole_number_is_needed_where_the_column_holds_integers() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=60), "k": rng.poisson(3, 60)})
    model = OISM().fit(table)
    with pytest.raises(ValueError, match=r"given\['k'\] must be a whole number.*int64.*got 1.5"):
        model.sample(2, given={"k": 1.5})
    assert (model.sample(2, given={"k": 2.0}).k == 2).all()


def test_generators_of_numpy() -> None:
    x = np.random.default_rng(0).normal(size=(60, 1))
    model = OISM(random_state=np.random.default_rng(1)).fit(x)
    first = model.sample(3)
    assert not np.array_equal(first, model.sample(3))  # it moves on
    same = [model.sample(3, random_state=np.random.default_rng(2)) for _ in range(2)]
    np.testing.assert_array_equal(*same)
    for wrong in ("a", -1, 1.5):
        with pytest.raises(ValueError, match="random_state must be None, an integer from 0"):
            model.sample(1, random_state=wrong)


def test_files_and_dictionaries_are_no_tables() -> None:
    with pytest.raises(TypeError, match=r"got the text 'data.csv'.*pandas.read_csv"):
        OISM().fit("data.csv")
    with pytest.raises(TypeError, match=r"got a mapping: give pandas.DataFrame\(X\)"):
        OISM().fit({"a": [1, 2, 3]})


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({"periodic": 24}, r"periodic declares.*periodic=\{column: period\}"),
        ({"box": (0, 24)}, "box declares"),
        ({"bounds": {"c": (0, 1)}}, "bounds declares.*leave it out of bounds"),
        ({"discrete": ["c"]}, "discrete declares.*leave it out of discrete"),
    ],
)
def test_text_in_a_column_that_is_declared_numeric(settings: dict[str, Any], remedy: str) -> None:
    table = pd.DataFrame({"h": np.arange(30.0), "c": ["a", "b", "c"] * 10})
    with pytest.raises(ValueError, match=f"column 'c' has the text 'a' in row 0, but {remedy}"):
        OISM(**settings).fit(table)


@pytest.mark.filterwarnings("ignore:1 row is fewer", "ignore:columns 0, 1 are constant")
def test_without_a_cutoff_the_summary_has_none() -> None:
    model = OISM().fit([[51.0, 30.0]])
    assert all(choice["cutoff"] is None for choice in model.facts()["choices"])
    assert "none" in model.summary()
