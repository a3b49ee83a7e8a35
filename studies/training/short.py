"""The first paragraph of the report: short answers, with the figures that decide them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from studies.training.results import Result
from studies.training.savings import Pair, pair
from studies.training.summary import (
    EDM,
    GATED,
    PAPER_3,
    PAPER_6,
    PAPER_GAUSSIAN,
    QUANTITIES,
    REFERENCE,
    VELOCITY,
    WORDS,
    Summary,
    listed,
)
from studies.training.trainings import GAUSSIAN, ITSELF, PRINCIPAL_9

BESIDE = {VELOCITY: "the velocity", EDM: "EDM's preconditioning"}
"""Parametrisations other than predicted noise, in words."""

LEAST_GAIN = 0.001
"""By how much a higher order must lower the loss, relative to it, to be worth the larger file."""

BETTER = {"loss": "the lower loss", "bits": "fewer bits", "frechet": "the smaller distance"}
"""Which of two forms is better, by each quantity."""


def short(about: Summary) -> str:
    """Return a paragraph that answers the questions of the study, as far as they were measured."""
    answers = {
        "The paper's settings": (_paper, _distances, _warmup),
        "Other parametrisations": (_others, _added),
        "Form": (_form,),
        "Order": (_order,),
    }
    found = {
        name: " ".join(words for part in parts if (words := part(about)))
        for name, parts in answers.items()
    }
    return " ".join(f"**{name}.** {words}" for name, words in found.items() if words)


def _papers(about: Summary) -> dict[str, Pair]:
    """Return three forms with the paper's settings by name, compared with the network alone."""
    wanted = {
        "OISM(3) saves": (PAPER_3, ITSELF),
        "with a Gaussian instead of polynomials of pixels the same form saves": (
            PAPER_GAUSSIAN, ITSELF,
        ),
        "`Combined`, which averages the predictions of the network alone and of the Gaussian, "
        "saves": (REFERENCE, GAUSSIAN),
    }  # fmt: skip
    warmup = about.study.long_warmup
    found = {words: pair(about, *one, REFERENCE, warmup) for words, one in wanted.items()}
    return {words: one for words, one in found.items() if one is not None}


def _paper(about: Summary) -> str:
    """Return the steps that a prior saves with the paper's settings, by loss."""
    found = [f"{words} {one.saved('loss')}" for words, one in _papers(about).items()]
    if not found:
        return ""
    return f"Training steps saved, compared with the network alone: {'; '.join(found)}."


def _distances(about: Summary) -> str:
    """Return the Fréchet distances after the first mark, and that of the network at the last."""
    study, found = about.study, _papers(about).values()
    first, last = study.long_marks[0], study.long_marks[-1]
    values = _values([(one.result, one.form) for one in found], first)
    alone = _value(about.get(REFERENCE, study.long_warmup), last)
    if not values or math.isnan(alone):
        return ""
    savings = [one for each in found if (one := each.savings("frechet").get(first))]
    least = min(savings, key=lambda one: one.count)
    saved = f" each of them saves {least.number} steps after {first}:" if least.is_positive else ""
    return (
        f"By Fréchet distance{saved} they have {_span(values)} then, the network alone {alone:.0f} "
        f"after {last}."
    )


def _warmup(about: Summary) -> str:
    """Return the steps that a shorter warm-up saves the network alone."""
    short, long = about.study.warmup, about.study.long_warmup
    found = pair(about, REFERENCE, ITSELF, REFERENCE, short, long)
    if found is None:
        return ""
    return f"A warm-up of {short} steps, without a prior, saves {found.saved('loss')}."


def _others(about: Summary) -> str:
    """Return the distances after the first mark of other parametrisations without a prior."""
    study = about.study
    first = study.marks[0]
    distances = {
        **{words: _value(about.get(key, study.warmup), first) for key, words in BESIDE.items()},
        "predicted noise": _value(about.get(REFERENCE, study.warmup), first),
        "predicted noise and a Gaussian": _value(
            about.get(REFERENCE, study.warmup), first, GAUSSIAN
        ),
    }
    found = [
        f"{value:.0f} with {name}" for name, value in distances.items() if not math.isnan(value)
    ]
    if not found:
        return ""
    return f"With a warm-up of {study.warmup}, the distance after {first} steps is {listed(found)}."


