"""Fits, densities and samples on a GPU, compared with the CPU: seconds and log-likelihoods.

Three tasks: the default fit of 10,000 rows in the plane; that of three columns with 10,130
functions; and a million densities in the plane. The first fit of a process also loads libraries and
plans transforms; the median time of ``REPEATS`` later ones is compared with the goal.
Where FINUFFT is installed, which fits on the CPU need, held-out log-likelihoods of both devices are
compared: they agree to the tolerance of the solvers.

    PYTHONPATH=src python benchmarks/device.py --out device.json

Stops by itself after ``--seconds``; the tasks that are left are marked as skipped. Needs torch,
NumPy, SciPy, scikit-learn and torchdiffeq, and not tyro.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib.util
import json
import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from oism.tables import OISM

Array = np.ndarray[Any, Any]

GOALS = {"plane": 0.4, "space": 5.0, "densities": 2.0}
"""Seconds on one H200."""

REPEATS = 5
"""The number of fits that are timed, after the first."""

SPACE_BOUND = 180.0
"""The largest ‖ξ‖² of the 10,130 functions of three columns."""


def plane(n: int, seed: int) -> Array:
    """Return rows of two half moons with noise."""
    rng = np.random.default_rng(seed)
    angle, upper = math.pi * rng.random(n), rng.random(n) < 0.5
    x = np.where(upper, np.cos(angle), 1 - np.cos(angle))
    y = np.where(upper, np.sin(angle), 0.5 - np.sin(angle))
    return np.column_stack((x, y)) + 0.1 * rng.normal(size=(n, 2))


def space(n: int, seed: int) -> Array:
    """Return the same rows with a third column that depends on the first."""
    flat, noise = plane(n, seed), np.random.default_rng(seed + 1).normal(size=n)
    return np.column_stack((flat, np.sin(2 * flat[:, 0]) + 0.3 * noise))


def seconds(work: Callable[[], object], device: str) -> float:
    """Return the time of some work, including all kernels that it starts."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - start


def fitted(rows: Array, device: str, **settings: object) -> tuple[OISM, float]:
    """Return a model and the seconds of its fit."""
    model = OISM(device=device, **settings)  # type: ignore[arg-type]
    return model, seconds(lambda: model.fit(rows).model_, device)


def compare_fit(
    draw: Callable[[int, int], Array], device: str, n: int, **settings: object
) -> Iterator[dict[str, float]]:
    """Yield seconds and the held-out log-likelihood of a fit on a device, and then on the CPU."""
    train, test = draw(n, 0), draw(2000, 1)
    _, first = fitted(train, device, **settings)
    again = [fitted(train, device, **settings) for _ in range(REPEATS)]
    model, took = again[-1][0], statistics.median(spent for _, spent in again)
    mean = float(model.score_samples(test).mean())
    functions = model.model_.operator_score.basis.size
    yield {"functions": functions, "first_seconds": first, "seconds": took, "loglik": mean}
    yield {"least_seconds": min(spent for _, spent in again)}
    if importlib.util.find_spec("finufft") is None:
        return
    other, slow = fitted(train, "cpu", **settings)
    expected = float(other.score_samples(test).mean())
    yield {"cpu_seconds": slow, "cpu_loglik": expected, "difference": abs(mean - expected)}


def densities(device: str, n: int, many: int) -> Iterator[dict[str, float]]:
    """Yield the seconds of many densities in the plane, and their difference from the CPU's."""
    model, _ = fitted(plane(n, 0), device)
    own = model.model_
    x = torch.from_numpy(plane(many, 1))
    near = x.to(device)
    own.log_density(near[:1000])
    found: list[torch.Tensor] = []
    took = seconds(lambda: found.append(own.log_density(near)), device)
    again = seconds(lambda: own.sample(min(many, 100_000)), device)
    yield {"count": many, "seconds": took, "sample_seconds": again}
    exact = own.to("cpu").log_density(x[:1000])
    yield {"difference": float((found[0][:1000].cpu() - exact).abs().max())}


def main() -> None:
    """Run the tasks and write their results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="the JSON file of the results")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--many", type=int, default=1_000_000)
    parser.add_argument("--bound", type=float, default=SPACE_BOUND)
    parser.add_argument("--seconds", type=float, default=120.0, help="when to stop")
    arguments = parser.parse_args()
    faulthandler.dump_traceback_later(arguments.seconds, exit=True)
    warnings.simplefilter("ignore", UserWarning)
    device, rows = arguments.device, arguments.rows
    tasks: dict[str, Callable[[], Iterator[dict[str, float]]]] = {
        "plane": lambda: compare_fit(plane, device, rows),
        "densities": lambda: densities(device, rows, arguments.many),
        "space": lambda: compare_fit(space, device, rows, max_eigenvalue=arguments.bound),
    }
    results: dict[str, Any] = {"device": device, "torch": torch.__version__}
    if device.startswith("cuda"):
        results["name"] = torch.cuda.get_device_name()
    for name, task in tasks.items():
        results[name] = {"goal": GOALS[name]}
        try:
            for part in task():
                results[name] |= part
                arguments.out.write_text(json.dumps(results, indent=1))
        except Exception as error:  # the other tasks are of use
            results[name]["error"] = f"{type(error).__name__}: {error}"
            arguments.out.write_text(json.dumps(results, indent=1))
        print(name, json.dumps(results[name]), flush=True)
    faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main()
