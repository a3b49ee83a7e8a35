"""The variants of an experiment: networks that differ in their prior, and in nothing else.

All variants of a seed start with the same weights, see the same images in the same order with the
same noise at the same times, and are measured on the same noised test images.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from tqdm import tqdm

from oism.flow import OrdinaryMethod, Pixels, RungeKutta4
from oism.images import DEFAULT_GATE, Prior
from oism.nn import Combined, Diffusion, OperatorInformed
from oism.objectives import DenoisingScoreMatching, UniformLogSNR, errors_by_level
from oism.training import Loop, Rows
from studies.images import ImageSets
from studies.study import plain, write_json
from studies.training.trainings import ALONE, PAPER, RESIDUAL, SIXTHS, config_of, network_of

METHOD: OrdinaryMethod = RungeKutta4(16)


DDPM = "DDPM"
"""The name of the network alone."""

COMBINED = "combined"
"""The form of a network that is combined with a prior, beside those of `studies.training`."""


@dataclass(frozen=True)
class Variant:
    """A network with a ``prior``, given by its name, in a ``form``.

    ``bits`` is whether likelihoods are measured as well.
    """

    name: str
    form: str
    prior: str | None
    steps: int
    seed: int = 0
    warmup: int = 500
    bits: bool = False

    @property
    def key(self) -> str:
        """The name of its files."""
        return f"{self.name}-{self.seed}-{self.warmup}"

    @property
    def alone(self) -> Variant:
        """The network alone; that of a `Combined` is trained in the same way."""
        return replace(self, name=DDPM, form=ALONE, prior=None)


@dataclass(frozen=True)
class Setup:
    """The settings that all variants share; ``marks`` are the steps at which they are measured."""

    marks: Sequence[int]
    sizes: Mapping[str, Any] = field(default_factory=dict)
    batch: int = 128
    rate: float = 2e-4
    fast: bool = True
    tested: int = 5000
    likelihoods: int = 500
    drawn: int = 32
    flip: bool = True


@dataclass(frozen=True)
class Mark:
    """The measurements of a variant after a number of steps, with average weights."""

    step: int
    errors: list[float]
    bits: list[float] | None
    train_seconds: float
    seconds: float

    @property
    def mean(self) -> float:
        """The loss: the mean error over the range of log-SNR."""
        return sum(self.errors) / len(self.errors)


@dataclass(frozen=True)
class Result:
    """A variant, its smoothed training loss, its measurements and its samples."""

    variant: Variant
    losses: list[tuple[int, float]]
    marks: list[Mark]
    samples: NDArray[np.uint8]

    def at(self, step: int) -> Mark:
        """Return the measurements after a number of steps."""
        return next(mark for mark in self.marks if mark.step == step)


def train(
    variant: Variant,
    setup: Setup,
    sets: ImageSets,
    priors: Mapping[str, Prior],
    *,
    report: Callable[[Variant, Mark], None] | None = None,
) -> list[Result]:
    """Return the results of a variant; ``report`` is called with every measurement.

    A network that is combined with a prior is trained alone, and is measured alone as well: on a
    GPU a second training would end with weights that differ by rounding.
    """
    predictor = predictor_of(variant, setup, sets, priors)
    spec = next(iter(priors.values())).spec
    config = config_of(
        steps=variant.steps, seed=variant.seed, warmup=variant.warmup, batch=setup.batch,
        rate=setup.rate, flip=setup.flip, fast=setup.fast,
    )  # fmt: skip
    measured = {variant: predictor}
    if variant.form == COMBINED:
        measured[variant.alone] = predictor.get_submodule("net")
    models = {
        one: Diffusion(part, spec, precision=config.precision) for one, part in measured.items()
    }
    levels = UniformLogSNR(next(iter(models.values())).noising, config.first)
    loop = Loop(predictor, Rows(sets.train, sets.pixels), DenoisingScoreMatching(levels), config)
    every = max(1, min(setup.marks) // 20)
    losses: list[tuple[int, float]] = []
    marks: dict[Variant, list[Mark]] = {one: [] for one in models}
    pictures: dict[Variant, list[NDArray[np.uint8]]] = {one: [] for one in models}
    start, trained = time.perf_counter(), 0.0
    steps = range(1, variant.steps + 1)
    for k in tqdm(steps, variant.key, disable=None, leave=False):
        loop.step()
        if k % every == 0 or k in setup.marks:
            losses.append((k, loop.report().loss))
        if k not in setup.marks:
            continue
        trained += time.perf_counter() - start
        with loop.averaged():
            for one, model in models.items():
                mark, drawn = measure(one, setup, sets, model, k, trained)
                marks[one].append(mark)
                pictures[one].append(drawn)
                if report is not None:
                    report(one, mark)
        start = time.perf_counter()
    return [Result(one, losses, marks[one], np.stack(pictures[one])) for one in models]


def predictor_of(
    variant: Variant, setup: Setup, sets: ImageSets, priors: Mapping[str, Prior]
) -> nn.Module:
    """Return the predictor of a variant, with the initial weights of its seed."""
    net = network_of(sets.train.shape[1:], variant.seed, setup.sizes)
    if variant.prior is None:
        return net
    prior = priors[variant.prior]
    forms: dict[str, Callable[..., nn.Module]] = {
        PAPER: OperatorInformed.paper, RESIDUAL: OperatorInformed, COMBINED: Combined,
    }  # fmt: skip
    return forms[variant.form](net, prior)


def measure(
    variant: Variant, setup: Setup, sets: ImageSets, model: Diffusion, step: int, trained: float
) -> tuple[Mark, NDArray[np.uint8]]:
    """Return errors by sixths, bits of single images if the variant has them, and samples."""
    start = time.perf_counter()
    model.chunk = setup.likelihoods
    intervals = errors_by_level(model, sets.test[: setup.tested], intervals=SIXTHS)
    bits = None
    if variant.bits:
        source = torch.Generator(model.device).manual_seed(0)
        found = model.bits_per_dim(sets.test[: setup.likelihoods], source, method=METHOD)
        bits = found.tolist()
    drawn = model.sample(setup.drawn, torch.Generator().manual_seed(0), method=METHOD)
    errors = [one.error.mean for one in intervals]
    mark = Mark(step, errors, bits, trained, time.perf_counter() - start)
    return mark, Pixels().values(drawn).cpu().numpy()


def write(result: Result, folder: Path, setup: Setup) -> None:
    """Store a result with its settings: numbers as JSON, samples as an array."""
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / f"{result.variant.key}.npy", result.samples)
    content = {
        **_origin(result.variant, setup),
        "losses": result.losses,
        "marks": [asdict(mark) for mark in result.marks],
    }
    write_json(folder / f"{result.variant.key}.json", content)


def read(variant: Variant, folder: Path, setup: Setup) -> Result | None:
    """Return a stored result, or None if there is none with the same settings."""
    path = folder / f"{variant.key}.json"
    if not path.exists():
        return None
    stored = json.loads(path.read_text(encoding="utf-8"))
    if any(stored.get(name) != value for name, value in plain(_origin(variant, setup)).items()):
        return None
    marks = [Mark(**mark) for mark in stored["marks"]]
    losses = [(int(step), float(loss)) for step, loss in stored["losses"]]
    return Result(variant, losses, marks, np.load(folder / f"{variant.key}.npy"))


def _origin(variant: Variant, setup: Setup) -> dict[str, Any]:
    """Return all settings that determine a result."""
    gate = repr(DEFAULT_GATE) if variant.form == RESIDUAL else None
    return {"variant": asdict(variant), "setup": asdict(setup), "gate": gate}
