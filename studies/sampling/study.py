"""Sampling with few evaluations: the prior's coordinates against the schedulers of diffusers.

Every method starts from the same noise and evaluates the same network, alone and combined with a
Gaussian prior. Measured are the distance to a reference of 400 evaluations, the Fréchet distance to
the images in the features of a classifier, and the time of an evaluation with and without the
coordinates. The networks are DDPM++ on CIFAR-10 and on MNIST, and a `UNet2DModel` of diffusers.

Results are stored in the folder stage by stage, and a run continues with those that are missing.
So stages can be run one by one, on a machine with a GPU (`python -m studies.sampling --help`). The
quick form uses scikit-learn's digits.
"""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from studies.images import DIGITS
from studies.sampling import figures
from studies.sampling.context import EVALUATIONS, Context, Settings
from studies.sampling.likelihood import DEFAULT_BITS, WHOLE_SCORE
from studies.sampling.methods import CONVERGED_EVALUATIONS
from studies.sampling.networks import BARE, CASES, COMBINED
from studies.sampling.peers import PEERS
from studies.sampling.results import CaseResults, pictures
from studies.sampling.separation import PERTURBATIONS
from studies.sampling.stages import STAGES
from studies.study import Claim, Findings, Study, table

THIRD = {5: 1 / 3, 8: 1 / 3, 10: 1 / 3, 15: 1 / 2, 20: 1 / 2}
WHOLE = dict.fromkeys(EVALUATIONS, 1.0)
SHARES = {"cifar10": THIRD, "unet": THIRD, "mnist": WHOLE}
"""The largest distance of a combined network relative to that of the best peer, by case and
evaluations. Of a network alone nothing is claimed."""

WITHIN = {"cifar10": {8: 0.02}, "unet": {5: 0.05, 8: 0.02}}
"""The largest relative excess of the Fréchet distance over that of converged samples.

On CIFAR-10 with DDPM++ the excess with 5 evaluations was 4.0%, 5.7% and 6.4% in three trainings, of
which the last is stored, so nothing is claimed of it; on MNIST nothing at all."""

ACCURACY, OVERHEAD = 0.93, 0.03

SEPARATED = """Where small errors change the image at which a path ends, a few samples determine the
mean square. Their number is proportional to the error, so the mean square is proportional to the
error as well, instead of to its square, and no method gains as much. The next table shows where
this is the case: states of {samples} paths are perturbed at a level λ, by δ standard deviations of
the Gaussian in every direction, and followed to the end of the flow. The numbers are mean squared
distances at the end, relative to those in a flow without a residual. Where the flow is smooth they
do not depend on δ; where errors change the image they are larger, and proportional to 1/δ."""


BITS = """Bits per dimension of 100 test images ({name}, combined), and their standard deviation
over probes of Hutchinson's estimate of the divergence. The library estimates the divergence of the
residual only and has the divergence of the prior in closed form; its default takes 32
evaluations:"""

TIMES = """The time of an evaluation of a batch of 128 ({name}), median over interleaved rounds; the
time of a sampler is divided by its evaluations. Times of networks vary by more than a sampler
takes, so samplers are also timed without a network:"""


