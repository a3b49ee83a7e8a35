"""Arms of an experiment: networks that differ in what they start from, and in nothing else.

Every arm of a seed begins with the same weights, sees the same images in the same order with the
same noise at the same times, and is measured on the same noised test images.
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

from oism._core.plain import plain
from oism._core.progress import progress_bar
from oism.flow import OrdinaryMethod, RungeKutta4
from oism.images import Prior
from oism.images._display import BYTES
from oism.images._gate import GATE
from oism.nn import Combined, Diffusion, OperatorInformed, unet_for
from oism.objectives import DenoisingScoreMatching, UniformLogSNR
from oism.studies.images import ImageSets
from oism.studies.study import write_json
from oism.training import Rows, Training, errors_by_level
from oism.training._loop import Loop, engine

SIXTHS = 6
METHOD: OrdinaryMethod = RungeKutta4(16)


DDPM = "DDPM"
"""The name of a network alone."""

ALONE, PAPER, RESIDUAL, COMBINED = "alone", "paper", "residual", "combined"
"""The forms of a head start: none, `OperatorInformed` open and gated, `Combined`."""


@dataclass(frozen=True)
class Arm:
    """What a network starts from: ``prior`` is the name of one, used in a ``form``.

    ``bits`` tells whether likelihoods are measured, too.
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
        """What its files are called."""
        return f"{self.name}-{self.seed}-{self.warmup}"

    @property
    def alone(self) -> Arm:
        """The same with the network alone, which in a `Combined` is the very same network."""
        return replace(self, name=DDPM, form=ALONE, prior=None)


@dataclass(frozen=True)
class Bench:
    """What all arms have in common."""

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
    """What was measured of an arm after a number of steps, with average weights."""

    step: int
    errors: list[float]
    bits: list[float] | None
    train_seconds: float
    seconds: float

    @property
    def mean(self) -> float:
        """The loss: the mean over the range of log-SNR."""
        return sum(self.errors) / len(self.errors)


@dataclass(frozen=True)
class Result:
    """An arm, its smoothed loss while it was trained, and what was measured."""

    arm: Arm
    losses: list[tuple[int, float]]
    marks: list[Mark]
    samples: NDArray[np.uint8]

    def at(self, step: int) -> Mark:
        """Return what was measured after a number of steps."""
        return next(mark for mark in self.marks if mark.step == step)


def train(
    arm: Arm,
    bench: Bench,
    sets: ImageSets,
    priors: Mapping[str, Prior],
    *,
    tell: Callable[[Arm, Mark], None] | None = None,
) -> list[Result]:
    """Return what comes of an arm; ``tell`` is told every mark.

    A network that is combined with a prior has learned by itself, and is measured by itself as
    well: on a device a second training would end with weights that differ by rounding.
    """
    accelerator = engine()
    device = accelerator.device
    predictor = predictor_of(arm, bench, sets, priors)
    some = next(iter(priors.values()))
    on_device = device.type == "cuda" and bench.fast
    settings = Training(
        steps=arm.steps, batch=bench.batch, rate=bench.rate, warmup=arm.warmup, flip=bench.flip,
        seed=arm.seed, precision="bf16" if on_device else "no", compile=on_device,
    )  # fmt: skip
    levels = UniformLogSNR(some.noising, settings.first)
    rows = Rows(sets.train, sets.pixels)
    loop = Loop(predictor, rows, DenoisingScoreMatching(levels), settings, accelerator)
    measured = {arm: predictor}
    if isinstance(predictor, Combined):
        measured[arm.alone] = predictor.net
    models = {
        one: Diffusion(part, some.setting, precision=settings.precision)
        for one, part in measured.items()
    }
    every = max(1, min(bench.marks) // 20)
    losses: list[tuple[int, float]] = []
    marks: dict[Arm, list[Mark]] = {one: [] for one in models}
    pictures: dict[Arm, list[NDArray[np.uint8]]] = {one: [] for one in models}
    start, trained = time.perf_counter(), 0.0
    with progress_bar(None) as bar:
        bar.stage(arm.key, arm.steps)
        while loop.step_number < arm.steps:
            loop.step()
            k = loop.step_number
            if k % every == 0 or k in bench.marks:
                losses.append((k, loop.report().loss))
            bar.reach(k)
            if k not in bench.marks:
                continue
            trained += time.perf_counter() - start
            with loop.settled():
                for one, model in models.items():
                    mark, drawn = measure(one, bench, sets, model, k, trained)
                    marks[one].append(mark)
                    pictures[one].append(drawn)
                    if tell is not None:
                        tell(one, mark)
            start = time.perf_counter()
    return [Result(one, losses, marks[one], np.stack(pictures[one])) for one in models]


def predictor_of(arm: Arm, bench: Bench, sets: ImageSets, priors: Mapping[str, Prior]) -> nn.Module:
    """Return the predictor of an arm, with the initial weights of its seed."""
    torch.manual_seed(arm.seed)
    net = unet_for(tuple(sets.train.shape[1:]), **bench.sizes)
    if arm.prior is None:
        return net
    prior = priors[arm.prior]
    forms: dict[str, Callable[..., nn.Module]] = {
        PAPER: OperatorInformed.paper, RESIDUAL: OperatorInformed, COMBINED: Combined,
    }  # fmt: skip
    return forms[arm.form](net, prior)


def measure(
    arm: Arm, bench: Bench, sets: ImageSets, model: Diffusion, step: int, trained: float
) -> tuple[Mark, NDArray[np.uint8]]:
    """Return errors by sixths, bits of single images where they are wanted, and samples."""
    start = time.perf_counter()
    model.chunk = bench.likelihoods
    intervals = errors_by_level(model, sets.test[: bench.tested], intervals=SIXTHS)
    bits = None
    if arm.bits:
        source = torch.Generator(model.device).manual_seed(0)
        found = model.bits_per_dim(sets.test[: bench.likelihoods], source, method=METHOD)
        bits = found.tolist()
    drawn = model.sample(bench.drawn, torch.Generator().manual_seed(0), method=METHOD)
    errors = [one.error.mean for one in intervals]
    mark = Mark(step, errors, bits, trained, time.perf_counter() - start)
    return mark, BYTES.values(drawn).cpu().numpy()


def write(result: Result, folder: Path, bench: Bench) -> None:
    """Keep a result with what it was made with: numbers as JSON, samples as an array."""
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / f"{result.arm.key}.npy", result.samples)
    told = {
        **_origin(result.arm, bench),
        "losses": result.losses,
        "marks": [asdict(mark) for mark in result.marks],
    }
    write_json(folder / f"{result.arm.key}.json", told)


def read(arm: Arm, folder: Path, bench: Bench) -> Result | None:
    """Return a result that was kept, unless it was made with anything else."""
    path = folder / f"{arm.key}.json"
    if not path.exists():
        return None
    told = json.loads(path.read_text(encoding="utf-8"))
    if any(told[name] != value for name, value in plain(_origin(arm, bench)).items()):
        return None
    marks = [Mark(**mark) for mark in told["marks"]]
    losses = [(int(step), float(loss)) for step, loss in told["losses"]]
    return Result(arm, losses, marks, np.load(folder / f"{arm.key}.npy"))


def _origin(arm: Arm, bench: Bench) -> dict[str, Any]:
    """Return all that decides about a result."""
    gate = repr(GATE) if arm.form == RESIDUAL else None
    return {"arm": asdict(arm), "bench": asdict(bench), "gate": gate}
