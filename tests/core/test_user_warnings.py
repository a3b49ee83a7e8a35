"""Warnings point to the line of the user that led to them: here, a line of this file."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

from oism import OISM, fit
from oism._core.user_warnings import warn
from oism.basis import Fourier
from oism.tables import OutlierDetector
from oism.training import read_metrics

RNG = np.random.default_rng(0)
FAST: dict[str, Any] = {"process": "torus", "max_eigenvalue": 4, "flow_steps": 4}
PLAIN = RNG.normal(size=(60, 2))
CONSTANT = np.column_stack((PLAIN[:, 0], np.ones(60)))
ATOMS = np.concatenate((np.zeros(40), RNG.normal(size=60)))[:, None]


def later_rows() -> None:
    model = OISM(**FAST).partial_fit(PLAIN)
    model.partial_fit(10 * PLAIN)


CALLS: dict[str, Callable[[], object]] = {
    "is constant in all rows": lambda: OISM(**FAST).fit(CONSTANT),
    "column 1 is constant": lambda: make_pipeline(OISM(**FAST)).fit(CONSTANT),
    "it is wrapped": lambda: OISM(periodic={0: 1.0, 1: 1.0}, **FAST).fit(100 * PLAIN),
    "outside of the box": later_rows,
    "column 1 is constant in all rows": lambda: cross_val_score(OISM(**FAST), CONSTANT, cv=2),
    "has the value 0 in 40%": lambda: OISM(**FAST).fit(ATOMS),
    "data are taken modulo 2π": lambda: fit(torch.from_numpy(10 * PLAIN), Fourier.lattice(2, 1)),
    "contamination 0.001 is below": lambda: OutlierDetector(
        GaussianMixture(), contamination=0.001
    ).fit(PLAIN),
}


@pytest.mark.parametrize("message", CALLS)
def test_warnings_of_a_fit_point_here(message: str) -> None:
    with pytest.warns(UserWarning, match=message) as found:
        CALLS[message]()
    for one in found:
        assert one.filename == __file__, f"{one.filename}:{one.lineno}: {one.message}"


def test_a_thread_has_no_line_of_the_user() -> None:
    with pytest.warns(UserWarning, match="constant") as found, ThreadPoolExecutor(1) as pool:
        pool.submit(OISM(**FAST).fit, CONSTANT).result()
    assert "oism" in Path(found[0].filename).parts, "the place of the call, as nothing is known"


def test_warnings_of_files_point_here(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("damaged\n" + json.dumps({"step": 1}) + "\n")
    with pytest.warns(UserWarning, match="damaged") as found:
        read_metrics(tmp_path)
    assert found[0].filename == __file__


def called_from(names: list[str]) -> str:
    """Return where a warning points that the last of some modules gives, called by those before."""
    call: Any = partial(warn, "text", RuntimeWarning)
    for name in reversed(names):
        space: dict[str, Any] = {"__name__": name, "call": call}
        exec(compile("def own():\n    call()", f"{name}.py", "exec"), space)
        call = space["own"]
    with pytest.warns(RuntimeWarning, match="text") as found:
        call()
    return found[0].filename


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["user", "oism.tables._hints"], "user.py"),
        (["user", "sklearn.pipeline", "oism.tables", "torch.utils", "oism"], "user.py"),
        (["far", "oismic", "oism.tables"], "oismic.py"),
        (["far", "torchvision.ops", "torch.nn", "oism.nn"], "torchvision.ops.py"),
    ],
)
def test_the_innermost_line_outside_of_the_libraries(names: list[str], expected: str) -> None:
    assert called_from(names) == expected


def test_a_stack_without_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all frames are ours, the warning points to the call."""
    names = {str(frame.frame.f_globals.get("__name__")) for frame in inspect.stack()}
    packages = frozenset(name.partition(".")[0] for name in names)
    monkeypatch.setattr("oism._core.user_warnings.LIBRARIES", packages)
    with pytest.warns(UserWarning, match="text") as found:
        warn("text")
    assert found[0].filename == __file__


def test_no_module_counts_frames() -> None:
    source = Path(warn.__code__.co_filename).parents[1]
    assert source.name == "oism"
    own = re.compile(r"warnings\.warn\(|stacklevel")
    files = {path for path in source.rglob("*.py") if own.search(path.read_text("utf-8"))}
    assert files == {source / "_core" / "user_warnings.py"}
