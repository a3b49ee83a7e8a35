"""The answers of the report, one by one: steps saved, forms, priors, orders."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from studies.study import table
from studies.training.results import Result
from studies.training.savings import named, pairs
from studies.training.summary import (
    EDM,
    PAPER_3,
    PAPER_6,
    PAPER_GAUSSIAN,
    QUANTITIES,
    REFERENCE,
    WORDS,
    Summary,
)
from studies.training.trainings import (
    GAUSSIAN,
    ITSELF,
    PIXELS_3,
    PIXELS_6,
    PRINCIPAL_9,
)

DIGITS = {"loss": ".5f", "bits": ".4f", "frechet": ".1f"}

BEST = 3
"""The number of forms that are named as the best."""

HIGHER = ((PRINCIPAL_9, GAUSSIAN), (PIXELS_6, PIXELS_3))
"""Priors of a higher and a lower order of the same kind."""


def answers(about: Summary) -> str:
    """Return a list that answers the questions of the study, as far as they were measured."""
    parts = [
        _paper(about), _forms(about), _others(about), _added(about), _default(about), _best(about),
        _orders(about),
    ]  # fmt: skip
    return "\n".join(f"- {part}" for part in parts if part)


def saved_steps(about: Summary) -> str:
    """Return a table of the steps saved, negative where more are needed."""
    rows, steps = [], sorted({step for one in about.results for step in one.marks})
    for pair in pairs(about):
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


def _paper(about: Summary) -> str:
    """Return how many steps are saved with the paper's settings."""
    warmup = about.study.long_warmup
    words = [f"{_capital(one.name)}: {one}" for one in pairs(about) if one.warmup == warmup]
    words += _second_seeds(about)
    return _sentences(
        f"**Steps saved with the paper's settings**, predicted noise and a warm-up of {warmup} "
        "steps, compared with the network alone.",
        words,
    )


def _second_seeds(about: Summary) -> list[str]:
    """Return the loss of OISM(3) relative to that of the network alone, if there are two seeds."""
    study, words = about.study, []
    for seed in (study.seed, study.seed + 1):
        own, base = (about.get(name, study.long_warmup, seed) for name in (PAPER_3, REFERENCE))
        change = _compared(own, ITSELF, base, ITSELF, "loss")
        if change:
            words.append(f"{change} (seed {seed})")
    if len(words) < 2:
        return []
    return [f"The loss of OISM(3), compared with that of DDPM: {', '.join(words)}"]


def _forms(about: Summary) -> str:
    """Return how the paper's form compares with `Combined`, and a Gaussian with polynomials."""
    warmup = about.study.long_warmup
    own = about.get(PAPER_GAUSSIAN, warmup)
    against = (
        (about.get(REFERENCE, warmup), GAUSSIAN, "DDPM combined with the same Gaussian"),
        (about.get(PAPER_3, warmup), ITSELF, "OISM(3)"),
    )
    words = []
    for base, form, name in against:
        changes = [
            f"{WORDS[quantity]} {change}"
            for quantity in QUANTITIES
            if (change := _compared(own, ITSELF, base, form, quantity, marks=True))
        ]
        if changes:
            words.append(f"Compared with {name}: {'; '.join(changes)}")
    return _sentences("**The paper's form with a Gaussian**, with the paper's settings.", words)


def _compared(
    own: Result | None,
    form: str,
    base: Result | None,
    other: str,
    quantity: str,
    *,
    marks: bool = False,
) -> str:
    """Return the changes from another form where both were measured, only at marks if so asked."""
    if own is None or base is None:
        return ""
    mine, theirs = (dict(one.curve(quantity, name)) for one, name in ((own, form), (base, other)))
    steps = [step for step in mine if step in theirs and (step in own.training.marks or not marks)]
    if not steps:
        return ""
    changes = [_change(mine[step], theirs[step], quantity) for step in steps]
    return f"{_list(changes)} after {_list(steps)} steps"


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
        for one in pairs(about)
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
            named(result, form): value
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


def _changes(result: Result, quantity: str, steps: Sequence[int]) -> Iterator[str]:
    """Yield the change of a quantity by a Gaussian."""
    for step in steps:
        own, base = (result.value(step, quantity, form) for form in (GAUSSIAN, ITSELF))
        missing = math.isnan(own) or math.isnan(base)
        yield "–" if missing else _change(own, base, quantity)


def _change(own: float, base: float, quantity: str) -> str:
    """Return the change of a quantity: bits as they are, others in percent."""
    digits = 2 if quantity == "loss" else 1
    return f"{own - base:+.4f}" if quantity == "bits" else f"{own / base - 1:+.{digits}%}"


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
