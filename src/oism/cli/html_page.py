"""A report as one HTML file with embedded figures, which opens without a network connection."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

DPI = 170

STYLE = """
:root { color-scheme: light dark; --ink: #1b2430; --soft: #55606e; --line: #d5dbe2;
  --page: #f7f8fa; --card: #ffffff; --accent: #1f4b8f; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6ebf1; --soft: #a3aebb; --line: #333d49;
  --page: #0b0f14; --card: #151b23; --accent: #8cc0f0; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2.5rem 1.25rem 4rem; max-width: 54rem; color: var(--ink);
  background: var(--page);
  font: 16px/1.6 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 .25rem; color: var(--accent); }
p { margin: .5rem 0; } .lead { font-size: 1.1rem; color: var(--soft); }
.scroll { overflow-x: auto; margin: 1.25rem 0; }
table { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .4rem 0 .4rem 1rem; text-align: right; border-bottom: 1px solid var(--line); }
thead th { color: var(--soft); font-weight: 600; font-size: .85rem; vertical-align: bottom; }
th:first-child { text-align: left; padding-left: 0; } tbody th { font-weight: 400; }
tr.best th, tr.best td { font-weight: 650; }
.figures { display: grid; gap: .75rem; margin: 1rem 0; align-items: start;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 15rem), 1fr)); }
img { display: block; width: 100%; height: auto; padding: .4rem; background: #fff;
  border: 1px solid var(--line); border-radius: 8px; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: .9rem 1.1rem; overflow-x: auto; font-size: .85rem; line-height: 1.5; }
footer { margin-top: 3rem; color: var(--soft); font-size: .85rem; }
"""
"""The colours and the font of the site and of the explorer, in light and dark."""


@dataclass(frozen=True)
class Section:
    """A heading, a sentence or two, and figures or preformatted text.

    Figures are given with their descriptions. They share the width of the text, and are one below
    the other on a phone.
    """

    heading: str
    words: str
    figures: Mapping[str, Figure] = field(default_factory=dict)
    verbatim: str = ""

    def html(self) -> str:
        """Return the section."""
        parts = [f"<h2>{html.escape(self.heading)}</h2>", f"<p>{html.escape(self.words)}</p>"]
        if self.figures:
            images = (
                f'<img alt="{html.escape(words)}" src="{embedded(figure)}">'
                for words, figure in self.figures.items()
            )
            parts.append('<div class="figures">' + "\n".join(images) + "</div>")
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
    cells = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in head)
    lines = [f"<thead><tr>{cells}</tr></thead>", "<tbody>"]
    for place, (name, *numbers) in enumerate(rows):
        mark = ' class="best"' if place == best else ""
        cells = "".join(f"<td>{html.escape(cell)}</td>" for cell in numbers)
        lines.append(f'<tr{mark}><th scope="row">{html.escape(name)}</th>{cells}</tr>')
    body = "\n".join([*lines, "</tbody>"])
    return f'<div class="scroll"><table>{body}</table></div>'


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
