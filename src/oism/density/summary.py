"""What a fitted model chose, as text."""

from __future__ import annotations

import math

import torch

from oism.density.chart import BoxChart
from oism.density.model import DensityModel
from oism.score import FourierScore


def describe(model: DensityModel, names: list[str]) -> str:
    """Return a page about a model whose columns have these names."""
    lines = [*_columns(model, names), *_functions(model), *_choices(model)]
    lines.append(f"flow        Runge-Kutta of order 4, {model.steps} steps")
    if model.defence is not None:
        lines.append(
            f"defence     a Gaussian of twice the spread, weight {model.defence.share:.2g}"
        )
    return "\n".join(lines)


def _columns(model: DensityModel, names: list[str]) -> list[str]:
    chart = model.chart
    if not isinstance(chart, BoxChart):
        return [f"columns     {len(names)}, whitened: mean 0, variances 1"]
    lines = []
    for j, name in enumerate(names):
        scale, centre = float(chart.scale[j]), float(chart.centre[j])
        if bool(chart.periodic[j]):
            text = f"periodic, period {2 * math.pi / scale:g}"
        elif bool(chart.bounded[j]):
            text = f"bounded, {centre:g} to {centre + math.pi / scale:g}, reflected"
        else:
            half = math.pi / scale
            text = f"free, box from {centre - half:.4g} to {centre + half:.4g}"
        lines.append(f"{'columns' if j == 0 else '':<12}{name}: {text}")
    return lines


def _functions(model: DensityModel) -> list[str]:
    score = model.score
    process, clock = type(score.basis.process).__name__, type(score.clock).__name__
    low, high = score.times
    if isinstance(score, FourierScore):
        finest = float(score.basis.frequencies.norm(dim=1).max())
        kind = f"{score.basis.size} waves, frequencies up to {finest:.3g}"
    else:
        kind = f"polynomials up to degree {getattr(score.basis, 'order', '?')}"
    return [
        f"process     {process}, {clock} clock, t from {low:.2g} to {high:.3g}",
        f"functions   {kind}",
    ]


def _choices(model: DensityModel) -> list[str]:
    found = model.score.diagnostics
    if found.ridge.ndim != 1 or not len(found.t):
        ridge = found.ridge
        if ridge.numel():
            low, high = (float(end) for end in ridge.aminmax())
            return [f"ridge       {low:.1e} to {high:.1e}, for each direction and noise level"]
        return []
    lines = ["chosen at   t         ridge     cutoff"]
    score = model.score
    picks = torch.linspace(0, len(found.t) - 1, 6).round().long().tolist()
    for k in dict.fromkeys(picks):
        cutoff = "none"
        if isinstance(score, FourierScore):
            radius = float(score.basis.frequencies.norm(dim=1).max())
            cutoff = f"{radius * 2 ** (-float(found.level[k]) / 2):.3g}"
        t, chosen = float(found.t[k]), float(found.ridge[k])
        lines.append(f"{'':<12}{t:<10.2g}{chosen:<10.1e}{cutoff}")
    return lines
