"""What a fitted model chose: as facts that a program can use, and as a page of text."""

from __future__ import annotations

import math
from typing import Any

import torch

from oism.process import Clock, Process
from oism.score import FourierScore
from oism.tables._chart import BoxChart
from oism.tables._model import DensityModel

Facts = dict[str, Any]


def facts(model: DensityModel, names: list[str]) -> Facts:
    """Return what a model whose columns have these names is made of, as JSON can hold it."""
    score = model.score
    return {
        "columns": _columns(model, names),
        "process": _settings(score.basis.process),
        "clock": _settings(score.clock),
        "times": list(score.times),
        "functions": _functions(model),
        "choices": _choices(model),
        "ridge": _ridge(model),
        "steps": model.steps,
        "defence": None if model.defence is None else model.defence.share,
    }


def describe(found: Facts) -> str:
    """Return a page about the facts of a model."""
    process, clock = found["process"]["kind"], found["clock"]["kind"]
    low, high = found["times"]
    lines = [
        *_column_lines(found["columns"]),
        f"process     {process}, {clock} clock, t from {low:.2g} to {high:.3g}",
        f"functions   {_function_text(found['functions'])}",
        *_choice_lines(found),
        f"flow        Runge-Kutta of order 4, {found['steps']} steps",
    ]
    if found["defence"] is not None:
        lines.append(f"defence     a Gaussian of twice the spread, weight {found['defence']:.2g}")
    return "\n".join(lines)


def _settings(owner: Process | Clock) -> Facts:
    return {"kind": type(owner).__name__, **vars(owner)}


def _columns(model: DensityModel, names: list[str]) -> list[Facts]:
    chart = model.chart
    if not isinstance(chart, BoxChart):
        return [{"name": name, "kind": "whitened"} for name in names]
    columns: list[Facts] = []
    for j, name in enumerate(names):
        half, centre = math.pi / float(chart.scale[j]), float(chart.centre[j])
        if bool(chart.periodic[j]):
            columns.append({"name": name, "kind": "periodic", "period": 2 * half})
            continue
        bounded = bool(chart.bounded[j])
        kind = "bounded" if bounded else "free"
        low, high = (centre, centre + half) if bounded else (centre - half, centre + half)
        columns.append({"name": name, "kind": kind, "low": low, "high": high})
    return columns


def _functions(model: DensityModel) -> Facts:
    basis = model.score.basis
    if isinstance(model.score, FourierScore):
        finest = float(model.score.basis.frequencies.norm(dim=1).max())
        return {"kind": "waves", "count": basis.size, "finest": finest}
    return {"kind": "polynomials", "count": basis.size, "degree": getattr(basis, "order", None)}


def _choices(model: DensityModel) -> list[Facts]:
    """Return ridge and cutoff at the times at which they were chosen, if there is one of each."""
    found, score = model.score.diagnostics, model.score
    if found.ridge.ndim != 1:
        return []
    radius = _functions(model)["finest"] if isinstance(score, FourierScore) else None
    return [
        {
            "t": float(t),
            "ridge": float(found.ridge[k]),
            "cutoff": None if radius is None else radius * 2 ** (-float(found.level[k]) / 2),
        }
        for k, t in enumerate(found.t)
    ]


def _ridge(model: DensityModel) -> list[float] | None:
    """Return the least and the largest ridge."""
    ridge = model.score.diagnostics.ridge
    return [float(end) for end in ridge.aminmax()] if ridge.numel() else None


def _column_lines(columns: list[Facts]) -> list[str]:
    if columns[0]["kind"] == "whitened":
        return [f"columns     {len(columns)}, whitened: mean 0, variances 1"]
    texts = {
        "periodic": "periodic, period {period:g}",
        "bounded": "bounded, {low:g} to {high:g}, reflected",
        "free": "free, box from {low:.4g} to {high:.4g}",
    }
    return [
        f"{'columns' if j == 0 else '':<12}{column['name']}: "
        + texts[column["kind"]].format(**column)
        for j, column in enumerate(columns)
    ]


def _function_text(functions: Facts) -> str:
    if functions["kind"] == "waves":
        return f"{functions['count']} waves, frequencies up to {functions['finest']:.3g}"
    return f"polynomials up to degree {functions['degree'] or '?'}"


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
