"""The reference: directives for a package, for the names of `oism`, and for the command line.

``{package} oism.process`` writes the docstring of a package, a table of its public names, and the
docstring of each. References to private modules (``oism.process._brownian.Brownian``), which
signatures contain, and bare names of other packages lead to the public name.
"""

from __future__ import annotations

import abc
import contextlib
import importlib
import inspect
import io
import os
import re
import textwrap
from collections.abc import Callable, Iterable
from typing import Any
from unittest import mock

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import SphinxError
from sphinx.util.docutils import SphinxDirective

import oism
from docs._site.docstrings import to_rst
from docs._site.names import constant_text, members, packages, places, public_names

PLAIN = {object, abc.ABC}
"""Bases that carry no information."""

WIDTH = 88  # columns of the help of a command


class Reference(SphinxDirective):
    """A directive whose content is written as Markdown by a function of its argument."""

    required_arguments = 0
    optional_arguments = 1
    text: Callable[..., Iterable[str]]

    def run(self) -> list[nodes.Node]:
        """Return the parsed text."""
        text = "\n".join(type(self).text(*self.arguments))
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def as_rst(lines: Iterable[str]) -> Iterable[str]:
    """Yield reStructuredText as a part of a Markdown page."""
    yield "`````{eval-rst}"
    yield from lines
    yield "`````"


def package_text(package: str) -> Iterable[str]:
    """Yield the reference of one package."""
    yield from as_rst(_package(package))


def _package(package: str) -> Iterable[str]:
    module = importlib.import_module(package)
    yield f".. py:module:: {package}"
    yield ""
    yield from to_rst(inspect.cleandoc(module.__doc__ or "").split("\n"))
    yield ""
    yield f".. py:currentmodule:: {package}"
    names = sorted(public_names(package), key=lambda name: _place(name, getattr(module, name)))
    yield from _table((name, f":py:obj:`{name}`") for name in names)(package)
    for name in names:
        yield from _entry(package, name, getattr(module, name))


def _place(name: str, value: object) -> int:
    """Return where a name is listed: those of `oism` itself first, constants last."""
    return 0 if name in oism.__all__ else 1 if callable(value) else 2


def _entry(package: str, name: str, value: Any) -> Iterable[str]:
    yield ""
    if inspect.isclass(value):
        listed = members(value)
        yield f".. autoclass:: {package}.{name}"
        if not PLAIN.issuperset(value.__bases__):
            yield "   :show-inheritance:"
        if listed:
            yield f"   :members: {', '.join(listed)}"
    elif callable(value) and getattr(value, "__name__", None) == name and value.__doc__:
        yield f".. autofunction:: {package}.{name}"
    else:
        yield f".. py:data:: {name}"
        shown = re.sub(
            r"\s+", " ", str(value).replace("torch.", "").replace("collections.abc.", "")
        )
        yield f"   :value: {shown if len(shown) <= 80 else shown[:77] + '...'}"
        yield ""
        yield from (f"   {line}" for line in to_rst(constant_text(package, name).split("\n")))
    yield ""


def _table(rows: Iterable[tuple[str, str]]) -> Callable[[str], Iterable[str]]:
    """Return a function that writes names of a package with the first lines of their docstrings."""

    def write(package: str) -> Iterable[str]:
        module = importlib.import_module(package)
        yield ""
        yield ".. list-table::"
        yield "   :class: names"
        yield "   :widths: 30 70"
        yield ""
        for name, link in rows:
            value = getattr(module, name)
            own = (
                inspect.isclass(value) or inspect.isroutine(value) or hasattr(value, "__wrapped__")
            )
            text = inspect.getdoc(value) if own else constant_text(package, name)
            first = (text or "").split("\n\n")[0].replace("\n", " ")
            yield f"   * - {link}"
            yield f"     - {' '.join(to_rst([first]))}"
        yield ""

    return write


def top_level_text() -> Iterable[str]:
    """Yield the names of `oism` itself, each with a link to its package."""
    links = ((name, f":py:obj:`{name} <{places()[name]}.{name}>`") for name in oism.__all__)
    yield from as_rst([".. py:module:: oism", *_table(links)("oism")])


