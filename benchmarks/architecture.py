"""Counts that describe the architecture: names, modules, type switches, imports, cycles, sizes.

    python benchmarks/architecture.py                 # this checkout
    python benchmarks/architecture.py OTHER --tests   # another one beside it, and the time of tests

`tests/test_architecture.py` holds the limits.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import networkx  # torch brings it

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Import:
    """One imported module, as it is written in a file."""

    importer: str
    target: str
    line: int

    def __str__(self) -> str:
        """Return both modules and the line."""
        return f"{self.importer}:{self.line} imports {self.target}"


class Checkout:
    """A checkout of the project, read as text: nothing of it is imported."""

    def __init__(self, root: Path) -> None:
        self.root, self.source = root, root / "src" / "oism"

    @cached_property
    def modules(self) -> dict[str, ast.Module]:
        """The syntax trees of all modules, by dotted name."""
        found = {}
        for path in sorted(self.source.rglob("*.py")):
            parts = path.relative_to(self.source.parent).with_suffix("").parts
            name = ".".join(parts).removesuffix(".__init__")
            found[name] = ast.parse(path.read_text(encoding="utf-8"))
        return found

    def is_package(self, name: str) -> bool:
        """Whether a dotted name is a package and not a file."""
        return self.source.parent.joinpath(*name.split("."), "__init__.py").is_file()

    def exported(self) -> list[str]:
        """Return the names of the top level that are no modules."""
        stub = (self.source / "__init__.pyi").read_text(encoding="utf-8")
        names = set(re.findall(r"^\s+(\w+) as \1", stub, re.MULTILINE))
        return sorted(names - set(self.top_level()))

    def top_level(self) -> list[str]:
        """Return the packages and modules below `oism`."""
        tops = {name.split(".")[1] for name in self.modules if "." in name}
        return sorted(tops - {"__main__"})

    @cached_property
    def classes(self) -> set[str]:
        """The names of all classes that the package defines."""
        return {
            node.name
            for tree in self.modules.values()
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef)
        }

    def type_switches(self) -> list[str]:
        """Return the `isinstance` checks over own classes that do not guard a `raise`."""
        found = []
        for name, tree in self.modules.items():
            guards = {
                id(part)
                for node in ast.walk(tree)
                if isinstance(node, ast.If) and isinstance(node.body[-1], ast.Raise)
                for part in ast.walk(node.test)
            }
            for node in ast.walk(tree):
                if not isinstance(node, ast.Call) or id(node) in guards:
                    continue
                if ast.unparse(node.func) != "isinstance":
                    continue
                if {part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)} & (
                    self.classes
                ):
                    found.append(f"{name}:{node.lineno} {ast.unparse(node)}")
        return found

    @cached_property
    def imports(self) -> list[Import]:
        """All imports of own modules, those in functions and under TYPE_CHECKING included."""
        return [
            Import(name, target, node.lineno)
            for name, tree in self.modules.items()
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for target in self._targets(node)
        ]

    def _targets(self, node: ast.Import | ast.ImportFrom) -> Iterator[str]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in self.modules)
        if isinstance(node, ast.ImportFrom) and node.module in self.modules:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from sorted(inner & self.modules.keys())
            if inner - self.modules.keys():
                yield node.module

    def past_init(self) -> list[Import]:
        """Return the imports of a file inside of another package; `_core` is made of files."""

        def package(name: str) -> str:
            return ".".join(name.split(".")[:2])

        return [
            one
            for one in self.imports
            if one.target.count(".") >= 2
            and package(one.importer) != package(one.target)
            and package(one.target) != "oism._core"
            and not self.is_package(one.target)
        ]

    def cycles(self) -> list[list[str]]:
        """Return the groups of modules that import each other, directly or not."""
        edges = (
            (one.importer, one.target)
            for one in self.imports
            if one.target not in (one.importer, "oism")  # names of the top level are lazy
        )
        groups = networkx.strongly_connected_components(networkx.DiGraph(edges))
        return sorted(sorted(group) for group in groups if len(group) > 1)

    def storage_modules(self) -> list[str]:
        """Return the modules that are named after storage."""
        return [name for name in self.modules if name.split(".")[-1].lstrip("_") == "storage"]

    def words(self) -> int:
        """Return the number of words of the README."""
        return len((self.root / "README.md").read_text(encoding="utf-8").split())

    def dependencies(self) -> list[str]:
        """Return the names of the hard dependencies."""
        project = tomllib.loads((self.root / "pyproject.toml").read_text(encoding="utf-8"))
        return [re.split(r"[><=~!\[ ]", one)[0] for one in project["project"]["dependencies"]]

    def lines(self) -> int:
        """Return the number of lines of the package."""
        files = self.source.rglob("*.py")
        return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)

    def counts(self) -> dict[str, int]:
        """Return all counts, by what they count."""
        return {
            "exported names": len(self.exported()),
            "top-level modules": len(self.top_level()),
            "isinstance checks over own types": len(self.type_switches()),
            "imports past a package's __init__": len(self.past_init()),
            "import cycles": len(self.cycles()),
            "storage modules": len(self.storage_modules()),
            "words in README": self.words(),
            "hard dependencies": len(self.dependencies()),
            "lines of src": self.lines(),
        }


def main() -> None:
    """Print the counts of one or two checkouts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", nargs="?", type=Path, help="another checkout, printed first")
    parser.add_argument("--tests", action="store_true", help="run and time `make test`")
    parser.add_argument("--list", action="store_true", help="list what is counted")
    options = parser.parse_args()
    checkouts = [Checkout(root) for root in (options.other, ROOT) if root is not None]
    counted = [one.counts() for one in checkouts]
    if options.tests:
        for one, counts in zip(checkouts, counted, strict=True):
            start = time.perf_counter()
            subprocess.run(["make", "test"], cwd=one.root, check=True, stdout=sys.stderr)
            counts["seconds of make test"] = round(time.perf_counter() - start)
    for name in counted[-1]:
        print(f"{name:36}", *(f"{counts[name]:8,}" for counts in counted))
    if options.list:
        own = checkouts[-1]
        print("\nchecks over own types", *own.type_switches(), sep="\n  ")
        print("\nimports past __init__", *own.past_init(), sep="\n  ")
        print("\ncycles", *own.cycles(), sep="\n  ")


if __name__ == "__main__":
    main()
