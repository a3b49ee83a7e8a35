"""The choices of a fitted model, as plain values and as a page of text."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from oism._core.plain import plain
from oism.score import OperatorScore
from oism.tables._chart import Chart

Facts = dict[str, Any]

COLUMN_TEXTS = {
    "periodic": "periodic, period {period:g}",
    "bounded": "bounded, {low:g} to {high:g}, reflected",
    "half-bounded": "bounded at {bound:g}, box from {low:.4g} to {high:.4g}, reflected",
    "interval": "bounded, {low:g} to {high:g}",
    "half-line": "bounded at {bound:g}, scale {scale:.4g}",
    "discrete": "discrete, {levels} levels from {low:g} to {high:g}",
    "free": "free, box from {low:.4g} to {high:.4g}",
    "latitude": "latitude in {unit}",
    "longitude": "longitude in {unit}",
    "x": "first entry of unit vectors",
    "y": "second entry of unit vectors",
    "z": "third entry of unit vectors",
}
ENDS = {"low": "from", "high": "up to"}
COORDINATE_TEXTS = {
    "plain": "in the columns as they are",
    "warped": "in columns warped to normal margins",
}
MOST_MEMBERS = 5
FUNCTION_TEXTS = {
    "waves": "{count} waves, frequencies up to {finest:.3g}",
    "polynomials": "polynomials up to degree {degree}",
    "spherical harmonics": "{count} spherical harmonics, degrees up to {finest}",
}
"""What is printed of each kind of column and function; of others, the kind."""

CHOICE_TEXT = (
    "{taken}: on {rows} held-out rows a mixture has a log-likelihood of {gain:+.2f} ± {error:.2f} "
    "nats per row relative to the torus"
)
"""What is printed of the choice between the torus and a mixture."""


def table_facts(score: OperatorScore, chart: Chart, names: Sequence[str]) -> Facts:
    """Return columns, process, functions and choices as JSON can hold them."""
    columns = zip(names, chart.facts(), strict=True)
    return {
        "columns": [{"name": name, **column} for name, column in columns],
        **score_facts(score),
    }


def score_facts(score: OperatorScore) -> Facts:
    """Return process, functions and choices of a score as JSON can hold them."""
    return {
        "process": _settings(score.process),
        "clock": _settings(score.clock),
        "times": list(score.times),
        "functions": score.basis.facts(),
        "choices": _choices(score),
        "ridge": _ridge(score),
    }


def describe(found: Facts) -> str:
    """Return a page of text about the facts of a model."""
    if "process" not in found:
        parts = _pool_lines(found) if "components" in found else _stack_lines(found)
        return "\n".join([*_column_lines(found["columns"]), *parts, *_model_choice_lines(found)])
    process, clock = found["process"]["kind"], found["clock"]["kind"]
    low, high = found["times"]
    lines = [
        *_column_lines(found["columns"]),
        f"process     {process}, {clock} clock, t from {low:.2g} to {high:.3g}",
        f"functions   {_function_text(found['functions'])}",
        *_choice_lines(found),
        f"flow        Runge-Kutta of order 4, {found['steps']} steps",
    ]
    if found["background"] is not None:
        share = found["background"]
        lines.append(f"background  a component of twice the spread, weight {share:.2g}")
    if "pool" in found:
        pool = found["pool"]
        lines.append(
            f"pool        {pool['flow']:.0%} flow, {pool['kernels']:.0%} kernels of "
            f"{pool['members']} widths, {pool['uniform']:.1%} uniform; per steradian"
        )
    if "others" in found:
        lines += ["others      given the point, as follows", *_pool_lines(found["others"])]
    return "\n".join([*lines, *_network_lines(found), *_model_choice_lines(found)])


def _model_choice_lines(found: Facts) -> list[str]:
    """Return which model held-out rows have chosen, and by what, if they have."""
    choice = found.get("choice")
    if choice is None:
        return []
    return [f"choice      {CHOICE_TEXT.format(**choice)}"]


def _network_lines(found: Facts) -> list[str]:
    """Return the share of networks beside the model, if there are any."""
    network = found.get("network")
    if network is None:
        return []
    text = f"share {network['share']:.2f}, {network['networks']} networks"
    if network.get("gain") is not None:
        text += f", held-out gain {network['gain']:.3f} ± {network['error']:.3f} nats per row"
    return [f"network     {text}"]


def _stack_lines(found: Facts) -> list[str]:
    """Return weight, process, functions and steps of each member of a pool of processes."""
    lines = [
        f"{'pool' if k == 0 else '':<12}{one['weight']:.2f} {one['name']}, "
        f"{_function_text(one['functions'])}, flow of {one['steps']} steps"
        for k, one in enumerate(found["members"])
    ]
    if "kernels" in found:
        one = found["kernels"]
        lines.append(f"{'':<12}{one['weight']:.2f} {one['name']}, {one['components']} components")
    return lines


def _pool_lines(found: Facts) -> list[str]:
    """Return the parts of a pool of mixtures, its members and the held-out log-likelihood."""
    parts = found.get("parts", [])
    lines = [f"model       mixtures of {found['components']} Gaussians in closed form, no flow"]
    for k, part in enumerate(parts):
        place = COORDINATE_TEXTS[part["name"]]
        text = f"{part['weight']:.0%} {place}, {part['components']} components"
        lines.append(f"{'pool' if k == 0 else '':<12}{text}")
    for k, member in enumerate(found.get("members", [])[:MOST_MEMBERS]):
        text = f"{member['weight']:.2f} {member['name']}"
        lines.append(f"{'members' if k == 0 else '':<12}{text}")
    if found.get("rows") is not None:
        lines.append(f"rows        {found['rows']:,}")
    if found.get("held_out") is not None:
        lines.append(f"held out    log-likelihood {found['held_out']:.3f} per row")
    return [*lines, *_network_lines(found)]


def _settings(owner: Any) -> Facts:  # noqa: ANN401
    """Return the class and the arguments of a process or a clock."""
    fields = dataclasses.fields(owner) if dataclasses.is_dataclass(owner) else ()
    settings = {field.name: getattr(owner, field.name) for field in fields if field.init}
    return {"kind": type(owner).__name__, **plain(settings)}


def _choices(score: OperatorScore) -> list[Facts]:
    """Return ridge and cutoff at the times at which they were chosen, if there is one of each.

    The cutoff is None where all functions are in use: below level 0 it lies beyond the finest one.
    """
    found = score.diagnostics
    if found.ridge.ndim != 1:
        return []
    cutoff = score.system.cutoff(found.level)
    return [
        {
            "t": float(t),
            "ridge": float(found.ridge[k]),
            "cutoff": None if cutoff is None or found.level[k] < 0 else float(cutoff[k]),
        }
        for k, t in enumerate(found.t)
    ]


def _ridge(score: OperatorScore) -> list[float] | None:
    """Return the smallest and the largest ridge."""
    ridge = score.diagnostics.ridge
    return [float(end) for end in ridge.aminmax()] if ridge.numel() else None


def _column_lines(columns: list[Facts]) -> list[str]:
    if columns[0]["kind"] == "whitened":
        return [f"columns     {len(columns)}, whitened: mean 0, variances 1"]
    return [
        f"{'columns' if j == 0 else '':<12}{column['name']}: {_column_text(column)}"
        for j, column in enumerate(columns)
    ]


def _column_text(column: Facts) -> str:
    kind = column["kind"]
    if kind == "categorical":
        return f"categorical, {column['levels']} levels"
    if kind in ("free", "bounded") and not ("low" in column and "high" in column):
        ends = [f"{word} {column[key]:g}" for key, word in ENDS.items() if key in column]
        return ", ".join([kind, *ends])
    return _text(COLUMN_TEXTS, column)


def _function_text(functions: Facts) -> str:
    return _text(FUNCTION_TEXTS, functions)


def _text(texts: dict[str, str], found: Facts) -> str:
    return texts.get(found["kind"], "{kind}").format(**found)


def _choice_lines(found: Facts) -> list[str]:
    choices, ridge = found["choices"], found["ridge"]
    if not choices:
        if ridge is None:
            return []
        low, high = ridge
        return [f"ridge       {low:.1e} to {high:.1e}, for each direction and noise level"]
    lines = ["chosen at   t         ridge     cutoff"]
    picks = torch.linspace(0, len(choices) - 1, 6).round().long().tolist()
    for k in dict.fromkeys(picks):
        choice = choices[k]
        cutoff = "none" if choice["cutoff"] is None else f"{choice['cutoff']:.3g}"
        lines.append(f"{'':<12}{choice['t']:<10.2g}{choice['ridge']:<10.1e}{cutoff}")
    return lines
