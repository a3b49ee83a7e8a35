"""Densities of rotations with a known truth: `fit_rotations` against a kernel density estimate.

Data are drawn from mixtures of isotropic Gaussians on SO(3), the transition densities of Brownian
motion, with random centres, widths and weights: one mixture for each seed. `fit_rotations` has a
part of nearly this form, so ``--fibres`` draws what no few isotropic components describe: axial
textures, in which the image of the z axis has such a mixture on the sphere and the turn around it
is uniform.
Likelihoods are with respect to the Haar measure of mass 1, so the uniform distribution has 0.

The kernel of the KDE is de la Vallée Poussin's, K(ω) ∝ cos(ω/2)^{2κ} for the angle ω between two
rotations, the usual one for orientations. Its κ is chosen from 24 values by the likelihood of 2,000
training rotations, each left out of the estimate. "KDE + uniform" has a uniform component of weight
1/(n + 1). Nothing is chosen on test points.

    python benchmarks/rotations.py
    python benchmarks/rotations.py --components 8 --widths 10 30
    python benchmarks/rotations.py --components 3 --widths 10 30 --fibres
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

import torch
import tyro
from torch import Tensor

from oism.process import Process, Rotations, Sphere
from oism.tables import fit_rotations

CHOICE = 2000
"""The number of training rotations by whose likelihood the KDE's κ is chosen."""

BLOCK = 2**22
"""The number of pairs at a time."""


@dataclass(frozen=True)
class Options:
    """Compare densities of rotations."""

    points: int = 10_000
    """The number of training rotations."""
    tested: int = 5000
    """The number of test rotations."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """One mixture and one sample for each."""
    components: int = 5
    """The number of Gaussians of a mixture."""
    widths: tuple[float, float] = (20.0, 40.0)
    """The least and largest standard deviation of each entry of the rotation vector, in degrees."""
    fibres: bool = False
    """Whether the mixture is one of axial textures."""
    degree: int = 16
    """The largest degree of the Wigner functions."""
    figure: Path | None = None
    """Where to draw training rotations and samples of the first seed."""
    json: Path | None = None
    """Where to write the records."""


@dataclass(frozen=True)
class Mixture:
    """Isotropic Gaussians on SO(3): unit quaternions ``(k, 4)``, times and weights ``(k,)``."""

    process: ClassVar[Process] = Rotations()
    dim: ClassVar[int] = 4
    centres: Tensor
    times: Tensor
    weights: Tensor

    @classmethod
    def random(cls, options: Options, generator: torch.Generator) -> Mixture:
        """Return a mixture with random centres, widths and weights."""
        count = options.components
        shape = (count, cls.dim)
        centres = cls.process.invariant.sample(shape, generator=generator, dtype=torch.float64)
        low, high = (math.radians(width) for width in options.widths)
        sigma = low * (high / low) ** torch.rand(count, generator=generator).double()
        raw = -torch.rand(count, generator=generator).double().log() + 0.2
        return cls(centres, 0.5 * sigma.square(), raw / raw.sum())

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Return n unit quaternions."""
        k = torch.multinomial(self.weights, n, replacement=True, generator=generator)
        return self.process.transition(self.times[k]).sample(self.centres[k], generator=generator)

    def log_density(self, q: Tensor) -> Tensor:
        """Return the exact log-density with respect to the Haar measure."""
        parts = [
            weight.log() + self.process.transition(t).log_density(q, centre.expand_as(q))
            for centre, t, weight in zip(self.centres, self.times, self.weights, strict=True)
        ]
        return torch.logsumexp(torch.stack(parts), dim=0)


