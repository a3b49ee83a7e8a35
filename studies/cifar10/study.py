"""Figure 3 and Table 1: what a head start is worth to a network, and what it costs.

A network alone, DDPM; the paper's form, OISM(3) and OISM(6), polynomials of each pixel in full at
every noise level; and a Gaussian along principal directions, in two ways: *residual*, the network
learns what the prior leaves where its error is small (`OperatorInformed`), and *combined*, it
learns everything and counts at a noise level as much as it is worth there (`Combined`). Arms differ
in nothing else. DDPM is the network of the combined arm, measured alone, unless it is run by
itself. The paper warms the rate up over 5,000 steps, which flatters every head start: those arms
stand apart. The quick form does the same on scikit-learn's digits.

Arms are kept in the folder as they end, and a run goes on with those that are missing. So they can
be run one by one, on several machines; a folder of its own takes a longer run:

    python -m oism.studies.cifar10 runs/cifar10 --only combined-0-500 DDPM-0-500 --data FOLDER
    python -m oism.studies.cifar10 runs/long --marks 2500 5000 10000 --only combined-0-500 ...
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from oism.basis import IdentityFrame
from oism.images import Prior, fit_prior, learn_law
from oism.studies import cifar10_pictures as pictures
from oism.studies import step_time
from oism.studies.arms import (
    ALONE,
    COMBINED,
    DDPM,
    METHOD,
    PAPER,
    RESIDUAL,
    SIXTHS,
    Arm,
    Bench,
    Mark,
    Result,
    read,
    train,
    write,
)
from oism.studies.images import DIGITS, ImageSets, image_sets
from oism.studies.step_time import FAST, PLAIN, Times, slow_rounds, step_times
from oism.studies.study import (
    Claim,
    Findings,
    Study,
    standard_error,
    table,
    text,
    write_json,
    write_picture,
)
from oism.training._loop import engine

TOGETHER, LEFT = "combined", "residual"
PIXELS = {"OISM(3)": 3, "OISM(6)": 6}
RIDGE = 1e-6
STEPS = "steps.json"

SMALL = {"width": 16, "multipliers": (1, 2), "blocks": 1, "attention": ()}
"""The sizes of the network for digits."""

WITHIN = 0.01
"""By what part a head start may be behind in a sixth."""

FIFTH = 0.2
COST = 0.02
SPEED = 0.5


@dataclass(frozen=True)
class Cifar10(Study):
    """The arms and how they are measured.

    DDPM and the combined arm go to the last of ``marks`` with every seed, the residual arm with the
    first, the paper's to the mark before; with the long warm-up all stop at the first mark.
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
    title: ClassVar[str] = "A head start for a network (Figure 3, Table 1)"

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
    def arms(self) -> list[Arm]:
        """All arms, in the order in which they are run."""
        long, short, apart = self.marks[-1], self.marks[-2], self.marks[0]
        seeds = [self.seed + seed for seed in self.seeds]
        both: list[tuple[str, str, str | None]] = [(TOGETHER, COMBINED, "PCA"), (DDPM, ALONE, None)]
        found = [Arm(*one, long, seed, self.warmup, bits=True) for seed in seeds for one in both]
        found.append(Arm(LEFT, RESIDUAL, "PCA", long, seeds[0], self.warmup, bits=True))
        paper: list[tuple[str, str, str | None]] = [(name, PAPER, name) for name in PIXELS]
        found += [Arm(*one, short, seeds[0], self.warmup) for one in paper]
        found += [Arm(*one, apart, seeds[0], self.long_warmup) for one in (*paper, *both)]
        return found

    @property
    def bench(self) -> Bench:
        """What the arms have in common."""
        return Bench(
            marks=self.marks, sizes=SMALL if self.is_small else {}, batch=self.batch,
            rate=self.rate, tested=self.tested, likelihoods=self.likelihoods, drawn=self.drawn,
            flip=not self.is_small,
        )  # fmt: skip

    def run(self) -> Findings:
        """Run all arms."""
        return self.run_in(None)

    def run_in(self, folder: Path | None) -> Findings:
        """Run the arms that a folder does not hold yet, and keep them there."""
        results = self.results(folder, None)
        times = None if folder is None else step_time.read(folder / STEPS)
        if times is None:
            times = self.times()
            if folder is not None:
                step_time.write(times, folder / STEPS)
        return self._findings(results, times)

    def results(self, folder: Path | None, only: Sequence[str] | None) -> list[Result]:
        """Return the results of the arms, or of those with the keys ``only``."""
        wanted = [arm for arm in self.arms if only is None or arm.key in only]
        kept = None if folder is None else folder / "arms"
        found: dict[str, Result] = {}
        if kept is not None:
            olds = {arm.key: read(arm, kept, self.bench) for arm in wanted}
            found = {key: old for key, old in olds.items() if old is not None}
        left = [arm for arm in wanted if arm.key not in found]
        if left:
            sets = image_sets(self.data)
            priors = self.priors(sets)
            for arm in left:
                if arm.key in found:  # with the arm in which its network is combined
                    continue
                for result in train(arm, self.bench, sets, priors, tell=print_mark):
                    found[result.arm.key] = result
                    if kept is not None:
                        write(result, kept, self.bench)
        return [found[arm.key] for arm in wanted]

    def priors(self, sets: ImageSets) -> dict[str, Prior]:
        """Return the priors by name."""
        images = sets.train.to(engine().device)
        common: dict[str, Any] = {"pixels": sets.pixels, "flip": self.bench.flip}
        found: dict[str, Prior] = {
            name: fit_prior(images, order=order, frame=IdentityFrame(), ridge=RIDGE, **common)
            for name, order in PIXELS.items()
        }
        return {**found, "PCA": fit_prior(images, order=2, **common)}

    def times(self) -> Times:
        """Return what a step costs."""
        sets = image_sets(self.data)
        images = sets.train.to(engine().device)
        laws = {
            "pixels": learn_law(
                images, order=6, frame=IdentityFrame(), pixels=sets.pixels, folds=1
            ),
            "PCA": learn_law(images, order=4, pixels=sets.pixels, folds=1),
        }
        steps = 1 if self.is_small else 5
        return step_times(
            images, laws, self.bench.sizes, batch=self.batch, rounds=self.rounds, steps=steps,
            pixels=sets.pixels,
        )  # fmt: skip

    def _findings(self, results: Sequence[Result], times: Times) -> Findings:
        by_key = {result.arm.key: result for result in results}
        seconds = sum(mark.seconds for one in results for mark in one.marks)
        shared = {one.arm.alone for one in results if one.arm.form == COMBINED}
        apart = [one for one in results if one.arm not in shared]  # trained by themselves
        seconds += sum(one.marks[-1].train_seconds for one in apart)
        seconds += sum(times.ready.values())
        numbers = {
            "seconds": round(seconds, 1),
            "versions": times.versions,  # those of the machine that ran them
            "arms": [pictures.numbers_of(one) for one in results],
            "steps": asdict(times),
        }
        figures = {
            "figure": pictures.curves(results, self),
            "sixths": pictures.sixths(results, self),
            "samples": pictures.samples(results, self),
        }
        return Findings(numbers, figures, self._claims(by_key, times), self._text(results, times))

    def pairs(self, by_key: Mapping[str, Result]) -> list[tuple[Result, Result]]:
        """Return the combined arm and DDPM of every seed."""
        keys = [f"{TOGETHER}-{self.seed + seed}-{self.warmup}" for seed in self.seeds]
        return [(by_key[key], by_key[by_key[key].arm.alone.key]) for key in keys]

    def _claims(self, by_key: Mapping[str, Result], times: Times) -> list[Claim]:
        claims, pairs = [], self.pairs(by_key)
        for step in self.marks:
            ratios = [_ratios(one, other, step) for one, other in pairs]
            means = [one.at(step).mean / other.at(step).mean for one, other in pairs]
            claims.append(
                Claim(f"after {step} steps the combined arm's loss is below DDPM's", max(means), 1)
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
            fast = [name for name in times.seconds if name.startswith(f"{FAST}, ")]
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
        by_key = {one.arm.key: one for one in results}
        bits = [
            [
                *_named(one),
                mark.step,
                *_compared(mark.bits, by_key[one.arm.alone.key].at(mark.step)),
            ]
            for one in results
            for mark in one.marks
            if mark.bits is not None
        ]
        costs = [
            [name, f"{1000 * spent:.1f}", f"{times.ratio(name):.3f}", f"{times.share(name):.1%}"]
            for name, spent in times.seconds.items()
        ]
        arm = ["arm", "seed", "warm-up", "steps"]
        return text(
            "cifar10",
            data=self.data,
            device=times.device,
            batch=self.batch,
            tested=self.tested,
            likelihoods=self.likelihoods,
            mirrored=", mirrored at random" if self.bench.flip else "",
            summary=self._summary(results),
            rounds=self.rounds,
            slow_rounds=slow_rounds(self.rounds),
            method=f"{METHOD.order}, {getattr(METHOD, 'steps', 0)} steps",
            errors=table([*arm, "loss", *sixths], rows),
            bits=table([*arm, "bits per dimension", "beside DDPM's"], bits),
            steps=table(["step", "ms", "ratio to fast", "of the matrix rate"], costs),
            operations=f"{times.operations:.3g}",
            rate=f"{times.matrix_rate:.3g}",
        )

    def _summary(self, results: Sequence[Result]) -> str:
        """Return the losses after the first mark, with both warm-ups, in words."""
        step = self.marks[0]

        def told(warmup: int) -> str:
            mine = [one for one in results if one.arm.warmup == warmup and self.is_first(one)]
            losses = [f"{one.arm.name} {one.at(step).mean:.3f}" for one in mine]
            return f"with a warm-up of {warmup}: {', '.join(losses)}"

        return f"Loss after {step} steps {told(self.warmup)}; {told(self.long_warmup)}."

    def is_first(self, one: Result) -> bool:
        """Whether an arm has the first seed, that all arms have."""
        return one.arm.seed == self.seed + self.seeds[0]


def print_mark(arm: Arm, mark: Mark) -> None:
    """Say what was measured."""
    errors = " ".join(f"{error:.5f}" for error in mark.errors)
    bits = "" if mark.bits is None else f", {_bits(mark.bits):.4f} bits"
    spent = f"{mark.train_seconds:.0f} s of training, {mark.seconds:.0f} s of measuring"
    line = f"{arm.key}: {mark.step} steps, {mark.mean:.5f} ({errors}){bits}; {spent}"
    print(line, file=sys.stderr, flush=True)  # standard output is for the claims


def _ratios(one: Result, other: Result, step: int) -> list[float]:
    """Return the errors of one arm as multiples of another's, by sixths."""
    pairs = zip(one.at(step).errors, other.at(step).errors, strict=True)
    return [a / b for a, b in pairs]


def _named(one: Result) -> tuple[str, int, int]:
    """Return the columns of a table that tell an arm."""
    return one.arm.name, one.arm.seed, one.arm.warmup


def _bits(found: list[float] | None) -> float:
    return float("nan") if found is None else float(np.mean(found))


def _compared(bits: list[float], other: Mark) -> tuple[str, str]:
    """Return the mean of the bits, and their difference from another's, image by image."""
    apart = np.array(bits) - np.array(other.bits)
    return _mean(np.array(bits)), _mean(apart, sign="+") if apart.any() else ""


def _mean(values: NDArray[np.float64], sign: str = "") -> str:
    return f"{values.mean():{sign}.4f} ± {float(standard_error(values)):.4f}"


def main() -> None:
    """Run some arms, or time steps, and keep what is found."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folder", type=Path, help="that of the study, as runs/cifar10")
    parser.add_argument(
        "--data", default=Cifar10.data, help="a folder with train*.parquet and test*.parquet"
    )
    parser.add_argument("--marks", nargs="+", type=int, default=Cifar10.marks, help="steps, rising")
    keys = ", ".join(arm.key for arm in Cifar10().arms)
    parser.add_argument("--only", nargs="*", metavar="KEY", help=f"some of the arms: {keys}")
    parser.add_argument("--times", action="store_true", help="time steps as well")
    arguments = parser.parse_args()
    if len(arguments.marks) < 2 or sorted(set(arguments.marks)) != list(arguments.marks):
        parser.error(f"--marks: must rise, two or more, got {arguments.marks}")
    study = Cifar10(data=arguments.data, marks=tuple(arguments.marks))
    known = [arm.key for arm in study.arms]
    for key in arguments.only or ():
        if key not in known:
            parser.error(f"--only: {key!r} is none of {', '.join(known)}")
    try:
        results = study.results(arguments.folder, arguments.only)
    except FileNotFoundError as error:
        parser.error(str(error))
    numbers = {"arms": [pictures.numbers_of(one) for one in results]}
    write_json(arguments.folder / "arms.json", numbers)
    if pictures.shown(results, study):
        write_picture(arguments.folder / "samples.png", pictures.samples(results, study))
    if arguments.times:
        step_time.write(study.times(), arguments.folder / STEPS)


if __name__ == "__main__":
    main()
