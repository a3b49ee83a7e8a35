"""What a training step costs: a network alone, with a prior beside it, plain and fast.

Every step is that of `oism.training`: draws, noising, prediction, gradients, clipping, Adam,
average. In one run and by turns, so that a busy host disturbs all alike, first the fast ones, then
in a quarter of the rounds the slow ones:

    plain       float32 as PyTorch comes, convolutions in TF32 on a device that has it, channels
                first, nothing compiled
    fast        bfloat16, channels last, blocks compiled, the step recorded, fused Adam
    with prior  the same around a prior: tabulated, or with its systems solved in every step

Systems cannot be solved within a recording, for a solve waits for the device to see whether it went
well; the step with solves stands beside one that is not recorded either.
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

from oism.basis import Hermite
from oism.estimation import HermiteSystem
from oism.images import HermitePrior, Law, Pixels, prior_of
from oism.nn import DDPMpp, OperatorInformed, unet_for
from oism.objectives import DenoisingScoreMatching, UniformLogSNR
from oism.process import Logarithmic, Noising, OrnsteinUhlenbeck, VariancePreserving
from oism.studies.study import versions, write_json
from oism.training import Rows, Training
from oism.training._loop import Loop, compile_parts, engine

RIDGE = 1e-3
PRODUCT = 8192
WARM_UPS = 3

PLAIN, EAGER, FAST = "plain", "half precision, nothing compiled", "fast"
"""The rows without a prior, by name."""


class PlainDDPMpp(DDPMpp):
    """The same network with channels first."""

    def __init__(self, *shape: Any, **sizes: Any) -> None:  # noqa: ANN401 (as DDPMpp's)
        super().__init__(*shape, **sizes)
        self.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]

    def _entered(self, x: Tensor) -> Tensor:
        found: Tensor = self.enter(x.contiguous())
        return found


class SolvedCurve(nn.Module):
    """Coefficients that are solved for whenever they are asked for, instead of looked up."""

    def __init__(self, law: Law, order: int, table: Logarithmic) -> None:
        super().__init__()
        self.system = HermiteSystem(Hermite(len(law.mean), order), law.standard)
        self.table, self.values = table, torch.empty(1, len(law.mean), order)

    def forward(self, tau: Tensor) -> Tensor:
        """Return α at clock times ``(n,)`` of the table."""
        t = self.table._time(tau)
        shape = (len(t), self.values.shape[1])
        ridge = torch.full(shape, RIDGE, dtype=torch.float64, device=t.device)
        level = torch.zeros_like(ridge)
        parts = self.system._pieces(t, 1)
        return torch.cat([self.system._solve(t[p], ridge[p], level[p]) for p in parts])


def solved(law: Law, order: int) -> HermitePrior:
    """Return a prior whose systems are solved whenever it is asked."""
    prior = prior_of(law, order=order, ridge=RIDGE)
    assert isinstance(prior.lines.clock, Logarithmic)
    prior.lines.curve = SolvedCurve(law, order, prior.lines.clock)  # type: ignore[assignment]
    return prior


@dataclass(frozen=True)
class Times:
    """Median seconds of a step by name, those to get ready, its work, where and with what."""

    seconds: dict[str, float]
    ready: dict[str, float]
    operations: float
    matrix_rate: float
    device: str = "CPU"
    versions: dict[str, str] = field(default_factory=versions)

    def ratio(self, name: str, other: str = FAST) -> float:
        """Return a step's time as a multiple of another's."""
        return self.seconds[name] / self.seconds[other]

    def share(self, name: str) -> float:
        """Return the share of the rate that one large product of matrices reaches."""
        return self.operations / self.seconds[name] / self.matrix_rate


def step_times(  # noqa: PLR0913
    data: Tensor,
    laws: Mapping[str, Law],
    sizes: Mapping[str, Any],
    *,
    pixels: Pixels | None = None,
    batch: int = 128,
    rounds: int = 8,
    steps: int = 5,
) -> Times:
    """Return the times of steps on images ``(n, *shape)`` of bytes, on the device of accelerate.

    ``laws`` has "pixels" up to order 6 and "PCA" up to order 4. ``sizes`` are those of the network.
    """
    loops, ready = _loops(Rows(data, pixels), laws, sizes, batch)
    with FlopCounterMode(display=False) as counter:
        loops[PLAIN].differentiate(loops[PLAIN].draws.step(0))
    slow = {name for name in loops if name in (PLAIN, EAGER) or "not recorded" in name}
    fast = {name: loop for name, loop in loops.items() if name not in slow}
    found = timed(fast, rounds, steps)
    found |= timed({name: loops[name] for name in slow}, slow_rounds(rounds), steps)
    rate = matrix_rate(loops[PLAIN].device)
    ordered = {name: found[name] for name in loops}
    return Times(ordered, ready, float(counter.get_total_flops()), rate, _device())


def slow_rounds(rounds: int) -> int:
    """Return in how many rounds slow steps are timed, where fast ones are in ``rounds``."""
    return max(1, rounds // 4)


def _loops(
    rows: Rows, laws: Mapping[str, Law], sizes: Mapping[str, Any], batch: int
) -> tuple[dict[str, Loop], dict[str, float]]:
    shape, on_device = rows.shape, engine().device.type == "cuda"
    plain = Training(batch=batch)
    fast = replace(plain, precision="bf16", compile=on_device)
    by_hand = replace(fast, compile=False)

    chosen = unet_for(shape, **sizes).settings

    def net(kind: type[DDPMpp] = DDPMpp) -> DDPMpp:
        torch.manual_seed(0)
        return kind(**chosen)

    def paper(order: int) -> OperatorInformed:
        return OperatorInformed.paper(net(), prior_of(laws["pixels"], order=order, ridge=RIDGE))

    def residual(order: int) -> OperatorInformed:
        return OperatorInformed(net(), prior_of(laws["PCA"], order=order, ridge=RIDGE))

    predictors: dict[str, tuple[nn.Module, Training]] = {
        PLAIN: (net(kind=PlainDDPMpp), plain),
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
        exact = OperatorInformed.paper(net(), solved(laws["pixels"], order))
        name = f"compiled, not recorded, OISM({order}), solved in every step"
        predictors[name] = (exact, by_hand)
    loops, ready = {}, {}
    noising = Noising(OrnsteinUhlenbeck(), VariancePreserving())
    objective = DenoisingScoreMatching(UniformLogSNR(noising))
    for name, (predictor, settings) in predictors.items():
        start = time.perf_counter()
        if name.startswith("compiled") and on_device:
            compile_parts(predictor)
        loops[name] = Loop(predictor, rows, objective, settings, engine())
        for _ in range(WARM_UPS):
            loops[name].step()
        _wait()
        ready[name] = time.perf_counter() - start
    return loops, ready


def timed(loops: Mapping[str, Loop], rounds: int, steps: int) -> dict[str, float]:
    """Return the median seconds of a step of each loop, taken by turns."""
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
    """Return the floating-point operations a second of one large product in bfloat16."""
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
    """Keep times as JSON."""
    write_json(path, asdict(times))


def read(path: Path) -> Times | None:
    """Return times that were kept, if there are any."""
    return Times(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None
