"""A report as one HTML file with embedded figures, which opens without a network connection."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

DPI = 140

STYLE = """
:root { --ink: #1b2430; --soft: #5b6675; --line: #dfe4ea; --accent: #1f3b73; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2.5rem 1.25rem 4rem; max-width: 58rem; color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; background: #fff; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .25rem; color: var(--accent); }
p { margin: .4rem 0; } .lead { font-size: 1.1rem; color: var(--soft); }
table { border-collapse: collapse; margin: 1.25rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .4rem .9rem; text-align: right; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 600; font-size: .85rem; } th:first-child,
td:first-child { text-align: left; padding-left: 0; } tr.best td { font-weight: 650; }
img { display: block; max-width: 100%; height: auto; margin: .75rem 0; }
pre { background: #f5f7fa; padding: .9rem 1.1rem; border-radius: 6px; overflow-x: auto;
  font-size: .85rem; line-height: 1.45; }
footer { margin-top: 3rem; color: var(--soft); font-size: .85rem; }
"""


@dataclass(frozen=True)
class Section:
    """A heading, a sentence or two, and a figure or preformatted text."""

    heading: str
    words: str
    figure: Figure | None = None
    verbatim: str = ""

    def html(self) -> str:
        """Return the section."""
        parts = [f"<h2>{html.escape(self.heading)}</h2>", f"<p>{html.escape(self.words)}</p>"]
        if self.figure is not None:
            parts.append(f'<img alt="{html.escape(self.heading)}" src="{embedded(self.figure)}">')
        if self.verbatim:
            parts.append(f"<pre>{html.escape(self.verbatim)}</pre>")
        return "\n".join(parts)


def embedded(figure: Figure) -> str:
    """Return a figure as a data URL, and close it."""
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=DPI)
    plt.close(figure)
    return f"data:image/png;base64,{base64.b64encode(content.getvalue()).decode()}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], best: int) -> str:
    """Return a table, one of its rows set in bold."""
    cells = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    lines = [f"<tr>{cells}</tr>"]
    for place, row in enumerate(rows):
        mark = ' class="best"' if place == best else ""
        cells = "".join(f"<td>{html.escape(cell)}</td>" for cell in row)
        lines.append(f"<tr{mark}>{cells}</tr>")
    return "<table>" + "\n".join(lines) + "</table>"


def page(title: str, lead: str, summary: str, sections: Sequence[Section], foot: str) -> str:
    """Return the page; ``summary`` is HTML that follows the lead."""
    body = "\n".join(section.html() for section in sections)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f'<h1>{html.escape(title)}</h1>\n<p class="lead">{html.escape(lead)}</p>\n'
        f"{summary}\n{body}\n<footer>{html.escape(foot)}</footer>\n</body>\n</html>\n"
    )
