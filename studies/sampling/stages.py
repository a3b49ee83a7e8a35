"""The measurements, in stages that continue where they were stopped and end before a deadline.

    train        the network of a case, its weights at the marks
    classifier   the classifier whose features measure distances
    rmse         root mean square distance per dimension to a reference from the same noise
    long-grids   the same for the grids of the peers over all levels
    separation   how far apart the flow carries perturbed paths
    frechet      Fréchet distance to the training images, in the features of the classifier
    times        the time of an evaluation, with and without the coordinates
    bits         bits per dimension by evaluations, and their deviation by one probe

Each writes its numbers to ``STAGE.json`` in the folder of the case as it goes.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from oism.flow import Hutchinson, RungeKutta4, log_density
from oism.training import Classifier, FeatureMoments, features_of, frechet_distance
from studies import classifier
from studies.images import device, device_name
from studies.labelled import Labelled, labelled_sets
from studies.sampling import networks, peers
from studies.sampling.networks import BARE, COMBINED, Case, Counted, Networks
from studies.sampling.ours import OURS, denoiser_of
from studies.sampling.peers import GRIDS, PEERS
from studies.sampling.separation import separations
from studies.study import draft_of, versions, write_json

EVALUATIONS = (5, 8, 10, 15, 20)
REFERENCE = 100
"""The steps of the reference, each of four evaluations."""

OWN = "own"
"""The name of the grid of the library's samplers."""

CONVERGED = "converged"
CONVERGING, CONVERGED_EVALUATIONS = ("DPM-Solver++(3M)", "uniform, short"), 40
"""The method and the number of evaluations of converged samples in the Fréchet distance."""

SHOWN = 12
"""The number of samples of every method that are kept for pictures."""

TIMED_BATCH, TIMED_EVALUATIONS, TIMED_AT, ROUNDS = 128, 10, 0.3, 15
TIMED_PEERS = ("DPM-Solver++(2M)", "UniPC-2", "DDIM")
ALONE = "an evaluation"
"""The name of the time of a predictor without a sampler."""

WITHOUT = "no network"
"""The name of the time of a sampler without a network: its own arithmetic."""

CHECKED = 128

BIT_IMAGES, BIT_EVALUATIONS = 100, (96, 48, 32, 24, 16)
"""The number of test images whose bits per dimension are computed, and those of evaluations."""

WHOLE_SCORE, DEFAULT_BITS = "whole score, fixed signs, RK4 in log t", "residual, 32 evaluations"
"""The names of the first estimate of bits, and of the library's default."""

Method = Callable[[Counted, Tensor, int], Tensor]


@dataclass(frozen=True)
class Settings:
    """Sizes: samples of a reference, samples of a Fréchet distance, rows of a batch.

    ``classifier`` is the number of passes over the images in its training.
    """

    samples: int = 500
    drawn: int = 5000
    batch: int = 500
    evaluations: tuple[int, ...] = EVALUATIONS
    reference: int = REFERENCE
    width: int = 64
    rounds: int = ROUNDS
    classifier: int = classifier.EPOCHS
    forms: tuple[str, ...] = (COMBINED, BARE)


@dataclass(frozen=True)
class Context:
    """A case, its images, the folder of its results, and the deadline, a `time.perf_counter`."""

    case: Case
    data: str
    folder: Path
    deadline: float
    settings: Settings = Settings()

    @property
    def place(self) -> Path:
        """The folder of the case."""
        path = self.folder / self.case.name
        path.mkdir(parents=True, exist_ok=True)
        return path

    @cached_property
    def images(self) -> Labelled:
        """The images and their classes."""
        return labelled_sets(self.data, self.folder / f"{self.case.images}.npz")

    @cached_property
    def networks(self) -> Networks:
        """The networks, ready to sample."""
        made = Networks(self.case, self.images.sets, self.place, batch=self.settings.batch)
        made.load(self.last)
        return made

    @property
    def last(self) -> int:
        """The number of steps of the last weights."""
        steps = networks.stored_steps(self.place)
        if not steps:
            raise FileNotFoundError(f"no weights in {self.place}: run the stage train before")
        return steps[-1]

    @property
    def left(self) -> float:
        """The seconds before the deadline."""
        return self.deadline - time.perf_counter()

    @property
    def classifier_path(self) -> Path:
        """The file of the classifier, one for all networks of the same images."""
        return self.folder / f"classifier-{self.case.images}.pt"

    def say(self, words: str) -> None:
        """Print a line of progress."""
        print(f"[{self.left:6.0f} s left] {words}", file=sys.stderr, flush=True)


