"""The stored numbers of trainings, and what follows from them.

trainings/KEY.json   settings, losses in training, measurements by step and form
trainings/KEY.npz    samples by step and form
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.isotonic import IsotonicRegression

from oism.images import DEFAULT_GATE
from studies.images import device_name
from studies.study import draft_of, plain, versions, write_json
from studies.training.measuring import Measured
from studies.training.trainings import ITSELF, RESIDUAL, Setup, Training

TRAININGS = "trainings"
"""The folder of the trainings."""

Curve = Sequence[tuple[int, float]]
"""Numbers of steps, increasing, and a number after each."""

CLEAR, LEAST = 15.0, 20
"""How many times its own scatter, and at how many points, the training loss must fall between two
measurements to show how the loss falls there."""


@dataclass(frozen=True)
class Mark:
    """The measurements by form after a number of steps.

    ``train_seconds`` is the time of training up to here, ``seconds`` that of measuring.
    """

    step: int
    forms: dict[str, Measured]
    train_seconds: float
    seconds: float


@dataclass
class Result:
    """A training, its loss in training, its measurements, its samples by step and form.

    ``step_seconds`` is the median time of a step, ``ready_seconds`` that before the first one has
    ended.
    """

    training: Training
    losses: list[tuple[int, float]] = field(default_factory=list)
    marks: dict[int, Mark] = field(default_factory=dict)
    samples: dict[str, NDArray[np.uint8]] = field(default_factory=dict)
    step_seconds: float = math.nan
    ready_seconds: float = math.nan
    device: str = field(default_factory=device_name)
    versions: dict[str, str] = field(default_factory=versions)

    @property
    def missing(self) -> list[int]:
        """The numbers of steps after which it is still to be measured, wholly or in part."""
        return [step for step in self.training.measured if not self._has(step)]

    def _has(self, step: int) -> bool:
        """Return whether all that is to be measured after a number of steps was."""
        forms = [self.form(step, name) for name in self.training.sampled(step)]
        return step in self.marks and all(one is not None and one.bits is not None for one in forms)

    @property
    def seconds(self) -> float:
        """The time of training and measuring."""
        measuring = sum(mark.seconds for mark in self.marks.values())
        return measuring + max((mark.train_seconds for mark in self.marks.values()), default=0.0)

    def form(self, step: int, form: str = ITSELF) -> Measured | None:
        """Return the measurements of a form after a number of steps, if there are any."""
        return self.marks[step].forms.get(form) if step in self.marks else None

    def curve(self, quantity: str, form: str = ITSELF) -> list[tuple[int, float]]:
        """Return steps and "loss", "bits" or "frechet", where they were measured."""
        found = []
        for step in sorted(self.marks):
            measured = self.marks[step].forms.get(form)
            value = None if measured is None else getattr(measured, quantity)
            if value is not None and not math.isnan(mean := float(np.mean(value))):
                found.append((step, mean))
        return found

    def detailed(self, quantity: str) -> Curve:
        """Return the curve of the network itself, with the points of its training loss between."""
        curve = self.curve(quantity)
        return refined(curve, self.losses) if quantity == "loss" else curve

    def value(self, step: int, quantity: str, form: str = ITSELF) -> float:
        """Return a quantity after a number of steps, NaN if it was not measured."""
        return dict(self.curve(quantity, form)).get(step, math.nan)

    def numbers(self, *, images: bool) -> dict[str, Any]:
        """Return everything but samples for JSON; bits of single images, or their mean."""
        marks = []
        for mark in self.marks.values():
            forms = {name: asdict(one) for name, one in mark.forms.items()}
            if not images:
                for one in forms.values():
                    del one["share"], one["spread"]
                    one["bits"] = None if one["bits"] is None else float(np.mean(one["bits"]))
            marks.append({**asdict(mark), "forms": forms})
        found = {
            "step_seconds": self.step_seconds,
            "ready_seconds": self.ready_seconds,
            "device": self.device,
            "versions": self.versions,
            "marks": sorted(marks, key=lambda mark: int(mark["step"])),
            "losses": self.losses,
        }
        return {"key": self.training.key, "label": self.training.label, **found}


class Store:
    """The results of trainings in a folder."""

    def __init__(self, folder: Path, setup: Setup) -> None:
        self.folder, self.setup = folder / TRAININGS, setup

    def read(self, training: Training) -> Result:
        """Return what is stored of a training with the same settings, or a result without marks."""
        path = self.folder / f"{training.key}.json"
        if not path.exists():
            return Result(training)
        stored = json.loads(path.read_text(encoding="utf-8"))
        if stored["origin"] != plain(self._origin(training)):
            return Result(training)
        marks = {
            mark["step"]: Mark(
                mark["step"], {name: Measured(**one) for name, one in mark["forms"].items()},
                mark["train_seconds"], mark["seconds"],
            )
            for mark in stored["marks"]
        }  # fmt: skip
        pictures = path.with_suffix(".npz")
        samples: dict[str, NDArray[np.uint8]] = {}
        if pictures.exists():
            with np.load(pictures) as found:
                samples = {name: found[name] for name in found.files}
        return Result(
            training, [(int(step), float(loss)) for step, loss in stored["losses"]], marks, samples,
            stored["step_seconds"], stored["ready_seconds"], stored["device"], stored["versions"],
        )  # fmt: skip

    def write(self, result: Result) -> None:
        """Store a result; an older file stays until the new one is complete."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{result.training.key}.json"
        with draft_of(path.with_suffix(".npz")) as draft, draft.open("wb") as file:
            np.savez_compressed(file, **result.samples)  # type: ignore[arg-type]
        write_json(path, {"origin": self._origin(result.training), **result.numbers(images=True)})

    def _origin(self, training: Training) -> dict[str, Any]:
        """Return all settings that determine a result."""
        gate = repr(DEFAULT_GATE) if training.form == RESIDUAL else None
        return {"training": training.identity(), "setup": asdict(self.setup), "gate": gate}