@dataclass(frozen=True)
class Sampling(Study):
    """The networks, by the names of their cases, the first being the main one, and the sizes."""

    data: str = "cifar10"
    more: str = "mnist"
    cases: tuple[str, ...] = ("cifar10", "unet", "mnist")
    evaluations: tuple[int, ...] = EVALUATIONS
    samples: int = Settings.samples
    drawn: int = Settings.drawn
    reference: int = Settings.reference

    name: ClassVar[str] = "sampling"
    title: ClassVar[str] = "Sampling with few evaluations, in the prior's coordinates"

    @classmethod
    def quick(cls, seed: int = 0) -> Self:
        """Return the settings for digits."""
        return cls(
            seed, data=DIGITS, more=DIGITS, cases=(DIGITS,), evaluations=(5, 10), samples=40,
            drawn=80, reference=20,
        )  # fmt: skip

    @property
    def is_small(self) -> bool:
        """Whether the images are digits."""
        return self.data == DIGITS

    def run(self) -> Findings:
        """Run all stages."""
        with tempfile.TemporaryDirectory() as folder:
            return self.run_in(Path(folder))

    def run_in(self, folder: Path) -> Findings:
        """Run the stages whose results a folder lacks, and report."""
        stored = folder / "stages"
        for context in self.contexts(stored):
            for stage, run in STAGES.items():
                name = {"classifier": "frechet", "long-grids": "rmse"}.get(stage, stage)
                is_wanted = stage not in ("times", "bits") or context.case.name == self.cases[0]
                if is_wanted and not (context.place / f"{name}.json").exists():
                    run(context)
        return self.findings(stored)

    def findings(self, stored: Path) -> Findings:
        """Return the findings from the stored results of a folder, as far as there are any."""
        read = [CaseResults.read(stored, name, self.evaluations) for name in self.cases]
        found = [one for one in read if one.is_measured]
        if not found:
            raise FileNotFoundError(f"no results of the stages rmse and frechet in {stored}")
        return self._findings(found, stored)

    def contexts(self, folder: Path) -> Iterator[Context]:
        """Yield the contexts of the stages of every case."""
        settings = Settings(
            samples=self.samples, drawn=self.drawn, evaluations=self.evaluations,
            reference=self.reference,
        )  # fmt: skip
        if self.is_small:
            settings = replace(settings, batch=self.samples, width=8, rounds=1)
        for name in self.cases:
            case = replace(CASES[name], seed=self.seed)
            data = self.data if case.images == CASES[self.cases[0]].images else self.more
            yield Context(case, data, folder, time.perf_counter() + 3600, settings)

    def _findings(self, found: Sequence[CaseResults], stored: Path) -> Findings:
        main, *others = found
        drawn = {
            "figure": figures.curves(main),
            "samples": figures.samples(main, pictures(stored, main.name), self._high(main)),
        }
        drawn |= {one.name: figures.curves(one) for one in others}
        numbers: dict[str, Any] = {
            "versions": {
                k: v for k, v in main.parts["rmse"]["versions"].items() if k != "diffusers"
            },
            "diffusers": main.parts["rmse"]["versions"]["diffusers"],
            "cases": {one.name: _plain(one) for one in found},
        }
        if not self.is_small:  # those of the machine that ran the stages
            numbers["seconds"] = round(sum(one.seconds for one in found), 1)
        return Findings(numbers, drawn, self._claims(found), self._text(found))

    def _high(self, main: CaseResults) -> int:
        return 16 if main.name == DIGITS else 255

    def _claims(self, found: Sequence[CaseResults]) -> list[Claim]:
        main, *others = found
        claims = list(self._distance_claims(main))
        if not self.is_small:
            for other in others:
                claims += self._distance_claims(other)
            for one in found:
                claims += self._quality_claims(one)
            claims += self._cost_claims(main)
        claims += self._limit_claims(main)
        return claims

    def _distance_claims(self, one: CaseResults) -> Iterator[Claim]:
        for form in one.forms:
            if form == BARE:  # nothing is claimed of a network alone
                continue
            for n in self.evaluations if one.ours else ():
                share = 1.0 if self.is_small else SHARES[one.name][n]
                part = {1 / 3: "a third of ", 1 / 2: "half of "}.get(share, "")
                best, name, _ = one.best_peer(form, n)
                yield Claim(
                    f"{one.name}, {form}, {n} evaluations: the RMSE is below {part}that of the best"
                    f" scheduler, {name}",
                    one.rmse(form, one.ours[0], n),
                    share * best,
                )

    def _quality_claims(self, one: CaseResults) -> Iterator[Claim]:
        limit = one.converged(one.step, COMBINED)
        for n, most in WITHIN.get(one.name, {}).items():
            if one.ours:
                excess = one.frechet(COMBINED, one.ours[0], n) / limit - 1
                words = f"{one.name}, {n} evaluations: the Fréchet distance is within {most:.0%} of"
                yield Claim(f"{words} convergence", excess, most)
        for step in one.marks:
            yield Claim(
                f"{one.name}, {step} steps of training: converged samples of the combined network "
                "have a smaller Fréchet distance than those of the network alone",
                one.converged(step, COMBINED),
                one.converged(step, BARE),
            )

    def _cost_claims(self, main: CaseResults) -> Iterator[Claim]:
        yield Claim("the classifier's accuracy exceeds 93%", ACCURACY, main.accuracy)
        if main.parts["bits"]:
            words = "the deviation of bits by one probe is below 0.55 of that with the whole score"
            yield Claim(words, main.deviation(DEFAULT_BITS), 0.55 * main.deviation(WHOLE_SCORE))
        if main.ours and main.parts["times"]:
            words = "the coordinates cost less than 3% of an evaluation of the network"
            yield Claim(words, main.overhead(main.ours[0]), OVERHEAD)

    def _limit_claims(self, main: CaseResults) -> Iterator[Claim]:
        """Yield that schedulers approach the reference: it is their limit as well."""
        few, many = self.evaluations[0], self.evaluations[-1]
        for name in ("DPM-Solver++(2M)", "UniPC-2", "DDIM"):
            yield Claim(
                f"{name} with {many} evaluations is nearer to the reference than with {few}",
                main.rmse(COMBINED, name, many),
                main.rmse(COMBINED, name, few),
            )

    def _text(self, found: Sequence[CaseResults]) -> str:
        main = found[0]
        train, rmse, frechet = (main.parts[part] for part in ("train", "rmse", "frechet"))
        return self.text(
            networks=_joined("\n".join(map(_described, found)), self._missing(found)),
            device=rmse["device"],
            diffusers=rmse["versions"]["diffusers"],
            samples=" or ".join(f"{one.parts['rmse']['samples']} ({one.name})" for one in found),
            drawn=self.drawn,
            reference=4 * self.reference + 1,
            half=", ".join(f"{_number(one.half_the_steps)} ({one.name})" for one in found),
            accuracy=f"{main.accuracy:.1%}",
            features=(frechet.get("classifier") or {}).get("features"),
            test_images=_number(frechet.get("test_images")),
            step=main.step,
            first=f"{train['case']['first']:g}",
            converged_evaluations=CONVERGED_EVALUATIONS,
            distances=_joined(
                *(
                    f"{one.name}, {form}:\n\n{self._distance_table(one, form)}"
                    for one in found
                    for form in one.forms
                ),
                self._heavy_tails(found),
            ),
            frechet="\n\n".join(f"{one.name}:\n\n{self._frechet_table(one)}" for one in found),
            converged=_joined(
                *(f"{one.name}:\n\n{_converged_table(one)}" for one in found), _likelihoods(main)
            ),
        )

    def _missing(self, found: Sequence[CaseResults]) -> str:
        """Return a sentence about networks that were not measured."""
        names = [name for name in self.cases if name not in {one.name for one in found}]
        return f"Not measured: {', '.join(names)}." if names else ""

    def _distance_table(self, one: CaseResults, form: str) -> str:
        rows = []
        for name in (*one.ours, *PEERS):
            best = [one.best_row(form, name, n) for n in self.evaluations]
            cells = [
                "" if row is None else f"{float(row['rmse']):.4f}" + _grid(row["grid"])
                for row in best
            ]
            if any(cells):
                rows.append([name, *cells])
        return table(["method", *map(str, self.evaluations)], rows)

    def _heavy_tails(self, found: Sequence[CaseResults]) -> str:
        """Return medians and separations with their explanation, as far as they were measured."""
        parts = []
        if any("median" in row for one in found for row in one.rmse_rows):
            parts += ["The median over the samples instead:", self._median_table(found)]
        if any(one.separations for one in found):
            samples = next(one.parts["separation"]["samples"] for one in found if one.separations)
            parts += [SEPARATED.format(samples=samples), _separation_table(found)]
        return _joined(*parts)

    def _median_table(self, found: Sequence[CaseResults]) -> str:
        """Return the medians over samples, of the library's default and of the best peer."""
        rows = []
        for one in found:
            for form in one.forms:
                for label, names in (("ours", one.ours[:1]), ("best scheduler", list(PEERS))):
                    values = [one.median(form, names, n) for n in self.evaluations]
                    cells = ["" if math.isnan(value) else f"{value:.4f}" for value in values]
                    if any(cells):
                        rows.append([one.name, form, label, *cells])
        return table(["case", "network", "method", *map(str, self.evaluations)], rows)

    def _frechet_table(self, one: CaseResults) -> str:
        names = dict.fromkeys(
            (row["form"], row["method"])
            for row in one.frechet_rows
            if row["evaluations"] in self.evaluations
        )
        rows = []
        for form, name in names:
            values = [one.frechet(form, name, n) for n in self.evaluations]
            rows.append([form, name, *("" if math.isnan(v) else f"{v:.2f}" for v in values)])
        found = table(["network", "method", *map(str, self.evaluations)], rows)
        return _joined(found, self._excess(one))

    def _excess(self, one: CaseResults) -> str:
        """Return how much larger the distances of the default are than that of convergence."""
        limit = one.converged(one.step, COMBINED)
        values = [one.frechet(COMBINED, one.ours[0], n) / limit - 1 for n in self.evaluations]
        if any(map(math.isnan, values)):
            return ""
        shown = ", ".join(f"{value:+.1%}" for value in values)
        return f"Combined, {one.ours[0]}, relative to converged samples ({limit:.1f}): {shown}."


