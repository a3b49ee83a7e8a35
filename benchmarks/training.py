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

import torch
from prior import images
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from oism.basis import Hermite, IdentityFrame
from oism.clock import Logarithmic
from oism.nn import DDPMpp, OperatorInformed
from oism.objectives import DenoisingScoreMatching, UniformLogSNR
from oism.prior import HermitePrior, Law, learn_law, prior_of
from oism.solve import HermiteSystem
from oism.training.data import Rows
from oism.training.loop import Loop, compile_parts, engine
from oism.training.settings import Training

RIDGE = 1e-3


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


def loop_of(predictor: nn.Module, rows: Rows, settings: Training, noising: object) -> Loop:
    objective = DenoisingScoreMatching(UniformLogSNR(noising))  # type: ignore[arg-type]
    return Loop(predictor, rows, objective, settings, engine())


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
    side = 8 if arguments.small else 32
    data = images(arguments.images, device, side)
    sizes = {"width": 16, "multipliers": (1, 2), "blocks": 1} if arguments.small else {}
    rows = Rows(data)
    pixel_law = learn_law(data, order=6, frame=IdentityFrame(), folds=1)
    pca_law = learn_law(data, order=4, folds=1)
    pca, pixel = (
        prior_of(pca_law, order=2, ridge=RIDGE),
        prior_of(pixel_law, order=6, ridge=RIDGE),
    )
    noising = pca.noising
    on_device = device.type == "cuda"
    plain = Training(batch=arguments.batch)
    fast = replace(plain, precision="bf16", compile=on_device)
    by_hand = replace(fast, compile=False)  # solves wait for the device, which no recording may
    shape = data.shape[1:]

    def net(extra: int = 0, kind: type[DDPMpp] = DDPMpp) -> DDPMpp:
        torch.manual_seed(0)
        return kind(shape, extra=extra, **sizes)  # type: ignore[arg-type]

    flat = net(kind=Plain).to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    predictors: dict[str, tuple[nn.Module, Training]] = {
        "plain": (flat, plain),
        "fast, nothing compiled": (net(), replace(fast, compile=False)),
        "fast": (net(), fast),
        "fast, gated PCA of order 2": (OperatorInformed(net(3), pca), fast),
        "fast, gated PCA of order 4": (
            OperatorInformed(net(3), prior_of(pca_law, order=4, ridge=RIDGE)), fast,
        ),
        "fast, pixels of order 6": (OperatorInformed.paper(net(), pixel), fast),
        "pixels of order 6, not recorded": (OperatorInformed.paper(net(), pixel), by_hand),
        "pixels of order 6, not recorded, solved in every step": (
            OperatorInformed.paper(net(), solved(pixel_law, 6)), by_hand,
        ),
    }  # fmt: skip
    loops, compiling = {}, {}
    for name, (predictor, settings) in predictors.items():
        start = time.perf_counter()
        loops[name] = loop_of(predictor, rows, settings, noising)
        if settings is by_hand and on_device:
            compile_parts(predictor)
        for _ in range(3):
            loops[name].step()
        wait()
        compiling[name] = time.perf_counter() - start
        print(f"{name}: ready after {compiling[name]:.1f} s", flush=True)
    batch = loops["plain"].draws.step(0)
    with FlopCounterMode(display=False) as counter:
        loops["plain"].differentiate(batch)
    work = counter.get_total_flops()
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
