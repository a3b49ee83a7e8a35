"""Images without a network: the closed form alone on CIFAR-10.

Errors of the predicted noise by order and frame, cross-validated orders, densities in bits per
dimension, samples and denoising. The quick form does the same with scikit-learn's digits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from oism.basis import CosineFrame, Frame, IdentityFrame
from oism.images import (
    PCA,
    HermitePrior,
    Prior,
    add_local_terms,
    fit_mixture,
    fit_prior,
    image_statistics,
    prior_from_statistics,
)
from oism.plot import image_grid
from studies.images import DIGITS, ImageSets, bits, image_sets, noise_errors
from studies.study import WIDTH, Claim, Findings, Study, table

LEVELS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.5, 0.9)
"""The clock times at which priors are evaluated."""

PROTOCOL = (0.001, 0.01, 0.1, 0.5)
KNOWN = {
    ("pixels", 2): (0.999, 0.992, 0.678, 0.0208),
    ("pixels", 6): (0.998, 0.980, 0.657, 0.0208),
    ("PCA", 2): (0.804, 0.496, 0.128, 0.0083),
    ("PCA", 4): (0.792, 0.490, 0.128, 0.0083),
}
"""Errors on CIFAR-10 of an earlier measurement, by frame and order, at the times of `PROTOCOL`."""

ORDERS = (2, 3, 4, 5, 6)

LOCAL = "the same, local terms"


@dataclass
class Entry:
    """A prior, the seconds of its fit, its errors and its bits per dimension."""

    prior: Prior
    fit_seconds: float
    errors: list[float] = field(default_factory=list)
    bits: float = float("nan")
    bits_error: float = float("nan")
    bits_seconds: float = float("nan")

    def numbers(self) -> dict[str, Any]:
        """Return the numbers for JSON."""
        expected = [float(self.prior.expected_error(tau)) for tau in LEVELS]
        return {
            "fit_seconds": self.fit_seconds,
            "errors": self.errors,
            "expected_errors": expected,
            "bits_per_dim": self.bits,
            "standard_error": self.bits_error,
            "bits_seconds": self.bits_seconds,
        }


@dataclass(frozen=True)
class ClosedFormCifar(Study):
    """Priors of images in closed form."""

    data: str = "cifar10"
    tested: int = 2000
    likelihoods: int = 10_000
    leading: int = 512
    components: tuple[int, ...] = (8, 32, 128)
    base: int = 32
    local_images: int = 8192

    name: ClassVar[str] = "closed-form-cifar"
    title: ClassVar[str] = "Images without a network"

    @classmethod
    def quick(cls, seed: int = 0) -> Self:
        """Return settings for scikit-learn's digits, which need no files."""
        return cls(
            seed, data=DIGITS, tested=397, likelihoods=397, leading=16, components=(2, 4),
            base=4, local_images=1400,
        )  # fmt: skip

    @property
    def is_cifar(self) -> bool:
        """Whether the images are CIFAR-10: flips make sense, and earlier measurements apply."""
        return Path(self.data).name == "cifar10"

    @property
    def mixture(self) -> str:
        """The name of the mixture to which local terms are added."""
        return f"mixture of {self.base}" + (", flips" if self.is_cifar else "")

    def run(self) -> Findings:
        """Fit, measure, draw."""
        device = "cuda" if torch.cuda.is_available() else "cpu"
        sets = image_sets(self.data, self.seed).to(device)
        protocol = self._protocol(sets)
        chosen = self._chosen(sets)
        entries = self._densities(sets, chosen)
        claims = [*self._protocol_claims(protocol), *self._claims(chosen, entries)]
        return Findings(
            numbers={
                "device": device,
                "levels": LEVELS,
                "protocol": {"levels": PROTOCOL, **protocol},
                "chosen": {name: entry.numbers() for name, entry in chosen.items()},
                "priors": {name: entry.numbers() for name, entry in entries.items()},
            },
            figures={
                "figure": self._draw(entries),
                "samples": self._draw_samples(sets, entries),
                "denoising": self._draw_denoising(sets, entries),
            },
            claims=claims,
            text=self._report(protocol, chosen, entries, device),
        )

    def _timed(self, fit: Callable[[], Prior], device: torch.device) -> Entry:
        start = time.perf_counter()
        prior = fit().to(device)
        if device.type == "cuda":
            torch.cuda.synchronize()
        return Entry(prior, time.perf_counter() - start)

    def _protocol(self, sets: ImageSets) -> dict[str, list[float]]:
        """Return errors without cross-validation, flips and dequantisation: ridge 1e-6."""
        images, errors = sets.test[: self.tested], {}
        frames: dict[str, Frame | PCA] = {
            "pixels": IdentityFrame(),
            "PCA": PCA(),
            f"PCA, leading {self.leading}": PCA(self.leading),
            "cosines": CosineFrame(tuple(sets.train.shape[1:])),
        }
        for name, frame in frames.items():
            found = image_statistics(
                sets.train, order=ORDERS[-1], frame=frame, pixels=sets.pixels, dequantise=False,
                folds=1,
            )  # fmt: skip
            for order in ORDERS:
                prior = prior_from_statistics(found, order=order, ridge=1e-6).to(images.device)
                errors[f"{name}, order {order}"] = noise_errors(prior, images, PROTOCOL, self.seed)
        return errors

    def _chosen(self, sets: ImageSets) -> dict[str, Entry]:
        """Return priors of orders 2 to 9, order and ridge chosen by cross-validation."""
        images, entries = sets.test[: self.tested], {}
        for name, frame in (("pixels", IdentityFrame()), ("PCA", PCA())):
            start = time.perf_counter()
            found = image_statistics(sets.train, order=9, frame=frame, pixels=sets.pixels)
            seconds = time.perf_counter() - start
            for order in range(2, 10):
                fit = partial(prior_from_statistics, found, order=order)
                entry = self._timed(fit, images.device)
                entry.fit_seconds += seconds
                entry.errors = noise_errors(entry.prior, images, LEVELS, self.seed)
                entries[f"{name}, order {order}"] = entry
        return entries

    def _densities(self, sets: ImageSets, chosen: dict[str, Entry]) -> dict[str, Entry]:
        """Return the priors that are compared as densities, by name."""
        train, device, pixels = sets.train, sets.train.device, sets.pixels
        orders = [f"{frame}, order {n}" for frame in ("pixels", "PCA") for n in (2, 4, 9)]
        entries = {name: chosen[name] for name in orders}
        fits: dict[str, Callable[[], Prior]] = {}
        if self.is_cifar:
            for n in (2, 9):
                fits[f"PCA, order {n}, flips"] = partial(
                    fit_prior, train, order=n, pixels=pixels, flip=True
                )
        for count in self.components:
            fits[f"mixture of {count}"] = partial(
                fit_mixture, train, components=count, pixels=pixels
            )
        fits[self.mixture] = partial(
            fit_mixture, train, components=self.base, pixels=pixels, flip=self.is_cifar
        )
        fits[LOCAL] = lambda: add_local_terms(
            train, entries[self.mixture].prior, limit=self.local_images
        )
        for name, fit in fits.items():
            entries[name] = self._timed(fit, device)
            shown = sets.test[: self.tested]
            entries[name].errors = noise_errors(entries[name].prior, shown, LEVELS, self.seed)
        entries[LOCAL].fit_seconds += entries[self.mixture].fit_seconds
        for entry in entries.values():
            start = time.perf_counter()
            found = bits(entry.prior, sets.test[: self.likelihoods], self.seed)
            entry.bits, entry.bits_error = found.mean, found.error
            entry.bits_seconds = time.perf_counter() - start
        return entries

    def _protocol_claims(self, protocol: dict[str, list[float]]) -> list[Claim]:
        """Return the claims that errors agree with earlier measurements, within 1%."""
        if not self.is_cifar:
            return []
        claims = []
        for (frame, order), known in KNOWN.items():
            found = protocol[f"{frame}, order {order}"]
            off = max(abs(a / b - 1) for a, b in zip(found, known, strict=True))
            claims.append(
                Claim(f"{frame}, order {order}, agrees with earlier measurements", off, 0.01)
            )
        return claims

    def _claims(self, chosen: dict[str, Entry], entries: dict[str, Entry]) -> list[Claim]:
        claims = []
        for frame in ("pixels", "PCA"):
            low, high = (chosen[f"{frame}, order {n}"].errors for n in (3, 9))
            worst = max(b / a for a, b in zip(low, high, strict=True))
            words = f"{frame}: order 9 is at most 0.1% worse than order 3 at every noise level"
            claims.append(Claim(words, worst - 1, 0.001))
        gaussian = entries["PCA, order 2"]
        nine, local = entries["PCA, order 9"], entries[LOCAL]
        mixture = entries[self.mixture]
        bound = 4.65 if self.is_cifar else entries["pixels, order 2"].bits
        return [
            *claims,
            Claim("bits per dimension of the Gaussian", gaussian.bits, bound),
            Claim("order 9 needs fewer bits than the Gaussian", nine.bits, gaussian.bits),
            Claim("a mixture needs fewer bits than order 9", mixture.bits, nine.bits),
            Claim("local terms need fewer bits than the mixture", local.bits, mixture.bits),
            *(
                Claim(
                    f"{name}: errors agree with the expected ones, within {self._tolerance:.0%}",
                    max(
                        abs(a / float(entries[name].prior.expected_error(tau)) - 1)
                        for a, tau in zip(entries[name].errors, LEVELS, strict=True)
                        if a > 0.005
                    ),
                    self._tolerance,
                )
                for name in ("pixels, order 9", "PCA, order 2", "PCA, order 9")
            ),
        ]

    @property
    def _tolerance(self) -> float:
        return 0.03 if self.is_cifar else 0.1

    def _draw(self, entries: dict[str, Entry]) -> Figure:
        """Return the figure of errors by noise level and of bits per dimension."""
        figure = plt.figure(figsize=(WIDTH, 4.2), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1, 1.1))
        tau = torch.logspace(-3.5, 0, 200, dtype=torch.float64)
        shown = ("pixels, order 2", "pixels, order 9", "PCA, order 2", "PCA, order 9", self.mixture)
        names = (*shown, LOCAL)
        colours = plt.get_cmap("viridis")(np.linspace(0, 0.92, len(names)))
        for name, colour in zip(names, colours, strict=True):
            prior = entries[name].prior
            left.plot(
                tau, [float(prior.expected_error(s)) for s in tau], color=colour, lw=1.4, label=name
            )
            left.plot(LEVELS, entries[name].errors, "o", color=colour, ms=4)
        left.set(xscale="log", xlabel="clock time τ", ylabel="error of the predicted noise")
        left.set(xlim=(float(tau[0]), 1), ylim=(0, 1.02))
        left.legend(frameon=False, fontsize=8, title="lines: expected, dots: measured")
        self._draw_bits(right, entries)
        for panel in (left, right):
            panel.spines[["top", "right"]].set_visible(False)
        return figure

    @staticmethod
    def _draw_bits(panel: Axes, entries: dict[str, Entry]) -> None:
        names = list(entries)[::-1]
        values = [entries[name].bits for name in names]
        panel.barh(range(len(names)), values, color="#4a6fa5", height=0.65)
        least = min(values)
        panel.set(xlim=(least - 0.25 * (max(values) - least), max(values) * 1.03))
        for place, value in enumerate(values):
            panel.text(value, place, f" {value:.2f}", va="center", fontsize=8)
        panel.set_yticks(range(len(names)), names, fontsize=8)
        panel.set_xlabel("bits per dimension on test images\n(the axis does not start at zero)")

    def _draw_samples(self, sets: ImageSets, entries: dict[str, Entry]) -> Figure:
        """Return the figure of samples of some priors, beside images."""
        names = (
            "pixels, order 9",
            "PCA, order 2",
            "PCA, order 9",
            self.mixture,
            LOCAL,
        )
        figure = plt.figure(figsize=(WIDTH, 2.05), layout="constrained")
        panels = figure.subplots(1, 1 + len(names))
        _tile(panels[0], sets.test[:36], sets.pixels.high).set_title("images", fontsize=9)
        for panel, name in zip(panels[1:], names, strict=True):
            prior = entries[name].prior
            generator = torch.Generator(sets.test.device).manual_seed(self.seed)
            samples = sets.pixels.values(prior.sample(36, generator))
            _tile(panel, samples, sets.pixels.high).set_title(name, fontsize=9)
        return figure

    def _draw_denoising(self, sets: ImageSets, entries: dict[str, Entry]) -> Figure:
        """Return the figure of noisy images, denoised by some priors."""
        clean = sets.pixels.units(sets.test[:6])
        noise = torch.randn(clean.shape, generator=self.generator(5)).to(clean)
        names = ("pixels, order 9", "PCA, order 2", self.mixture, LOCAL)
        levels, noising = (0.03, 0.1, 0.25), entries[names[0]].prior.noising
        figure = plt.figure(figsize=(WIDTH, 3.9), layout="constrained")
        panels = figure.subplots(2 + len(names), len(levels))
        for column, tau in enumerate(levels):
            alpha, sigma = float(noising.alpha(tau)), float(noising.sigma(tau))
            noisy = alpha * clean + sigma * noise
            rows = {"clean": clean, "noisy": noisy / alpha}
            rows |= {name: entries[name].prior.denoise(noisy, tau) for name in names}
            panels[0, column].set_title(f"σ = {sigma:.2f}", fontsize=9)
            for panel, (name, found) in zip(panels[:, column], rows.items(), strict=True):
                error = float((found - clean).square().mean()) ** 0.5
                label = name if column == 0 else ""
                _strip(panel, sets.pixels.values(found), sets.pixels.high, label)
                if name != "clean":
                    panel.text(1.01, 0.5, f"{error:.3f}", transform=panel.transAxes, fontsize=8)
        return figure

    def _report(
        self,
        protocol: dict[str, list[float]],
        chosen: dict[str, Entry],
        entries: dict[str, Entry],
        device: str,
    ) -> str:
        head = ["prior", *(f"τ = {tau:g}" for tau in PROTOCOL)]
        rows = [[name, *(f"{e:.4f}" for e in errors)] for name, errors in protocol.items()]
        wide = ["prior", *(f"{tau:g}" for tau in LEVELS)]
        orders = [
            [name, *(f"{e:.4f}" for e in entry.errors)]
            for name, entry in {**chosen, **entries}.items()
        ]
        costs = [
            [
                *(name, f"{entry.bits:.3f} ± {entry.bits_error:.3f}"),
                *(f"{entry.fit_seconds:.1f}", f"{entry.bits_seconds:.1f}"),
            ]
            for name, entry in entries.items()
        ]
        cost_head = ["prior", "bits per dimension", "fit [s]", "densities [s]"]
        priors = [entry.prior for entry in chosen.values()]
        knots = max(len(one.lines.curve.knots) for one in priors if isinstance(one, HermitePrior))
        return self.text(
            data=self.data,
            tested=f"{self.tested:,}",
            likelihoods=f"{self.likelihoods:,}",
            device=device,
            knots=knots,
            protocol=table(head, rows),
            chosen=table(wide, orders),
            bits=table(cost_head, costs),
        )


def _tile(panel: Axes, images: Tensor, high: int) -> Axes:
    """Show images with values up to ``high`` as a grid, and return the panel."""
    panel.imshow(image_grid(_bytes(images, high), columns=6, pad=1), cmap="gray")
    panel.set_axis_off()
    return panel


def _strip(panel: Axes, images: Tensor, high: int, label: str) -> None:
    panel.imshow(image_grid(_bytes(images, high), columns=len(images), pad=1), cmap="gray")
    panel.set(xticks=[], yticks=[])
    panel.spines[:].set_visible(False)
    panel.set_ylabel(label, rotation=0, ha="right", va="center", fontsize=8)


def _bytes(images: Tensor, high: int) -> np.ndarray:
    shown: np.ndarray = (images.float() * 255 / high).round().to(torch.uint8).cpu().numpy()
    return shown


STUDY = ClosedFormCifar
