"""The time of a training step: a network alone, with a prior, plain and fast.

Every step is one of `oism.training.Loop`: random draws, noising, prediction, gradients, clipping,
Adam, average weights. All are timed in one run and in turn, so that other load affects all alike:
first the fast ones, then, in a quarter of the rounds, the slow ones:

    plain       float32 with PyTorch's defaults, convolutions in TF32 on a GPU that has it, channels
                first, nothing compiled
    fast        bfloat16, channels last, compiled blocks, the step recorded as a CUDA graph, fused
                Adam
    with prior  the same with a prior: tabulated, or with its systems solved in every step

Systems cannot be solved in a recorded step, because a solve waits for the device to check its
success. The step with solves is compared with one that is not recorded either.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from oism.estimation import HermiteEquations
from oism.flow import Pixels
from oism.images import HermitePrior, ImageStatistics, prior_from_statistics
from oism.nn import DDPMpp, OperatorInformed, compile_blocks, unet_for
from oism.objectives import DenoisingScoreMatching, UniformLogSNR
from oism.process import Clock, Noising, OrnsteinUhlenbeck, VariancePreserving
from oism.score import Coordinates
from oism.training import Loop, Rows, TrainingConfig
from studies.study import versions, write_json

RIDGE = 1e-3
PRODUCT = 8192
WARM_UPS = 3

PLAIN, EAGER, FAST = "plain", "half precision, nothing compiled", "fast"
"""The names of the rows without a prior."""


def channels_first(net: DDPMpp) -> DDPMpp:
    """Return the network with channels first from its first block on."""
    net.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    net.down[0].register_forward_pre_hook(lambda _, inputs: (inputs[0].contiguous(), *inputs[1:]))
    return net


class SolvedCurve(nn.Module):
    """Coefficients that are solved at every call, instead of interpolated."""

    def __init__(self, found: ImageStatistics, order: int, clock: Clock) -> None:
        super().__init__()
        standard = found.standard
        coordinates = Coordinates(OrnsteinUhlenbeck(), standard.shift, standard.scale)
        self.equations = HermiteEquations(order, coordinates, standard.averages.total)
        degree = torch.arange(1, order + 1, dtype=torch.float64, device=standard.scale.device)
        self.penalty = torch.diag(RIDGE * torch.where(degree > 2, degree.square(), 0.0))
        self.clock, self.values = clock, torch.empty(1, len(standard.scale), order)

    def forward(self, tau: Tensor) -> Tensor:
        """Return α at clock times ``(n,)``: ``(n, dim, order)``."""
        matrix, right = self.equations.at(self.clock.time(tau))
        alpha: Tensor = torch.linalg.solve(matrix + self.penalty, -right)
        return alpha


def solved(found: ImageStatistics, order: int) -> HermitePrior:
    """Return a prior whose systems are solved in every call."""
    prior = prior_from_statistics(found, order=order, ridge=RIDGE)
    prior.lines.curve = SolvedCurve(found, order, prior.lines.clock)  # type: ignore[assignment]
    return prior


@dataclass(frozen=True)
class Times:
    """Median seconds of a step by name, of preparation, work of a step, device and versions."""

    seconds: dict[str, float]
    ready: dict[str, float]
    operations: float
    matrix_rate: float
    device: str = "CPU"
    versions: dict[str, str] = field(default_factory=versions)

    def ratio(self, name: str, other: str = FAST) -> float:
        """Return the time of a step divided by that of another."""
        return self.seconds[name] / self.seconds[other]

    def share(self, name: str) -> float:
        """Return the rate of operations of a step, divided by that of one large matrix product."""
        return self.operations / self.seconds[name] / self.matrix_rate


def step_times(  # noqa: PLR0913
    data: Tensor,
    found: Mapping[str, ImageStatistics],
    sizes: Mapping[str, Any],
    *,
    pixels: Pixels | None = None,
    batch: int = 128,
    rounds: int = 8,
    steps: int = 5,
) -> Times:
    """Return the times of steps on images ``(n, *shape)`` of bytes, on the device of accelerate.

    ``found`` has the statistics of "pixels" up to order 6 and of "PCA" up to order 4. ``sizes`` are
    those of the network.
    """
    loops, ready = _loops(Rows(data, pixels), found, sizes, batch)
    with FlopCounterMode(display=False) as counter:
        loops[PLAIN].step()
    slow = {name for name in loops if name in (PLAIN, EAGER) or "not recorded" in name}
    fast = {name: loop for name, loop in loops.items() if name not in slow}
    seconds = timed(fast, rounds, steps)
    seconds |= timed({name: loops[name] for name in slow}, slow_rounds(rounds), steps)
    rate = matrix_rate(loops[PLAIN].device)
    ordered = {name: seconds[name] for name in loops}
    return Times(ordered, ready, float(counter.get_total_flops()), rate, _device())


def slow_rounds(rounds: int) -> int:
    """Return the number of rounds of slow steps, given that of fast ones."""
    return max(1, rounds // 4)


def _loops(
    rows: Rows, found: Mapping[str, ImageStatistics], sizes: Mapping[str, Any], batch: int
) -> tuple[dict[str, Loop], dict[str, float]]:
    on_device = torch.cuda.is_available()
    plain = TrainingConfig(batch=batch)
    fast = replace(plain, precision="bf16", compile=on_device)
    by_hand = replace(fast, compile=False)

    def net() -> DDPMpp:
        torch.manual_seed(0)
        return unet_for(rows.shape, **sizes)

    def paper(order: int) -> OperatorInformed:
        prior = prior_from_statistics(found["pixels"], order=order, ridge=RIDGE)
        return OperatorInformed.paper(net(), prior)

    def residual(order: int) -> OperatorInformed:
        return OperatorInformed(
            net(), prior_from_statistics(found["PCA"], order=order, ridge=RIDGE)
        )

    predictors: dict[str, tuple[nn.Module, TrainingConfig]] = {
        PLAIN: (channels_first(net()), plain),
        EAGER: (net(), by_hand),
        FAST: (net(), fast),
        "fast, OISM(3)": (paper(3), fast),
        "fast, OISM(6)": (paper(6), fast),
        "fast, residual of PCA, order 2": (residual(2), fast),
        "fast, residual of PCA, order 4": (residual(4), fast),
        "compiled, not recorded": (net(), by_hand),
        "compiled, not recorded, OISM(3)": (paper(3), by_hand),
        "compiled, not recorded, OISM(6)": (paper(6), by_hand),
    }
    for order in (3, 6):
        exact = OperatorInformed.paper(net(), solved(found["pixels"], order))
        name = f"compiled, not recorded, OISM({order}), solved in every step"
        predictors[name] = (exact, by_hand)
    loops, ready = {}, {}
    noising = Noising(OrnsteinUhlenbeck(), VariancePreserving())
    objective = DenoisingScoreMatching(UniformLogSNR(noising))
    for name, (predictor, config) in predictors.items():
        start = time.perf_counter()
        if name.startswith("compiled") and on_device:
            compile_blocks(predictor)
        loops[name] = Loop(predictor, rows, objective, config)
        for _ in range(WARM_UPS):
            loops[name].step()
        _wait()
        ready[name] = time.perf_counter() - start
    return loops, ready


def timed(loops: Mapping[str, Loop], rounds: int, steps: int) -> dict[str, float]:
    """Return the median seconds of a step of each loop, measured in turn."""
    found: dict[str, list[float]] = {name: [] for name in loops}
    for _ in range(rounds):
        for name, loop in loops.items():
            _wait()
            start = time.perf_counter()
            for _ in range(steps):
                loop.step()
            _wait()
            found[name].append((time.perf_counter() - start) / steps)
    return {name: statistics.median(times) for name, times in found.items()}


def matrix_rate(device: torch.device) -> float:
    """Return the floating-point operations per second of one large product in bfloat16."""
    size = PRODUCT if device.type == "cuda" else 256
    a = torch.randn(size, size, device=device, dtype=torch.bfloat16)
    times = []
    for _ in range(20):
        _wait()
        start = time.perf_counter()
        a @ a
        _wait()
        times.append(time.perf_counter() - start)
    return 2 * size**3 / statistics.median(times)


def _device() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else Times.device


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def write(times: Times, path: Path) -> None:
    """Store times as JSON."""
    write_json(path, asdict(times))


def read(path: Path) -> Times | None:
    """Return stored times, or None if there are none."""
    return Times(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None
