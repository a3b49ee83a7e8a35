"""The tree of the site: which pages are below which, in the order of the side bar.

It is here and not in the pages, which are read outside of the site too. An entry is relative to
the folder of its page and may be a pattern; pages are listed once, where they are named first.
"""

from __future__ import annotations

import posixpath
from fnmatch import fnmatchcase

from sphinx.application import Sphinx

TREE: dict[str, tuple[str, ...]] = {
    "docs/index": (
        "learn/index", "guides", "howto/index", "theory/index", "reference/index", "results",
        "errata", "development", "../CHANGELOG",
    ),
    "docs/learn/index": (
        "angles", "tables", "sphere", "images", "training", "sampling", "*",
    ),
    "docs/guides": (
        "tables", "parameters", "sphere", "rotations", "images", "training", "sampling",
        "diffusers", "explorer", "shell", "torch",
    ),
    "docs/howto/index": (
        "choose", "conditional-samples", "outliers", "model-comparison", "own-network", "gpu",
        "many-processes", "new-basis", "*", "../new-space",
    ),
    "docs/theory/index": ("scores", "flows", "spaces", "*", "../estimation", "../notation"),
    "docs/reference/index": (
        "command-line", "tables", "process", "basis", "flow", "score", "estimation", "images",
        "sampling", "objectives", "nn", "training", "diffusers", "azula", "data.*", "plot",
        "explorer", "storage",
    ),
    "docs/results": ("reliability", "../studies/README", "../benchmarks/README"),
    "studies/README": ("*/report",),
    "docs/development": ("architecture", "../CONTRIBUTING"),
}  # fmt: skip


def children(page: str, pages: set[str]) -> list[str]:
    """Return the pages below a page, of those that there are.

    >>> children("studies/README", {"studies/a/report", "studies/README", "docs/index"})
    ['studies/a/report']
    """
    found: dict[str, None] = {}
    for entry in TREE.get(page, ()):
        pattern = posixpath.normpath(posixpath.join(posixpath.dirname(page), entry))
        depth = pattern.count("/")
        matches = (one for one in pages if fnmatchcase(one, pattern) and one.count("/") == depth)
        found.update(dict.fromkeys(sorted(one for one in matches if one != page)))
    return list(found)


def _add_tree(app: Sphinx, page: str, source: list[str]) -> None:
    below = children(page, set(app.env.found_docs))
    if below:
        entries = "\n".join(f"/{one}" for one in below)
        source[0] += f"\n\n```{{toctree}}\n:hidden:\n\n{entries}\n```\n"


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the tree to the pages when they are read."""
    app.connect("source-read", _add_tree)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
