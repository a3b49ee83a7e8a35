"""Networks beside the closed-form model of a table, see `oism.tables._network`.

In up to three columns the model on the torus is itself the reference of the networks. References
that have not seen some rows are the same family fitted to the other rows.

A `JointModel` pools mixtures in several coordinates and has no noising process, so networks stand
beside a mixture of its own in the plain coordinates y, and the blend q(y) of both is pooled with
the closed-form model:

    p(x) = (1 - v) p_joint(x) + v q(y(x)) Π_j dy_j/dx_j.

Up to 3,000 rows, several folds are held out in turn; above, one. The share v maximises the
likelihood of the rows that were held out of both: this is a mixture of two known densities, and its
log-likelihood is concave in v. The closed-form model remains unless the likelihood of held-out rows
grows by more than two standard errors of the gain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, cast

import torch
from torch import Tensor

from oism._core import checks, draws
from oism.storage import storable
from oism.tables._blended_table import BlendedTable
from oism.tables._columns import Columns
from oism.tables._contract import HeldOut, ModelWithoutProcess, TabularModel
from oism.tables._family import Family
from oism.tables._folds import folds_by_content, ranges_of
from oism.tables._joint import JointModel
from oism.tables._mixture import MixtureModel
from oism.tables._mixture_fit import fit_mixtures
from oism.tables._model import TableModel
from oism.tables._network import Part, cross_fit_network
from oism.tables._network_model import BlendedMixture
from oism.tables._part import Coordinate, Identity, Warp, to_normal
from oism.tables._training_rows import FEW_ROWS, FOLDS

FEW_SECONDS, MANY_SECONDS = 30.0, 60.0
"""The training time by default: up to 3,000 rows, and above."""

LEAST_ROWS = 20
"""Networks are not trained on fewer rows."""


@dataclass(frozen=True)
class Training:
    """The time for all networks: seconds, or the largest number of steps of each."""

    seconds: float | None = None
    steps: int | None = None
    seed: int = 0
    progress: bool | None = None

    @classmethod
    def of(cls, network: float | str, rows: int) -> Training:
        """Return the training time that a user has given, or that of the number of rows."""
        if isinstance(network, str):
            return cls(FEW_SECONDS if rows <= FEW_ROWS else MANY_SECONDS)
        return cls(float(network))

    @property
    def arguments(self) -> dict[str, Any]:
        """Those of `cross_fit_network`."""
        names = ("seconds", "steps", "seed", "progress")
        return {name: getattr(self, name) for name in names}


def check_network(family: Family[Any], columns: Columns, weights: Tensor) -> None:
    """Raise unless networks can be trained for these columns and rows."""
    if columns.categorical:
        names = ", ".join(map(columns.label, columns.categorical))
        raise ValueError(
            f"network needs numeric columns, and these are categorical: {names}; leave network "
            "out, or fit the other columns alone"
        )
    if not family.allows_network:
        raise ValueError(
            f"network stands beside models on the torus and process='joint', not process="
            f"{family.example}: leave process or network out"
        )
    used = weights[weights > 0]
    if bool((used != used[0]).any()):
        raise ValueError("network needs rows of equal weight: leave sample_weight or network out")


def torus_with_network(
    model: TabularModel,
    rows: Tensor,
    fold: Tensor | None,
    refit: Callable[[Tensor], TabularModel],
    training: Training,
) -> TabularModel:
    """Return a model on the torus with networks beside it, or alone if held-out rows do not gain.

    ``refit`` returns the model of some of the rows, which a mask ``(n,)`` marks. The folds ``(n,)``
    that are held out follow from the content of rows unless they are given.
    """
    if len(rows) < LEAST_ROWS:
        return model
    if fold is None:
        ranges = ranges_of(cast("TableModel", model).chart)
        held = folds_by_content(rows, *ranges, FOLDS)
    else:
        held = fold % FOLDS
    train = [held != one for one in range(FOLDS if len(rows) <= FEW_ROWS else 1)]
    parts = [
        Part(refit(used), rows[used], rows[~used])
        for used in train
        if bool(used.any()) and not bool(used.all())
    ]
    if not parts:
        return model
    fit = cross_fit_network(model, parts, **training.arguments)
    return model if fit is None else cast("BlendedTable", fit.model)


def joint_with_network(model: JointModel, held_out: HeldOut, training: Training) -> TabularModel:
    """Return a pool of a model with networks, or the model alone if held-out rows do not gain."""
    if len(held_out.rows) < LEAST_ROWS or len(held_out.train) < 2:
        return model
    parts, places = [], []
    for used, coordinates in zip(held_out.train[:-1], held_out.coordinates[:-1], strict=True):
        y, log_jacobian = to_normal(coordinates, held_out.rows)
        reference = _reference(y[used], training)
        parts.append(Part(reference, y[used], y[~used]))
        places.append(torch.stack((log_jacobian, held_out.log_density), dim=1)[~used])
    coordinates = cast("tuple[Coordinate, ...]", held_out.coordinates[-1])
    y, _ = to_normal(coordinates, held_out.rows)
    reference = _reference(y, training)
    fit = cross_fit_network(reference, parts, **training.arguments)
    if fit is None:
        return model
    logs = []
    for place, found in zip(places, fit.held, strict=True):
        log_jacobian, known = place[: len(found)].unbind(dim=1)
        logs.append(torch.stack((known, found[:, 1] + log_jacobian), dim=1))
    share, gain, error = best_pool(torch.cat(logs))
    if not gain > 2 * error:  # also where one of them is NaN
        return model
    blend = cast("BlendedMixture", fit.model)
    notes = {"seconds": training.seconds, "gain": gain, "error": error}
    return PooledModel(model, WarpedModel(coordinates, blend), share, notes)


def _reference(y: Tensor, training: Training) -> MixtureModel:
    """Return a mixture for networks to stand beside; one start is enough, as they correct it."""
    return fit_mixtures(y, starts=1, seed=training.seed, progress=training.progress)


def best_pool(log_densities: Tensor) -> tuple[float, float, float]:
    """Return the share of the second of two models, the gain over the first, and its error.

    From log-densities ``(n, 2)`` of held-out rows. With the ratio r of the two densities the slope
    of the log-likelihood, the mean of (r - 1)/(1 - v + vr), falls with v, and its root is found by
    bisection. The gain is in nats per row. The first model keeps at least the weight of one row.
    """
    n = len(log_densities)
    ratio = log_densities.diff(dim=1)[:, 0]
    low, high = 0.0, 1 - 1 / (n + 1)
    for _ in range(50):
        share = 0.5 * (low + high)
        # (r - 1)/(1 - v + vr) with the larger of r and 1 in front: neither part overflows.
        top = ratio.clamp(min=0)
        slope = (ratio - top).exp() - (-top).exp()
        slope = slope / ((1 - share) * (-top).exp() + share * (ratio - top).exp())
        low, high = (share, high) if float(slope.mean()) > 0 else (low, share)
    weights = torch.tensor([1 - share, share], dtype=torch.float64).log()
    change = torch.logsumexp(log_densities + weights, dim=1) - log_densities[:, 0]
    return share, float(change.mean()), float(change.std() / math.sqrt(n))


@storable
class WarpedModel(torch.nn.Module):
    """A density of coordinates y that each depend on one column: log q(y) + Σ_j log dy_j/dx_j.

    Parameters
    ----------
    coordinates
        One for each column.
    inner
        The density q of y.
    """

    def __init__(self, coordinates: tuple[Identity | Warp, ...], inner: BlendedMixture) -> None:
        super().__init__()
        self.coordinates, self.inner = tuple(coordinates), inner
        if len(self.coordinates) != inner.dim:
            raise ValueError(f"coordinates must be {inner.dim}, got {len(self.coordinates)}")

    def to_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {"coordinates": self.coordinates, "inner": self.inner}

    def log_density(self, x: Tensor, *, progress: bool | None = None) -> Tensor:
        """Return log p at rows ``(n, d)``: ``(n,)``; -∞ beyond bounds."""
        y, log_jacobian = to_normal(self.coordinates, x)
        return self.inner.log_density(y, progress=progress) + log_jacobian

    def sample(self, n: int, generator: torch.Generator | None) -> Tensor:
        """Return n rows."""
        x = self.inner.sample(n, generator).cpu()
        for j, one in enumerate(self.coordinates):
            x[:, j] = one.to_data(x[:, j])
        return x


@storable
class PooledModel(ModelWithoutProcess):
    """The closed-form model of a table pooled with one that has networks.

    Parameters
    ----------
    joint
        The closed-form model.
    blend
        The density with networks.
    share
        The probability v of the latter, in (0, 1).
    notes
        What is known of the fit: ``seconds`` of training, and the ``gain`` in the log-likelihood of
        held-out rows, in nats, with its standard ``error``.
    """

    def __init__(
        self,
        joint: JointModel,
        blend: WarpedModel,
        share: float,
        notes: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        checks.instance(joint, JointModel, "joint")
        checks.instance(blend, WarpedModel, "blend")
        if blend.inner.dim != joint.dim:
            raise ValueError(f"blend must have {joint.dim} columns, got {blend.inner.dim}")
        if not 0 < share < 1:
            raise ValueError(f"share must be in (0, 1), got {share!r}")
        self.joint, self.blend, self.share = joint, blend, share
        self.notes = dict(notes or {})

    def to_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {name: getattr(self, name) for name in ("joint", "blend", "share", "notes")}

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a row, one axis."""
        return self.joint.shape

    def _no_process(self) -> NoReturn:
        self.joint._no_process()

    def facts(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Return the facts of the closed-form model, and those of the networks."""
        found, inner = self.joint.facts(names), self.blend.inner
        held_out, gain = found.get("held_out"), self.notes.get("gain")
        if held_out is not None and gain is not None:
            found["held_out"] = held_out + gain
        network = {
            "share": self.share,
            "networks": len(inner.blend.networks),
            "steps": inner.steps,
            **self.notes,
        }
        return {**found, "kind": type(self).__name__, "network": network}

    def extra_repr(self) -> str:
        """Return what torch prints of the module."""
        return f"{self.dim} columns, share of the networks {self.share:.3g}"

    def _log_density(self, x: Tensor, *, progress: bool | None = None, **_: object) -> Tensor:
        """Return log p at rows ``(n, d)``: ``(n,)``; the steps of the flow are the model's own."""
        rows = x.cpu().double()
        known = self.joint.log_density(rows) + math.log1p(-self.share)
        blend = self.blend.log_density(rows, progress=progress) + math.log(self.share)
        return torch.logaddexp(known, blend).to(x)

    def _sample(self, n: int, generator: torch.Generator | None, **_: object) -> Tensor:
        """Return n rows drawn from the pool, float64."""
        chance = draws.uniform((n,), generator, dtype=torch.float64)
        own = chance < self.share
        rows = self.joint.sample(n, generator)
        rows[own] = self.blend.sample(int(own.sum()), generator)
        for j, one in enumerate(self.joint.columns):
            if one.period is not None:
                rows[:, j] = one.within_turn(rows[:, j])
        return rows

    def marginal(self, columns: Sequence[int]) -> NoReturn:  # noqa: ARG002
        """Not defined: a network has no marginals in closed form."""
        self._no_marginals()

    def conditional(self, given: Mapping[int, float]) -> NoReturn:  # noqa: ARG002
        """Not defined: a network has no conditionals in closed form."""
        self._no_marginals()

    def _no_marginals(self) -> NoReturn:
        raise TypeError(
            "a model with a network has no marginals and conditionals in closed form, which gaps "
            "and given values need: fit without network"
        )
