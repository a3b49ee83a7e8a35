"""Steps saved by a form of a network, compared with another network.

A form that has some loss after k steps saves m - k steps if another network has this loss after m
steps. m is interpolated linearly in the logarithm of steps. The same is done with bits per
dimension and Fréchet distances.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from studies.training.results import Curve, Result, steps_needed
from studies.training.summary import (
    EDM,
    PAPER_3,
    PAPER_GAUSSIAN,
    QUANTITIES,
    REFERENCE,
    VELOCITY,
    WORDS,
    Summary,
)
from studies.training.trainings import GAUSSIAN, ITSELF, MIXTURE

PRIORS = {GAUSSIAN: "a Gaussian", MIXTURE: "a mixture"}

MORE = "> "


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
        return named(self.result, self.form)

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
            at_most(savings, WORDS[name]) for name, savings in found.items() if savings
        )


def pairs(about: Summary) -> list[Pair]:
    """Return the comparisons, as far as both were run; those of the same warm-up and seed."""
    study = about.study
    wanted = [
        *((study.long_warmup, name, ITSELF, REFERENCE) for name in (PAPER_3, PAPER_GAUSSIAN)),
        (study.long_warmup, REFERENCE, GAUSSIAN, REFERENCE),
        *((study.warmup, name, ITSELF, REFERENCE) for name in (VELOCITY, EDM)),
        *((study.warmup, name, GAUSSIAN, name) for name in (REFERENCE, VELOCITY, EDM)),
    ]
    return [
        Pair(result, form, base)
        for warmup, name, form, other in wanted
        if (result := about.get(name, warmup)) and (base := about.get(other, warmup))
    ]


def best(savings: Iterable[Saving]) -> Saving | None:
    """Return the largest number of saved steps, if any are."""
    some = [one for one in savings if one.is_positive]
    return max(some, key=lambda one: one.count, default=None)


def none_after(savings: Sequence[Saving]) -> int | None:
    """Return the step from which on none are saved.

    >>> none_after([Saving(10, 5), Saving(20, -1), Saving(30, -2)])
    20
    """
    last = max((one.step for one in savings if one.is_positive), default=0)
    return next((one.step for one in savings if one.step > last), None)


def at_most(savings: Sequence[Saving], quantity: str) -> str:
    """Return the largest number of saved steps, and from where on there are none.

    >>> at_most([Saving(10, 5), Saving(20, -1), Saving(30, -2)], "loss")
    'up to 5 by loss (after 10; none from 20 on)'
    """
    most, after = best(savings), none_after(savings)
    if most is None:
        return f"none by {quantity}"
    number = f"more than {most.count}" if most.bound else f"up to {most.count}"
    end = f"; none from {after} on" if after else ""
    return f"{number if most.count else 'some'} by {quantity} (after {most.step}{end})"


def named(result: Result, form: str) -> str:
    """Return a form of a training in words."""
    label, prior = result.training.label, PRIORS.get(form, form)
    return label if form == ITSELF else f"{label} combined with {prior}"