def commands_text() -> Iterable[str]:
    """Yield the help of the command ``oism`` and of each of its commands."""
    from oism.cli import COMMANDS  # noqa: PLC0415

    for words in ([], *([name] for name in COMMANDS)):
        if words:
            yield f"## oism {words[0]}"
        yield from ("```text", *_wrapped(help_of(words)), "```")


def help_of(words: list[str]) -> str:
    """Return the complete help of a command, without colours."""
    from oism.cli import parse  # noqa: PLC0415

    out = io.StringIO()
    plain = {"COLUMNS": str(WIDTH), "NO_COLOR": "1", "TERM": "dumb"}
    caught = contextlib.suppress(SystemExit)
    with mock.patch.dict(os.environ, plain), contextlib.redirect_stdout(out), caught:
        parse([*words, "--help-all" if words else "--help"])
    return out.getvalue().strip()


def _wrapped(text: str) -> Iterable[str]:
    """Yield lines of at most `WIDTH` characters; tyro wraps options, but not descriptions."""
    for line in text.split("\n"):
        if not re.fullmatch(r" *-{20,}", line):  # below a title
            indent = " " * (len(line) - len(line.lstrip()))
            found = textwrap.wrap(line, WIDTH, subsequent_indent=indent, break_on_hyphens=False)
            yield from found or [""]


def find_public(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.TextElement
) -> nodes.Node | None:
    """Return a link to the public name that a reference means, or None."""
    if node.get("refdomain") != "py":
        return None
    target = str(node["reftarget"]).removesuffix("()")
    private = re.fullmatch(r"oism\.(?:\w+\.)*_\w+(?:\.\w+)*?\.(\w+(?:\.\w+)?)", target)
    name, _, member = (private[1] if private else target).partition(".")
    if name not in places():
        return None
    full = f"{places()[name]}.{name}" + (f".{member}" if member else "")
    domain = env.domains.python_domain
    if full not in domain.objects:
        full = f"{places()[name]}.{name}"
    return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", full, node, content)


def check_complete(app: Sphinx, error: Exception | None) -> None:
    """Fail if a public name has no entry."""
    if error is None and app.builder.format == "html":
        entries = app.env.domains.python_domain.objects
        wanted = [f"{package}.{name}" for package in packages() for name in public_names(package)]
        missing = [name for name in wanted if name not in entries]
        if missing:
            raise SphinxError("no entry in the reference: " + ", ".join(missing))


def only_exact(app: Sphinx, doctree: nodes.document) -> None:
    """Let no word of a type, such as (low, high), refer to a member of some class."""
    for node in doctree.findall(pending_xref):
        node.attributes.pop("refspecific", None)


def without_blank_ends(app: Sphinx, doctree: nodes.document) -> None:
    """Cut the blank line that ends a doctest in Markdown off the code that is shown."""
    for node in doctree.findall(nodes.literal_block):
        text = node.astext().rstrip()
        if text != node.astext():
            node.rawsource = text
            node.children = [nodes.Text(text)]


def own_bases(app: Sphinx, name: str, obj: Any, options: Any, bases: list[type]) -> None:
    """Leave out bases that carry no information."""
    bases[:] = [one for one in bases if one not in PLAIN]


def _escape(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = to_rst(lines)


def _directive(function: Callable[..., Iterable[str]]) -> type[Reference]:
    return type(function.__name__, (Reference,), {"text": staticmethod(function)})


def setup(app: Sphinx) -> dict[str, bool]:
    """Add directives, the conversion of docstrings, and references to public names."""
    app.add_directive("package", _directive(package_text))
    app.add_directive("top-level", _directive(top_level_text))
    app.add_directive("commands", _directive(commands_text))
    app.connect("autodoc-process-docstring", _escape, priority=100)  # before napoleon
    app.connect("doctree-read", only_exact)
    app.connect("doctree-read", without_blank_ends)
    app.connect("autodoc-process-bases", own_bases)
    app.connect("missing-reference", find_public)
    app.connect("build-finished", check_complete)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
