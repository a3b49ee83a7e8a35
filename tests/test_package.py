"""The shape of the house: who may know whom, and what an import costs."""

from __future__ import annotations

import ast
import itertools
import re
import subprocess
import sys
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

import oism

ROOT = Path(oism.__file__).parent
# Each room may import only rooms that stand before it.
ROOMS = ["transforms", "checks", "progress", "atomic", "datasets", "quadrature", "process", "clock"]
ROOMS += ["expectation", "operators", "basis"]
ROOMS += ["moments", "shrinkage", "equations", "solve", "score"]
ROOMS += ["estimation", "flow", "likelihood", "density", "estimator", "plot", "studies"]


def room(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").parts[0]


def imported_rooms(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute, so that this test sees them"
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("oism"):
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        if isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("oism.")}
    return found


MODULES = [path for path in ROOT.rglob("*.py") if path.parent != ROOT or path.stem != "__init__"]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_dependence_runs_one_way(path: Path) -> None:
    allowed = set(ROOMS[: ROOMS.index(room(path)) + 1])
    assert imported_rooms(path) <= allowed


def test_the_core_imports_no_plots_and_no_command_line() -> None:
    heavy = ["matplotlib", "tyro"]
    code = f"import oism, sys; print([m for m in {heavy} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_importing_changes_no_global_state_of_torch() -> None:
    state = (
        "(torch.get_default_dtype(), torch.initial_seed(), torch.is_grad_enabled(), "
        "torch.are_deterministic_algorithms_enabled(), torch.get_num_threads())"
    )
    code = f"import torch; torch.manual_seed(3); a = {state}; import oism; print(a == {state})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "True"


def test_public_names_exist_and_are_documented() -> None:
    for name in oism.__all__:
        assert getattr(oism, name).__doc__, name


def test_the_package_is_typed_and_versioned() -> None:
    assert files("oism").joinpath("py.typed").is_file()
    assert re.fullmatch(r"\d+\.\d+\.\d+", oism.__version__)


def test_every_dependency_is_pinned() -> None:
    project = ROOT.parent.parent
    declared = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    extras = declared["optional-dependencies"].values()
    wanted = [*declared["dependencies"], *itertools.chain.from_iterable(extras)]
    pinned = {
        line.split("==")[0].lower().replace("_", "-")
        for line in (project / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    names = {re.split(r"[><=~!\[ ]", requirement)[0].lower() for requirement in wanted}
    assert names <= pinned
    assert "torch==2.13.0" in (project / "constraints.txt").read_text().splitlines()
