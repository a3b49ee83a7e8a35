"""Trainings, one after another, that end before a deadline and continue where they were stopped.

Numbers are written after every measurement. A training whose next measurement would be after the
deadline is stored as it is, weights included, in ``cache``; later it continues from there. Where
its weights are not at hand, as on another machine, it is repeated from the start, and what was
measured before is kept, but for marks that lack a form, which are measured again.
"""

from __future__ import annotations

import gc
import json
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from oism.training import Loop, Rows
from studies import classifier
from studies.images import device
from studies.labelled import Labelled, labelled_sets
from studies.study import draft_of
from studies.training.measuring import Evaluation
from studies.training.results import Mark, Result, Store
from studies.training.trainings import (
    GAUSSIAN,
    Priors,
    Setup,
    Training,
    config_of,
    network_of,
    objective_of,
    predictor_of,
)

CACHE, CLASSIFIER, IMAGES = "cache", "classifier.pt", "images.npz"
"""The folder of what can be computed again, and the files of the classifier and the images."""

MARGIN = 10.0
"""The seconds before the deadline that are left for files."""

REPORTS = 20
"""The number of losses that are kept before the first mark."""


@dataclass
class Pace:
    """Seconds: before the first step has ended, of a step, of errors, and of a form at a mark.

    At first those of a fast GPU; then those of the last training.
    """

    ready: float = 170.0
    step: float = 0.04
    errors: float = 5.0
    form: float = 30.0

    @classmethod
    def guess(cls) -> Pace:
        """Return what is assumed before the first training."""
        return cls() if device() == "cuda" else cls(0.0, 0.0, 0.0, 0.0)

    def until(self, training: Training, step: int, missing: list[int]) -> float:
        """Return the seconds from a step to the end of the next mark, 0 if there is none."""
        ahead = [one for one in missing if one > step]
        full = next((one for one in ahead if one in training.marks), None)
        if full is None:
            return 0.0
        points = sum(one < full for one in ahead)
        sampled = len(training.sampled(full)) * self.form
        return (full - step) * self.step + points * self.errors + sampled