def _added(about: Summary) -> str:
    """Return what a Gaussian saves in addition to other parametrisations, and what it changes."""
    warmup, last = about.study.warmup, about.study.marks[-1]
    sentences = []
    for key, name in BESIDE.items():
        found = pair(about, key, GAUSSIAN, key, warmup)
        if found is None:
            continue
        words = f"Combined with {name}, a Gaussian saves {found.saved('loss')}"
        own, alone = (_value(found.result, last, form) for form in (GAUSSIAN, ITSELF))
        bits, base = (_value(found.result, last, form, "bits") for form in (GAUSSIAN, ITSELF))
        if not math.isnan(own - alone + bits - base):
            words += (
                f"; after {last} it changes bits by {bits - base:+.4f} and the distance by "
                f"{own / alone - 1:+.1%}"
            )
        sentences.append(f"{words}.")
    return " ".join(sentences)


def _form(about: Summary) -> str:
    """Return when `Combined` is better than other forms with the same Gaussian."""
    study = about.study
    return " ".join(
        words
        for words in (
            _formed(about, PAPER_GAUSSIAN, "the paper's form", study.long_warmup, study.long_marks),
            _formed(about, GATED, "the gated residual", study.warmup, study.marks),
        )
        if words
    )


def _formed(about: Summary, key: str, name: str, warmup: int, marks: Sequence[int]) -> str:
    """Return when `Combined` is better than a form, and when it is worse."""
    own, other = (about.get(one, warmup) for one in (REFERENCE, key))
    better: dict[str, list[str]] = {"`Combined`": [], name: []}
    for quantity in QUANTITIES:
        steps: dict[str, list[int]] = {one: [] for one in better}
        for step in marks:
            mine = _value(own, step, GAUSSIAN, quantity)
            theirs = _value(other, step, ITSELF, quantity)
            if not math.isnan(mine - theirs):
                steps["`Combined`" if mine < theirs else name].append(step)
        for one, some in steps.items():
            if some:
                when = "at all marks" if len(some) == len(marks) else f"after {listed(some)}"
                better[one].append(f"{BETTER[quantity]} {when}")
    words = [f"{one} has {listed(some)}" for one, some in better.items() if some]
    if not words:
        return ""
    return f"With the same Gaussian, predicted noise and a warm-up of {warmup}, {'; '.join(words)}."


def _order(about: Summary) -> str:
    """Return what a higher order changes, and whether it pays.

    It does not if it improves nothing by more than two seeds of a training differ.
    """
    study = about.study
    low, high = (about.get(name, study.long_warmup) for name in (PAPER_3, PAPER_6))
    changes = [
        (step, quantity, change)
        for step in study.long_marks
        for quantity in QUANTITIES
        if not math.isnan(change := _apart(high, ITSELF, low, ITSELF, step, quantity))
    ]
    parts, pays = [], False
    if changes:
        last = changes[-1][0]
        own = [(quantity, change) for step, quantity, change in changes if step == last]
        words = listed([f"{change:+.1%} {WORDS[quantity]}" for quantity, change in own])
        parts.append(f"OISM(6) has {words} relative to OISM(3) after {last} steps")
        apart = {name: about.between_seeds(name, study.long_warmup, [last]) for name, _ in own}
        known = [f"{one:.1%} in {WORDS[name]}" for name, one in apart.items() if one >= 0]
        if known:
            parts.append(f"two seeds of a training differ by up to {listed(known)} then")
        pays = any(change < -max(0.0, apart[name]) for name, change in own)
    alone, first = about.get(REFERENCE, study.warmup), study.marks[0]
    change = _apart(alone, PRINCIPAL_9, alone, GAUSSIAN, first, "loss")
    if not math.isnan(change):
        parts.append(
            f"order 9 instead of a Gaussian, combined with predicted noise, changes the loss by "
            f"{change:+.3%} after {first}"
        )
        pays = pays or change <= -LEAST_GAIN
    if not parts:
        return ""
    return f"{'A higher order' if pays else 'A higher order does not pay'}: {'; '.join(parts)}."


def _apart(
    own: Result | None, form: str, base: Result | None, other: str, step: int, quantity: str
) -> float:
    """Return the relative change of a quantity from another form, NaN if it was not measured."""
    return _value(own, step, form, quantity) / _value(base, step, other, quantity) - 1


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
