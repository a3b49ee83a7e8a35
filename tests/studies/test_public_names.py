"""Studies and benchmarks use the public names of the library only, as any user does."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = [
    path.relative_to(ROOT)
    for folder in ("studies", "benchmarks")
    for path in sorted((ROOT / folder).rglob("*.py"))
]
OWN = ("self", "cls")


def private_names(tree: ast.AST) -> Iterator[str]:
    """Yield imports of private modules and uses of private attributes of other objects."""
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) not in OWN:
            private = node.attr.startswith("_") and not node.attr.startswith("__")
            names = [ast.unparse(node)] if private else []
        yield from (name for name in names if "._" in name)


def test_private_names_are_found() -> None:
    code = "from oism._core import checks\nimport oism.flow._flow\nscore._time(x)\nself._own()"
    found = list(private_names(ast.parse(code)))
    assert sorted(found) == ["oism._core.checks", "oism.flow._flow", "score._time"]


@pytest.mark.parametrize("path", FILES, ids=str)
def test_only_public_names_are_used(path: Path) -> None:
    assert list(private_names(ast.parse((ROOT / path).read_text(encoding="utf-8")))) == []
