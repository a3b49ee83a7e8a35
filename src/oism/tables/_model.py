"""A fitted density in the data's units: score, chart, flow and defence together."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from oism._core.progress import progress_bar
from oism._core.transforms import in_parallel, threads_apart
from oism.flow import Flow, OrdinaryMethod, RungeKutta4, StochasticMethod, log_density
from oism.score import OperatorScore
from oism.tables._background import Defence
from oism.tables._chart import Chart

LEAST_RUN, LARGEST_RUN = 2**12, 2**14
"""The numbers of rows that a thread follows the flow with at a time."""

PILOTS = 128
PILOT_TOLERANCE = 1e-3
STEPS = (16, 32, 64, 128, 256, 512)
"""The numbers of steps that are tried, until the log-densities of samples change by less."""


@dataclass(frozen=True, eq=False)
class DensityModel:
    """p(x) = (1 - w) ρ(u(x)) |du/dx| + w d(x), with the flow's ρ, a chart u and a defence d.

    Points are float64 on the CPU; the score may live elsewhere. ``steps`` is the number of steps of
    the flow, ``span`` its range of clock times.
    """

    score: OperatorScore
    chart: Chart
    defence: Defence | None
    span: tuple[float, float]
    steps: int

    @cached_property
    def flow(self) -> Flow:
        """The probability flow in the process's coordinates."""
        return Flow(self.score, span=self.span)

    @property
    def device(self) -> torch.device:
        """Where the score lives."""
        return self.score.curve.values.device

    def flow_density(self, u: Tensor) -> Tensor:
        """Return log ρ(u) along the flow, at points of the process."""

        def density(rows: Tensor, progress: bool | None) -> Tensor:
            return log_density(self.flow, rows, method=RungeKutta4(self.steps), progress=progress)

        return self._in_runs(density, u.to(self.device), "densities along the flow").to(u.device)

    def _in_runs(
        self, work: Callable[[Tensor, bool | None], Tensor], rows: Tensor, name: str
    ) -> Tensor:
        """Return the results of work on runs of rows, each run on a thread of its own.

        A step of the flow is a handful of short operations: threads inside of them wait for each
        other more than they work, above all where another program keeps a core busy.
        """
        if self.device.type != "cpu":
            return work(rows, None)
        # A run for every thread, or several of the largest size; but none that is not worth it.
        count = max(1, min(torch.get_num_threads(), len(rows) // LEAST_RUN))
        runs = torch.split(rows, min(LARGEST_RUN, max(1, -(-len(rows) // count))))
        if len(runs) == 1:
            with threads_apart():
                return work(rows, None)
        with threads_apart(), progress_bar(None) as bar:
            bar.stage(name, len(runs))

            def told(run: Tensor) -> Tensor:
                result = work(run, False)
                bar.advance(1)
                return result

            return torch.cat(in_parallel(told, runs))

    def log_density(self, x: Tensor) -> Tensor:
        """Return log p at rows ``(n, d)``: ``(n,)``; -∞ beyond declared bounds only."""
        result = x.new_full((len(x),), -math.inf)
        covered = self.chart.covers(x)
        if bool(covered.any()):
            u = self.chart.to(x[covered])
            result[covered] = self.flow_density(u) + self.chart.log_jacobian
        if self.defence is None:
            return result
        share = self.defence.share
        wide = self.defence.log_density(x) + math.log(share)
        wide = torch.where(self.chart.allows(x), wide, -math.inf)
        return torch.logaddexp(result + math.log1p(-share), wide)

    def sample(
        self,
        n: int,
        generator: torch.Generator,
        method: OrdinaryMethod | StochasticMethod | None = None,
    ) -> Tensor:
        """Return n draws from p: by the flow, or by another method of `oism.flow._flow`."""
        rows = torch.empty(n, self.score.basis.dim, dtype=torch.float64)
        wide = torch.zeros(n, dtype=torch.bool)
        if self.defence is not None:
            chance = torch.empty(n, dtype=torch.float64).uniform_(generator=generator)
            wide = chance < self.defence.share
            rows[wide] = self.defence.sample(int(wide.sum()), generator)
        seed = int(torch.randint(2**62, (), generator=generator))
        method = method or RungeKutta4(self.steps)
        noise = torch.Generator(self.device).manual_seed(seed)
        size = (n - int(wide.sum()), self.score.basis.dim)
        more: dict[str, Any] = {"generator": noise, "dtype": torch.float64, "device": self.device}
        if isinstance(method, OrdinaryMethod):
            z = self.flow.base.sample(size, **more)

            def pull(run: Tensor, progress: bool | None) -> Tensor:
                return self.flow.pull(run, method=method, progress=progress)

            u = self._in_runs(pull, z, "following the flow")
        else:
            with threads_apart():
                u = self.flow.sample(size[0], size[1:], method=method, **more)
        rows[~wide] = self.chart.back(u.cpu())
        return rows

    def score_at(self, x: Tensor, t: Tensor | float) -> Tensor:
        """Return ∇ log ρ_t in the data's units, without the defence."""
        u = self.chart.to(x).to(self.device)
        return self.chart.pull_score(self.score.score(u, t).cpu())


@torch.no_grad()
def settled_steps(score: OperatorScore, span: tuple[float, float]) -> int:
    """Return how many steps the flow needs.

    Log-densities of samples of the model itself are computed with more and more steps, until the
    last doubling has changed them by less than 1e-3 on average: Runge and Kutta's method is of
    order four, so what is left is smaller by another factor of 15.
    """
    flow, device = Flow(score, span=span), score.curve.values.device
    u = flow.sample(
        PILOTS,
        (score.basis.dim,),
        method=RungeKutta4(STEPS[2]),
        generator=torch.Generator(device).manual_seed(0),
        dtype=torch.float64,
        device=device,
    )
    before = log_density(flow, u, method=RungeKutta4(STEPS[0]))
    for steps in STEPS[1:]:
        now = log_density(flow, u, method=RungeKutta4(steps))
        if float((now - before).square().mean().sqrt()) < PILOT_TOLERANCE:
            return steps
        before = now
    return STEPS[-1]
