"""What a prior gives to the training of a network, and what any good parametrisation gives.

With the paper's settings, predicted noise and a warm-up of 5,000 steps: a network alone (DDPM), the
paper's form with polynomials of each pixel (OISM(3), OISM(6)) and with a Gaussian along principal
directions. With a warm-up of 500: networks that predict the noise, the velocity, or what an
isotropic Gaussian (EDM) or the Gaussian of the data (operator preconditioning) leaves, and the
gated residual. Networks are measured as they are and combined with priors (`Combined`), which needs
no training of its own. The quick form uses scikit-learn's digits.

Numbers are stored after every measurement, and a run continues with those that are missing. So
trainings can be run one by one, on several machines (`python -m studies.training --help`).
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from studies.images import DIGITS, image_sets
from studies.study import Findings, Study
from studies.training import figures, step_time
from studies.training.answers import answers, forms, gains, saved_steps
from studies.training.claims import claims
from studies.training.results import Result, Store
from studies.training.running import CLASSIFIER, Runner
from studies.training.short import short
from studies.training.step_time import Times, step_times
from studies.training.summary import Summary
from studies.training.trainings import (
    GAUSSIAN,
    ITSELF,
    LOCAL,
    MIXED,
    MIXTURE,
    OWN,
    PAPER,
    PIXELS_3,
    PIXELS_6,
    PRINCIPAL_9,
    RESIDUAL,
    Setup,
    Training,
)

STEPS = "steps.json"

SMALL = {"width": 16, "multipliers": (1, 2), "blocks": 1, "attention": ()}
"""The sizes of the network for digits."""

PAPERS: tuple[dict[str, Any], ...] = (
    {
        "name": "noise", "label": "DDPM", "combined": (GAUSSIAN, PIXELS_3),
        "followed": (ITSELF, GAUSSIAN),
    },
    {"name": "oism3", "label": "OISM(3)", "form": PAPER, "prior": PIXELS_3, "combined": ()},
    {"name": "oism6", "label": "OISM(6)", "form": PAPER, "prior": PIXELS_6, "combined": ()},
    {
        "name": "paper-principal2", "label": "paper's form (principal 2)", "form": PAPER,
        "prior": GAUSSIAN, "combined": (),
    },
)  # fmt: skip
"""The trainings with the paper's warm-up."""

OTHERS: tuple[dict[str, Any], ...] = (
    {
        "name": "noise", "label": "noise",
        "combined": (GAUSSIAN, PIXELS_3, PIXELS_6, PRINCIPAL_9, MIXTURE, LOCAL),
        "followed": (ITSELF, GAUSSIAN),
    },
    {
        "name": "edm-own", "label": "EDM (own loss)", "predict": "edm", "loss": OWN,
        "followed": (ITSELF, GAUSSIAN),
    },
    {
        "name": "gaussian-own", "label": "Gaussian skip (own loss)", "predict": "gaussian",
        "prior": GAUSSIAN, "loss": OWN, "followed": (GAUSSIAN,),
    },
    {
        "name": "operator-mixed", "label": "operator (mixed levels)", "predict": "operator",
        "prior": GAUSSIAN, "loss": MIXED, "followed": (GAUSSIAN,),
    },
    {"name": "edm-mixed", "label": "EDM (mixed levels)", "predict": "edm", "loss": MIXED},
    {"name": "operator", "label": "operator", "predict": "operator", "prior": GAUSSIAN},
    {"name": "v", "label": "velocity", "predict": "v"},
    {"name": "edm", "label": "EDM", "predict": "edm"},
    {
        "name": "operator-own", "label": "operator (own loss)", "predict": "operator",
        "prior": GAUSSIAN, "loss": OWN, "followed": (GAUSSIAN,),
    },
    {"name": "residual", "label": "gated residual", "form": RESIDUAL, "prior": GAUSSIAN},
)  # fmt: skip
"""The trainings with the short warm-up; the loss is that of the noise unless another is named."""


