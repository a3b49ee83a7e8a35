"""The time of a training step: a network alone, its parametrisations, with a prior, plain and fast.

Every step is one of `oism.training.Loop`: random draws, noising, prediction, gradients, clipping,
Adam, average weights. All are timed in one run and in turn, a few steps of each in every round, so
that other load affects all alike, and ratios are those of steps of the same round:

    plain       float32 with PyTorch's defaults, convolutions in TF32 on a GPU that has it, channels
                first, nothing compiled
    fast        bfloat16, channels last, compiled blocks, the step recorded as a CUDA graph, fused
                Adam
    with prior  the same with a prior: tabulated, or with its systems solved in every step

Systems cannot be solved in a recorded step, because a solve waits for the device to check its
success. The step with solves is compared with one that is not recorded either, which is limited by
the host; so the coefficients of a batch are timed by themselves as well.
"""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from oism.basis import Frame, IdentityFrame
from oism.estimation import HermiteEquations
from oism.images import (
    HermitePrior,
    ImageStatistics,
    image_statistics,
    prior_from_statistics,
)
from oism.nn import DDPMpp, OperatorInformed, compile_blocks, predicting, unet_for
from oism.objectives import DenoisingScoreMatching, UniformLogSNR
from oism.process import Clock, Noising, OrnsteinUhlenbeck, VariancePreserving
from oism.score import Coordinates
from oism.training import Loop, Rows, TrainingConfig
from studies.images import ImageSets, device_name
from studies.images import device as default_device
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
    """Seconds of a step in every round by name, of preparation, and of coefficients of a batch.

    ``operations`` are those of a step, ``matrix_rate`` those of a second of one matrix product.
    """

    rounds: dict[str, list[float]]
    ready: dict[str, float]
    operations: float
    matrix_rate: float
    coefficients: dict[str, list[float]] = field(default_factory=dict)
    device: str = field(default_factory=device_name)
    versions: dict[str, str] = field(default_factory=versions)

    def seconds(self, name: str) -> float:
        """Return the median time of a step."""
        return statistics.median(self.rounds[name])

    def ratios(self, name: str, other: str = FAST) -> tuple[float, float, float]:
        """Return the quartiles of the time of a step divided by that of another in the same round.

        The second is the median.
        """
        pairs = zip(self.rounds[name], self.rounds[other], strict=True)
        return quartiles([one / two for one, two in pairs])

    def ratio(self, name: str, other: str = FAST) -> float:
        """Return the median time of a step divided by that of another."""
        return self.ratios(name, other)[1]

    def share(self, name: str) -> float:
        """Return the rate of operations of a step, divided by that of one large matrix product."""
        return self.operations / self.seconds(name) / self.matrix_rate


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the three quartiles.

    >>> quartiles([1.0, 2.0, 3.0, 4.0, 5.0])
    (2.0, 3.0, 4.0)
    """
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def step_times(
    sets: ImageSets,
    sizes: Mapping[str, Any],
    *,
    batch: int = 128,
    rounds: int = 20,
    steps: int = 5,
    deadline: float = math.inf,
) -> Times:
    """Return the times of steps, ``steps`` of each in every round.

    ``sizes`` are those of the network. Rounds end at ``deadline``, a `time.perf_counter`, but for
    the first.
    """
    images, pixels = sets.train.to(default_device()), sets.pixels
    frames: dict[str, tuple[int, Frame | None]] = {"pixels": (6, IdentityFrame()), "PCA": (2, None)}
    found = {
        name: image_statistics(images, order=order, frame=frame, pixels=pixels, folds=1)
        for name, (order, frame) in frames.items()
    }
    loops, ready = _loops(Rows(images, pixels), found, sizes, batch)
    with FlopCounterMode(display=False) as counter:
        loops[PLAIN].step()
    device = loops[PLAIN].device
    # Before the steps, which take all the time up to the deadline.
    coefficients = timed(_coefficients(found["pixels"], batch, device), 4 * rounds, 1, deadline)
    runs: dict[str, Callable[[], object]] = {name: loop.step for name, loop in loops.items()}
    spent = timed(runs, rounds, steps, deadline)
    operations = float(counter.get_total_flops())
    return Times(spent, ready, operations, matrix_rate(device), coefficients)


def _coefficients(
    found: ImageStatistics, batch: int, device: torch.device
) -> dict[str, Callable[[], object]]:
    """Return functions that compute the coefficients of a batch."""
    runs: dict[str, Callable[[], object]] = {}
    for order in (3, 6):
        table = prior_from_statistics(found, order=order, ridge=RIDGE).to(device)
        exact = solved(found, order).to(device)
        tau = torch.linspace(0.01, 0.99, batch, dtype=torch.float64, device=device)
        for name, prior in (("tabulated", table), ("solved", exact)):
            tau_of = tau * prior.lines.clock.horizon
            runs[f"OISM({order}), {name}"] = partial(prior.lines.curve, tau_of)
            prior.lines.curve(tau_of)  # libraries choose their methods at the first use
    return runs


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

    gaussian = prior_from_statistics(found["PCA"], order=2, ridge=RIDGE)
    predictors: dict[str, tuple[nn.Module, TrainingConfig]] = {
        PLAIN: (channels_first(net()), plain),
        EAGER: (net(), by_hand),
        FAST: (net(), fast),
        "fast, EDM": (predicting(net(), "edm", prior=gaussian), fast),
        "fast, operator preconditioning": (predicting(net(), "operator", prior=gaussian), fast),
        "fast, OISM(3)": (paper(3), fast),
        "fast, OISM(6)": (paper(6), fast),
        "fast, residual of PCA, order 2": (OperatorInformed(net(), gaussian), fast),
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


def timed(
    runs: Mapping[str, Callable[[], object]], rounds: int, calls: int, deadline: float = math.inf
) -> dict[str, list[float]]:
    """Return the seconds of a call of each function in every round, measured in turn."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds):
        if number and time.perf_counter() > deadline:
            break
        for name, run in runs.items():
            _wait()
            start = time.perf_counter()
            for _ in range(calls):
                run()
            _wait()
            found[name].append((time.perf_counter() - start) / calls)
    return found


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


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def write(times: Times, path: Path) -> None:
    """Store times as JSON."""
    write_json(path, asdict(times))


def read(path: Path) -> Times | None:
    """Return stored times, or None if there are none."""
    return Times(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None
