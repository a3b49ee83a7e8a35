"""The tables of the report, from the stored numbers.

*Steps saved*: a form that has some loss after k steps saves m - k steps if the network alone, which
predicts the noise, has this loss after m steps, with the same warm-up and seed; see
`studies.training.savings`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from studies.study import rounded, standard_error, table
from studies.training.measuring import Measured
from studies.training.results import Curve, Result, by_key, steps_needed
from studies.training.step_time import FAST, Times, quartiles
from studies.training.trainings import GAUSSIAN, ITSELF, SIXTHS, Training

if TYPE_CHECKING:
    from studies.training.study import TrainingStudy

QUANTITIES = ("loss", "bits", "frechet")
WORDS = {"loss": "loss", "bits": "bits per dimension", "frechet": "Fréchet distance"}

REFERENCE, VELOCITY, EDM, OPERATOR = "noise", "v", "edm-own", "operator-own"
PAPER_3, PAPER_6, PAPER_GAUSSIAN = "oism3", "oism6", "paper-principal2"
GATED = "residual"
"""The names of the trainings that are compared."""


class Summary:
    """What the stored results of a study say; missing ones are left out."""

    def __init__(
        self,
        study: TrainingStudy,
        results: Sequence[Result],
        times: Times | None,
        classifier: Mapping[str, Any],
    ) -> None:
        self.study, self.results, self.times = study, results, times
        self.classifier = classifier

    @cached_property
    def found(self) -> Mapping[str, Result]:
        """The results by key."""
        return by_key(self.results)

    @property
    def seconds(self) -> float:
        """The time of all trainings and measurements."""
        return sum(one.seconds for one in self.results)

    @property
    def accuracy(self) -> str:
        """The accuracy of the classifier."""
        return f"{float(self.classifier.get('accuracy', math.nan)):.1%}"

    @property
    def test_distance(self) -> str:
        """The Fréchet distance of test images."""
        return rounded(float(self.classifier.get("test_distance", math.nan)))

    @property
    def rounds(self) -> int:
        """The number of rounds in which steps were timed."""
        return 0 if self.times is None else len(self.times.rounds[FAST])

    def missing(self) -> str:
        """Return a sentence about trainings without all of their measurements."""
        names = []
        for one in self.study.trainings:
            result = self.found.get(one.key)
            if result is None:
                names.append(one.key)
            elif result.missing:
                names.append(f"{one.key} in part")
        return f"Not run: {', '.join(names)}." if names else ""

    def get(self, name: str, warmup: int, seed: int | None = None) -> Result | None:
        """Return a training with a name, if it was run."""
        return self.found.get(f"{name}-{self.study.seed if seed is None else seed}-{warmup}")

    def reference(self, training: Training) -> Result | None:
        """Return the network alone with the same warm-up and seed, or the first seed."""
        own = self.get(REFERENCE, training.warmup, training.seed)
        return self.get(REFERENCE, training.warmup) if own is None else own

    def equivalent(self, result: Result, form: str, step: int, quantity: str = "loss") -> float:
        """Return the steps after which the network alone is as good, NaN if it is from the start.

        It is infinite if the network alone is not as good after any number of steps.
        """
        other = self.reference(result.training)
        if other is None:
            return math.nan
        return steps_needed(other.detailed(quantity), result.value(step, quantity, form))

    def saved(self) -> list[dict[str, Any]]:
        """Return the equivalent steps of all forms at all marks for JSON."""
        return [
            {"key": result.training.key, "form": form, "step": step}
            | {name: self.equivalent(result, form, step, name) for name in QUANTITIES}
            for result, form, step, _ in self.measured()
            if not _is_reference(result, form) and step in result.training.marks
        ]

    def ratios(self, name: str, warmup: int, quantity: str) -> list[float]:
        """Return a quantity of networks combined with a Gaussian, divided by that of them alone.

        One for each seed and mark where both were measured.
        """
        found = [
            one.value(step, quantity, GAUSSIAN) / one.value(step, quantity)
            for one in self.results
            if (one.training.name, one.training.warmup) == (name, warmup)
            for step in one.training.marks
        ]
        return [ratio for ratio in found if not math.isnan(ratio)]

    def changes_of_bits(self, name: str, warmup: int) -> list[tuple[float, float]]:
        """Return the mean change of bits by a Gaussian, and its standard error over images.

        One for each seed and mark where both were measured.
        """
        found = []
        for one in self.results:
            if (one.training.name, one.training.warmup) != (name, warmup):
                continue
            for step in one.training.marks:
                own, base = (one.form(step, form) for form in (GAUSSIAN, ITSELF))
                if own and base and own.bits is not None and base.bits is not None:
                    apart = np.array(own.bits) - np.array(base.bits)
                    found.append((float(apart.mean()), _error(apart)))
        return found

    def between_seeds(self, quantity: str, warmup: int, steps: Sequence[int]) -> float:
        """Return the largest relative difference of a quantity between two seeds of a training.

        That of networks alone and in the paper's form; NaN if no training has a second seed.
        """
        ratios = [
            second.value(step, quantity) / first.value(step, quantity)
            for first in self.results
            if (first.training.warmup, first.training.seed) == (warmup, self.study.seed)
            if (second := self.get(first.training.name, warmup, self.study.seed + 1)) is not None
            for step in steps
        ]
        return max((abs(one - 1) for one in ratios if not math.isnan(one)), default=math.nan)

    def error_table(self) -> str:
        """Return losses and errors by sixths of all forms, with equivalent steps."""
        head = ["training", "form", "seed", "warm-up", "steps", "loss", "steps alone"]
        rows = []
        for result, form, step, one in self.measured():
            if step not in result.training.marks:
                continue
            training, other = result.training, self.reference(result.training)
            alone = [] if other is None else other.curve("loss")
            is_own = _is_reference(result, form)
            needed = "" if is_own else _steps(self.equivalent(result, form, step), alone)
            names = [training.label, form, training.seed, training.warmup, step]
            errors = [f"{error:.5f}" for error in one.errors]
            rows.append([*names, f"{one.loss:.5f}", needed, *errors])
        return table([*head, *(f"sixth {i + 1}" for i in range(SIXTHS))], rows)

    def quality_table(self) -> str:
        """Return bits per dimension and Fréchet distances of all forms that have them."""
        head = ["training", "form", "seed", "warm-up", "steps", "bits per dimension"]
        rows = []
        for result, form, step, one in self.measured():
            if one.bits is None or one.frechet is None:
                continue
            training, other = result.training, self.reference(result.training)
            base = None if other is None else other.form(step)
            apart = "" if _is_reference(result, form) else _apart(one, base)
            names = [training.label, form, training.seed, training.warmup, step]
            bits = f"{np.mean(one.bits):.4f} ± {_error(np.array(one.bits)):.4f}"
            rows.append([*names, bits, apart, f"{one.frechet:.2f}"])
        return table([*head, "minus the network alone", "Fréchet distance"], rows)

    def prior_table(self) -> str:
        """Return the loss of the network combined with each prior, relative to it alone."""
        rows = []
        for warmup in (self.study.long_warmup, self.study.warmup):
            result = self.get(REFERENCE, warmup)
            if result is None:
                continue
            for form in result.training.combined:
                for step in sorted(result.marks):
                    one, alone = result.form(step, form), result.form(step)
                    if one is None or alone is None or step not in result.training.marks:
                        continue
                    ratios = [a / b for a, b in zip(one.errors, alone.errors, strict=True)]
                    shown = [f"{ratio:.4f}" for ratio in (one.loss / alone.loss, *ratios)]
                    rows.append([form, warmup, step, *shown])
        head = ["prior", "warm-up", "steps", "loss", *(f"sixth {i + 1}" for i in range(SIXTHS))]
        return table(head, rows)

    def step_table(self) -> str:
        """Return the times of steps, with quartiles."""
        times = self.times
        if times is None:
            return "Not timed."
        rows = []
        for name in times.rounds:
            low, middle, high = times.ratios(name)
            spread = f"{middle:.3f} ({low:.3f} to {high:.3f})"
            rows.append([name, f"{1000 * times.seconds(name):.1f}", spread])
        for order in (3, 6):
            base = f"compiled, not recorded, OISM({order})"
            low, middle, high = times.ratios(f"{base}, solved in every step", base)
            rows.append(
                [
                    f"solved / tabulated, OISM({order})",
                    "",
                    f"{middle:.3f} ({low:.3f} to {high:.3f})",
                ]
            )
        return table(["step", "ms", "ratio to fast, median and quartiles"], rows)

    def coefficient_table(self) -> str:
        """Return the times of the coefficients of a batch."""
        if self.times is None:
            return ""
        rows = []
        for name, spent in self.times.coefficients.items():
            low, middle, high = (f"{1000 * one:.3f}" for one in quartiles(spent))
            rows.append([name, middle, low, high])
        return table(["coefficients", "ms", "lower quartile", "upper quartile"], rows)

    def solve_cost(self) -> str:
        """Return how much longer coefficients take that are solved, in words."""
        if self.times is None or not self.times.coefficients:
            return ""
        words, step = [], self.times.seconds(FAST)
        for order in (3, 6):
            names = (f"OISM({order}), {kind}" for kind in ("tabulated", "solved"))
            spent = [self.times.coefficients.get(name) for name in names]
            if all(spent):
                tabulated, solved = (quartiles(one)[1] for one in spent if one)
                extra = solved - tabulated
                words.append(f"{1000 * extra:.1f} ms for OISM({order}), {extra / step:.1%} of it")
        if not words:
            return ""
        return f"Compared with a fast step, solving costs in addition: {'; '.join(words)}."

    def measured(self) -> Iterator[tuple[Result, str, int, Measured]]:
        """Yield all results with their forms and steps."""
        for result in self.results:
            for form in result.training.forms:
                for step in sorted(result.marks):
                    one = result.form(step, form)
                    if one is not None:
                        yield result, form, step, one


def _is_reference(result: Result, form: str) -> bool:
    return result.training.name == REFERENCE and form == ITSELF


def _steps(needed: float, alone: Curve) -> str:
    """Return a number of steps, or the bound where the network alone was not measured."""
    if not alone:
        return ""
    if math.isnan(needed):
        return f"less than {alone[0][0]}"
    return f"more than {alone[-1][0]}" if math.isinf(needed) else str(round(needed))


def _error(values: Any) -> float:  # noqa: ANN401
    return float(standard_error(values)) if len(values) > 1 else math.nan


def _apart(one: Measured, other: Measured | None) -> str:
    """Return the mean difference of the bits of the same images, with its standard error."""
    if other is None or one.bits is None or other.bits is None:
        return ""
    apart = np.array(one.bits) - np.array(other.bits)
    return f"{apart.mean():+.4f} ± {_error(apart):.4f}"


def listed(values: Sequence[object]) -> str:
    """Return values in words.

    >>> listed([1, 2, 3])
    '1, 2 and 3'
    """
    words = [str(value) for value in values]
    return " and ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else "".join(words)