class Table:
    """Rows of numbers in a JSON file, found by the columns that identify them."""

    def __init__(self, path: Path, identity: tuple[str, ...], **head: Any) -> None:  # noqa: ANN401
        self.path, self.identity, self.head = path, identity, head
        self.rows: list[dict[str, Any]] = []
        if path.exists():
            stored = json.loads(path.read_text(encoding="utf-8"))
            self.rows, kept = stored.pop("rows"), stored
            self.head = {**kept, **head}

    def __contains__(self, row: Mapping[str, Any]) -> bool:
        return any(all(old[name] == row[name] for name in self.identity) for old in self.rows)

    def add(self, **row: object) -> None:
        """Add a row, and write the file."""
        self.rows.append(row)
        self.write()

    def write(self, **head: object) -> None:
        """Write the file, with further entries beside the rows."""
        self.head |= head
        write_json(self.path, {**self.head, "rows": self.rows})


def train(context: Context) -> None:
    """Train the network of the case."""
    networks.train(
        context.case, context.images.sets, context.place, deadline=context.deadline,
        report=context.say,
    )  # fmt: skip


def fit_classifier(context: Context) -> None:
    """Train the classifier of the images, unless it is stored."""
    if context.classifier_path.exists():
        context.say("the classifier is stored")
        return
    classifier.fit(
        context.images, context.classifier_path, flip=context.case.flip,
        epochs=context.settings.classifier, width=context.settings.width, report=context.say,
    )  # fmt: skip


def methods(*, is_short: bool = True) -> Iterator[tuple[str, str, Method]]:
    """Yield name, grid and function of methods: the library's and short grids, or long grids."""
    if is_short:
        for name, ours in OURS.items():
            yield name, OWN, partial(_ours, ours)
    for name, peer in PEERS.items():
        for grid in GRIDS:
            if grid.is_short == is_short:
                yield name, grid.name, partial(_peer, peer, grid)


def _ours(ours: Any, predictor: Counted, noise: Tensor, evaluations: int) -> Tensor:  # noqa: ANN401
    return ours(predictor, predictor.prior, noise, evaluations)  # type: ignore[no-any-return]


def _peer(
    peer: peers.Peer, grid: peers.Grid, predictor: Counted, noise: Tensor, evaluations: int
) -> Tensor:
    first = predictor.model.first
    return peers.sample(peer, grid, predictor, predictor.noising, noise, evaluations, first=first)


def method(name: str, grid: str) -> Method:
    """Return the method of a name and a grid."""
    known = (*methods(), *methods(is_short=False))
    return next(found for one, other, found in known if (one, other) == (name, grid))


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
        device=device_name(), versions=_versions(),
    )  # fmt: skip
    noise = networks.noise_for(nets.prior.shape, settings.samples)
    pictures = Pictures(context.place / "samples.npz", context.images.sets.pixels)
    speed = math.inf
    for form in settings.forms:
        reference = _reference(context, form, noise, table)
        pictures.add(f"{form}|reference", reference)
        # One method after another, so that a run that ends early has all numbers of evaluations.
        wanted = [(n, *one) for one in methods(is_short=is_short) for n in settings.evaluations]
        if is_short:
            wanted.append((CONVERGED_EVALUATIONS, *CONVERGING, method(*CONVERGING)))
        for evaluations, name, grid, run in wanted:
            row = {
                "step": context.last, "samples": settings.samples, "form": form, "method": name,
                "grid": grid, "evaluations": evaluations,
            }  # fmt: skip
            if row in table or _is_late(context, speed * evaluations):
                continue
            predictor = nets.predictor(form, exact=True)
            start = _now()
            found = run(predictor, noise, evaluations)
            seconds = _now() - start
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


def _is_late(context: Context, seconds: float) -> bool:
    """Return whether the time left is too short for what took ``seconds``, infinite if unknown."""
    return context.left < (1.5 * seconds if math.isfinite(seconds) else 0) + 3


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
    start = _now()
    found = predictor.reference(noise, context.settings.reference)
    table.write(**{f"{form}_reference_seconds": _now() - start})
    context.say(f"{form}: reference of {predictor.evaluations} evaluations, {_now() - start:.1f} s")
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


