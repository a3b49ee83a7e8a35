"""Alternative texts of the pictures of notebooks: the caption below, the emphasised paragraph.

A picture that a cell draws has no text of its own. Its caption, ``*Left: the rows …*``, is what a
screen reader should read, and it is written once.
"""

from __future__ import annotations

from docutils import nodes
from sphinx.application import Sphinx


def caption_below(cell: nodes.Node) -> str:
    """Return the text of the caption that follows a cell, or an empty text.

    >>> text = nodes.paragraph("", "", nodes.emphasis("", "The rows."))
    >>> cell = nodes.container()
    >>> _ = nodes.section("", cell, text)
    >>> caption_below(cell)
    'The rows.'
    """
    below = cell.next_node(descend=False, siblings=True)
    if isinstance(below, nodes.paragraph) and isinstance(below.children[0], nodes.emphasis):
        return str(below.astext())
    return ""


def add_texts(_app: Sphinx, doctree: nodes.document, _page: str) -> None:
    """Give the pictures of cells their captions as alternative texts."""
    for cell in doctree.findall(nodes.container):
        if "cell" not in cell["classes"]:
            continue
        for picture in cell.findall(nodes.image):
            picture["alt"] = caption_below(cell)


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the texts when pages are written."""
    app.connect("doctree-resolved", add_texts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
