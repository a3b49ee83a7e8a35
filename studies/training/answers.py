"""The answers of the report: what is saved, by which form and prior, and what a higher order gives.

*Steps saved*: a form that has some loss after k steps saves m - k steps if another network has this
loss after m steps. m is interpolated linearly in the logarithm of steps. The same is done with bits
per dimension and Fréchet distances.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from studies.study import table
from studies.training.results import Curve, Result, steps_needed
from studies.training.summary import (
    EDM,
    PAPER_3,
    PAPER_6,
    QUANTITIES,
    REFERENCE,
    VELOCITY,
    WORDS,
    Summary,
)
from studies.training.trainings import (
    GAUSSIAN,
    ITSELF,
    MIXTURE,
    PIXELS_3,
    PIXELS_6,
    PRINCIPAL_9,
)

DIGITS = {"loss": ".5f", "bits": ".4f", "frechet": ".1f"}

PRIORS = {GAUSSIAN: "a Gaussian", MIXTURE: "a mixture"}

MORE = "> "

BEST = 3
"""The number of forms that are named as the best."""

HIGHER = ((PRINCIPAL_9, GAUSSIAN), (PIXELS_6, PIXELS_3))
"""Priors of a higher and a lower order of the same kind."""


def answers(about: Summary) -> str:
    """Return a list that answers the questions of the study, as far as they were measured."""
    parts = [
        _paper(about), _others(about), _added(about), _default(about), _best(about), _orders(about),
    ]  # fmt: skip
    return "\n".join(f"- {part}" for part in parts if part)


def saved_steps(about: Summary) -> str:
    """Return a table of the steps saved, negative where more are needed."""
    rows, steps = [], sorted({step for one in about.results for step in one.marks})
    for pair in _pairs(about):
        for quantity in QUANTITIES:
            savings = pair.savings(quantity)
            if savings:
                cells = [savings[step].words if step in savings else "" for step in steps]
                rows.append([pair.name, pair.other_name, WORDS[quantity], *cells])
    return table(["form", "compared with", "by", *(f"{step} steps" for step in steps)], rows)


def gains(about: Summary) -> str:
    """Return a table of what a Gaussian adds to each network, at the marks with a form of both."""
    rows = []
    for result in about.results:
        steps = [
            step
            for step in result.training.marks
            if result.form(step) is not None and result.form(step, GAUSSIAN) is not None
        ]
        if steps:
            cells = [", ".join(_changes(result, name, steps)) for name in QUANTITIES]
            one = result.training
            rows.append([one.label, one.seed, one.warmup, ", ".join(map(str, steps)), *cells])
    head = ["network", "seed", "warm-up", "steps", *(WORDS[name] for name in QUANTITIES)]
    return table(head, rows)


def _pairs(about: Summary) -> list[Pair]:
    """Return the comparisons, as far as both were run; those of the same warm-up and seed."""
    study = about.study
    wanted = [
        (study.long_warmup, PAPER_3, ITSELF, REFERENCE),
        (study.long_warmup, REFERENCE, GAUSSIAN, REFERENCE),
        *((study.warmup, name, ITSELF, REFERENCE) for name in (VELOCITY, EDM)),
        *((study.warmup, name, GAUSSIAN, name) for name in (REFERENCE, VELOCITY, EDM)),
    ]
    return [
        Pair(result, form, base)
        for warmup, name, form, other in wanted
        if (result := about.get(name, warmup)) and (base := about.get(other, warmup))
    ]


def _paper(about: Summary) -> str:
    """Return how many steps are saved with the paper's settings."""
    warmup = about.study.long_warmup
    words = [f"{one.name}: {one}" for one in _pairs(about) if one.warmup == warmup]
    return _sentences(
        f"**Steps saved with the paper's settings**, predicted noise and a warm-up of {warmup} "
        "steps, compared with the network alone.",
        words,
    )


def _others(about: Summary) -> str:
    """Return how many steps other parametrisations save without a prior."""
    warmup = about.study.warmup
    return _sentences(
        f"**Steps saved by other parametrisations**, without a prior, with a warm-up of {warmup} "
        "steps, compared with predicted noise.",
        _with_form(about, warmup, ITSELF),
    )


def _added(about: Summary) -> str:
    """Return how many steps a Gaussian saves in addition to a parametrisation."""
    warmup = about.study.warmup
    return _sentences(
        f"**Steps saved by a Gaussian in addition**, with a warm-up of {warmup} steps, compared "
        "with the same network alone.",
        _with_form(about, warmup, GAUSSIAN),
    )


def _with_form(about: Summary, warmup: int, form: str) -> list[str]:
    """Return the steps saved in the comparisons of a form, each with the network it is of."""
    return [
        f"{_capital(one.result.training.label)}: {one}"
        for one in _pairs(about)
        if (one.warmup, one.form) == (warmup, form)
    ]


def _sentences(head: str, words: Sequence[str]) -> str:
    """Return the head with all words, nothing without any."""
    return f"{head} {'. '.join(words)}." if words else ""


def _default(about: Summary) -> str:
    """Return the margin of the default over the same network alone, all seeds and marks."""
    words = []
    for quantity in QUANTITIES:
        ratios = [ratio - 1 for ratio in about.ratios(EDM, about.study.warmup, quantity)]
        if ratios:
            words.append(f"{WORDS[quantity]} {min(ratios):+.2%} to {max(ratios):+.2%}")
    if not words:
        return ""
    return (
        f"**The default of `oism train`** is EDM with its own loss, combined with a Gaussian. "
        f"Compared with EDM alone, over all seeds and marks: {', '.join(words)}."
    )


