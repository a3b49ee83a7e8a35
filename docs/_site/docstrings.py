"""Docstrings as reStructuredText.

Docstrings of the library are plain text: `names` in backticks, *emphasis*, ``code``, doctests, the
sections of numpydoc, indented blocks of formulas, and mathematics in Unicode. In it |x|, L* and X_
are no markup, and are escaped here.
"""

from __future__ import annotations

import re

MARKUP = re.compile(
    r"(``.+?``|`[^`]+`|\*\*[^*\s][^*]*\*\*|(?<![\w*])\*[^*\s](?:[^*]*[^*\s])?\*(?![\w*]))",
    re.DOTALL,
)
SPECIAL = re.compile(r"([|*\\]|(?<=\w)_(?!\w))")
RULE = re.compile(r"^-{3,}$")
ITEM = re.compile(r"([-*]|\d+\.) ")
FORMULA = [".. code-block:: text", "   :class: formula", ""]


def to_rst(lines: list[str]) -> list[str]:
    r"""Return the lines of a docstring as reStructuredText.

    >>> to_rst(["Return |x|, or L* of `x`.", "", ">>> 1 | 2", "3"])
    ['Return \\|x\\|, or L\\* of `x`.', '', '>>> 1 | 2', '3']
    >>> to_rst(["With", "", "    f = |x|"])
    ['With', '', '.. code-block:: text', '   :class: formula', '', '    f = |x|']
    """
    found: list[str] = []
    at, section = 0, ""
    while at < len(lines):
        end = at + 1
        if end < len(lines) and RULE.match(lines[end]):
            section, end = lines[at], end + 1
            found += lines[at:end]
        elif lines[at].lstrip().startswith(">>>"):
            while end < len(lines) and lines[end].strip():
                end += 1
            found += lines[at:end]
        elif section in {"", "Examples"} and _is_block(lines, at):
            while end < len(lines) and (not lines[end].strip() or lines[end].startswith("    ")):
                end += 1
            literal = any(one.endswith("::") for one in found[-2:])
            found += ([] if literal else FORMULA) + "\n".join(lines[at:end]).rstrip().split("\n")
            found += [""] if end < len(lines) else []
        else:
            while lines[at].strip() and end < len(lines) and _continues(lines, end):
                end += 1
            found += _escape("\n".join(lines[at:end])).split("\n")
        at = end
    return found


def _continues(lines: list[str], at: int) -> bool:
    """Whether a line belongs to the paragraph before it."""
    head = at + 1 < len(lines) and RULE.match(lines[at + 1])
    return bool(lines[at].strip() and not head and not lines[at].lstrip().startswith(">>>"))


def _is_block(lines: list[str], at: int) -> bool:
    """Whether an indented block starts here, which does not continue the item of a list."""
    if not lines[at].startswith("    ") or (at and lines[at - 1].strip()):
        return False
    before = [one for one in lines[:at] if one.strip() and not one.startswith("  ")]
    return not (before and ITEM.match(before[-1]))


def _escape(text: str) -> str:
    parts = MARKUP.split(text)
    parts[::2] = [SPECIAL.sub(r"\\\1", part) for part in parts[::2]]
    for at in range(1, len(parts), 2):  # markup needs a space or punctuation on both sides
        if re.match(r"[^\s'\")\]}>\-/\\:.,;!?]", parts[at + 1]):
            parts[at + 1] = "\\ " + parts[at + 1]
        if re.search(r"[^\s'\"(\[{<\-/:]$", parts[at - 1]):
            parts[at - 1] += "\\ "
    return "".join(parts)
