"""Distances of samples to a reference from the same noise, in float32.

The reference is the method of order four with many steps. The distance is the root mean square per
dimension. `Pictures` keeps the first samples of every method.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from studies.images import device_name
from studies.sampling import methods, networks, peers
from studies.sampling.context import Context, Table, now
from studies.sampling.networks import Counted
from studies.study import draft_of

SHOWN = 12
"""The number of samples of every method that are kept for pictures."""


def rmse(context: Context) -> None:
    """Measure the distance of all methods to a reference from the same noise, in float32."""
    with networks.exactly():
        table, noise = _distances(context, is_short=True)
        _check_reference(context, noise, table)


def long_grids(context: Context) -> None:
    """Measure the peers with grids over all levels of the model as well."""
    if context.case.first < peers.SHORTEST:
        with networks.exactly():
            _distances(context, is_short=False)


def _distances(context: Context, *, is_short: bool) -> tuple[Table, Tensor]:
    settings, nets = context.settings, context.networks
    table = Table(
        context.place / "rmse.json",
        ("step", "samples", "form", "method", "grid", "evaluations"),
        step=context.last, samples=settings.samples, reference_steps=settings.reference,
        device=device_name(), versions=peers.versions(),
    )  # fmt: skip
    noise = networks.noise_for(nets.prior.shape, settings.samples)
    pictures = Pictures(context.place / "samples.npz", context.images.sets.pixels)
    speed = math.inf
    for form in settings.forms:
        reference = _reference(context, form, noise, table)
        pictures.add(f"{form}|reference", reference)
        # One method after another, so that a run that ends early has all numbers of evaluations.
        wanted = [
            (n, *one)
            for one in methods.known_methods(is_short=is_short)
            for n in settings.evaluations
        ]
        if is_short:
            converging = methods.CONVERGING
            last = methods.CONVERGED_EVALUATIONS, *converging, methods.method(*converging)
            wanted.append(last)
        for evaluations, name, grid, run in wanted:
            row = {
                "step": context.last, "samples": settings.samples, "form": form, "method": name,
                "grid": grid, "evaluations": evaluations,
            }  # fmt: skip
            if row in table or context.is_late(speed * evaluations):
                continue
            predictor = nets.predictor(form, exact=True)
            start = now()
            found = run(predictor, noise, evaluations)
            seconds = now() - start
            speed = min(speed, seconds / evaluations)  # the first measures statistics
            error, spread, middle = distance(found, reference)
            table.add(
                **row, calls=predictor.evaluations, rmse=error, standard_error=spread,
                median=middle, expected=_expected(predictor, name, evaluations), seconds=seconds,
            )  # fmt: skip
            context.say(f"{form} {name} ({grid}) {evaluations}: {error:.5f}, {seconds:.2f} s")
            pictures.add(f"{form}|{name}|{grid}|{evaluations}", found)
        pictures.write()
    return table, noise


def _expected(predictor: Counted, name: str, evaluations: int) -> float | None:
    """Return the distance that a plan expects, if it does."""
    plan = predictor.memory.get(f"{name}, {evaluations}")
    found: float | None = getattr(plan, "expected_error", None)
    return found


def _reference(context: Context, form: str, noise: Tensor, table: Table) -> Tensor:
    """Return the reference, stored once."""
    path = context.place / f"reference-{form}-{context.last}-{len(noise)}.npy"
    if path.exists():
        return torch.from_numpy(np.load(path)).to(noise)
    predictor = context.networks.predictor(form, exact=True)
    start = now()
    found = predictor.reference(noise, context.settings.reference)
    table.write(**{f"{form}_reference_seconds": now() - start})
    context.say(f"{form}: reference of {predictor.evaluations} evaluations, {now() - start:.1f} s")
    np.save(path, found.cpu().numpy())
    return found


def _check_reference(context: Context, noise: Tensor, table: Table) -> None:
    """Measure the error of the reference: its distance to that of half the steps."""
    settings, form = context.settings, context.settings.forms[0]
    reference = _reference(context, form, noise, table)
    size = min(len(noise), settings.batch)
    spent = float(table.head.get(f"{form}_reference_seconds", 0.0)) * size / len(noise)
    if "half_the_steps" not in table.head and context.left > spent / 2 + 5:
        predictor = context.networks.predictor(form, exact=True)
        half = predictor.reference(noise[:size], settings.reference // 2)
        apart, _, _ = distance(half, reference[:size])
        table.write(half_the_steps=apart)
        context.say(f"reference with half the steps: {apart:.6f}")


def distance(found: Tensor, reference: Tensor) -> tuple[float, float, float]:
    """Return the root mean square distance per dimension, its standard error, and the median.

    The median is that of the samples: a few that end at another image do not change it.
    """
    squares = (found - reference).double().square().flatten(1).mean(1)
    root = float(squares.mean().sqrt())
    error = float(squares.std()) / len(squares) ** 0.5 / max(2 * root, 1e-300)
    return root, error, float(squares.median().sqrt())


class Pictures:
    """The first samples of methods as bytes, in one file."""

    def __init__(self, path: Path, pixels: Any) -> None:  # noqa: ANN401
        self.path, self.pixels = path, pixels
        self.found: dict[str, Any] = {}
        if path.exists():
            with np.load(path) as stored:
                self.found = {name: stored[name] for name in stored.files}

    def add(self, name: str, samples: Tensor) -> None:
        """Keep the first samples of a method."""
        self.found[name] = self.pixels.values(samples[:SHOWN]).cpu().numpy()

    def write(self) -> None:
        """Write the file."""
        with draft_of(self.path) as draft, draft.open("wb") as file:
            np.savez_compressed(file, **self.found)