class Runner:
    """Runs trainings in a folder until a deadline, a `time.perf_counter`."""

    def __init__(
        self,
        setup: Setup,
        data: str,
        folder: Path,
        *,
        deadline: float = math.inf,
        compiled: bool = True,
        report: Callable[[str], None] = print,
    ) -> None:
        self.setup, self.folder, self.deadline, self.say = setup, folder, deadline, report
        self.store, self.pace, self.compiled = Store(folder, setup), Pace.guess(), compiled
        self.cache = folder / CACHE
        self.data = data
        self._evaluation: Evaluation | None = None

    @property
    def left(self) -> float:
        """The seconds before the deadline."""
        return self.deadline - MARGIN * math.isfinite(self.deadline) - time.perf_counter()

    @property
    def images(self) -> Labelled:
        """The images."""
        return self.evaluation.data

    @property
    def priors(self) -> Priors:
        """The priors."""
        return self.evaluation.priors

    @property
    def evaluation(self) -> Evaluation:
        """What all trainings are measured with; the classifier is trained unless it is stored."""
        if self._evaluation is None:
            found = labelled_sets(self.data, self.cache / IMAGES)
            path = self.folder / CLASSIFIER
            if not path.exists():
                self.folder.mkdir(parents=True, exist_ok=True)
                classifier.fit(
                    found, path, flip=self.setup.flip, epochs=self.setup.epochs,
                    width=self.setup.width, report=self.say,
                )  # fmt: skip
            priors = Priors(found.sets, flip=self.setup.flip, folder=self.cache)
            self._evaluation = Evaluation(self.setup, found, priors, path, compiled=self.compiled)
            self._classified(path)
        return self._evaluation

    def _classified(self, path: Path) -> None:
        """Add the Fréchet distance of test images to the numbers of the classifier."""
        numbers = path.with_suffix(".json")
        content = json.loads(numbers.read_text(encoding="utf-8")) if numbers.exists() else {}
        if "test_distance" not in content and self._evaluation is not None:
            content["test_distance"] = self._evaluation.test_distance()
            numbers.write_text(json.dumps(content, indent=1), encoding="utf-8")

    def run(self, training: Training) -> Result:
        """Return the result of a training, complete if there was time."""
        result = self.store.read(training)
        if not result.missing:
            return result
        kept = self._kept(training)
        if kept is not None and int(kept["step"]) >= result.missing[0]:
            kept = None  # an earlier mark lacks a form
        start = 0 if kept is None else int(kept["step"])
        if not self._has_time(training, result, start):
            return result
        for name in training.combined:
            self.priors[name]  # fitted before the clock of the training starts
        if not self._has_time(training, result, start):
            return result
        self._train(training, result, kept)
        gc.collect()  # the recorded step and its memory
        if device() == "cuda":
            torch.cuda.empty_cache()
        return result

    def _has_time(self, training: Training, result: Result, step: int) -> bool:
        """Return whether a training can reach its next mark."""
        needed = self.pace.ready + self.pace.until(training, step, result.missing)
        if needed > self.left:
            self.say(
                f"{training.key}: {max(0.0, self.left):.0f} s left, {needed:.0f} s to its next mark"
            )
        return needed <= self.left

    def _train(self, training: Training, result: Result, kept: dict[str, Any] | None) -> None:
        begin = time.perf_counter()
        loop = self._loop(training)
        trained = 0.0 if kept is None else _restore(loop, kept)
        every = max(1, training.measured[0] // REPORTS)
        times: list[float] = []
        first, started, last = loop.step_number + 1, begin, loop.step_number
        while result.missing:
            loop.step()
            k = loop.step_number
            due = k in result.missing
            if k != first and k % every and not due:
                continue
            loss = loop.report().loss  # waits for the device
            now = time.perf_counter()
            trained += now - started
            if k == first:
                result.ready_seconds = self.pace.ready = now - begin
            else:
                times.append((now - started) / (k - last))
                self.pace.step = result.step_seconds = statistics.median(times)
                if k > (result.losses[-1][0] if result.losses else 0):
                    result.losses.append((k, loss))
            last = k
            if due:
                self._measure(result, loop, trained)
            started = time.perf_counter()
            if result.missing and self.pace.until(training, k, result.missing) > self.left:
                self._keep(training, loop, trained)
                return
        (self.cache / f"{training.key}.pt").unlink(missing_ok=True)
        self.say(
            f"{training.key}: {1000 * result.step_seconds:.1f} ms a step, "
            f"{result.ready_seconds:.0f} s to the first"
        )

    def _loop(self, training: Training) -> Loop:
        setup, sets = self.setup, self.images.sets
        net = network_of(sets.train.shape[1:], training.seed, setup.sizes)
        predictor = predictor_of(training, net, self.priors)
        config = config_of(
            steps=training.steps, seed=training.seed, warmup=training.warmup, batch=setup.batch,
            rate=setup.rate, flip=setup.flip,
        )  # fmt: skip
        noising = self.priors[GAUSSIAN].noising
        objective = objective_of(training, predictor, noising, config.first)
        return Loop(predictor, Rows(sets.train, sets.pixels), objective, config)

    def _measure(self, result: Result, loop: Loop, trained: float) -> None:
        begin, step = time.perf_counter(), loop.step_number
        forms, drawn = self.evaluation.measure(result.training, loop)
        seconds = time.perf_counter() - begin
        result.marks[step] = Mark(step, forms, trained, seconds)
        result.samples |= {f"{step}|{name}": pictures for name, pictures in drawn.items()}
        self.store.write(result)
        if drawn:
            self.pace.form = seconds / len(drawn)
        else:
            self.pace.errors = seconds
        for name, one in forms.items():
            bits = "" if one.bits is None else f", {statistics.fmean(one.bits):.4f} bits"
            distance = "" if one.frechet is None else f", distance {one.frechet:.3f}"
            sixths = " ".join(f"{error:.5f}" for error in one.errors)
            self.say(
                f"{result.training.key}: {step} steps, {name}: {one.loss:.5f} ({sixths})"
                f"{bits}{distance}"
            )
        self.say(
            f"{result.training.key}: {trained:.0f} s of training, {seconds:.1f} s of measuring"
        )

    def _kept(self, training: Training) -> dict[str, Any] | None:
        """Return the stored weights of a training that was stopped."""
        path = self.cache / f"{training.key}.pt"
        if not path.exists():
            return None
        found: dict[str, Any] = torch.load(path, weights_only=True, map_location=device())
        settings = {"training": training.identity(), "batch": self.setup.batch}
        return found if found["settings"] == settings else None

    def _keep(self, training: Training, loop: Loop, trained: float) -> None:
        """Store the weights of a training that is stopped."""
        self.cache.mkdir(parents=True, exist_ok=True)
        content = {
            "settings": {"training": training.identity(), "batch": self.setup.batch},
            "step": loop.step_number,
            "trained": trained,
            "net": loop.net.state_dict(),
            "average": loop.average.state(),
            "optimiser": loop.optimiser.state_dict(),
        }
        with draft_of(self.cache / f"{training.key}.pt") as draft:
            torch.save(content, draft)
        self.say(f"{training.key}: stopped after {loop.step_number} steps, weights stored")


def _restore(loop: Loop, kept: dict[str, Any]) -> float:
    """Continue a training, and return the seconds that it took before."""
    loop.net.load_state_dict(kept["net"])
    loop.average.load(kept["average"])
    loop.optimiser.load_state_dict(kept["optimiser"])
    loop.step_number = int(kept["step"])
    return float(kept["trained"])
