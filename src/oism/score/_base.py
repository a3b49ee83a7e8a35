"""The fitted scores of all noise levels, a torch module, and the linear systems they solve.

A *system* holds the averages of one family of functions. For any times it returns the held-out loss
αᵀAα + 2bᵀα of every candidate regularisation, fold by fold, and the solution α for a chosen one. A
candidate is a pair (level, ridge): a level is a truncation of the family, the richest first, and a
ridge ε is a number ≥ 0. A solution may use a ridge and a level between the candidates, so that
both, and therefore α(t), can vary smoothly with t.

`OperatorScore` holds coefficients α(t) in a table over clock times and evaluates the estimate of
∇ log ρ_t, its divergence and log(ρ_t/π) at any point, for one time or one time per row. The table
is stored in buffers, so ``.to``, ``state_dict`` and ``torch.compile`` work as for any module, and
results can be differentiated with respect to points and times. The module also keeps its system,
without folds, to solve for coefficients at times between the knots of the table.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from oism._core import checks
from oism._core.devices import has_float64
from oism._core.plain import plain
from oism.basis import Functions
from oism.flow import FittedModel
from oism.process import Clock, Process
from oism.score._interpolation import Curve, SpectralModule
from oism.score._table import Diagnostics, Schedule, Table

ROWS = 2**22
"""The number of table entries per batch of rows, outside of torch.compile."""

RIDGES = torch.logspace(-6, 1, 15, dtype=torch.float64)
"""The candidates for ε, two per decade."""

Advance = Callable[[float], None]
"""A function of the share of the work that was done since the last call; shares sum to 1."""


def ignore(share: float) -> None:
    """Do nothing: the default for ``advance``."""


@dataclass(frozen=True, eq=False)
class Solved:
    """Coefficients with their diagnostics, ``(T, *shape)``.

    ``smallest`` and ``largest`` are the extreme eigenvalues of the scaled matrix without its ridge,
    or NaN (see `System.diagnose`); ``iterations`` is 0 for direct solves.
    """

    alpha: Tensor
    smallest: Tensor
    largest: Tensor
    iterations: Tensor


@dataclass(frozen=True, eq=False)
class Losses:
    """Held-out losses ``(folds, T, *batch, levels, ridges)``; +∞ or NaN if undefined.

    ``shares`` ``(folds,)`` are the shares of the rows in each fold.
    """

    values: Tensor
    shares: Tensor
    ridges: Tensor = field(default_factory=lambda: RIDGES)


class System(ABC):
    """The equations of one family, their candidates and their solution."""

    basis: Functions
    """The functions whose coefficients are solved for."""

    levels: int
    """The number of truncations, the richest first."""

    batch: tuple[int, ...] = ()
    """The shape of independent choices: one for all, or one per coordinate."""

    untruncated: float = 0.0
    """The level without truncation."""

    whole_sweep: bool = False
    """Whether `losses` must be given all times at once."""

    @abstractmethod
    def losses(self, t: Tensor, *, advance: Advance = ignore) -> Losses:
        """Return the held-out losses of all candidates at times ``(T,)``.

        ``advance`` may be called with the share of the work done since its last call.
        """

    def choices(
        self,
        t: Tensor,  # noqa: ARG002
        *,
        advance: Advance = ignore,  # noqa: ARG002
    ) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return log ridge, level and loss at increasing times ``(T,)``, or None.

        For systems whose choice at one time depends on others; None where `losses` decide.
        """
        return None

    @abstractmethod
    def solve(
        self,
        t: Tensor,
        ridge: Tensor,
        level: Tensor,
        start: Tensor | None = None,
        *,
        advance: Advance = ignore,
    ) -> Solved:
        """Return α at times ``(T,)`` for ridges and real-valued levels ``(T, *batch)``.

        ``start`` is a guess for α that iterative solvers begin with; ``advance`` as for `losses`.
        """

    def diagnose(
        self, t: Tensor, ridge: Tensor, level: Tensor, *, advance: Advance = ignore
    ) -> Solved:
        """Return the solution with the extreme eigenvalues of the matrix."""
        return self.solve(t, ridge, level, advance=advance)

    def cutoff(self, level: Tensor) -> Tensor | None:  # noqa: ARG002
        """Return the frequency above which functions are damped, at real-valued levels, or None.

        None if a level is not a frequency: Hermite polynomials are truncated by their degree.
        """
        return None

    def density_ratio(self, x: Tensor, t: Tensor | float) -> Tensor | None:  # noqa: ARG002
        """Return ρ_t/π at points ``(n, dim)`` as the series of its averages, or None: ``(n,)``.

        None if such a series does not converge to a density.
        """
        return None

    @property
    def has_choice(self) -> bool:
        """Whether the solution depends on ridge and level."""
        return True

    @property
    def has_coefficients(self) -> bool:
        """Whether there are coefficients to solve for; a Gaussian has none."""
        return True

    def workers(self) -> AbstractContextManager[None]:
        """Return the context in which the system is solved; by default torch's own threads."""
        return nullcontext()

    @abstractmethod
    def norm(self, t: Tensor, alpha: Tensor) -> Tensor:
        """Return (αᵀA_tα)^½, the norm of a score in L²(ρ_t): ``(T,)``."""

    @abstractmethod
    def score(self, clock: Clock, table: Table) -> OperatorScore:
        """Return the fitted score of a table of coefficients over a clock."""

    @abstractmethod
    def without_folds(self) -> Self:
        """Return the system with the averages over all rows only, on the CPU in float64."""