def _best(about: Summary) -> str:
    """Return the best forms by each quantity, after the last mark."""
    study = about.study
    last, wanted, words = study.marks[-1], (study.warmup, study.seed), []
    for quantity in QUANTITIES:
        values = {
            _named(result, form): value
            for result, form, step, _ in about.measured()
            if step == last
            and (result.training.warmup, result.training.seed) == wanted
            and not math.isnan(value := result.value(last, quantity, form))
        }
        ranked = sorted(values, key=lambda name: values[name])[:BEST]
        if ranked:
            best = ", ".join(f"{name} ({values[name]:{DIGITS[quantity]}})" for name in ranked)
            words.append(f"{WORDS[quantity]}: {best}")
    return f"**The best forms** after {last} steps, by {'; by '.join(words)}." if words else ""


def _orders(about: Summary) -> str:
    """Return whether a higher order lowers the loss."""
    study, words = about.study, []
    low, high = (about.get(name, study.long_warmup) for name in (PAPER_3, PAPER_6))
    if low is not None and high is not None:
        steps = [step for step in study.long_marks if step in low.marks and step in high.marks]
        changes = [high.value(step, "loss") / low.value(step, "loss") - 1 for step in steps]
        if changes:
            words.append(
                f"the loss of OISM(6), compared with that of OISM(3), after {_list(steps)} steps: "
                f"{_percents(changes)}"
            )
    own = about.get(REFERENCE, study.warmup)
    for form, against in HIGHER if own is not None else ():
        steps = [step for step in study.marks if own and step in own.marks]
        changes = [
            own.value(step, "loss", form) / own.value(step, "loss", against) - 1
            for step in steps
            if own
        ]
        if changes and not any(map(math.isnan, changes)):
            words.append(
                f"that of a network combined with {form}, compared with {against}, after "
                f"{_list(steps)}: {_percents(changes, digits=3)}"
            )
    return f"**A higher order**: {'; '.join(words)}." if words else ""


@dataclass(frozen=True)
class Saving:
    """The steps that a form saves after ``step``; a bound where curves end, from below or above."""

    step: int
    count: int
    bound: str = ""

    @classmethod
    def of(cls, other: Curve, step: int, value: float) -> Saving:
        """Return how many steps later a curve has a value.

        >>> Saving.of([(10, 3.0), (20, 2.0), (30, 1.0)], 10, 2.0)
        Saving(step=10, count=10, bound='')
        >>> Saving.of([(10, 3.0), (20, 2.0), (30, 1.0)], 20, 0.5).words
        '> 10'
        """
        needed = steps_needed(other, value)
        if math.isinf(needed):
            return cls(step, other[-1][0] - step, MORE)
        if math.isnan(needed):
            return cls(step, other[0][0] - step, "< ")
        return cls(step, round(needed) - step)

    @property
    def words(self) -> str:
        """The number, with its bound."""
        return f"{self.bound}{self.count}"

    @property
    def is_positive(self) -> bool:
        """Whether any step is saved."""
        return self.count > 0 or (self.count == 0 and self.bound == MORE)


@dataclass(frozen=True)
class Pair:
    """A form of a training and the network alone that it is compared with."""

    result: Result
    form: str
    other: Result

    @property
    def name(self) -> str:
        """The form in words."""
        return _named(self.result, self.form)

    @property
    def other_name(self) -> str:
        """The network alone in words."""
        return self.other.training.label

    @property
    def warmup(self) -> int:
        """The warm-up of both."""
        return self.result.training.warmup

    def savings(self, quantity: str) -> dict[int, Saving]:
        """Return the steps saved by step, where both were measured."""
        other = self.other.curve(quantity)
        own = self.result.curve(quantity, self.form) if other else []
        return {step: Saving.of(other, step, value) for step, value in own}

    def __str__(self) -> str:
        """Return the steps saved by each quantity, in words."""
        found = {name: list(self.savings(name).values()) for name in QUANTITIES}
        return ", ".join(
            _at_most(savings, WORDS[name]) for name, savings in found.items() if savings
        )


def _at_most(savings: Sequence[Saving], quantity: str) -> str:
    """Return the largest number of saved steps, and from where on there are none.

    >>> _at_most([Saving(10, 5), Saving(20, -1), Saving(30, -2)], "loss")
    'up to 5 by loss (after 10; none from 20 on)'
    """
    some = [one for one in savings if one.is_positive]
    if not some:
        return f"none by {quantity}"
    best = max(some, key=lambda one: one.count)
    number = f"more than {best.count}" if best.bound else f"up to {best.count}"
    after = [one.step for one in savings if one.step > some[-1].step]
    end = f"; none from {after[0]} on" if after else ""
    return f"{number if best.count else 'some'} by {quantity} (after {best.step}{end})"


def _changes(result: Result, quantity: str, steps: Sequence[int]) -> Iterator[str]:
    """Yield the change of a quantity by a Gaussian: bits as they are, others in percent."""
    for step in steps:
        own, base = (result.value(step, quantity, form) for form in (GAUSSIAN, ITSELF))
        if math.isnan(own) or math.isnan(base):
            yield "–"
        else:
            digits = 2 if quantity == "loss" else 1
            change = f"{own / base - 1:+.{digits}%}"
            yield f"{own - base:+.4f}" if quantity == "bits" else change


def _named(result: Result, form: str) -> str:
    label, prior = result.training.label, PRIORS.get(form, form)
    return label if form == ITSELF else f"{label} combined with {prior}"


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _list(values: Sequence[object]) -> str:
    """Return values in words.

    >>> _list([1, 2, 3])
    '1, 2 and 3'
    """
    words = [str(value) for value in values]
    return " and ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else "".join(words)


def _percents(values: Sequence[float], digits: int = 1) -> str:
    return _list([f"{value:+.{digits}%}" for value in values])