@dataclass(frozen=True)
class TrainingStudy(Study):
    """The trainings and how they are measured.

    ``marks`` and ``long_marks``, with the paper's warm-up, are numbers of steps after which
    everything is measured, ``points`` those after which errors are. ``repeated`` and
    ``long_repeated`` name the trainings with a second seed. ``only`` are the keys of the trainings
    that are run, all if there are none.
    """

    data: str = "cifar10"
    warmup: int = 500
    long_warmup: int = 5000
    marks: tuple[int, ...] = (1000, 2500, 5000)
    long_marks: tuple[int, ...] = (1000, 2500, 6000)
    points: tuple[int, ...] = (250, 500, 1500, 3500)
    repeated: tuple[str, ...] = ("noise", "edm-own", "operator-own")
    long_repeated: tuple[str, ...] = ("noise", "oism3")
    only: tuple[str, ...] = ()
    batch: int = 128
    rate: float = 2e-4
    tested: int = 2000
    likelihoods: int = 256
    drawn: int = 2500
    evaluations: int = 40
    shown: int = 32
    width: int = 32
    rounds: int = 15

    name: ClassVar[str] = "training"
    title: ClassVar[str] = "Training with a closed-form prior, and other parametrisations"

    @classmethod
    def quick(cls, seed: int = 0) -> Self:
        """Return the settings for digits."""
        names = (("noise", 150), ("oism3", 150), ("noise", 15), ("edm-own", 15), ("operator", 15))
        return cls(
            seed, data=DIGITS, warmup=15, long_warmup=150, marks=(15, 30), long_marks=(15, 30),
            points=(8,), only=tuple(f"{name}-{seed}-{warmup}" for name, warmup in names), batch=32,
            rate=2e-3, tested=100, likelihoods=4, drawn=40, evaluations=12, shown=16, width=4,
            rounds=1,
        )  # fmt: skip

    @property
    def is_small(self) -> bool:
        """Whether the images are digits."""
        return self.data == DIGITS

    @property
    def trainings(self) -> list[Training]:
        """All trainings, in the order in which they are run."""
        short: dict[str, Any] = {"marks": self.marks, "warmup": self.warmup}
        long: dict[str, Any] = {"marks": self.long_marks, "warmup": self.long_warmup}
        first: dict[str, Any] = {"points": self.points, "seed": self.seed}
        second = {**first, "seed": self.seed + 1}
        found = [Training(**one, **long, **first) for one in PAPERS[:2]]
        found += [Training(**one, **short, **first) for one in OTHERS]
        found += [Training(**one, **long, **first) for one in PAPERS[2:]]
        for some, names, more in (
            (PAPERS, self.long_repeated, long), (OTHERS, self.repeated, short),
        ):  # fmt: skip
            found += [Training(**one, **more, **second) for one in some if one["name"] in names]
        return [one for one in found if not self.only or one.key in self.only]

    @property
    def setup(self) -> Setup:
        """The settings that all trainings share."""
        return Setup(
            sizes=SMALL if self.is_small else {}, batch=self.batch, rate=self.rate,
            flip=not self.is_small, tested=self.tested, likelihoods=self.likelihoods,
            drawn=self.drawn, evaluations=self.evaluations, shown=self.shown, width=self.width,
        )  # fmt: skip

    def run(self) -> Findings:
        """Run all trainings."""
        with tempfile.TemporaryDirectory() as folder:
            return self.run_in(Path(folder))

    def run_in(self, folder: Path) -> Findings:
        """Run what a folder lacks, and report."""
        runner = Runner(self.setup, self.data, folder, report=say)
        for one in self.trainings:
            runner.run(one)
        if step_time.read(folder / STEPS) is None:
            step_time.write(self.times(), folder / STEPS)
        return self.findings(folder)

    def times(self, deadline: float = float("inf")) -> Times:
        """Return the times of steps."""
        return step_times(
            image_sets(self.data), self.setup.sizes, batch=self.batch, rounds=self.rounds,
            steps=1 if self.is_small else 5, deadline=deadline,
        )  # fmt: skip

    def missing(self, folder: Path, training: Training) -> list[int]:
        """Return the numbers of steps after which a training is still to be measured."""
        return Store(folder, self.setup).read(training).missing

    def results(self, folder: Path) -> list[Result]:
        """Return the stored results of trainings that have any."""
        store = Store(folder, self.setup)
        found = [store.read(one) for one in self.trainings]
        return [one for one in found if one.marks]

    def findings(self, folder: Path) -> Findings:
        """Return the findings from the stored results of a folder, as far as there are any."""
        results, times = self.results(folder), step_time.read(folder / STEPS)
        if not results:
            raise FileNotFoundError(f"no results of trainings in {folder}")
        path = (folder / CLASSIFIER).with_suffix(".json")
        classifier = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        about = Summary(self, results, times, classifier)
        numbers: dict[str, Any] = {
            "seconds": round(about.seconds, 1),
            "versions": results[0].versions,  # those of the machine that ran them
            "classifier": classifier,
            "trainings": [one.numbers(images=False) for one in results],
            "saved": about.saved(),
            "steps": None if times is None else asdict(times),
        }
        drawn = {
            "figure": figures.curves(results, self),
            "sixths": figures.sixths(results, self),
        }
        if any(one.samples for one in results):
            drawn["samples"] = figures.samples(results, self)
        return Findings(numbers, drawn, claims(about), self._text(about), short(about))

    def _text(self, about: Summary) -> str:
        return self.text(
            answers=answers(about),
            saved=saved_steps(about),
            forms=forms(about),
            gains=gains(about),
            data=self.data,
            device=about.results[0].device,
            batch=self.batch,
            mirrored=", mirrored at random" if self.setup.flip else "",
            tested=self.tested,
            likelihoods=self.likelihoods,
            drawn=self.drawn,
            evaluations=self.evaluations,
            accuracy=about.accuracy,
            distance=about.test_distance,
            missing=about.missing(),
            warmup=self.warmup,
            first_mark=self.long_marks[0],
            long_warmup=self.long_warmup,
            rounds=about.rounds,
            errors=about.error_table(),
            quality=about.quality_table(),
            priors=about.prior_table(),
            steps=about.step_table(),
            coefficients=about.coefficient_table(),
            solve_cost=about.solve_cost(),
        )


def run_some(
    study: TrainingStudy,
    folder: Path,
    only: Sequence[str] | None,
    *,
    seconds: float,
    compiled: bool = True,
) -> list[Result]:
    """Run trainings until ``seconds`` have passed; return their results.

    ``only`` are the keys of those that are run, in this order; by default all.
    """
    deadline = time.perf_counter() + seconds
    runner = Runner(
        study.setup, study.data, folder, deadline=deadline, compiled=compiled, report=say
    )
    trainings = {one.key: one for one in study.trainings}
    chosen = trainings if only is None else dict.fromkeys(only)
    return [runner.run(trainings[key]) for key in chosen]


def say(words: str) -> None:
    """Print a line of progress; standard output has the claims."""
    print(words, file=sys.stderr, flush=True)


STUDY = TrainingStudy
