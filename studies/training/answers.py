"""The answers of the report, one by one: steps saved, forms, priors, orders."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from studies.study import table
from studies.training.results import Result
from studies.training.savings import named, pair, pairs
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
        _paper(about), _others(about), _instead(about), _added(about), _default(about),
        _best(about), _orders(about),
    ]  # fmt: skip
    return "\n".join(f"- {part}" for part in parts if part)


def saved_steps(about: Summary) -> str:
    """Return a table of the steps saved, negative where more are needed."""
    rows, steps = [], sorted({step for one in about.results for step in one.marks})
    for one in pairs(about):
        for quantity in QUANTITIES:
            savings = one.savings(quantity)
            if savings:
                cells = [savings[step].words if step in savings else "" for step in steps]
                rows.append([one.name, one.other_name, WORDS[quantity], *cells])
    return table(["form", "compared with", "by", *(f"{step} steps" for step in steps)], rows)


def forms(about: Summary) -> str:
    """Return a table of other forms with a Gaussian, compared with `Combined` and OISM(3)."""
    study, rows = about.study, []
    steps = sorted({*study.marks, *study.long_marks})
    compared = (
        (PAPER_GAUSSIAN, REFERENCE, GAUSSIAN, study.long_warmup),
        (PAPER_GAUSSIAN, PAPER_3, ITSELF, study.long_warmup),
        (GATED, REFERENCE, GAUSSIAN, study.warmup),
    )
    for key, other, form, warmup in compared:
        own, base = (about.get(name, warmup) for name in (key, other))
        if own is None or base is None:
            continue
        for quantity in QUANTITIES:
            found = dict(_all_changes(own, ITSELF, base, form, quantity))
            if any(step in found for step in steps):
                names = own.training.label, named(base, form), warmup, WORDS[quantity]
                rows.append([*names, *(found.get(step, "") for step in steps)])
    head = ["form", "compared with", "warm-up", "by", *(f"{step} steps" for step in steps)]
    return table(head, rows)


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
    words = [
        f"{_capital(one.name)}: {one}"
        for one in pairs(about)
        if one.other.training.warmup == warmup
    ]
    words += _second_seeds(about)
    return _sentences(
        f"**Steps saved with the paper's settings**, predicted noise and a warm-up of {warmup} "
        "steps, compared with the network alone.",
        words,
    )


def _second_seeds(about: Summary) -> list[str]:
    """Return OISM(3) relative to the network alone, by each quantity, if there are two seeds."""
    study, words = about.study, []
    seeds = (study.seed, study.seed + 1)
    for quantity in QUANTITIES:
        changes = {}
        for seed in seeds:
            own, base = (about.get(name, study.long_warmup, seed) for name in (PAPER_3, REFERENCE))
            change = _compared(own, ITSELF, base, ITSELF, quantity)
            if change:
                changes[seed] = f"{change} (seed {seed})"
        if len(changes) == len(seeds):
            words.append(f"{WORDS[quantity]} {', '.join(changes.values())}")
    return [f"OISM(3), compared with DDPM: {'; '.join(words)}"] if words else []


def _compared(own: Result | None, form: str, base: Result | None, other: str, quantity: str) -> str:
    """Return the changes from another form in words, where both were measured."""
    found = _all_changes(own, form, base, other, quantity)
    if not found:
        return ""
    steps, changes = zip(*found, strict=True)
    return f"{listed(changes)} after {listed(steps)} steps"


def _all_changes(
    own: Result | None, form: str, base: Result | None, other: str, quantity: str
) -> list[tuple[int, str]]:
    """Return the steps where two forms were measured, and the changes from the other one."""
    if own is None or base is None:
        return []
    theirs = dict(base.curve(quantity, other))
    return [
        (step, _change(value, theirs[step], quantity))
        for step, value in own.curve(quantity, form)
        if step in theirs
    ]


def _others(about: Summary) -> str:
    """Return how many steps other parametrisations save without a prior."""
    return _sentences(
        "**Steps saved by other parametrisations**, without a prior, with a warm-up of "
        f"{about.study.warmup} steps, compared with predicted noise.",
        _compare(about, (VELOCITY, ITSELF, REFERENCE), (EDM, ITSELF, REFERENCE)),
    )


def _instead(about: Summary) -> str:
    """Return how many steps a prior on predicted noise saves, compared with parametrisations."""
    return _sentences(
        "**Steps saved by predicted noise with a Gaussian**, with the same warm-up, compared with "
        "other parametrisations without a prior.",
        _compare(about, (REFERENCE, GAUSSIAN, VELOCITY), (REFERENCE, GAUSSIAN, EDM), other=True),
    )


def _added(about: Summary) -> str:
    """Return how many steps a Gaussian saves in addition to a parametrisation."""
    return _sentences(
        f"**Steps saved by a Gaussian in addition**, with a warm-up of {about.study.warmup} steps, "
        "compared with the same network alone.",
        _compare(about, *((name, GAUSSIAN, name) for name in (REFERENCE, VELOCITY, EDM))),
    )


def _compare(about: Summary, *wanted: tuple[str, str, str], other: bool = False) -> list[str]:
    """Return the steps saved in comparisons, each with its network, or with the other one."""
    found = [pair(about, *names, about.study.warmup) for names in wanted]
    return [
        f"{_capital((one.other if other else one.result).training.label)}: {one}"
        for one in found
        if one is not None
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
    most = max(about.changes_of_bits(EDM, about.study.warmup), default=None)
    bits = "" if most is None else f" Bits change by at most {most[0]:+.4f} ± {most[1]:.4f}."
    return (
        f"**The default of `oism train`** is EDM with its own loss, combined with a Gaussian. "
        f"Compared with EDM alone, over all seeds and marks: {', '.join(words)}.{bits}"
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
    if not words:
        return ""
    apart = {name: about.between_seeds(name, study.warmup, [last]) for name in QUANTITIES}
    known = [f"{one:.2%} in {WORDS[name]}" for name, one in apart.items() if one >= 0]
    seeds = f" Two seeds of a training differ by up to {listed(known)} then." if known else ""
    return f"**The best forms** after {last} steps, by {'; by '.join(words)}.{seeds}"


def _orders(about: Summary) -> str:
    """Return whether a higher order lowers the loss."""
    study, words = about.study, []
    low, high = (about.get(name, study.long_warmup) for name in (PAPER_3, PAPER_6))
    changed = [
        f"{WORDS[quantity]} {change}"
        for quantity in QUANTITIES
        if (change := _compared(high, ITSELF, low, ITSELF, quantity))
    ]
    if changed:
        words.append(f"OISM(6), compared with OISM(3): {', '.join(changed)}")
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
                f"the loss of a network combined with {form}, compared with {against}, after "
                f"{listed(steps)}: {_percents(changes, digits=3)}"
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


def _percents(values: Sequence[float], digits: int = 1) -> str:
    return listed([f"{value:+.{digits}%}" for value in values])
