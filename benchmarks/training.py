"""What a training step costs: the network alone, with a prior beside it, plain and fast.

The network is DDPM++ for CIFAR-10; images are correlated noise of that size, on the device. Every
step is that of `oism.training`: draws, noising, prediction, gradients, clipping, Adam, average. In
one run and by turns, so that a busy host disturbs all alike:

    plain        float32 as PyTorch comes, channels first, nothing compiled
    fast         bfloat16, channels last, blocks compiled, the step recorded, fused Adam
    fast, prior  the same around a prior: tabulated, or with its systems solved in every step

Rows say milliseconds (median), the ratio to the fast network alone, and the share of the rate that
one large product of bfloat16 matrices reaches in the same run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import replace
from typing import Any

import torch
from prior import images
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from oism.basis import Hermite, IdentityFrame
from oism.clock import Logarithmic, Noising, VariancePreserving
from oism.nn import DDPMpp, OperatorInformed
from oism.objectives import DenoisingScoreMatching, UniformLogSNR
from oism.prior import HermitePrior, Law, learn_law, prior_of
from oism.process import OrnsteinUhlenbeck
from oism.solve import HermiteSystem
from oism.training.data import Rows
from oism.training.loop import Loop, compile_parts, engine
from oism.training.settings import Training

RIDGE = 1e-3
BY_HAND = "pixels of order 6, not recorded"


class Plain(DDPMpp):
    """The same network in channels-first layout."""

    def _entered(self, x: Tensor) -> Tensor:
        found: Tensor = self.enter(x.contiguous())
        return found


class Solved(nn.Module):
    """Coefficients that are solved for whenever they are asked for, instead of looked up."""

    def __init__(self, law: Law, order: int, table: Logarithmic) -> None:
        super().__init__()
        self.system = HermiteSystem(Hermite(len(law.mean), order), law.standard)
        self.table, self.values = table, torch.empty(1, len(law.mean), order)

    def forward(self, tau: Tensor) -> Tensor:
        """Return the coefficients at times of the table."""
        t, count = self.table._time(tau), len(self.values[0])
        ridge = torch.full((len(t), count), RIDGE, dtype=torch.float64, device=t.device)
        level = torch.zeros_like(ridge)
        parts = self.system._pieces(t, 1)
        return torch.cat([self.system._solve(t[p], ridge[p], level[p]) for p in parts])


def solved(law: Law, order: int) -> HermitePrior:
    """Return a prior whose systems are solved in every step."""
    prior = prior_of(law, order=order, ridge=RIDGE)
    assert isinstance(prior.lines.clock, Logarithmic)
    prior.lines.curve = Solved(law, order, prior.lines.clock)  # type: ignore[assignment]
    return prior


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def timed(loops: dict[str, Loop], rounds: int, steps: int) -> dict[str, float]:
    """Return the median seconds of a step of each loop, taken by turns."""
    found: dict[str, list[float]] = {name: [] for name in loops}
    for _ in range(rounds):
        for name, loop in loops.items():
            wait()
            start = time.perf_counter()
            for _ in range(steps):
                loop.step()
            wait()
            found[name].append((time.perf_counter() - start) / steps)
    return {name: statistics.median(times) for name, times in found.items()}


def matrix_rate(device: torch.device, size: int) -> float:
    """Return the floating-point operations a second of one large product."""
    a = torch.randn(size, size, device=device, dtype=torch.bfloat16)
    times = []
    for _ in range(20):
        wait()
        start = time.perf_counter()
        a @ a
        wait()
        times.append(time.perf_counter() - start)
    return 2 * size**3 / statistics.median(times)


def predictors(
    data: Tensor, sizes: dict[str, Any], settings: Training
) -> dict[str, tuple[nn.Module, Training]]:
    """Return what is trained, and how."""
    plain = replace(settings, precision="no", compile=False)
    by_hand = replace(settings, compile=False)  # solves wait for the device, which no recording may
    pixel_law = learn_law(data, order=6, frame=IdentityFrame(), folds=1)
    pca_law = learn_law(data, order=4, folds=1)
    pixel = prior_of(pixel_law, order=6, ridge=RIDGE)
    two, four = (prior_of(pca_law, order=order, ridge=RIDGE) for order in (2, 4))
    shape = data.shape[1:]

    def net(extra: int = 0, kind: type[DDPMpp] = DDPMpp) -> DDPMpp:
        torch.manual_seed(0)
        return kind(shape, extra=extra, **sizes)

    flat = net(kind=Plain).to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    return {
        "plain": (flat, plain),
        "fast, nothing compiled": (net(), by_hand),
        "fast": (net(), settings),
        "fast, gated PCA of order 2": (OperatorInformed(net(3), two), settings),
        "fast, gated PCA of order 4": (OperatorInformed(net(3), four), settings),
        "fast, pixels of order 6": (OperatorInformed.paper(net(), pixel), settings),
        BY_HAND: (OperatorInformed.paper(net(), pixel), by_hand),
        f"{BY_HAND}, solved in every step": (
            OperatorInformed.paper(net(), solved(pixel_law, 6)), by_hand,
        ),
    }  # fmt: skip


def loop_of(predictor: nn.Module, rows: Rows, settings: Training, *, cpu: bool) -> Loop:
    noising = Noising(OrnsteinUhlenbeck(), VariancePreserving())
    objective = DenoisingScoreMatching(UniformLogSNR(noising))
    return Loop(predictor, rows, objective, settings, engine(cpu=cpu))


def ready(
    parts: dict[str, tuple[nn.Module, Training]], rows: Rows
) -> tuple[dict[str, Loop], dict[str, float]]:
    """Return loops that have taken a few steps, and the seconds after which they had."""
    loops, spent = {}, {}
    cpu = rows.device.type == "cpu"
    for name, (predictor, settings) in parts.items():
        start = time.perf_counter()
        loops[name] = loop_of(predictor, rows, settings, cpu=cpu)
        if name.startswith(BY_HAND) and not cpu:
            compile_parts(predictor)
        for _ in range(3):
            loops[name].step()
        wait()
        spent[name] = time.perf_counter() - start
        print(f"{name}: ready after {spent[name]:.1f} s", flush=True)
    return loops, spent


def work_of(loop: Loop) -> int:
    """Return the floating-point operations of a step."""
    with FlopCounterMode(display=False) as counter:
        loop.differentiate(loop.draws.step(0))
    return int(counter.get_total_flops())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="a small network of small images")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    on_device = device.type == "cuda"
    data = images(arguments.images, device, 8 if arguments.small else 32)
    sizes = {"width": 16, "multipliers": (1, 2), "blocks": 1} if arguments.small else {}
    fast = Training(batch=arguments.batch, precision="bf16", compile=on_device)
    loops, compiling = ready(predictors(data, sizes, fast), Rows(data))
    work = work_of(loops["plain"])
    slow = {n: loops[n] for n in loops if n == "plain" or "not " in n}
    found = timed(
        {n: one for n, one in loops.items() if n not in slow}, arguments.rounds, arguments.steps
    )
    found |= timed(slow, max(1, arguments.rounds // 4), arguments.steps)
    rate = matrix_rate(device, 8192 if on_device else 512)
    print(f"{work / 1e12:.2f} T operations a step; matrices at {rate / 1e12:.0f} T/s")
    for name in loops:
        spent = found[name]
        print(
            f"{name:<56}{1000 * spent:9.2f} ms{spent / found['fast']:9.3f}"
            f"{work / spent / rate:9.1%} of the matrix rate"
        )
    if arguments.json:
        told = {
            "seconds": found,
            "ready": compiling,
            "operations": work,
            "matrix_rate": rate,
            "batch": arguments.batch,
            "device": torch.cuda.get_device_name() if on_device else "cpu",
        }
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(told, file, indent=1)


if __name__ == "__main__":
    main()