class OperatorScore(SpectralModule, FittedModel):
    """An estimate of ∇ log ρ_t for every t of a clock, in closed form.

    Points are ``(n, *shape)`` with as many entries per row as the basis has dimensions. Times are
    the process's own, within the range of the clock, one number or one per row.
    """

    basis: Functions
    curve: Curve
    schedule_tau: Tensor
    schedule_log_ridge: Tensor
    schedule_level: Tensor
    spectral: ClassVar[tuple[str, ...]] = ("schedule_tau", "schedule_log_ridge", "schedule_level")

    def __init__(self, basis: Functions, clock: Clock, table: Table, system: System) -> None:
        super().__init__()
        self.basis, self._clock, self._system = basis, clock, system
        self.curve, self.diagnostics = table.curve, table.diagnostics
        for name in ("tau", "log_ridge", "level"):
            self.register_buffer(f"schedule_{name}", getattr(table.schedule, name))

    @property
    def process(self) -> Process:
        """The noising process."""
        return self.basis.process

    @property
    def clock(self) -> Clock:
        """The noise levels."""
        return self._clock

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a point, one axis."""
        return (self.basis.dim,)

    @property
    def times(self) -> tuple[float, float]:
        """The first and the last time of the clock."""
        ends = self.clock._time(torch.tensor([0.0, self.clock.horizon], dtype=torch.float64))
        return float(ends[0]), float(ends[1])

    @property
    def schedule(self) -> Schedule:
        """Ridge and level over clock time."""
        parts = (self.schedule_tau, self.schedule_log_ridge, self.schedule_level)
        return Schedule(*(part.cpu() for part in parts))

    @property
    def system(self) -> System:
        """The equations of the coefficients, which can be solved at any time."""
        return self._system

    @property
    def bandwidth(self) -> int | None:
        """The largest frequency of a coordinate; None if the functions are not waves."""
        return None

    @property
    def is_recordable(self) -> bool:
        """Whether, on a GPU, an evaluation at one time reads no numbers from the device.

        Then steps of the flow can be recorded as a CUDA graph.
        """
        return False

    def noise_error(self) -> Tensor | None:
        """Return the held-out mean square error of the predicted noise per entry: ``(K,)``.

        At the times of `diagnostics`; None if their loss does not determine this error.
        """
        return None

    def relative_density(self, x: Tensor, t: Tensor | float) -> Tensor:
        """Return ρ_t at points ``(n, dim)``, divided by its largest value there: ``(n,)``.

        From `System.density_ratio` if there is one, otherwise from the fitted score. The score
        determines the shape of the density, but not the masses of nearly separate regions.
        """
        ratio = self.system.density_ratio(x, t)
        log = self.log_ratio(x, t) if ratio is None else ratio.clamp(min=0).log()
        log = log + self.process.invariant.log_density(x)
        return (log - log.max()).exp()

    def facts(self) -> dict[str, Any]:
        """Return process, clock, basis, and the ridge and level at the ends of the clock."""
        found = self.diagnostics
        facts: dict[str, Any] = plain(
            {
                "kind": type(self).__name__,
                "process": repr(self.process),
                "clock": repr(self.clock),
                "basis": type(self.basis).__name__,
                "dim": self.basis.dim,
                "functions": self.basis.size,
                "knots": len(self.curve.knots),
                "times": list(self.times),
                "ridge": [found.ridge[0].tolist(), found.ridge[-1].tolist()],
                "level": [found.level[0].tolist(), found.level[-1].tolist()],
                "interpolation": float(found.interpolation),
            }
        )
        return facts

    def extra_repr(self) -> str:
        """Return basis and times for ``repr``."""
        first, last = self.times
        return f"{self.basis!r}, t from {first:.3g} to {last:.3g}"

    def to_config(self) -> dict[str, Any]:
        """Return what `from_config` needs: the system, the clock and the table."""
        curve = self.curve
        return {
            "system": self.system,
            "clock": self.clock,
            "order": curve.order,
            "knots": curve.knots,
            "values": curve.values,
            "slopes": curve.slopes,
            "schedule": dict(vars(self.schedule)),
            "diagnostics": dict(vars(self.diagnostics)),
        }

    @classmethod
    def from_config(  # noqa: PLR0913
        cls,
        *,
        system: System,
        clock: Clock,
        order: int,
        knots: Tensor,
        values: Tensor,
        slopes: Tensor | None,
        schedule: dict[str, Tensor],
        diagnostics: dict[str, Tensor],
    ) -> OperatorScore:
        """Return the score of a stored system, clock and table."""
        curve = Curve(knots, values, order=order, slopes=slopes)
        return system.score(clock, Table(curve, Schedule(**schedule), Diagnostics(**diagnostics)))

    @abstractmethod
    def _score(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:
        """Return ∇ log ρ_t at checked points ``(n, dim)``; α is shared or one per row."""

    @abstractmethod
    def _divergence(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:
        """Return ∇·∇ log ρ_t: ``(n,)``."""

    @abstractmethod
    def _log_ratio(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:
        """Return log(ρ_t/π) up to a constant: ``(n,)``."""

    def _joint(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:
        """Return the score and its divergence, ``(n, dim + 1)``."""
        parts = (self._score(x, t, alpha), self._divergence(x, t, alpha)[:, None])
        return torch.cat(parts, dim=1)

    def _rows(self, x: Tensor, t: Tensor) -> int:  # noqa: ARG002
        """Return the number of rows per batch."""
        return max(1, ROWS // max(1, self.curve.values[0].numel()))

    def coefficients(self, t: Tensor | float, *, exact: bool = False) -> Tensor:
        """Return α(t), of the shape of t followed by that of the coefficients.

        Interpolated in the table, or with ``exact`` solved for at exactly these times.
        """
        t = self._time(t)
        if not exact or not self.curve.values.numel():  # a Gaussian has nothing to solve for
            return self.curve(self.clock._inverse(t))  # type: ignore[no-any-return]
        flat = t.detach().reshape(-1).cpu()
        ridge, level = self.schedule.at(self.clock._inverse(flat))
        alpha = self.system.solve(flat, ridge, level).alpha
        return alpha.reshape(*t.shape, *alpha.shape[1:]).to(self.curve.values)

    def score(self, x: Tensor, t: Tensor | float) -> Tensor:
        """Return ∇ log ρ_t(x), of the shape of ``x``."""
        return self._evaluate(self._score, x, t).reshape(x.shape)

    def divergence(self, x: Tensor, t: Tensor | float) -> Tensor:
        """Return ∇·∇ log ρ_t(x), in closed form: ``(n,)``."""
        return self._evaluate(self._divergence, x, t)

    def score_and_divergence(self, x: Tensor, t: Tensor | float) -> tuple[Tensor, Tensor]:
        """Return the score, of the shape of ``x``, and its divergence ``(n,)``.

        The cost is close to that of one of them.
        """
        both = self._evaluate(self._joint, x, t)
        return both[:, :-1].reshape(x.shape), both[:, -1]

    def log_ratio(self, x: Tensor, t: Tensor | float) -> Tensor:
        """Return log(ρ_t/π)(x) up to a constant that depends on t only: ``(n,)``."""
        return self._evaluate(self._log_ratio, x, t)

    def _time(self, t: Tensor | float) -> Tensor:
        """Return times in float64; their range is checked on the CPU, without synchronisation."""
        low, high = self.times
        if isinstance(t, Tensor) and t.device.type != "cpu":
            if not t.is_floating_point() or t.ndim > 1:
                raise ValueError(f"t must be floating point of shape () or (n,), got {t!r}")
            return t.double() if has_float64(t.device) else t
        # A time that was rounded to its dtype may exceed the ends by one rounding error.
        kind = t.dtype if isinstance(t, Tensor) and t.is_floating_point() else torch.float64
        return checks.instants(t, "t", low=low, high=high, slack=4 * torch.finfo(kind).eps)

    def _evaluate(
        self, part: Callable[[Tensor, Tensor, Tensor], Tensor], x: Tensor, t: Tensor | float
    ) -> Tensor:
        """Return ``part`` of all rows, computed in batches to bound memory."""
        flat = checks.vectors(x, "x")
        if flat.ndim < 2 or flat.shape[1:].numel() != self.basis.dim:
            raise ValueError(
                f"x must have rows of {self.basis.dim} entries, got shape {tuple(x.shape)}"
            )
        flat, t = flat.flatten(1), self._time(t)
        if t.ndim and len(t) != len(flat):
            raise ValueError(
                f"t must be one number or one per row: {len(flat)} rows, {len(t)} values"
            )
        t = t.to(flat.device)
        step = len(flat) if torch.compiler.is_compiling() else self._rows(flat, t)
        pieces = []
        for start in range(0, max(1, len(flat)), max(1, step)):
            own = t if t.ndim == 0 else t[start : start + step]
            alpha = self.curve(self.clock._inverse(own)).to(flat)
            pieces.append(part(flat[start : start + step], own, alpha))
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)
