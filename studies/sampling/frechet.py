"""Fréchet distances of samples to the training images, in the features of a classifier."""

from __future__ import annotations

import json
import math
from typing import Any

import torch

from oism.training import features_of, frechet_distance
from studies import classifier
from studies.images import device_name
from studies.sampling import methods, networks, ours, peers
from studies.sampling.context import Context, Table, now
from studies.sampling.methods import CONVERGED, OWN
from studies.sampling.networks import BARE, COMBINED


def frechet(context: Context) -> None:
    """Measure Fréchet distances to the training images: converged, ours, and the best peers."""
    settings, nets, sets = context.settings, context.networks, context.images.sets
    extractor = classifier.load(context.classifier_path)
    table = Table(
        context.place / "frechet.json", ("step", "drawn", "form", "method", "grid", "evaluations"),
        drawn=settings.drawn, classifier=_classifier_numbers(context),
        device=device_name(), versions=peers.versions(),
    )  # fmt: skip
    images = features_of(extractor, torch.split(sets.train, 2000))
    if "test_images" not in table.head:
        chosen = torch.split(sets.test[: settings.drawn], 2000)
        table.write(test_images=frechet_distance(features_of(extractor, chosen), images))
        context.say(f"test images: {table.head['test_images']:.3f}")
    noise = networks.noise_for(nets.prior.shape, settings.drawn, seed=1)
    speed = math.inf
    for step, form, name, grid, evaluations in wanted_distances(context):
        row = {
            "step": step, "drawn": settings.drawn, "form": form, "method": name, "grid": grid,
            "evaluations": evaluations,
        }  # fmt: skip
        if row in table or context.is_late(speed * evaluations):
            continue
        nets.load(step)
        start = now()
        run = methods.method(*(methods.CONVERGING if name == CONVERGED else (name, grid)))
        found = run(nets.predictor(form), noise, evaluations)
        samples = torch.split(sets.pixels.values(found), 1000)
        apart = frechet_distance(features_of(extractor, samples), images)
        speed = min(speed, (now() - start) / evaluations)
        table.add(**row, distance=apart, seconds=now() - start)
        context.say(f"{step} {form} {name} ({grid}) {evaluations}: {apart:.3f}")
    nets.load(context.last)


def wanted_distances(context: Context) -> list[tuple[int, str, str, str, int]]:
    """Return step, form, method, grid and evaluations of what is measured, by importance."""
    last, counts = context.last, context.settings.evaluations
    steps = networks.stored_steps(context.place)[::-1]

    def converged(step: int, form: str) -> tuple[int, str, str, str, int]:
        grid = methods.CONVERGING[1]
        return step, form, CONVERGED, grid, methods.CONVERGED_EVALUATIONS

    wanted = [converged(last, form) for form in (COMBINED, BARE)]
    default = next(iter(ours.OURS), None)
    if default is not None:
        wanted += [(last, COMBINED, default, OWN, n) for n in counts]
    best = _best_peers(context, COMBINED)
    wanted += [(last, COMBINED, *best[n][0], n) for n in counts if best.get(n)]
    wanted += [converged(step, form) for step in steps[1:] for form in (COMBINED, BARE)]
    if default is not None:
        wanted += [(last, BARE, default, OWN, n) for n in counts]
    known = ("DDIM", "DPM-Solver++(2M)", "UniPC-2", "UniPC-3", "Heun", "DEIS-3")
    for name in known:
        for n in counts:
            own = [one for one in best.get(n, ()) if one[0] == name]
            wanted += [(last, COMBINED, *own[0], n)] if own else []
    bare = _best_peers(context, BARE)
    wanted += [(last, BARE, *bare[n][0], n) for n in counts if bare.get(n)]
    return wanted


def _best_peers(context: Context, form: str) -> dict[int, list[tuple[str, str]]]:
    """Return the peers with their grids by evaluations, the smallest distance first."""
    path = context.place / "rmse.json"
    if not path.exists():
        return {}
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    found: dict[int, list[tuple[str, str]]] = {}
    for row in sorted(rows, key=lambda row: float(row["rmse"])):
        if row["form"] == form and row["method"] in peers.PEERS:
            found.setdefault(row["evaluations"], []).append((row["method"], row["grid"]))
    return found


def _classifier_numbers(context: Context) -> Any:  # noqa: ANN401
    path = context.classifier_path.with_suffix(".json")
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