class Fibres(Mixture):
    """Axial textures: Gaussians of the image of the z axis, centres ``(k, 3)``; uniform turns."""

    process: ClassVar[Process] = Sphere()
    dim: ClassVar[int] = 3

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Return n unit quaternions."""
        x, y, z = super().sample(n, generator).unbind(dim=1)
        half, longitude = 0.5 * torch.atan2(torch.hypot(x, y), z), torch.atan2(y, x)
        turn = 2 * math.pi * torch.rand(n, generator=generator, dtype=torch.float64)
        one = torch.polar(half.cos(), 0.5 * (longitude + turn))
        two = torch.polar(half.sin(), 0.5 * (longitude - turn))
        return torch.stack((one.real, -two.imag, two.real, one.imag), dim=1)

    def log_density(self, q: Tensor) -> Tensor:
        """Return the exact log-density with respect to the Haar measure."""
        w, x, y, z = q.unbind(dim=1)
        axis = (2 * (x * z + w * y), 2 * (y * z - w * x), w * w - x * x - y * y + z * z)
        return super().log_density(torch.stack(axis, dim=1)) + math.log(4 * math.pi)


class KDE:
    """Kernels cos(ω/2)^{2κ} with a chosen κ."""

    candidates = torch.logspace(math.log10(4), 4, 24, dtype=torch.float64)

    def __init__(self, q: Tensor) -> None:
        self._q = q
        rows = torch.randperm(len(q), generator=torch.Generator().manual_seed(0))[:CHOICE]
        found = self._log_sums(q[rows], self.candidates, leave=rows)
        self.kappa = self.candidates[int(found.mean(dim=1).argmax())]

    def _log_sums(self, x: Tensor, kappas: Tensor, leave: Tensor | None = None) -> Tensor:
        """Return the log-densities ``(len(kappas), n)``, without the rows ``leave`` themselves."""
        # ∫ cos(ω/2)^{2κ} over the Haar measure is Γ(κ + ½)/(√π Γ(κ + 2))
        scale = torch.lgamma(kappas + 2) - torch.lgamma(kappas + 0.5) + 0.5 * math.log(math.pi)
        count, step = len(self._q) - (leave is not None), max(1, BLOCK // len(self._q))
        out = []
        for start in range(0, len(x), step):
            log = (x[start : start + step] @ self._q.mT).square_().clamp_(1e-300, 1.0).log_()
            if leave is not None:
                own = leave[start : start + step]
                log[torch.arange(len(own)), own] = -math.inf
            out.append(torch.stack([torch.logsumexp(kappa * log, dim=1) for kappa in kappas]))
        return torch.cat(out, dim=1) + scale[:, None] - math.log(count)

    def log_density(self, x: Tensor, *, background: bool = False) -> Tensor:
        """Return the log-density, with a uniform component of weight 1/(n + 1) if asked for."""
        found = self._log_sums(x, self.kappa[None])[0]
        if not background:
            return found
        share = 1 / (len(self._q) + 1)
        return torch.logaddexp(found + math.log1p(-share), torch.full_like(found, math.log(share)))


@dataclass
class Record:
    """The negative log-likelihoods of one seed, per test rotation, and seconds."""

    seed: int
    truth: float
    oism: float
    oism_error: float
    kde: float
    kde_uniform: float
    kappa: float
    fit_seconds: float
    density_seconds: float
    kde_seconds: float
    mass: float


def draw(path: Path, panels: dict[str, Tensor]) -> None:
    """Write a map of the images of the z axis, coloured by the third Euler angle."""
    import matplotlib.pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(
        1, len(panels), figsize=(11, 3.2), subplot_kw={"projection": "mollweide"}
    )
    for ax, (name, q) in zip(axes, panels.items(), strict=True):
        w, x, y, z = q.unbind(dim=1)
        tilt = 2 * torch.atan2(torch.hypot(x, y), torch.hypot(w, z))  # Euler's β, α and γ
        first, second = torch.atan2(z, w), torch.atan2(-x, y)
        longitude = torch.remainder(first + second + math.pi, 2 * math.pi) - math.pi
        turn = torch.remainder(first - second, 2 * math.pi)
        ax.scatter(longitude, math.pi / 2 - tilt, c=turn, s=3, cmap="twilight", vmin=0, vmax=6.2832)
        ax.set_title(name, fontsize=10)
        ax.set_xticklabels([])
        ax.set_yticklabels([])
        ax.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def run(options: Options, seed: int) -> Record:
    """Return the record of one seed."""
    generator = torch.Generator().manual_seed(seed)
    mixture = (Fibres if options.fibres else Mixture).random(options, generator)
    train, test = (mixture.sample(n, generator) for n in (options.points, options.tested))
    truth = mixture.log_density(test)
    start = time.perf_counter()
    model = fit_rotations(train, degree=options.degree, progress=False)
    fitted = time.perf_counter()
    found = model.log_density(test)
    evaluated = time.perf_counter()
    kde = KDE(train)
    plain, mixed = kde.log_density(test), kde.log_density(test, background=True)
    finished = time.perf_counter()
    if options.figure and seed == options.seeds[0]:
        shown = min(2000, options.points)
        samples = model.sample(shown, random_state=0)
        draw(options.figure, {f"{shown:,} data": train[:shown], f"{shown:,} samples": samples})
    # ∫ρ dH = E[ρ/p] under p, with the truth as p
    mass = float((found - truth).exp().mean())
    gap = truth - found
    return Record(
        seed=seed,
        truth=-float(truth.mean()),
        oism=-float(found.mean()),
        oism_error=float(gap.std() / math.sqrt(len(gap))),
        kde=-float(plain.mean()),
        kde_uniform=-float(mixed.mean()),
        kappa=float(kde.kappa),
        fit_seconds=fitted - start,
        density_seconds=evaluated - fitted,
        kde_seconds=finished - evaluated,
        mass=mass,
    )


def main(options: Options) -> None:
    """Print one row for each seed, and means."""
    print(
        f"{options.points:,} rotations of {options.components} "
        f"{'axial textures' if options.fibres else 'isotropic Gaussians'} of "
        f"{options.widths[0]:g}° to {options.widths[1]:g}°, degree ≤ {options.degree}; NLL of "
        f"{options.tested:,} test rotations with respect to the Haar measure"
    )
    print("seed   truth    oism  above truth     KDE  KDE + uniform     κ  mass  fit s  KDE s")
    records = []
    for seed in options.seeds:
        r = run(options, seed)
        records.append(r)
        print(
            f"{seed:4d} {r.truth:7.3f} {r.oism:7.3f} {r.oism - r.truth:6.3f} ± {r.oism_error:.3f}"
            f" {r.kde:7.3f} {r.kde_uniform:14.3f} {r.kappa:5.0f} {r.mass:5.3f}"
            f" {r.fit_seconds:6.1f} {r.kde_seconds:6.1f}",
            flush=True,
        )
    above = [sum(getattr(r, name) - r.truth for r in records) / len(records)
             for name in ("oism", "kde", "kde_uniform")]  # fmt: skip
    print(
        f"mean above truth: oism {above[0]:.4f}, KDE {above[1]:.4f}, KDE + uniform {above[2]:.4f}"
    )
    if options.json:
        text = json.dumps({"records": [asdict(record) for record in records]}, indent=1)
        options.json.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(tyro.cli(Options))
