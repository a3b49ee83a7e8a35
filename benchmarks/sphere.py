"""Densities on the sphere: held-out likelihood beside kernel density estimates.

    python benchmarks/sphere.py                      # known mixtures of von Mises-Fisher
    python benchmarks/sphere.py --data FOLDER        # also its tables
    python benchmarks/sphere.py --picture FILE.png   # only draws a fit to 2,000 points

FOLDER holds tables of latitude and longitude in degrees (comment lines and a header are skipped).
Each is split at random into 80% training, 10% validation (not used) and 10% test rows, five times.
Figures are mean negative log-likelihoods per steradian on the test rows; published ones were
measured on other splits.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from oism import OISM
from oism.plot import overview

PUBLISHED = {
    "flood": "RSGM .48, Moser flow .57, Riemannian CNF 1.11, Riemannian flow matching .42",
    "fire": "RSGM -1.33, Moser flow -1.28, Riemannian CNF -0.80, Riemannian flow matching -1.86",
}
WIDTHS = 10 ** torch.arange(0.5, 6.01, 0.25, dtype=torch.float64)
SUBSET = 2000
"""The rows whose leave-one-out likelihood chooses a width."""


def log_kernel(kappa: Tensor, apart: Tensor) -> Tensor:
    """Return the log-density of von Mises-Fisher for ⟨x, y⟩ - 1, with respect to area."""
    scale = torch.log(kappa / (2 * math.pi)) - torch.log(-torch.expm1(-2 * kappa))
    return scale + kappa * apart


def mixture_of(kappa: Tensor, apart: Tensor, count: int) -> Tensor:
    """Return the log of the mean of kernels."""
    return torch.logsumexp(log_kernel(kappa, apart), dim=1) - math.log(count)


def left_out(train: Tensor) -> Tensor:
    """Return ⟨x_i, x_j⟩ - 1 for some rows i and all j, -∞ for j = i."""
    shown = train[:SUBSET]
    apart = shown @ train.mT - 1
    apart[torch.arange(len(shown)), torch.arange(len(shown))] = -torch.inf
    return apart


def best_width(kappas: Tensor, shape: Tensor, apart: Tensor) -> Tensor:
    """Return κ · shape with the largest leave-one-out likelihood."""
    count = apart.shape[1] - 1
    scores = [float(mixture_of(kappa * shape, apart, count).mean()) for kappa in kappas]
    return kappas[int(np.argmax(scores))] * shape


def kernels(train: Tensor, test: Tensor) -> tuple[float, float]:
    """Return the figures of the fixed and of the adaptive (Abramson) estimate."""
    apart, ones = left_out(train), torch.ones(len(train), dtype=torch.float64)
    fixed = best_width(WIDTHS, ones, apart)
    pilot = torch.cat(
        [mixture_of(fixed, rows @ train.mT - 1, len(train)) for rows in torch.split(train, 1000)]
    )
    adaptive = best_width(WIDTHS, (pilot - pilot.mean()).exp(), apart)
    beside = test @ train.mT - 1
    found = [-mixture_of(kappa, beside, len(train)).mean() for kappa in (fixed, adaptive)]
    return float(found[0]), float(found[1])


def read(path: Path) -> np.ndarray:
    """Return the rows of numbers of a table."""
    rows = []
    for line in path.read_text().splitlines():
        try:
            rows.append([float(word) for word in line.split(",")[:2]])
        except ValueError:
            continue
    return np.array(rows)


def vectors(rows: np.ndarray) -> Tensor:
    """Return unit vectors of latitudes and longitudes in degrees."""
    latitude, longitude = np.radians(rows).T
    flat = np.cos(latitude)
    parts = (flat * np.cos(longitude), flat * np.sin(longitude), np.sin(latitude))
    return torch.from_numpy(np.stack(parts, axis=1))


def tables(folder: Path, splits: int) -> None:
    """Print the figures of all tables of a folder."""
    print("table   split  model    flow   kernels only  KDE     adaptive  seconds (CPU)")
    for path in sorted(folder.glob("*.csv")):
        rows, found = read(path), []
        for seed in range(splits):
            order, n = np.random.default_rng(seed).permutation(len(rows)), len(rows)
            train, test = rows[order[: int(0.8 * n)]], rows[order[int(0.9 * n) :]]
            start, busy = time.perf_counter(), time.process_time()
            model = OISM(sphere=(0, 1)).fit(train)
            wall, busy = time.perf_counter() - start, time.process_time() - busy
            x = vectors(test)
            flow = model.model_.flow_density(x)
            kept = model.model_.weights[2:]
            local = model.model_.kernels.log_densities(x) + (kept / kept.sum()).log()
            figures = (
                -model.score_samples(test).mean(),
                -float(flow.mean()),
                -float(torch.logsumexp(local, dim=1).mean()),
                *kernels(vectors(train), x),
            )
            found.append(figures)
            line = "  ".join(f"{one:7.3f}" for one in figures)
            print(f"{path.stem:<8}{seed:>5}  {line}   {wall:.0f} ({busy:.0f})", flush=True)
        mean, deviation = np.mean(found, axis=0), np.std(found, axis=0, ddof=min(1, splits - 1))
        line = "  ".join(f"{a:.3f} ± {b:.3f}" for a, b in zip(mean, deviation, strict=True))
        print(f"{path.stem:<8} mean  {line}")
        if path.stem in PUBLISHED:
            print(f"{path.stem:<8} published, other splits: {PUBLISHED[path.stem]}")


class Mixture:
    """A mixture of von Mises-Fisher distributions with random centres."""

    def __init__(self, seed: int, components: int = 8) -> None:
        self.source = torch.Generator().manual_seed(seed)
        draws = torch.randn(components, 3, generator=self.source, dtype=torch.float64)
        self.centres = draws / draws.norm(dim=1, keepdim=True)
        self.kappa = 10 ** (1 + 1.5 * torch.rand(components, generator=self.source).double())

    def sample(self, n: int) -> Tensor:
        """Return n points."""
        source = self.source
        part = torch.randint(len(self.kappa), (n,), generator=source)
        centre, kappa = self.centres[part], self.kappa[part]
        u, turn = torch.rand(2, n, generator=source, dtype=torch.float64)
        depth = -torch.log1p(u * torch.expm1(-2 * kappa)) / kappa
        axis = torch.eye(3, dtype=torch.float64)[centre.abs().argmin(dim=1)]
        first = torch.linalg.cross(centre, axis)
        first = first / first.norm(dim=1, keepdim=True)
        second, turn = torch.linalg.cross(centre, first), 2 * math.pi * turn[:, None]
        across = (depth * (2 - depth)).sqrt()[:, None]
        direction = turn.cos() * first + turn.sin() * second
        moved: Tensor = (1 - depth)[:, None] * centre + across * direction
        return moved

    def log_density(self, x: Tensor) -> Tensor:
        """Return the log-density with respect to area."""
        return mixture_of(self.kappa, x @ self.centres.mT - 1, len(self.kappa))


def mixtures(seeds: int) -> None:
    """Print Kullback-Leibler divergences from known mixtures."""
    print("points  seed   model   KDE    adaptive  ratio to KDE")
    for count in (1000, 4000):
        ratios = []
        for seed in range(seeds):
            law = Mixture(seed)
            train, test = law.sample(count), law.sample(4000)
            truth = float(law.log_density(test).mean())
            own = truth - OISM(sphere=(0, 1, 2)).fit(train.numpy()).score_samples(test).mean()
            fixed, adaptive = (truth + figure for figure in kernels(train, test))
            ratios.append(own / fixed)
            print(f"{count:<8}{seed:<7}{own:.4f}  {fixed:.4f}  {adaptive:.4f}  {own / fixed:.2f}")
        print(f"{count:<8}mean ratio {np.mean(ratios):.2f}", flush=True)


def picture(path: Path) -> None:
    """Draw a fit to points along a wave around the equator and in three small regions."""
    source = np.random.default_rng(0)
    longitude = source.uniform(-180, 180, 1700)
    latitude = 20 * np.sin(np.radians(3 * longitude)) + 3.5 * source.normal(size=1700)
    centres = np.repeat([[52.0, -90.0], [60.0, 75.0], [-48.0, 60.0]], 100, axis=0)
    local = centres + source.normal(size=(300, 2)) * [1.0, 2.0]
    rows = np.concatenate((np.stack((latitude, longitude), axis=1), local))
    model = OISM(sphere=(0, 1)).fit(rows)
    print(model.summary())
    start = time.perf_counter()
    overview(model, rows).savefig(path, dpi=150)
    print(f"{time.perf_counter() - start:.0f} s to draw")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--picture", type=Path)
    arguments = parser.parse_args()
    if arguments.picture is not None:
        picture(arguments.picture)
        return
    if arguments.seeds:
        mixtures(arguments.seeds)
    if arguments.data is not None:
        tables(arguments.data, arguments.splits)


if __name__ == "__main__":
    main()
