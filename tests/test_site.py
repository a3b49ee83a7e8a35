"""The pages of the repository: every public name has an entry, every link a target, code runs.

These tests read files only. tests/test_site_build.py builds the site.
"""

from __future__ import annotations

import ast
import importlib
import math
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

pytest.importorskip("sphinx")
pytest.importorskip("myst_parser")

from markdown_it import MarkdownIt
from markdown_it.token import Token
from myst_parser.slugs import github_slugify

from docs._site.docstrings import to_rst
from docs._site.names import COMMANDS, packages, places, public_names
from docs._site.reference import help_of, package_text
from docs._site.tree import TREE, children

ROOT = Path(__file__).parents[1]
FOLDERS = ("docs", "studies", "benchmarks", ".github")
PAGES = sorted(
    [*ROOT.glob("*.md"), *(page for one in FOLDERS for page in (ROOT / one).rglob("*.md"))]
)
GENERATED = {"docs/explore.html"}
"""Files that only the site has."""

OFF_THE_SITE = {"docs/README.md"}
"""Pages of docs that the site leaves out: its landing page has the same list."""

RUN_ELSEWHERE = {"docs/new-space.md": "tests/test_new_space_page.py"}
NOT_RUN = {
    "docs/howto/gpu.md": "needs a GPU; a test runs the first block on the CPU",
    "docs/howto/many-processes.md": "programs for torchrun, with 100,000 steps of training",
}
"""Pages with Python that is neither a doctest nor a cell of a notebook, and why it is not run."""


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def tokens(page: Path) -> Iterator[Token]:
    text = re.sub(r"\A---\n.*?\n---\n", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        yield token
        yield from token.children or ()


# -- the reference ---------------------------------------------------------------------------------


def listed_in_source(package: str) -> list[str]:
    """Return ``__all__`` without importing anything; without it, what the module defines."""
    path = ROOT / "src" / package.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    body = ast.parse(file.read_text(encoding="utf-8")).body
    for node in body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [str(name) for name in ast.literal_eval(node.value)]
    defined = (ast.ClassDef, ast.FunctionDef)
    return [node.name for node in body if isinstance(node, defined) and node.name[0] != "_"]


def test_all_public_packages_have_a_page() -> None:
    source = ROOT / "src" / "oism"
    public = {one.stem for one in source.iterdir() if re.fullmatch(r"[a-z]\w*(\.py)?", one.name)}
    nested = {"data.files", "data.toys"}  # data itself has no names
    assert {f"oism.{name}" for name in public - {"data"} | nested} - {COMMANDS} == set(packages())
    for package in packages():
        page = ROOT / "docs" / "reference" / f"{package.removeprefix('oism.')}.md"
        assert f"```{{package}} {package}\n" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("package", packages())
def test_every_public_name_has_an_entry(package: str) -> None:
    text = "\n".join(package_text(package))
    entries = re.findall(r"^\.\. (?:auto\w+|py:data):: (\S+)", text, re.MULTILINE)
    names = [one.removeprefix(f"{package}.") for one in entries]
    assert sorted(names) == sorted(public_names(package))
    assert set(public_names(package)) == set(listed_in_source(package))
    empty = re.findall(r"\* - :py:obj:`(.*)`\n {5}- *\n", text)
    assert empty == [], "public names without a docstring"


def test_the_names_of_the_package_itself_are_those_of_one_package() -> None:
    oism = importlib.import_module("oism")
    assert [name for name in oism.__all__ if name not in places()] == []


def test_the_search_knows_the_names_of_the_package() -> None:
    text = (ROOT / "docs/_static/scorer.js").read_text()
    listed = re.findall(r'"(\w+)"', text.partition("EXPORTED = new Set([")[2].partition("])")[0])
    assert listed == sorted(set(importlib.import_module("oism").__all__) - {"__version__"})


def test_the_help_of_commands_is_complete() -> None:
    """Options that only --help-all prints are on the page."""
    assert "--max-eigenvalue" in help_of(["fit"])
    assert "\x1b" not in help_of(["fit"])  # no colours


def test_docstrings_keep_mathematics() -> None:
    assert to_rst(["X_ and |x|, **L***, *word*"]) == [r"X\_ and \|x\|, **L**\*, *word*"]
    assert to_rst(["Parameters", "----------", "x", "    Some |x|."])[-1] == r"    Some \|x\|."


# -- links -----------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page as GitHub makes them."""
    found: list[str] = []
    parsed = list(tokens(page))
    for head, inline in pairwise(parsed):
        if head.type == "heading_open":
            parts = (
                one.content for one in inline.children or () if one.type in {"text", "code_inline"}
            )
            slug = github_slugify("".join(parts))
            count = sum(
                re.fullmatch(rf"{re.escape(slug)}(-\d+)?", one) is not None for one in found
            )
            found.append(f"{slug}-{count}" if count else slug)
    return set(found)


def links(page: Path) -> Iterator[str]:
    for token in tokens(page):
        for attribute in ("href", "src"):
            if token.type in {"link_open", "image"} and attribute in token.attrs:
                yield str(token.attrs[attribute])
        if token.type in {"html_block", "html_inline"}:
            yield from re.findall(r'(?:href|src)="([^"]+)"', token.content)


def dead(page: Path, link: str) -> bool:
    if re.match(r"[a-z]+:", link):
        return False
    path, _, anchor = unquote(link).partition("#")
    target = (page.parent / path).resolve() if path else page
    if target.is_relative_to(ROOT) and name_of(target) in GENERATED:
        return False
    if not target.exists() or not target.is_relative_to(ROOT):
        return True
    return bool(anchor) and target.suffix == ".md" and anchor not in anchors(target)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_link_is_dead(page: Path) -> None:
    assert [link for link in links(page) if dead(page, link)] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_paths_in_the_text_exist(page: Path) -> None:
    if page.name == "CHANGELOG.md":
        return  # it names files of its time
    pattern = re.compile(r"(?:src|tests|docs|studies|benchmarks)/[\w./-]+\.\w+")
    codes = [one.content.partition("::")[0] for one in tokens(page) if one.type == "code_inline"]
    found = [word for code in codes for word in code.split() if pattern.fullmatch(word)]
    assert [word for word in found if not (ROOT / word).exists()] == []


def test_dead_links_are_found(tmp_path: Path) -> None:
    page = ROOT / "docs" / "results.md"
    for link in ("../studies/README.md", "#speed", "errata.md#wrong-as-printed"):
        assert not dead(page, link)
    for link in ("nothing.md", "#nothing", "errata.md#nothing", "../../outside.md"):
        assert dead(page, link)


# -- the tree of the site --------------------------------------------------------------------------


def test_every_page_is_in_the_tree_once() -> None:
    names = {name_of(page) for page in PAGES} - OFF_THE_SITE
    shown = [
        one
        for one in names
        if one.startswith("docs/")
        or re.fullmatch(r"studies/(README|\w+/report)\.md|benchmarks/README.md", one)
        or one in {"CHANGELOG.md", "CONTRIBUTING.md"}
    ]
    pages = {one.removesuffix(".md") for one in shown}
    below = [one for page in TREE for one in children(page, pages)]
    assert sorted([*below, "docs/index"]) == sorted(pages)


# -- code ------------------------------------------------------------------------------------------


def plain_code(page: Path) -> list[str]:
    """Return the blocks of Python that pytest does not collect, notebooks apart."""
    blocks = [one.content for one in tokens(page) if one.type == "fence" and one.info == "python"]
    return [block for block in blocks if ">>>" not in block]


def test_every_block_of_python_is_run() -> None:
    found = {name_of(page) for page in PAGES if plain_code(page)}
    assert found == {*RUN_ELSEWHERE, *NOT_RUN, "docs/index.md", "docs/tables.md"}
    assert all((ROOT / test).exists() for test in RUN_ELSEWHERE.values())


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_cells_are_on_pages_that_are_executed(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    if "```{code-cell}" in text:
        assert text.startswith("---\nfile_format: mystnb\nkernelspec:")


@pytest.mark.parametrize("page", sorted(NOT_RUN))
def test_code_that_is_not_run_imports_what_exists(page: str) -> None:
    for block in plain_code(ROOT / page):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom):
                module = importlib.import_module(str(node.module))
                assert [one.name for one in node.names if not hasattr(module, one.name)] == []


def test_the_page_of_tables_reads_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = np.random.default_rng(0).normal(size=(300, 2))
    pq.write_table(pa.table({"x": rows[:, 0], "y": rows[:, 1]}), "big.parquet")
    (block,) = plain_code(ROOT / "docs" / "tables.md")
    names: dict[str, Any] = {}
    exec(compile(block, "docs/tables.md", "exec"), names)
    exact = -0.5 * (rows**2).sum(1) - math.log(2 * math.pi)
    assert names["model"].score(rows) / 300 == pytest.approx(exact.mean(), abs=0.15)


def test_the_page_of_gpus_fits_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = np.random.default_rng(0).normal(size=(200, 1))
    names: dict[str, Any] = {"rows": rows}
    block = plain_code(ROOT / "docs/howto/gpu.md")[0].replace('"cuda"', '"cpu"')
    exec(compile(block, "docs/howto/gpu.md", "exec"), names)
    np.testing.assert_array_equal(names["again"].score_samples(rows), names["log_density"])


def test_the_landing_page_fits_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = np.random.default_rng(0)
    trips = {"hour": source.uniform(0, 24, 200), "distance": source.gamma(2.0, size=200)}
    pa.csv.write_csv(pa.table(trips), "trips.csv")
    (block,) = plain_code(ROOT / "docs" / "index.md")
    names: dict[str, Any] = {}
    exec(compile(block, "docs/index.md", "exec"), names)
    assert list(names["new"].columns) == [*trips]
    assert bool((names["new"]["distance"] > 0).all())
    assert np.isfinite(names["unusual"]).all()
