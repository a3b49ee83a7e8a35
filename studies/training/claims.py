"""The claims of the study: inequalities between its numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from studies.study import Claim
from studies.training.measuring import Measured
from studies.training.step_time import FAST, PLAIN
from studies.training.summary import (
    EDM,
    OPERATOR,
    PAPER_3,
    QUANTITIES,
    REFERENCE,
    VELOCITY,
    WORDS,
    Summary,
)
from studies.training.trainings import GAUSSIAN, ITSELF

WITHIN = 0.01
"""The largest relative excess of the error in a sixth."""

SAME = 0.002
"""The largest relative difference of bits and Fréchet distances that counts as none."""

FIFTH, COST, SPEED, ACCURACY = 0.2, 0.02, 0.5, 0.9


def claims(about: Summary) -> list[Claim]:
    """Return the claims about what was measured; those with missing numbers are left out."""
    found = [*_combined_claims(about), *_paper_claims(about)]
    if not about.study.is_small:
        found += [
            *_parametrisation_claims(about), *_default_claims(about), *_cost_claims(about),
        ]  # fmt: skip
    return [one for one in found if not math.isnan(one.lower) and not math.isnan(one.upper)]


def _combined_claims(about: Summary) -> Iterator[Claim]:
    study = about.study
    for warmup, marks in ((study.warmup, study.marks), (study.long_warmup, study.long_marks)):
        networks = [
            one
            for one in about.results
            if (one.training.name, one.training.warmup) == (REFERENCE, warmup)
        ]
        for step in marks:
            pairs = [
                (mine, alone)
                for one in networks
                if (mine := one.form(step, GAUSSIAN)) and (alone := one.form(step))
            ]
            if not pairs:
                continue
            words = f"after {step} steps with a warm-up of {warmup} a Gaussian lowers the "
            losses = [mine.loss / alone.loss for mine, alone in pairs]
            yield Claim(f"{words}loss of the network", max(losses), 1)
            bits = [_mean(mine.bits) - _mean(alone.bits) for mine, alone in pairs]
            yield Claim(f"{words}bits per dimension", max(bits), 0)
            if not study.is_small:
                over = max(a / b for mine, alone in pairs for a, b in _zipped(mine, alone))
                words = f"after {step} steps with a warm-up of {warmup} it raises no error in a "
                yield Claim(f"{words}sixth by more than 1%", over - 1, WITHIN)
        first = [
            mine.errors[-1] / alone.errors[-1]
            for one in networks
            if (mine := one.form(marks[0], GAUSSIAN)) and (alone := one.form(marks[0]))
        ]
        if first:
            words = f"after {marks[0]} steps with a warm-up of {warmup} it leaves less than a "
            yield Claim(f"{words}fifth of the error at high noise", max(first), FIFTH)


def _paper_claims(about: Summary) -> Iterator[Claim]:
    """Yield that the paper's form is ahead of the network alone at first, by loss, and only then.

    By Fréchet distance it is ahead for longer.
    """
    study, warmup = about.study, about.study.long_warmup
    words = "steps with the paper's settings"
    for step in sorted({*study.points, *study.long_marks})[:1]:
        losses = _against(about, PAPER_3, REFERENCE, warmup, "loss", steps=[step])
        if losses:
            yield Claim(f"after {step} {words} OISM(3) has a lower loss than DDPM", max(losses), 1)
    if study.is_small:
        return
    losses = _against(about, PAPER_3, REFERENCE, warmup, "loss")
    if losses:
        first = study.long_marks[0]
        yield Claim(f"after {first} and more {words} it has a higher one", 1, min(losses))
    distances = _against(about, PAPER_3, REFERENCE, warmup, "frechet")
    if distances:
        yield Claim("at these marks it has a lower Fréchet distance", max(distances), 1)


def _parametrisation_claims(about: Summary) -> Iterator[Claim]:
    """Yield what networks without a prior have in common with those that have one."""
    for quantity in ("bits", "frechet"):
        ratios = _against(about, VELOCITY, REFERENCE, about.study.warmup, quantity)
        words = f"at all marks velocity alone has a lower {WORDS[quantity]} than noise alone"
        if ratios:
            yield Claim(words.replace("a lower bits", "fewer bits"), max(ratios), 1)
    first, last = about.study.marks[0], about.study.marks[-1]
    alone = about.get(REFERENCE, about.study.warmup)
    others = [about.get(name, about.study.warmup) for name in (VELOCITY, EDM)]
    if alone is not None:
        found = [math.nan if one is None else one.value(first, "frechet") for one in others]
        words = f"velocity and EDM alone have lower Fréchet distances after {first} steps"
        largest = float(np.max(found))  # NaN where one was not measured
        ratio = largest / alone.value(last, "frechet")
        yield Claim(f"{words} than noise alone after {last}", ratio, 1)
    ratios = _against(about, OPERATOR, EDM, about.study.warmup, "bits", form=GAUSSIAN)
    if ratios:
        words = "at all marks EDM has fewer bits per dimension than operator preconditioning"
        yield Claim(f"{words}, both with their own loss", 1, min(ratios))


def _against(  # noqa: PLR0913
    about: Summary,
    name: str,
    other: str,
    warmup: int,
    quantity: str,
    *,
    steps: Sequence[int] | None = None,
    form: str = ITSELF,
) -> list[float]:
    """Return a quantity of a training divided by that of another alone, of all seeds and marks."""
    found = [
        one.value(step, quantity, form) / base.value(step, quantity)
        for one in about.results
        if (one.training.name, one.training.warmup) == (name, warmup)
        and (base := about.get(other, warmup, one.training.seed))
        for step in (one.training.marks if steps is None else steps)
    ]
    return [ratio for ratio in found if not math.isnan(ratio)]


def _default_claims(about: Summary) -> Iterator[Claim]:
    """Yield that the default of ``oism train``, EDM with a Gaussian, is not behind EDM alone."""
    for quantity, bound in zip(QUANTITIES, (0.0, SAME, SAME), strict=True):
        ratios = about.ratios(EDM, about.study.warmup, quantity)
        if ratios:
            much = f" by at most {bound:.1%}" if bound else ""
            verb = "raises" if bound else "lowers"
            words = f"at all marks a Gaussian {verb} the {WORDS[quantity]} of EDM{much}"
            yield Claim(words, max(ratios) - 1, bound)


def _cost_claims(about: Summary) -> Iterator[Claim]:
    yield Claim(
        "the classifier's accuracy exceeds 90%",
        ACCURACY,
        float(about.classifier.get("accuracy", math.nan)),
    )
    if about.times is None:
        return
    fast = [name for name in about.times.rounds if name.startswith(f"{FAST}, ")]
    over = max(map(about.times.ratio, fast)) - 1
    yield Claim("a prior or parametrisation costs less than 2% of a step", over, COST)
    words = "a step takes less than half of the time of plain PyTorch in float32"
    yield Claim(words, about.times.ratio(FAST, PLAIN), SPEED)


def _mean(values: Sequence[float] | None) -> float:
    return math.nan if values is None else float(np.mean(values))


def _zipped(one: Measured, other: Measured) -> Iterator[tuple[float, float]]:
    return zip(one.errors, other.errors, strict=True)
