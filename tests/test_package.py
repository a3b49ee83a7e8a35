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
ROOMS = [
    "transforms",
    "checks",
    "progress",
    "atomic",
    "plain",
    "datasets",
    "quadrature",
    "process",
    "clock",
]
ROOMS += ["expectation", "operators", "basis"]
ROOMS += ["moments", "shrinkage", "equations", "solve", "score"]
ROOMS += ["ratio", "estimation", "flow", "likelihood", "prior", "nn", "objectives", "training"]
ROOMS += ["density", "estimator", "plot"]
ROOMS += ["files", "studies"]
ROOMS += ["cli", "__main__"]


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


def imported_by(code: str, suspects: list[str]) -> list[str]:
    """Return which of the suspects a fresh interpreter has imported after running code."""
    tell = f"import sys; print([m for m in {suspects} if m in sys.modules], file=sys.stderr)"
    run = subprocess.run(
        [sys.executable, "-c", f"{code}\n{tell}"], capture_output=True, text=True, check=True
    )
    found = ast.literal_eval(run.stderr.strip().splitlines()[-1])
    assert isinstance(found, list)
    return found


def test_the_core_imports_no_plots_no_tables_and_no_command_line() -> None:
    touch = "import oism\nfor name in oism.__all__: getattr(oism, name)"
    suspects = ["torch", "matplotlib", "tyro", "oism.data.files", "oism.cli"]
    assert imported_by(touch, suspects) == ["torch"]


def test_importing_is_cheap() -> None:
    heavy = ["torch", "sklearn", "numpy", "scipy", "matplotlib", "pyarrow", "tyro"]
    assert imported_by("import oism", heavy) == []


def test_help_is_cheap() -> None:
    heavy = ["torch", "sklearn", "numpy", "scipy", "matplotlib", "pyarrow", "tyro"]
    for words in (["--help"], ["fit", "--help"]):
        code = f"from oism.cli import main\nassert main({words}) == 0"
        assert imported_by(code, heavy) == ["tyro"]


def test_names_are_those_of_the_rooms() -> None:
    code = "from oism import *; import oism.flow._flow; print(callable(fit), Flow is oism.flow._flow.Flow)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["True", "True"]
    assert oism.flow._flow.__name__ == "oism.flow._flow"
    assert "flow" not in oism.__all__
    assert set(oism.__all__) < set(dir(oism))
    with pytest.raises(AttributeError, match="nonsense"):
        oism.nonsense  # type: ignore[attr-defined] # noqa: B018


def test_importing_changes_no_global_state_of_torch() -> None:
    state = (
        "(torch.get_default_dtype(), torch.initial_seed(), torch.is_grad_enabled(), "
        "torch.are_deterministic_algorithms_enabled(), torch.get_num_threads())"
    )
    touch = "import oism; [getattr(oism, name) for name in oism.__all__]"
    code = f"import torch; torch.manual_seed(3); a = {state}; {touch}; print(a == {state})"
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