def _joined(*parts: str) -> str:
    """Return paragraphs, without the empty ones."""
    return "\n\n".join(part for part in parts if part)


def _grid(name: str) -> str:
    """Return the sign of a grid in a table: E for EDM, U for uniform, + for all levels."""
    if name == "own":
        return ""
    return f" {name[0].upper()}{'' if name.endswith('short') else '+'}"


def _separation_table(found: Sequence[CaseResults]) -> str:
    """Return mean squares at the end, relative to the base, by level and perturbation."""
    rows, sizes = [], PERTURBATIONS
    for one in found:
        for level in sorted({row["level"] for row in one.separations}):
            own = {row["delta"]: row for row in one.separations if row["level"] == level}
            cells = [
                f"{own[size]['mean'] / own[size]['base']:.2f}" if size in own else ""
                for size in sizes
            ]
            rows.append([one.name, f"{level:.2f}", *cells])
    return table(["case", "λ", *(f"δ = {size:g}" for size in sizes)], rows)


def _converged_table(one: CaseResults) -> str:
    rows = [
        [step, *(f"{one.converged(step, form):.2f}" for form in (COMBINED, BARE))]
        for step in one.marks
    ]
    return table(["steps of training", COMBINED, BARE], rows)


def _likelihoods(main: CaseResults) -> str:
    """Return bits per dimension and times with their explanation, as far as they were measured."""
    parts = []
    if main.parts["bits"]:
        parts += [BITS.format(name=main.name), _bits_table(main)]
    if main.parts["times"]:
        parts += [TIMES.format(name=main.name), _times_table(main)]
    return _joined(*parts)