def steps_needed(curve: Curve, value: float) -> float:
    """Return the number of steps after which a decreasing curve has a value.

    Values are interpolated linearly in the logarithm of steps. Infinite where the curve does not
    reach the value, NaN where it starts below.

    >>> round(steps_needed([(100, 3.0), (1000, 2.0), (10000, 1.5)], 2.5))
    316
    >>> steps_needed([(100, 3.0), (1000, 2.0)], 1.9)
    inf
    """
    if not curve or math.isnan(value) or value > curve[0][1]:
        return math.nan
    if value == curve[0][1]:
        return float(curve[0][0])
    for (first, high), (last, low) in itertools.pairwise(curve):
        if low <= value <= high:
            part = 0.0 if high == low else (high - value) / (high - low)
            return float(first ** (1 - part) * last**part)
    return math.inf


def refined(curve: Curve, course: Curve) -> list[tuple[int, float]]:
    """Return a curve with more points: between two of its own it falls as another one, the course.

    The course is noisy: it counts as its isotonic regression, and only between points where that
    falls by `CLEAR` times the standard deviation of the course from it.

    >>> course = [(step, 0.5 ** step) for step in range(21)]
    >>> refined([(0, 3.0), (20, 2.0)], course)[:3]
    [(0, 3.0), (1, 2.49...), (2, 2.24...)]
    """
    found = list(curve[:1])
    for (first, high), (last, low) in itertools.pairwise(curve):
        steps, values = np.array([one for one in course if first <= one[0] <= last] or [(0, 0.0)]).T
        smooth = IsotonicRegression(increasing=False).fit_transform(steps, values)
        fall, scatter = smooth[0] - smooth[-1], float(np.std(values - smooth))
        if len(steps) >= LEAST and fall > CLEAR * scatter:
            within = high + (smooth - smooth[0]) / fall * (high - low)
            inner = (first < steps) & (steps < last)
            found += list(zip(steps[inner].astype(int).tolist(), within[inner], strict=True))
        found.append((last, low))
    return [(step, float(value)) for step, value in found]


def by_key(results: Iterable[Result]) -> Mapping[str, Result]:
    """Return results by the keys of their trainings."""
    return {one.training.key: one for one in results}
