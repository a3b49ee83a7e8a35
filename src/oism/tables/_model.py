"""A fitted density in the data's units: scores, chart, flow and background together.

    p(x) = (1 - w) ρ(u(x)) |du/dx| + w q(x)

ρ is the density of the probability flow in the coordinates u of a process, see `Chart`; q is the
`Background` with its share w. Without free columns there is no background, and w = 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from oism._core import checks
from oism._core.progress import progress_bar
from oism._core.transforms import in_parallel, on_host, threads_apart
from oism.flow import (
    Adams4,
    ClosedForm,
    Divergence,
    FixedStep,
    Flow,
    OrdinaryMethod,
    RecordedRungeKutta4,
    RungeKutta4,
    State,
    StochasticMethod,
    log_density,
    sample_with_log_density,
)
from oism.process import Clock
from oism.score import OperatorScore
from oism.storage import storable
from oism.tables._background import Background
from oism.tables._chart import Chart
from oism.tables._conditional import GridModel
from oism.tables._contract import TabularModel
from oism.tables._line import LineFlow, converged, line_of, warn_unconverged
from oism.tables._process import ChartedProcess
from oism.tables._summary import table_facts

LEAST_RUN, LARGEST_RUN, DEVICE_RUN = 2**12, 2**14, 2**20
"""The numbers of rows that a thread, and another device, follow the flow with at a time."""

FINE = 24
"""The number of grid points for the shortest wave of a tabulated flow: an error of 1e-5."""

PILOTS = 128
PILOT_TOLERANCE = 1e-3
STEPS = (16, 32, 64, 128, 256, 512)
"""The numbers of steps that are tried; one more doubling must change log-densities by less."""


@storable
class TableModel(TabularModel):
    """The density of a table and of its noised versions, in the data's units.

    Rows are ``(n, d)``. Log-densities and samples include the background; scores are those of the
    flow alone. Results are on the device of the rows, also where the model is on another one.

    Parameters
    ----------
    operator_score
        The scores of all noise levels, in the process's coordinates.
    chart
        The map from the data's units to these coordinates.
    background
        The component of small weight that covers rows outside of the box, or None.
    span
        The first and the last clock time of the flow.
    steps
        The number of steps of the flow: those of `RungeKutta4` for densities; samples are drawn by
        `Adams4` with twice as many, which has the same error and needs half the evaluations.
    """

    operator_score: OperatorScore
    steps: int

    def __init__(
        self,
        operator_score: OperatorScore,
        chart: Chart,
        background: Background | None,
        span: tuple[float, float],
        steps: int,
    ) -> None:
        super().__init__()
        checks.instance(operator_score, OperatorScore, "operator_score")
        checks.instance(chart, Chart, "chart")
        checks.optional(background, Background, "background")
        self.operator_score, self.chart, self.background = operator_score, chart, background
        self.steps = checks.integer(steps, "steps", minimum=1)
        self.span = Flow(operator_score, span=span).span  # checked there
        dim = operator_score.dim
        for name, found in (("chart", chart.dim), ("background", self._background_dim)):
            if found != dim:
                raise ValueError(f"{name} must have the {dim} columns of the score, got {found}")
        self._process = ChartedProcess(operator_score.process, chart)

    @property
    def _background_dim(self) -> int:
        return self.chart.dim if self.background is None else len(self.background.free)

    def to_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            "operator_score": self.operator_score,
            "chart": self.chart,
            "background": self.background,
            "span": self.span,
            "steps": self.steps,
        }

    @property
    def process(self) -> ChartedProcess:
        """The noising process in the data's units; ``process.inner`` acts on the coordinates."""
        return self._process

    @property
    def clock(self) -> Clock:
        """The noise levels."""
        return self.operator_score.clock

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a row, one axis."""
        return (self.chart.dim,)

    @property
    def times(self) -> tuple[float, float]:
        """The first and the last time of the process that `score` can be evaluated at."""
        return self.operator_score.times

    @property
    def flow(self) -> Flow:
        """The probability flow in the data's units, without the background."""
        return Flow(self, span=self.span)

    @property
    def process_flow(self) -> Flow:
        """The probability flow in the process's coordinates."""
        return Flow(self.operator_score, span=self.span)

    def _coordinates(self, x: Tensor) -> Tensor:
        """Return u for rows, on the device of the model."""
        return self.chart.to_process(checks.points(x, dim=self.dim)).to(self.device)

    def score(self, x: Tensor, t: Tensor | float) -> Tensor:
        """Return ∇ log ρ_t(x) in the data's units, without the background: ``(n, d)``.

        t is the process's own time, one number or one per row, within `times`. On the torus ρ_t is
        the distribution of the data with normal noise whose standard deviation is √(2t) in the
        coordinates, and √(2t) · ``chart.units[j]`` in the units of column j. Under the
        Ornstein-Uhlenbeck process the data also shrink towards their mean by e^{-θt}, and the noise
        has the standard deviation σ_t · ``chart.units[j]``. `noise_deviations` returns these.
        """
        u = self._coordinates(x)
        return self.chart.pull_score(self.operator_score.score(u, t).to(x.device))

    def score_and_diffused_divergence(self, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return the score and ∇·G∇ log ρ_t, ``(n,)``, which does not depend on the units."""
        joint = ClosedForm().bind(self.process_flow, x)
        score, spread = joint(self._coordinates(x), t)
        return self.chart.pull_score(score.to(x.device)), spread.to(x.device)

    def noise(self, x: Tensor, tau: Tensor | float) -> Tensor:
        """Return the expected noise, where it has one size in all columns; see `FittedModel`."""
        if self.chart.isotropic_unit is None:
            raise TypeError(
                "noise(x, tau) needs noise of one size in all columns, and in this model the "
                f"columns have the units {self.chart.units.tolist()}: use score(x, t), or "
                "operator_score.noise(u, tau) in the process's coordinates"
            )
        return self.operator_score.noise(self._coordinates(x), tau).to(x.device)

    def denoise(self, x: Tensor, tau: Tensor | float) -> Tensor:
        """Return E[x_0 | x_τ = x] under the flow's density; not where columns are reflected."""
        if bool(self.chart.reflections.any()):
            raise TypeError("denoise(x, tau) has no closed form for columns with bounds")
        u = self.operator_score.denoise(self._coordinates(x), tau)
        return self.chart.to_data(u.to(x.device))

    def facts(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Return columns, process, functions and choices; columns have numbers unless named."""
        names = [str(j) for j in range(self.dim)] if names is None else names
        share = None if self.background is None else self.background.share
        return {
            "kind": type(self).__name__,
            **table_facts(self.operator_score, self.chart, names),
            "steps": self.steps,
            "background": share,
        }

    def extra_repr(self) -> str:
        """Return what torch prints of the module."""
        share = 0.0 if self.background is None else self.background.share
        return f"{self.dim} columns, flow of {self.steps} steps, background {share:.3g}"

    def flow_density(
        self,
        u: Tensor,
        *,
        method: OrdinaryMethod | None = None,
        divergence: Divergence | None = None,
        progress: bool | None = None,
    ) -> Tensor:
        """Return log ρ(u) along the flow, at points of the process: ``(n,)``."""
        line = self._line()
        if line is not None and method is None and divergence is None:
            return line.log_density(u[:, 0], self.steps).to(u)

        def density(rows: Tensor, method: OrdinaryMethod, progress: bool | None) -> Tensor:
            flow = self.process_flow
            return log_density(
                flow,
                rows,
                method=method,
                divergence=divergence,
                chunk=DEVICE_RUN,
                progress=progress,
            )

        method = method or RungeKutta4(self.steps)
        name, rows = "densities along the flow", u.to(self.device)
        return self._in_runs(density, rows, method, name, progress).to(u.device)

    def _line(self) -> LineFlow | None:
        """Return the flow tabulated, if there is one column and the score is that of the flow."""
        if line_of(self.operator_score.basis) is None:
            return None
        if self.process_flow.source is not self.operator_score:
            return None
        return LineFlow(self.operator_score, self.span, FINE)

    def _in_runs(
        self,
        work: Callable[[Tensor, OrdinaryMethod, bool | None], Tensor],
        rows: Tensor,
        method: OrdinaryMethod,
        name: str,
        progress: bool | None,
    ) -> Tensor:
        """Return the results of work on runs of rows, each run on a thread of its own.

        A step of the flow is a handful of short operations: threads inside of them wait for each
        other more than they work, above all where another program keeps a core busy.
        """
        if not on_host(rows):
            return work(rows, method, progress)
        # A run for every thread, or several of the largest size; but none of only a few rows.
        count = max(1, min(torch.get_num_threads(), len(rows) // LEAST_RUN))
        runs = torch.split(rows, min(LARGEST_RUN, max(1, -(-len(rows) // count))))
        if len(runs) == 1:
            with threads_apart():
                return work(rows, method, progress)
        with threads_apart(), progress_bar(progress) as bar:
            advance = bar.shares(name)
            watched = _Watched(method, lambda share: advance(share / len(runs)))
            return torch.cat(in_parallel(lambda run: work(run, watched, False), runs))

    def _log_density(self, x: Tensor, **settings: Any) -> Tensor:  # noqa: ANN401
        """Return log p at rows ``(n, d)``: ``(n,)``; -∞ outside of declared bounds only."""
        result = x.new_full((len(x),), -math.inf)
        covered = self.chart.covers(x)
        if bool(covered.any()):
            u = self.chart.to_process(x[covered])
            density = self.flow_density(u, **settings)
            result[covered] = density + self.chart.log_jacobian
        if self.background is None:
            return result
        share = self.background.share
        wide = self.background.log_density(x.cpu().double()).to(x) + math.log(share)
        wide = torch.where(self.chart.allows(x), wide, -math.inf)
        return torch.logaddexp(result + math.log1p(-share), wide)

    def _sample(
        self,
        n: int,
        generator: torch.Generator | None,
        **settings: Any,  # noqa: ANN401
    ) -> Tensor:
        """Return n rows drawn from p, float64: along the flow, or by the reverse SDE."""
        generator = _on_the_host(generator)
        rows = torch.empty(n, self.dim, dtype=torch.float64)
        wide = torch.zeros(n, dtype=torch.bool)
        if self.background is not None:
            chance = torch.empty(n, dtype=torch.float64).uniform_(generator=generator)
            wide = chance < self.background.share
            rows[wide] = self.background.sample(int(wide.sum()), generator)
        seed = int(torch.randint(2**62, (), generator=generator))
        noise = torch.Generator(self.device).manual_seed(seed)
        u = self._draw(n - int(wide.sum()), noise, **settings)
        rows[~wide] = self.chart.to_data(u.cpu())
        return rows.to(self.device)

    def marginal(self, columns: Sequence[int]) -> GridModel | TableModel:
        """Return the model of some columns alone, in the order given: integrals over the others."""
        if tuple(columns) == (0,) and self.dim == 1:
            return self
        return GridModel(self, tuple(columns))

    def conditional(self, given: Mapping[int, float]) -> GridModel:
        """Return the model of the other columns, in their order, given values of some."""
        rest = tuple(column for column in range(self.dim) if column not in given)
        return GridModel(self, rest, tuple(given.items()))

    def _draw(
        self,
        n: int,
        generator: torch.Generator,
        method: OrdinaryMethod | StochasticMethod | None,
        progress: bool | None,
    ) -> Tensor:
        """Return n points of the process, drawn without the background."""
        flow, dtype = self.process_flow, torch.float64
        line = self._line()
        if line is not None and method is None:
            z = flow.start(n, generator=generator, dtype=dtype, device=self.device)
            return line.pull(z[:, 0], self.steps)[:, None]
        method = method or Adams4(2 * self.steps)
        if not isinstance(method, OrdinaryMethod):
            with threads_apart():
                return flow.sample(
                    n,
                    method=method,
                    generator=generator,
                    dtype=dtype,
                    device=self.device,
                    progress=progress,
                )

        def pull(run: Tensor, method: OrdinaryMethod, progress: bool | None) -> Tensor:
            return flow.pull(run, method=method, chunk=DEVICE_RUN, progress=progress)

        z = flow.start(n, generator=generator, dtype=dtype, device=self.device)
        return self._in_runs(pull, z, method, "following the flow", progress)


class _Watched(OrdinaryMethod):
    """Another method, which reports the share of its way as it goes."""

    def __init__(self, method: OrdinaryMethod, report: Callable[[float], None]) -> None:
        self._method, self._report = method, report

    def solve(
        self,
        field: Callable[[Tensor, State], State],
        state: State,
        ends: tuple[float, float],
    ) -> State:
        """Return the state at the second end."""
        furthest = 0.0

        def watched(tau: Tensor, state: State) -> State:
            nonlocal furthest
            share = (float(tau) - ends[0]) / (ends[1] - ends[0])
            if share > furthest:
                self._report(share - furthest)
                furthest = share
            return field(tau, state)

        return self._method.solve(watched, state, ends)

    def finer(self) -> OrdinaryMethod:
        """Return that of the other method."""
        return self._method.finer()


def _on_the_host(generator: torch.Generator | None) -> torch.Generator:
    """Return a generator of the CPU, which draws rows: the one given, or one seeded by it."""
    if generator is not None and generator.device.type == "cpu":
        return generator
    device = torch.device("cpu") if generator is None else generator.device
    seed = torch.randint(2**62, (), generator=generator, device=device)
    return torch.Generator().manual_seed(int(seed))


@torch.no_grad()
@threads_apart(1)
def converged_steps(
    score: OperatorScore, span: tuple[float, float], device: torch.device | str | None = None
) -> int:
    """Return the number of steps of the flow at which log-densities have converged.

    Log-densities of samples of the model itself are computed with more and more steps, first those
    that come with the samples. They have converged if another doubling would change them by less
    than 1e-3 on average. Runge and Kutta's method is of order four, so it would change them a
    sixteenth as much as the last one, or a quarter where steps are still large. In one dimension
    the samples are evenly spaced points, weighted by the density. Warns where they do not converge.

    A score whose steps can be recorded moves to ``device``; others, slow with few points on a GPU,
    are evaluated where they are.
    """
    if line_of(score.basis) is not None:
        return converged(LineFlow(score, span), STEPS, PILOT_TOLERANCE)
    method: type[FixedStep] = RungeKutta4
    if device is not None and score.is_recordable:
        score, method = score.to(device), RecordedRungeKutta4
    flow, device = Flow(score, span=span), score.device
    u, before = sample_with_log_density(
        flow,
        PILOTS,
        method=method(STEPS[0]),
        generator=torch.Generator().manual_seed(0),  # the same samples on every device
        dtype=torch.float64,
        device=device,
    )
    for steps in STEPS[1:]:
        now = log_density(flow, u, method=method(steps))
        change = float((now - before).square().mean().sqrt())
        if change < 4 * PILOT_TOLERANCE:
            return steps
        before = now
    warn_unconverged(STEPS, change)
    return STEPS[-1]