def frechet(context: Context) -> None:
    """Measure Fréchet distances to the training images: converged, ours, and the best peers."""
    settings, nets, sets = context.settings, context.networks, context.images.sets
    extractor = classifier.load(context.classifier_path)
    table = Table(
        context.place / "frechet.json", ("step", "drawn", "form", "method", "grid", "evaluations"),
        drawn=settings.drawn, classifier=_classifier_numbers(context),
        device=device_name(), versions=_versions(),
    )  # fmt: skip
    images = features_of(extractor, torch.split(sets.train, 2000))
    if "test_images" not in table.head:
        chosen = torch.split(sets.test[: settings.drawn], 2000)
        table.write(test_images=frechet_distance(features_of(extractor, chosen), images))
        context.say(f"test images: {table.head['test_images']:.3f}")
    noise = networks.noise_for(nets.prior.shape, settings.drawn, seed=1)
    speed = math.inf
    for step, form, name, grid, evaluations in _wanted_distances(context):
        row = {
            "step": step, "drawn": settings.drawn, "form": form, "method": name, "grid": grid,
            "evaluations": evaluations,
        }  # fmt: skip
        if row in table or _is_late(context, speed * evaluations):
            continue
        nets.load(step)
        start = _now()
        run = method(*(CONVERGING if name == CONVERGED else (name, grid)))
        found = run(nets.predictor(form), noise, evaluations)
        moments = _moments(extractor, sets.pixels.values(found))
        apart = frechet_distance(moments, images)
        speed = min(speed, (_now() - start) / evaluations)
        table.add(**row, distance=apart, seconds=_now() - start)
        context.say(f"{step} {form} {name} ({grid}) {evaluations}: {apart:.3f}")
    nets.load(context.last)


def _wanted_distances(context: Context) -> list[tuple[int, str, str, str, int]]:
    """Return step, form, method, grid and evaluations of what is measured, by importance."""
    last, counts = context.last, context.settings.evaluations
    steps = networks.stored_steps(context.place)[::-1]

    def converged(step: int, form: str) -> tuple[int, str, str, str, int]:
        return step, form, CONVERGED, CONVERGING[1], CONVERGED_EVALUATIONS

    wanted = [converged(last, form) for form in (COMBINED, BARE)]
    default = next(iter(OURS), None)
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
        if row["form"] == form and row["method"] in PEERS:
            found.setdefault(row["evaluations"], []).append((row["method"], row["grid"]))
    return found


def times(context: Context) -> None:
    """Time an evaluation of the predictors, and samplers per evaluation, in turn."""
    torch.compiler.reset()  # or other sizes of batches would be compiled for any size
    runs = _timed_runs(context)
    found: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()  # compiles, and chooses algorithms
    for _ in range(context.settings.rounds):
        if context.left < 5:
            break
        for name, run in runs.items():
            found[name].append(_elapsed(run) / TIMED_EVALUATIONS)
    seconds = {name: statistics.median(spent) for name, spent in found.items() if spent}
    for name, spent in seconds.items():
        context.say(f"{name}: {1000 * spent:.3f} ms per evaluation")
    content = {
        "batch": min(TIMED_BATCH, context.settings.batch),
        "evaluations": TIMED_EVALUATIONS,
        "device": device_name(),
        "seconds": seconds,
        "all": found,
    }
    write_json(context.place / "times.json", content)


def _timed_runs(context: Context) -> dict[str, Callable[[], object]]:
    """Return functions that evaluate a predictor as often as they say, alone or in a sampler."""
    nets, size = context.networks, min(TIMED_BATCH, context.settings.batch)
    noise = networks.noise_for(nets.prior.shape, size)
    known = [(name, OWN) for name in OURS] + [(name, "EDM, short") for name in TIMED_PEERS]
    runs: dict[str, Callable[[], object]] = {}

    def alone(form: str) -> None:
        predictor = nets.predictor(form, size)
        for _ in range(TIMED_EVALUATIONS):
            predictor(noise, TIMED_AT)

    def sampled(form: str, run: Method) -> Tensor:
        return run(nets.predictor(form, size), noise, TIMED_EVALUATIONS)

    def coordinates(run: Method) -> Tensor:
        return run(nets.predictor(BARE, size).without_network(), noise, TIMED_EVALUATIONS)

    for form in (BARE, COMBINED):
        runs[f"{form}, {ALONE}"] = partial(alone, form)
        for name, grid in known:
            runs[f"{form}, {name}"] = partial(sampled, form, method(name, grid))
    for name, grid in known:
        runs[f"{WITHOUT}, {name}"] = partial(coordinates, method(name, grid))
    return runs


