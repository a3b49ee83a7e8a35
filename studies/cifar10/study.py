"""Figure 3 and Table 1: networks with a closed-form prior, their errors, and the time of a step.

The variants are a network alone, DDPM; the paper's form, OISM(3) and OISM(6), polynomials of each
pixel in full at every noise level; and a Gaussian along principal directions in two forms.
*Residual*: the network learns the residual where the error of the prior is small
(`OperatorInformed`). *Combined*: the network learns to predict all of the noise and is combined
with the prior with the weight that minimises the error at each noise level (`Combined`). Variants
differ in nothing else. DDPM is the network of the combined variant, measured alone, unless it is
run separately. The paper's learning rate rises over 5,000 steps, which favours every prior, so
variants with this warm-up are listed separately. The quick form uses scikit-learn's digits.

Results of variants are stored in the folder as they end, and a run continues with those that are
missing. So variants can be run one by one, on several machines; a longer run has its own folder:

    python -m studies.cifar10 runs/cifar10 --only combined-0-500 DDPM-0-500 --data FOLDER
    python -m studies.cifar10 runs/long --marks 2500 5000 10000 --only combined-0-500 ...
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from oism.basis import IdentityFrame
from oism.images import Prior, fit_prior
from studies.cifar10 import figures
from studies.cifar10.figures import Plan
from studies.cifar10.variants import (
    COMBINED,
    DDPM,
    METHOD,
    Mark,
    Result,
    Setup,
    Variant,
    read,
    train,
    write,
)
from studies.images import DIGITS, ImageSets, device, image_sets
from studies.study import Claim, Findings, Study, standard_error, table
from studies.training import step_time
from studies.training.step_time import FAST, PLAIN, Times, step_times
from studies.training.trainings import ALONE, PAPER, RESIDUAL, RIDGE, SIXTHS

TOGETHER, LEFT = "combined", "residual"
PIXELS = {"OISM(3)": 3, "OISM(6)": 6}
STEPS = "steps.json"

SMALL = {"width": 16, "multipliers": (1, 2), "blocks": 1, "attention": ()}
"""The sizes of the network for digits."""

WITHIN = 0.01
"""The largest relative excess of the error in a sixth."""

FIFTH = 0.2
COST = 0.02
SPEED = 0.5


@dataclass(frozen=True)
class Cifar10(Study):
    """The variants and how they are measured, after numbers of steps ``marks``.

    DDPM and the combined variant are trained to the last mark with every seed, the residual variant
    with the first seed, the paper's to the mark before; with the long warm-up to the first mark.
    """

    data: str = "cifar10"
    marks: tuple[int, ...] = (500, 1000, 2500)
    seeds: tuple[int, ...] = (0, 1)
    warmup: int = 500
    long_warmup: int = 5000
    batch: int = 128
    rate: float = 2e-4
    tested: int = 3000
    likelihoods: int = 256
    drawn: int = 32
    rounds: int = 8

    name: ClassVar[str] = "cifar10"
    title: ClassVar[str] = "Networks with a closed-form prior (Figure 3, Table 1)"

    @classmethod
    def quick(cls, seed: int = 0) -> Self:
        """Return the settings for digits."""
        return cls(
            seed, data=DIGITS, marks=(15, 30, 45), seeds=(0,), warmup=15, long_warmup=150,
            batch=32, rate=2e-3, tested=100, likelihoods=8, drawn=16, rounds=1,
        )  # fmt: skip

    @property
    def is_small(self) -> bool:
        """Whether the images are digits."""
        return self.data == DIGITS

    @property
    def variants(self) -> list[Variant]:
        """All variants, in the order in which they are run."""
        long, short, apart = self.marks[-1], self.marks[-2], self.marks[0]
        seeds = [self.seed + seed for seed in self.seeds]
        both: list[tuple[str, str, str | None]] = [(TOGETHER, COMBINED, "PCA"), (DDPM, ALONE, None)]
        found = [
            Variant(*one, long, seed, self.warmup, bits=True) for seed in seeds for one in both
        ]
        found.append(Variant(LEFT, RESIDUAL, "PCA", long, seeds[0], self.warmup, bits=True))
        paper: list[tuple[str, str, str | None]] = [(name, PAPER, name) for name in PIXELS]
        found += [Variant(*one, short, seeds[0], self.warmup) for one in paper]
        found += [Variant(*one, apart, seeds[0], self.long_warmup) for one in (*paper, *both)]
        return found

    @property
    def setup(self) -> Setup:
        """The settings that all variants share."""
        return Setup(
            marks=self.marks, sizes=SMALL if self.is_small else {}, batch=self.batch,
            rate=self.rate, tested=self.tested, likelihoods=self.likelihoods, drawn=self.drawn,
            flip=not self.is_small,
        )  # fmt: skip

    @property
    def plan(self) -> Plan:
        """The settings that the figures need."""
        return Plan(self.marks, self.warmup, self.long_warmup, self.seed + self.seeds[0])

    def run(self) -> Findings:
        """Run all variants."""
        return self.run_in(None)

    def run_in(self, folder: Path | None) -> Findings:
        """Run the variants that a folder lacks, and store them there."""
        results = self.results(folder, None)
        times = None if folder is None else step_time.read(folder / STEPS)
        if times is None:
            times = self.times()
            if folder is not None:
                step_time.write(times, folder / STEPS)
        return self._findings(results, times)

    def results(self, folder: Path | None, only: Sequence[str] | None) -> list[Result]:
        """Return the results of all variants, or of those with the keys ``only``."""
        wanted = [one for one in self.variants if only is None or one.key in only]
        stored = None if folder is None else folder / "variants"
        found: dict[str, Result] = {}
        if stored is not None:
            olds = {one.key: read(one, stored, self.setup) for one in wanted}
            found = {key: old for key, old in olds.items() if old is not None}
        missing = [one for one in wanted if one.key not in found]
        if missing:
            sets = image_sets(self.data)
            priors = self.priors(sets)
            for one in missing:
                if one.key in found:  # measured with the variant that combines its network
                    continue
                for result in train(one, self.setup, sets, priors, report=print_mark):
                    found[result.variant.key] = result
                    if stored is not None:
                        write(result, stored, self.setup)
        return [found[one.key] for one in wanted]

    def priors(self, sets: ImageSets) -> dict[str, Prior]:
        """Return the priors by name."""
        images = sets.train.to(device())
        common: dict[str, Any] = {"pixels": sets.pixels, "flip": self.setup.flip}
        found: dict[str, Prior] = {
            name: fit_prior(images, order=order, frame=IdentityFrame(), ridge=RIDGE, **common)
            for name, order in PIXELS.items()
        }
        return {**found, "PCA": fit_prior(images, order=2, **common)}

    def times(self) -> Times:
        """Return the times of steps."""
        return step_times(
            image_sets(self.data), self.setup.sizes, batch=self.batch, rounds=self.rounds,
            steps=1 if self.is_small else 5,
        )  # fmt: skip

    def _findings(self, results: Sequence[Result], times: Times) -> Findings:
        by_key = {result.variant.key: result for result in results}
        seconds = sum(mark.seconds for one in results for mark in one.marks)
        shared = {one.variant.alone for one in results if one.variant.form == COMBINED}
        apart = [one for one in results if one.variant not in shared]  # trained separately
        seconds += sum(one.marks[-1].train_seconds for one in apart)
        seconds += sum(times.ready.values())
        numbers = {
            "seconds": round(seconds, 1),
            "versions": times.versions,  # those of the machine that ran them
            "variants": [figures.numbers_of(one) for one in results],
            "steps": asdict(times),
        }
        drawn = {
            "figure": figures.curves(results, self.plan),
            "sixths": figures.sixths(results, self.plan),
            "samples": figures.samples(results, self.plan),
        }
        return Findings(numbers, drawn, self._claims(by_key, times), self._text(results, times))

    def pairs(self, by_key: Mapping[str, Result]) -> list[tuple[Result, Result]]:
        """Return the combined variant and DDPM of every seed."""
        keys = [f"{TOGETHER}-{self.seed + seed}-{self.warmup}" for seed in self.seeds]
        return [(by_key[key], by_key[by_key[key].variant.alone.key]) for key in keys]

    def _claims(self, by_key: Mapping[str, Result], times: Times) -> list[Claim]:
        claims, pairs = [], self.pairs(by_key)
        for step in self.marks:
            ratios = [_ratios(one, other, step) for one, other in pairs]
            means = [one.at(step).mean / other.at(step).mean for one, other in pairs]
            claims.append(
                Claim(
                    f"after {step} steps the loss of the combined variant is below DDPM's",
                    max(means),
                    1,
                )
            )
            if not self.is_small:
                over = float(np.max(ratios)) - 1
                words = f"after {step} steps it is less than 1% above DDPM in any sixth"
                claims.append(Claim(words, over, WITHIN))
            bits = [_bits(one.at(step).bits) - _bits(other.at(step).bits) for one, other in pairs]
            claims.append(
                Claim(f"after {step} steps it needs fewer bits per dimension", max(bits), 0)
            )
        first = [_ratios(one, other, self.marks[0])[-1] for one, other in pairs]
        words = f"after {self.marks[0]} steps it has less than a fifth of the error at high noise"
        claims.append(Claim(words, max(first), FIFTH))
        if not self.is_small:
            fast = [name for name in times.rounds if name.startswith(f"{FAST}, ")]
            over = max(map(times.ratio, fast)) - 1
            claims.append(Claim("a tabulated prior costs less than 2% of a step", over, COST))
            words = "a step takes less than half of the time of plain PyTorch in float32"
            claims.append(Claim(words, times.ratio(FAST, PLAIN), SPEED))
        return claims

    def _text(self, results: Sequence[Result], times: Times) -> str:
        sixths = [f"sixth {i + 1}" for i in range(SIXTHS)]
        rows = [
            [*_named(one), mark.step, f"{mark.mean:.5f}", *(f"{e:.5f}" for e in mark.errors)]
            for one in results
            for mark in one.marks
        ]
        by_key = {one.variant.key: one for one in results}
        bits = [
            [
                *_named(one),
                mark.step,
                *_compared(mark.bits, by_key[one.variant.alone.key].at(mark.step)),
            ]
            for one in results
            for mark in one.marks
            if mark.bits is not None
        ]
        costs = [
            [
                name,
                f"{1000 * times.seconds(name):.1f}",
                f"{times.ratio(name):.3f}",
                f"{times.share(name):.1%}",
            ]
            for name in times.rounds
        ]
        variant = ["variant", "seed", "warm-up", "steps"]
        return self.text(
            data=self.data,
            device=times.device,
            batch=self.batch,
            tested=self.tested,
            likelihoods=self.likelihoods,
            mirrored=", mirrored at random" if self.setup.flip else "",
            summary=self._summary(results),
            rounds=self.rounds,
            slow_rounds=self.rounds,
            method=f"{METHOD.order}, {getattr(METHOD, 'steps', 0)} steps",
            errors=table([*variant, "loss", *sixths], rows),
            bits=table([*variant, "bits per dimension", "minus DDPM's"], bits),
            steps=table(["step", "ms", "ratio to fast", "share of the matrix rate"], costs),
            operations=f"{times.operations:.3g}",
            rate=f"{times.matrix_rate:.3g}",
        )

    def _summary(self, results: Sequence[Result]) -> str:
        """Return a sentence with the losses after the first mark, for both warm-ups."""
        step = self.marks[0]

        def losses(warmup: int) -> str:
            mine = [
                one for one in results if one.variant.warmup == warmup and self.plan.is_first(one)
            ]
            found = [f"{one.variant.name} {one.at(step).mean:.3f}" for one in mine]
            return f"with a warm-up of {warmup}: {', '.join(found)}"

        return f"Loss after {step} steps {losses(self.warmup)}; {losses(self.long_warmup)}."


def print_mark(variant: Variant, mark: Mark) -> None:
    """Print a measurement."""
    errors = " ".join(f"{error:.5f}" for error in mark.errors)
    bits = "" if mark.bits is None else f", {_bits(mark.bits):.4f} bits"
    spent = f"{mark.train_seconds:.0f} s of training, {mark.seconds:.0f} s of measuring"
    line = f"{variant.key}: {mark.step} steps, {mark.mean:.5f} ({errors}){bits}; {spent}"
    print(line, file=sys.stderr, flush=True)  # standard output has the claims


def _ratios(one: Result, other: Result, step: int) -> list[float]:
    """Return the errors of one variant divided by those of another, by sixths."""
    pairs = zip(one.at(step).errors, other.at(step).errors, strict=True)
    return [a / b for a, b in pairs]


def _named(one: Result) -> tuple[str, int, int]:
    """Return the columns of a table that identify a variant."""
    return one.variant.name, one.variant.seed, one.variant.warmup


def _bits(found: list[float] | None) -> float:
    return float("nan") if found is None else float(np.mean(found))


def _compared(bits: list[float], other: Mark) -> tuple[str, str]:
    """Return the mean of the bits, and of the differences from another's for the same images."""
    apart = np.array(bits) - np.array(other.bits)
    return _mean(np.array(bits)), _mean(apart, sign="+") if apart.any() else ""


def _mean(values: NDArray[np.float64], sign: str = "") -> str:
    return f"{values.mean():{sign}.4f} ± {float(standard_error(values)):.4f}"


STUDY = Cifar10
