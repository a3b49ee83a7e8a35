"""The first paragraph of the report: short answers, with the figures that decide them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from studies.training.results import Result
from studies.training.savings import Pair, Saving, best, none_after, pairs
from studies.training.summary import (
    EDM,
    PAPER_3,
    PAPER_6,
    PAPER_GAUSSIAN,
    QUANTITIES,
    REFERENCE,
    VELOCITY,
    WORDS,
    Summary,
)
from studies.training.trainings import GAUSSIAN, ITSELF, PRINCIPAL_9

BESIDE = {VELOCITY: "the velocity", EDM: "EDM's preconditioning"}
"""Parametrisations other than predicted noise, in words."""

NAMES = {PAPER_GAUSSIAN: "the paper's form with a Gaussian"}
"""Names that need no explanation."""


def short(about: Summary) -> str:
    """Return a paragraph that answers the questions of the study, as far as they were measured."""
    parts = (_paper, _distances, _others, _saved_beside, _changed, _form, _order)
    return " ".join(words for part in parts if (words := part(about)))


def _paper(about: Summary) -> str:
    """Return how many steps a prior saves with the paper's settings, by loss."""
    found = _papers(about)
    most = best(saving for one in found for saving in one.savings("loss").values())
    if most is None:
        return ""
    return (
        f"With the paper's settings, a closed-form prior saves at most {most.count} training steps "
        "by loss, compared with the network alone: "
        f"{'; '.join(_saved(one, 'loss') for one in found)}."
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
        f"By Fréchet distance it saves more: these forms have {_span(values)} after {first} steps, "
        f"the network alone {alone:.0f} after {last}."
    )


def _others(about: Summary) -> str:
    """Return the distances of other parametrisations without a prior."""
    study = about.study
    first, last = study.marks[0], study.marks[-1]
    found = [
        f"{name} {value:.0f}"
        for key, name in BESIDE.items()
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


def _saved_beside(about: Summary) -> str:
    """Return how many steps a Gaussian saves in addition to these parametrisations."""
    words = []
    for one in pairs(about):
        key = one.result.training.name
        if (one.warmup, one.form) == (about.study.warmup, GAUSSIAN) and key in BESIDE:
            found = [
                f"{_number(most)} by {WORDS[name]}"
                for name in QUANTITIES
                if (most := best(one.savings(name).values())) and most.count
            ]
            words.append(f"{BESIDE[key]}, {', '.join(found) or 'none'}")
    if not words:
        return ""
    return (
        "The largest numbers of steps that a Gaussian saves in addition are, with "
        f"{'; with '.join(words)}."
    )


def _changed(about: Summary) -> str:
    """Return what a Gaussian changes after the last mark, also with predicted noise."""
    study, words = about.study, []
    last = study.marks[-1]
    for key, name in {**BESIDE, REFERENCE: "predicted noise"}.items():
        result = about.get(key, study.warmup)
        own, alone = (_value(result, last, form) for form in (GAUSSIAN, ITSELF))
        fewer = _value(result, last, GAUSSIAN, "bits") - _value(result, last, ITSELF, "bits")
        if not any(map(math.isnan, (own, alone, fewer))):
            words.append(f"{own / alone - 1:+.1%} and {fewer:+.4f} bits with {name}")
    if not words:
        return ""
    return (
        f"After {last} steps it changes Fréchet distance and bits per dimension by "
        f"{', '.join(words)}."
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
    most, after = best(savings), none_after(savings)
    name = NAMES.get(pair.result.training.name, pair.name)
    if most is None:
        return f"{name} none"
    return f"{name} {_number(most)}" + (f", none from {after} on" if after else "")


def _number(saving: Saving) -> str:
    """Return a number of steps saved in words.

    >>> _number(Saving(3500, 1500, "> "))
    'more than 1500 after 3500 steps'
    """
    return f"{'more than ' * bool(saving.bound)}{saving.count} after {saving.step} steps"


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
