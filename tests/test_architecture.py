"""The architecture: layers, one import path for each name, the counts behind them, import costs."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import itertools
import re
import subprocess
import sys
import tomllib
from importlib.resources import files
from pathlib import Path
from types import ModuleType

import pytest

import oism

PROJECT = Path(__file__).resolve().parent.parent

LAYERS = [
    "_core",
    "storage",
    "process",
    "basis",
    "flow",
    "score",
    "estimation",
    "images",
    "sampling",
    "objectives",
    "nn",
    "training",
    "diffusers",
    "azula",
    "tables",
    "data",
    "plot",
    "explorer",
    "cli",
    "__main__",
]
"""Each package imports only those before it."""

LIMITS = {
    "exported names": 30,
    "top-level modules": 19,
    "isinstance checks over own types": 15,
    "imports past a package's __init__": 20,
    "import cycles": 0,
    "storage modules": 1,
    "words in README": 800,
}


def script(name: str) -> ModuleType:
    """Return a file of the benchmarks as a module."""
    spec = importlib.util.spec_from_file_location(name, PROJECT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


Checkout = script("architecture").Checkout
CHECKOUT = Checkout(PROJECT)


@pytest.mark.parametrize("name", LIMITS)
def test_the_counts_stay_within_their_limits(name: str) -> None:
    assert CHECKOUT.counts()[name] <= LIMITS[name]


def test_there_are_no_import_cycles() -> None:
    """Imports in functions and under TYPE_CHECKING count."""
    assert CHECKOUT.cycles() == []


def test_cycles_and_checks_are_found(tmp_path: Path) -> None:
    """The counts above can fail: a package with one of each."""
    package = tmp_path / "src" / "oism"
    for name in ("one", "two"):
        (package / name).mkdir(parents=True)
    texts = {
        "__init__.py": "",
        "one/__init__.py": "from oism.one._a import A",
        "one/_a.py": "class A:\n    def f(self):\n        from oism.two import B\n",
        "two/__init__.py": "class B: pass\nfrom oism.one._a import A\nisinstance(1, A)\n",
        "two/_b.py": "from oism.one import A\nif not isinstance(1, A):\n    raise TypeError\n",
    }
    for name, text in texts.items():
        (package / name).write_text(text)
    found = Checkout(tmp_path)
    assert found.cycles() == [["oism.one._a", "oism.two"]]
    assert [str(one) for one in found.past_init()] == ["oism.two:2 imports oism.one._a"]
    assert found.type_switches() == ["oism.two:3 isinstance(1, A)"]
    assert found.top_level() == ["one", "two"]


@pytest.mark.parametrize("package", LAYERS)
def test_a_package_imports_only_lower_layers(package: str) -> None:
    allowed = {f"oism.{name}" for name in LAYERS[: LAYERS.index(package) + 1]} | {"oism"}
    for one in CHECKOUT.imports:
        if one.importer.split(".")[1:2] == [package]:
            assert ".".join(one.target.split(".")[:2]) in allowed, str(one)


def test_numbers_are_not_rounded_to_float32_on_their_way_to_float64() -> None:
    """``torch.tensor(0.1).double()`` is 0.10000000149: the dtype must be an argument."""
    rounding = re.compile(r"torch\.(as_)?(tensor|full|linspace)\((?!.*dtype).*\)\.double\(\)")
    found = [
        f"{path.name}:{node.lineno}"
        for path in (PROJECT / "src").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and rounding.fullmatch(ast.unparse(node))
    ]
    assert not found


def test_every_package_has_its_layer() -> None:
    assert set(CHECKOUT.top_level()) == set(LAYERS) - {"__main__"}


PUBLIC = [name for name in CHECKOUT.modules if CHECKOUT.is_package(name) and "._" not in name]


@pytest.mark.parametrize("name", PUBLIC)
def test_modules_inside_of_packages_are_private(name: str) -> None:
    if name in ("oism", "oism.cli") or name.startswith("oism.cli."):
        return
    inner = {one for one in CHECKOUT.modules if one.rpartition(".")[0] == name}
    public = {one for one in inner if not one.rpartition(".")[2].startswith("_")}
    assert public <= set(PUBLIC), "public names live in packages"


def test_every_public_name_has_one_import_path() -> None:
    """A name stands in one package; the top level repeats names, and defines none."""
    homes: dict[str, str] = {}
    for name in PUBLIC:
        if name == "oism" or name.startswith("oism.cli"):
            continue
        module = importlib.import_module(name)
        for public in getattr(module, "__all__", ()):
            assert public not in homes, f"{public} in {homes[public]} and {name}"
            homes[public] = name
    assert set(oism.__all__) <= homes.keys()


def imported_by(code: str, suspects: list[str]) -> list[str]:
    """Return which of the suspects a fresh interpreter has imported after running code."""
    report = f"import sys; print([m for m in {suspects} if m in sys.modules], file=sys.stderr)"
    run = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=True
    )
    found = ast.literal_eval(run.stderr.strip().splitlines()[-1])
    assert isinstance(found, list)
    return found


def test_top_level_names_import_no_plots_no_readers_and_no_command_line() -> None:
    touch = "import oism\nfor name in oism.__all__: getattr(oism, name)"
    suspects = ["torch", "matplotlib", "tyro", "oism.data", "oism.cli"]
    assert imported_by(touch, suspects) == ["torch"]


def test_importing_is_cheap() -> None:
    heavy = ["torch", "sklearn", "numpy", "scipy", "matplotlib", "pyarrow", "tyro"]
    assert imported_by("import oism", heavy) == []


def test_help_is_cheap() -> None:
    heavy = ["torch", "sklearn", "numpy", "scipy", "matplotlib", "pyarrow", "tyro"]
    for words in (["--help"], ["fit", "--help"]):
        code = f"from oism.cli import main\nassert main({words}) == 0"
        assert imported_by(code, heavy) == ["tyro"]


def test_names_of_the_top_level_are_those_of_the_packages() -> None:
    code = "from oism import *; import oism.flow; print(callable(fit), Flow is oism.flow.Flow)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["True", "True"]
    assert oism.flow.__name__ == "oism.flow"
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
    declared = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    extras = declared["optional-dependencies"].values()
    wanted = [*declared["dependencies"], *itertools.chain.from_iterable(extras)]
    pinned = {
        line.split("==")[0].lower().replace("_", "-")
        for line in (PROJECT / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    names = {re.split(r"[><=~!\[ ]", requirement)[0].lower() for requirement in wanted}
    assert names - {"oism"} <= pinned
    assert "torch==2.13.0" in (PROJECT / "constraints.txt").read_text().splitlines()
