"""The first paragraph of the report: short answers, with the figures that decide them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from studies.training.results import Result
from studies.training.savings import Pair, pairs
from studies.training.summary import (
    EDM,
    PAPER_3,
    PAPER_6,
    PAPER_GAUSSIAN,
    REFERENCE,
    VELOCITY,
    Summary,
)
from studies.training.trainings import GAUSSIAN, ITSELF, PRINCIPAL_9

NAMES = {PAPER_GAUSSIAN: "the paper's form with a Gaussian"}
"""Names that need no explanation."""


def short(about: Summary) -> str:
    """Return a paragraph that answers the questions of the study, as far as they were measured."""
    parts = (_paper, _distances, _others, _added, _form, _order)
    return " ".join(words for part in parts if (words := part(about)))


def _paper(about: Summary) -> str:
    """Return how many steps a prior saves with the paper's settings, by loss."""
    found = [_saved(one, "loss") for one in _papers(about)]
    if not found:
        return ""
    return (
        "With the paper's settings, a closed-form prior saves training steps by loss, compared "
        f"with the network alone: {'; '.join(found)}."
    )


def _distances(about: Summary) -> str:
    """Return the Fréchet distances of the first mark, and that of the network alone at the last."""
    study = about.study
    first, last = study.long_marks[0], study.long_marks[-1]
    values = _values([(one.result, one.form) for one in _papers(about)], first)
    alone = _value(about.get(REFERENCE, study.long_warmup), last)
    if not values or math.isnan(alone):
        return ""
    return (
        f"The Fréchet distances of these forms after {first} steps are {_span(values)}, that of "
        f"the network alone after {last} is {alone:.0f}."
    )


def _others(about: Summary) -> str:
    """Return the distances of other parametrisations without a prior."""
    study = about.study
    first, last = study.marks[0], study.marks[-1]
    found = [
        f"{name} {value:.0f}"
        for name, key in (("the velocity", VELOCITY), ("EDM's preconditioning", EDM))
        if not math.isnan(value := _value(about.get(key, study.warmup), first))
    ]
    alone = _value(about.get(REFERENCE, study.warmup), last)
    if not found or math.isnan(alone):
        return ""
    return (
        f"But other parametrisations have small distances without a prior: {' and '.join(found)} "
        f"after {first} steps, predicted noise {alone:.0f} after {last}, with a warm-up of "
        f"{study.warmup}."
    )


def _added(about: Summary) -> str:
    """Return what a Gaussian adds to these parametrisations, and to predicted noise."""
    study, words = about.study, []
    last = study.marks[-1]
    for name, key in (("the velocity", VELOCITY), ("EDM", EDM), ("the noise", REFERENCE)):
        result = about.get(key, study.warmup)
        own, alone = (_value(result, last, form) for form in (GAUSSIAN, ITSELF))
        fewer = _value(result, last, GAUSSIAN, "bits") - _value(result, last, ITSELF, "bits")
        if not any(map(math.isnan, (own, alone, fewer))):
            words.append(f"{name} {own / alone - 1:+.1%} and {fewer:+.4f} bits")
    if not words:
        return ""
    return (
        "A Gaussian prior in addition changes distances and bits per dimension after "
        f"{last} steps as follows: {', '.join(words)}."
    )


def _form(about: Summary) -> str:
    """Return which form is best."""
    if not _papers(about):
        return ""
    return (
        "The best form is `Combined`, which trains the network alone and averages its prediction "
        "with that of the prior; the best prior is a Gaussian along principal directions."
    )


def _order(about: Summary) -> str:
    """Return whether a higher order lowers the loss."""
    study, words = about.study, []
    low, high = (about.get(name, study.long_warmup) for name in (PAPER_3, PAPER_6))
    step = max(
        (step for step in study.long_marks if _has(low, step) and _has(high, step)), default=0
    )
    if step:
        change = _value(high, step, ITSELF, "loss") / _value(low, step, ITSELF, "loss") - 1
        words.append(
            f"the loss of OISM(6) is {_apart(change, 1)} that of OISM(3) after {step} steps"
        )
    own, first = about.get(REFERENCE, study.warmup), study.marks[0]
    change = _value(own, first, PRINCIPAL_9, "loss") / _value(own, first, GAUSSIAN, "loss") - 1
    if not math.isnan(change):
        words.append(
            f"that of a network combined with order 9 is {_apart(change, 3)} that of the same "
            f"network with the Gaussian after {first}"
        )
    return f"A higher order does not pay: {'; '.join(words)}." if words else ""


def _papers(about: Summary) -> list[Pair]:
    """Return the comparisons with the paper's settings."""
    return [one for one in pairs(about) if one.warmup == about.study.long_warmup]


def _saved(pair: Pair, quantity: str) -> str:
    """Return the largest number of steps saved, and from where on there are none."""
    savings = list(pair.savings(quantity).values())
    some = [one for one in savings if one.is_positive]
    name = NAMES.get(pair.result.training.name, pair.name)
    if not some:
        return f"{name} none"
    best = max(some, key=lambda one: one.count)
    after = [one.step for one in savings if one.step > some[-1].step]
    end = f", none from {after[0]} on" if after else ""
    return f"{name} {'more than ' * bool(best.bound)}{best.count} after {best.step} steps{end}"


def _has(result: Result | None, step: int) -> bool:
    return result is not None and result.form(step) is not None


def _value(
    result: Result | None, step: int, form: str = ITSELF, quantity: str = "frechet"
) -> float:
    return math.nan if result is None else result.value(step, quantity, form)


def _values(forms: Sequence[tuple[Result, str]], step: int) -> list[float]:
    found = [_value(result, step, form) for result, form in forms]
    return [value for value in found if not math.isnan(value)]


def _span(values: Sequence[float]) -> str:
    """Return the smallest and the largest value.

    >>> _span([3.2, 1.0, 2.0])
    '1 to 3'
    """
    low, high = f"{min(values):.0f}", f"{max(values):.0f}"
    return low if low == high else f"{low} to {high}"


def _apart(change: float, digits: int) -> str:
    """Return a relative change in words.

    >>> _apart(0.0061, 1), _apart(-0.00002, 3)
    ('0.6% above', '0.002% below')
    """
    return f"{abs(change):.{digits}%} {'above' if change > 0 else 'below'}"