def _times_table(one: CaseResults) -> str:
    seconds = one.parts["times"].get("seconds", {})
    rows = [[name, f"{1000 * spent:.3f}"] for name, spent in seconds.items()]
    return table(["predictor and sampler", "ms per evaluation"], rows)


def _bits_table(one: CaseResults) -> str:
    rows = [
        [row["name"], f"{row['bits']:.4f}", f"{row['deviation']:.4f}"]
        for row in one.parts["bits"].get("rows", [])
    ]
    return table(["estimate", "bits per dimension", "standard deviation by one probe"], rows)


def _described(one: CaseResults) -> str:
    """Return the settings of a network and its training as an entry of a list."""
    train = one.parts["train"]
    case, config = train["case"], train["config"]
    last = train["marks"][-1]
    kind = "DDPM++" if case["kind"] == "ddpm++" else "a `UNet2DModel` of diffusers"
    return (
        f"- *{one.name}*: {kind} with {train['parameters'] / 1e6:.1f} million parameters, "
        f"{last['step']:,} steps with batches of {config['batch']}, rate {config['rate']:g} after a"
        f" warm-up of {config['warmup']}, decay of average weights {config['decay']:g}, smallest "
        f"clock time {config['first']:g}, precision {config['precision']}; error of the predicted "
        f"noise {last['error']:.4f} (combined, training images)."
    )


def _number(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.3g}"


def _plain(one: CaseResults) -> dict[str, Any]:
    """Return the stored numbers without single rounds of timing."""
    parts = json.loads(json.dumps(one.parts))
    parts["times"].pop("all", None)
    found: dict[str, Any] = parts
    return found


STUDY = Sampling