def _elapsed(run: Callable[[], object]) -> float:
    """Return the seconds of a call, by events of the device if there is one."""
    if device() != "cuda":
        begin = time.perf_counter()
        run()
        return time.perf_counter() - begin
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    start.record()
    run()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / 1000


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


def _moments(extractor: Classifier, images: Tensor) -> FeatureMoments:
    return features_of(extractor, torch.split(images, 1000))


def _classifier_numbers(context: Context) -> Any:  # noqa: ANN401
    path = context.classifier_path.with_suffix(".json")
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def _versions() -> dict[str, str]:
    import diffusers  # noqa: PLC0415 (only for comparisons)

    return {**versions(), "diffusers": diffusers.__version__}


def _now() -> float:
    if device() == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def bits(context: Context) -> None:
    """Measure bits per dimension of test images by evaluations, and the deviation by one probe.

    Each estimate is computed twice, with other probes and the same dequantisation: half the mean
    square of the difference is the variance due to one probe.
    """
    sampled = context.networks.predictor(COMBINED).model
    precision = "bf16" if device() == "cuda" else "no"  # gradients exceed the range of float16
    model = type(sampled)(sampled.predictor, sampled.spec, first=sampled.first, precision=precision)
    values = context.images.sets.test[:BIT_IMAGES].to(device())
    table = Table(context.place / "bits.json", ("name",), images=len(values))
    whole = partial(Hutchinson, probes=1, known=None, fixed=True)
    ways: dict[str, tuple[Any, Any]] = {
        WHOLE_SCORE: (RungeKutta4(24), whole),
        **{
            f"residual, {n} evaluations": (model.likelihood_method(n), model.divergence)
            for n in BIT_EVALUATIONS
        },
    }
    flow = partial(log_density, model.flow, chunk=len(values), progress=False)
    for name, (way, divergence) in ways.items():
        found = []
        for seed in (1, 2):
            torch.manual_seed(0)
            generator = torch.Generator(device()).manual_seed(0)
            x = model.prepare(values, generator)
            estimate = divergence(torch.Generator(device()).manual_seed(seed))
            along = flow if divergence is whole else partial(model.log_density, progress=False)
            with torch.compiler.set_stance("force_eager"):  # compiling gradients takes longer
                nats = along(x, method=way, divergence=estimate)
            assert model.pixels is not None
            found.append(model.pixels.bits(nats, model.dim))
        mean = float(torch.stack(found).mean())
        probe = float((found[0] - found[1]).square().mean().div(2).sqrt())
        table.add(name=name, bits=mean, deviation=probe)
        context.say(f"{name}: {mean:.4f} bits, deviation by one probe {probe:.4f}")
        if context.left < 10:
            break


def separation(context: Context) -> None:
    """Measure how far apart the flow of the combined network carries perturbed paths."""
    nets, samples = context.networks, context.settings.samples
    predictor = nets.predictor(COMBINED, exact=True)
    noise = networks.noise_for(nets.prior.shape, samples, seed=3)
    part, span = nets.prior.gaussian_part(), predictor.model.span
    identity = ("step", "samples", "delta", "level")
    table = Table(context.place / "separation.json", identity, samples=samples)
    same = {"step": context.last, "samples": samples}
    with networks.exactly():  # rounding would look like paths that separate
        for one in separations(denoiser_of(predictor), part, span, noise):
            row = {**same, "delta": one.delta, "level": round(one.level, 3)}  # as it is stored
            if row in table:
                continue
            if context.left < 3:
                break
            mean, median = one.measured()
            table.add(**row, base=one.base, mean=mean, median=median)
            context.say(f"λ {one.level:.2f}, δ {one.delta:g}: {mean / one.base:.2f} of the base")


STAGES: Mapping[str, Callable[[Context], None]] = {
    "train": train,
    "classifier": fit_classifier,
    "rmse": rmse,
    "long-grids": long_grids,
    "separation": separation,
    "frechet": frechet,
    "times": times,
    "bits": bits,
}
"""The stages by name, in their order."""
