"""A fitted model as HTML, for notebooks: its columns, what was chosen, and the held-out score.

The text has the colour of the page, and lines and shades are half transparent. So the page may be
light or dark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from oism._core.plain import plain
from oism.tables._summary import FUNCTION_TEXTS

Facts = Mapping[str, Any]

OPEN_COLUMNS = 12
"""Up to this number of columns their table is shown without a click."""

LEVELS_SHOWN, MEMBERS_SHOWN = 5, 4

OF_COLUMNS = ("periodic", "bounds", "box")
"""The parameters that the table of the columns shows."""

STYLE = """
.oism-model { font: 13px/1.45 system-ui, sans-serif; color: inherit; max-width: 46em;
  border: 1px solid rgba(128, 128, 128, .4); border-radius: 6px; overflow: hidden; }
.oism-model .head { padding: .45em .9em; background: rgba(74, 120, 200, .16); }
.oism-model .head b { margin-right: .7em; }
.oism-model .body { padding: .35em .9em .6em; }
.oism-model table { border-collapse: collapse; margin: .3em 0 .5em; font-size: 12px;
  background: none; color: inherit; }
.oism-model tr, .oism-model tr:nth-child(even) { background: none; }
.oism-model th, .oism-model td { text-align: left; padding: .15em 1.4em .15em 0; border: 0;
  border-bottom: 1px solid rgba(128, 128, 128, .25); background: none; color: inherit;
  vertical-align: top; }
.oism-model th, .oism-model dt { font-weight: 400; opacity: .65; }
.oism-model dl { display: grid; grid-template-columns: max-content auto; gap: .1em 1.2em;
  margin: .4em 0; }
.oism-model dd { margin: 0; }
.oism-model summary { cursor: pointer; opacity: .75; }
.oism-model pre { font-size: 11px; line-height: 1.35; white-space: pre-wrap; margin: .3em 0;
  background: none; color: inherit; }
"""


def model_html(
    name: str, facts: Facts, *, rows: float | None, parameters: Facts, summary: str
) -> str:
    """Return a fitted model as HTML.

    ``rows`` is their number, where the facts do not have it. ``parameters`` are those that differ
    from their defaults, ``summary`` is a text of all choices.
    """
    columns, rows = facts["columns"], facts.get("rows", rows)
    head = [f"{rows:,.0f} rows"] if rows is not None else []
    head.append(f"{len(columns)} column{'s' if len(columns) != 1 else ''}")
    if facts.get("held_out") is not None:
        head.append(f"held-out log-likelihood {_signed(facts['held_out'])} nats per row")
    other = {key: value for key, value in parameters.items() if key not in OF_COLUMNS}
    choices = [*_choices(facts), *((key, _value(value)) for key, value in other.items())]
    listed = "".join(f"<dt>{escape(key)}</dt><dd>{escape(value)}</dd>" for key, value in choices)
    return (
        f"<style>{STYLE}</style>"
        f'<div class="oism-model"><div class="head"><b>{escape(name)}</b>'
        f"{escape(' · '.join(head))}</div>"
        f'<div class="body">{_column_table(columns)}<dl>{listed}</dl>'
        f"<details><summary>all choices</summary><pre>{escape(summary)}</pre></details>"
        "</div></div>"
    )


def _column_table(columns: Sequence[Facts]) -> str:
    lines = "".join(
        f"<tr><td>{escape(str(one['name']))}</td><td>{escape(str(one['kind']))}</td>"
        f"<td>{escape(_range(one))}</td></tr>"
        for one in columns
    )
    table = f"<table><tr><th>column</th><th>kind</th><th>range</th></tr>{lines}</table>"
    if len(columns) <= OPEN_COLUMNS:
        return table
    return f"<details><summary>{len(columns)} columns</summary>{table}</details>"


def _range(column: Facts) -> str:
    """Return what is known of the values of a column."""
    levels, low, high = column.get("levels"), column.get("low"), column.get("high")
    ends = "" if low is None and high is None else _ends(low, high)
    if isinstance(levels, Sequence) and not isinstance(levels, str):
        shown = ", ".join(map(str, levels[:LEVELS_SHOWN]))
        return f"{shown}, … ({len(levels)} levels)" if len(levels) > LEVELS_SHOWN else shown
    if levels is not None:
        return f"{levels} levels{', ' * bool(ends)}{ends}"
    if column.get("period") is not None:
        return f"modulo {_number(column['period'])}"
    if column.get("bound") is not None:  # bounded at one end
        at_low = low is not None and abs(column["bound"] - low) <= abs(column["bound"] - high)
        return f"{'from' if at_low else 'up to'} {_number(column['bound'])}"
    return ends if column["kind"] == "bounded" else f"box {ends}" if ends else ""


def _ends(low: float | None, high: float | None) -> str:
    if low is None:
        return f"up to {_number(high)}"
    return f"from {_number(low)}" if high is None else f"{_number(low)} to {_number(high)}"


def _choices(facts: Facts) -> list[tuple[str, str]]:
    """Return what was chosen, by name."""
    found: list[tuple[str, str]] = []
    if isinstance(facts.get("process"), Mapping):
        found.append(("process", str(facts["process"]["kind"])))
    elif facts.get("kind") is not None:
        found.append(("model", str(facts["kind"])))
    if facts.get("members"):
        members = sorted(facts["members"], key=lambda one: -one["weight"])
        texts = [f"{one['weight']:.0%} {one['name']}" for one in members[:MEMBERS_SHOWN]]
        more = [f"{len(members) - len(texts)} more"] if len(members) > len(texts) else []
        found.append(("pool of", "; ".join(texts + more)))
    if facts.get("components") is not None:
        found.append(("components", f"{facts['components']:,}"))
    if isinstance(facts.get("functions"), Mapping):
        functions = facts["functions"]
        text = FUNCTION_TEXTS.get(functions["kind"], "{kind}").format(**functions)
        found.append(("functions", text))
    if facts.get("corrections"):
        found.append(("corrections", _value(facts["corrections"])))
    if facts.get("steps") is not None:
        found.append(("flow", f"{facts['steps']} steps"))
    if isinstance(facts.get("background"), float):
        found.append(("background", f"a wide component of weight {_number(facts['background'])}"))
    return found


def _value(value: object) -> str:
    """Return a value as text."""
    if isinstance(value, Mapping):
        kind = [str(value["kind"])] if "kind" in value else []
        rest = [f"{k} {_value(v)}" for k, v in value.items() if k != "kind" and v is not None]
        return ", ".join(kind + rest)
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, list | tuple):
        return ", ".join(map(_value, value))
    return str(plain(value))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}".replace("-", "−")


def _signed(value: float) -> str:
    return f"{value:.3f}".replace("-", "−")
