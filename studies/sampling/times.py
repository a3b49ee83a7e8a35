"""The time of an evaluation: of a predictor alone, in a sampler, and of a sampler without it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from studies.images import device, device_name
from studies.sampling import methods, networks, ours
from studies.sampling.context import Context
from studies.sampling.networks import BARE, COMBINED
from studies.study import write_json

TIMED_BATCH, TIMED_EVALUATIONS, TIMED_AT = 128, 10, 0.3
TIMED_PEERS = ("DPM-Solver++(2M)", "UniPC-2", "DDIM")
ALONE = "an evaluation"
"""The name of the time of a predictor without a sampler."""

WITHOUT = "no network"
"""The name of the time of a sampler without a network: its own arithmetic."""


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
    known = [(name, methods.OWN) for name in ours.OURS] + [
        (name, "EDM, short") for name in TIMED_PEERS
    ]
    runs: dict[str, Callable[[], object]] = {}

    def alone(form: str) -> None:
        predictor = nets.predictor(form, size)
        for _ in range(TIMED_EVALUATIONS):
            predictor(noise, TIMED_AT)

    def sampled(form: str, run: methods.Method) -> Tensor:
        return run(nets.predictor(form, size), noise, TIMED_EVALUATIONS)

    def coordinates(run: methods.Method) -> Tensor:
        return run(nets.predictor(BARE, size).without_network(), noise, TIMED_EVALUATIONS)

    for form in (BARE, COMBINED):
        runs[f"{form}, {ALONE}"] = partial(alone, form)
        for name, grid in known:
            runs[f"{form}, {name}"] = partial(sampled, form, methods.method(name, grid))
    for name, grid in known:
        runs[f"{WITHOUT}, {name}"] = partial(coordinates, methods.method(name, grid))
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
