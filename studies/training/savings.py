"""Steps saved by a form of a network, compared with another network.

A form that has some loss after k steps saves m - k steps if another network has this loss after m
steps. m is interpolated, see `steps_needed`; where the other network's loss falls much, as its
training loss does, see `refined`. The same is done with bits per dimension and Fréchet distances.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from studies.training.results import Curve, Result, steps_needed
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
from studies.training.trainings import GAUSSIAN, ITSELF, MIXTURE

PRIORS = {GAUSSIAN: "a Gaussian", MIXTURE: "a mixture"}

MORE, LESS = "> ", "< "


@dataclass(frozen=True)
class Saving:
    """The steps that a form saves after ``step``.

    With the bound "> " the other curve ends before it has the value, with "< " it starts below it:
    ``count`` is then a lower or an upper bound.
    """

    step: int
    count: int
    bound: str = ""

    @classmethod
    def of(cls, other: Curve, step: int, value: float) -> Saving:
        """Return the steps saved by a form with ``value`` after ``step``, compared with a curve.

        >>> Saving.of([(10, 3.0), (20, 2.0), (30, 1.0)], 10, 2.0)
        Saving(step=10, count=10, bound='')
        >>> Saving.of([(10, 3.0), (20, 2.0), (30, 1.0)], 20, 0.5).words
        '> 10'
        """
        needed = steps_needed(other, value)
        if math.isinf(needed):
            return cls(step, other[-1][0] - step, MORE)
        if math.isnan(needed):
            return cls(step, other[0][0] - step, LESS)
        return cls(step, round(needed) - step)

    @property
    def words(self) -> str:
        """The number, with its bound."""
        return f"{self.bound}{self.count}"

    @property
    def is_positive(self) -> bool:
        """Whether any step is certainly saved."""
        return self.count >= 0 if self.bound == MORE else self.count > 0 and not self.bound

    @property
    def is_negative(self) -> bool:
        """Whether certainly none is saved."""
        return self.count <= 0 and self.bound != MORE

    @property
    def number(self) -> str:
        """The number of steps in words.

        >>> Saving(3500, 1500, "> ").number, Saving(5000, 0, "> ").number
        ('more than 1500', 'some')
        """
        if not self.count:
            return "some"
        return f"more than {self.count}" if self.bound == MORE else str(self.count)


@dataclass(frozen=True)
class Pair:
    """A form of a training and the network alone that it is compared with."""

    result: Result
    form: str
    other: Result

    @property
    def name(self) -> str:
        """The form in words, with its warm-up if the other network has another one."""
        own, other = self.result.training.warmup, self.other.training.warmup
        more = "" if own == other else f" (warm-up {own})"
        return named(self.result, self.form) + more

    @property
    def other_name(self) -> str:
        """The network alone in words."""
        return self.other.training.label

    def savings(self, quantity: str) -> dict[int, Saving]:
        """Return the steps saved by step, where the form was measured; none without the other."""
        other = self.other.detailed(quantity)
        own = self.result.curve(quantity, self.form) if other else []
        return {step: Saving.of(other, step, value) for step, value in own}

    def saved(self, quantity: str) -> str:
        """Return the steps saved by a quantity in words, nothing if that was not measured."""
        savings = list(self.savings(quantity).values())
        return in_words(savings, WORDS[quantity]) if savings else ""

    def __str__(self) -> str:
        """Return the steps saved by each quantity, in words."""
        return "; ".join(words for name in QUANTITIES if (words := self.saved(name)))


def pairs(about: Summary) -> list[Pair]:
    """Return the comparisons of forms and networks alone, with the first seed, where both ran."""
    short, long = about.study.warmup, about.study.long_warmup
    wanted = [
        *((long, name, ITSELF, long, REFERENCE) for name in (PAPER_3, PAPER_6, PAPER_GAUSSIAN)),
        (long, REFERENCE, GAUSSIAN, long, REFERENCE),
        (short, REFERENCE, ITSELF, long, REFERENCE),
        *((short, name, ITSELF, short, REFERENCE) for name in (VELOCITY, EDM)),
        *((short, REFERENCE, GAUSSIAN, short, name) for name in (VELOCITY, EDM)),
        *((short, name, GAUSSIAN, short, name) for name in (REFERENCE, VELOCITY, EDM)),
    ]
    return [
        Pair(result, form, base)
        for warmup, name, form, other_warmup, other in wanted
        if (result := about.get(name, warmup)) and (base := about.get(other, other_warmup))
    ]


def pair(
    about: Summary, name: str, form: str, other: str, warmup: int, other_warmup: int | None = None
) -> Pair | None:
    """Return a comparison by the names of trainings, or None where it was not run."""
    wanted = (name, warmup, form, other, warmup if other_warmup is None else other_warmup)
    for one in pairs(about):
        own, base = one.result.training, one.other.training
        if (own.name, own.warmup, one.form, base.name, base.warmup) == wanted:
            return one
    return None


def best(savings: Iterable[Saving]) -> Saving | None:
    """Return the largest number of saved steps, if any are."""
    some = [one for one in savings if one.is_positive]
    return max(some, key=lambda one: one.count, default=None)


def none_after(savings: Sequence[Saving]) -> int | None:
    """Return the step from which on certainly none are saved.

    >>> none_after([Saving(10, 5), Saving(20, -1), Saving(30, -2)])
    20
    >>> none_after([Saving(10, 5), Saving(20, -1, "> ")])
    """
    last = max((one.step for one in savings if not one.is_negative), default=0)
    return next((one.step for one in savings if one.step > last), None)


def in_words(savings: Sequence[Saving], quantity: str) -> str:
    """Return the largest number of saved steps, and whether steps are saved or lost at the end.

    >>> in_words([Saving(10, 5), Saving(20, -1), Saving(30, -2)], "loss")
    '5 by loss after 10, none from 20 on (it costs 1 to 2)'
    >>> in_words([Saving(10, 5), Saving(20, 0, "> ")], "loss")
    '5 by loss after 10, and some still after 20'
    >>> in_words([Saving(10, 0, "< "), Saving(20, -3)], "loss")
    'none by loss (it costs 3)'
    """
    most, after = best(savings), none_after(savings)
    if most is None:
        return f"none by {quantity}{_cost(savings)}"
    end = ""
    if after is not None:
        end = f", none from {after} on{_cost([one for one in savings if one.step >= after])}"
    last = savings[-1]
    if last.is_positive and last != most:
        end = f", and {'some' if last.bound else last.count} still after {last.step}"
    return f"{most.number} by {quantity} after {most.step}{end}"


def _cost(savings: Sequence[Saving]) -> str:
    """Return the numbers of steps that are lost, in brackets, where they are known."""
    lost = sorted(-one.count for one in savings if one.count < 0 and not one.bound)
    if not lost:
        return ""
    return (
        f" (it costs {lost[0]})" if lost[0] == lost[-1] else f" (it costs {lost[0]} to {lost[-1]})"
    )


def named(result: Result, form: str) -> str:
    """Return a form of a training in words."""
    label, prior = result.training.label, PRIORS.get(form, form)
    return label if form == ITSELF else f"{label} combined with {prior}"
