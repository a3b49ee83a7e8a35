"""Mixtures of Gaussians as models of tables: everything in closed form, without a flow.

In standardised columns u = (x - c)/s a mixture is

    p(u) = Σ_k w_k N(u; m_k, S_k).

The Ornstein-Uhlenbeck process, U_t = αU + σε with α = e^{-t} and σ² = 1 - α², keeps it a mixture of
as many Gaussians, with the eigenvectors of S_k at every time:

    ρ_t = Σ_k w_k N(α m_k, C_k),    C_k = α²S_k + σ²I.

With responsibilities r_k(u) and s_k = -C_k⁻¹(u - αm_k), the score and its divergence are

    s = Σ_k r_k s_k,    ∇·s = Σ_k r_k (‖s_k‖² - tr C_k⁻¹) - ‖s‖².

Marginals drop columns; conditionals are mixtures again, by the formulas for a Gaussian and weights
proportional to the density of the given values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from oism._core import checks, draws
from oism._core.transforms import matmul
from oism.process import Clock, OrnsteinUhlenbeck, VariancePreserving
from oism.storage import storable
from oism.tables._chart import WhiteChart
from oism.tables._contract import TabularModel, distinct_columns
from oism.tables._gaps import patterns
from oism.tables._gaussians import Gaussians, features
from oism.tables._pieces import density_entries, in_pieces, multiplied, score_entries
from oism.tables._process import ChartedProcess
from oism.tables._tensors import check_tensor

FAR = 1e120
"""Standardised and whitened values are cut off here, so that their squares stay finite."""


@storable
class MixtureModel(TabularModel):
    """A mixture of Gaussians, in the data's units.

    Parameters
    ----------
    centre, scale
        What is subtracted from the columns, and what they are divided by: ``(d,)``.
    weights, means, covariances
        Of the components, in these standardised columns: ``(k,)``, ``(k, d)``, ``(k, d, d)``.

    Examples
    --------
    >>> model = MixtureModel(
    ...     centre=torch.zeros(2).double(),
    ...     scale=torch.ones(2).double(),
    ...     weights=torch.tensor([0.5, 0.5]).double(),
    ...     means=torch.tensor([[-1.0, 0.0], [1.0, 0.0]]).double(),
    ...     covariances=0.25 * torch.eye(2).double().expand(2, 2, 2),
    ... )
    >>> model.conditional({0: 1.0}).marginal([0]).sample(3).shape  # column 1, given column 0
    torch.Size([3, 1])
    """

    weights: Tensor
    means: Tensor
    covariances: Tensor
    _values: Tensor
    _vectors: Tensor
    _mean: Tensor
    _forth: Tensor
    _table: Tensor

    def __init__(
        self,
        centre: Tensor,
        scale: Tensor,
        weights: Tensor,
        means: Tensor,
        covariances: Tensor,
    ) -> None:
        super().__init__()
        dim, count = len(centre), len(weights)
        for part, name, shape in (
            (centre, "centre", (dim,)),
            (scale, "scale", (dim,)),
            (weights, "weights", (count,)),
            (means, "means", (count, dim)),
            (covariances, "covariances", (count, dim, dim)),
        ):
            check_tensor(part, name, shape)
        if not bool((weights > 0).all()) or not math.isclose(float(weights.sum()), 1, abs_tol=1e-9):
            raise ValueError("weights must be positive with a sum of 1")
        if not bool((scale > 0).all()):
            raise ValueError("scale must be positive")
        self.centre, self.scale = centre, scale
        for name, part in (("weights", weights), ("means", means), ("covariances", covariances)):
            self.register_buffer(name, part.contiguous())
        # Cholesky's factors tell, whatever the units of the columns; eigenvalues may round below 0.
        if bool(torch.linalg.cholesky_ex(self.covariances).info.any()):
            raise ValueError("covariances must be positive definite")
        values, vectors = torch.linalg.eigh(self.covariances)
        least = 1e-18 * values[:, -1:] if dim else values
        self.register_buffer("_values", torch.maximum(values, least), persistent=False)
        self.register_buffer("_vectors", vectors, persistent=False)
        for name, part in zip(("_mean", "_forth", "_table"), self._whitened(), strict=True):
            self.register_buffer(name, part, persistent=False)

    def _whitened(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return mean and map of whitened coordinates z = (u - mean) forth, and log p as a table.

        There the log-densities of all components are one matrix product, without cancellation
        between columns that are nearly sums of others.
        """
        mean = self.weights @ self.means
        gap = self.means - mean
        whole = torch.einsum("k,kij->ij", self.weights, self.covariances)
        values, vectors = torch.linalg.eigh(whole + (self.weights[:, None] * gap).mT @ gap)
        forth = vectors / values.clamp(min=1e-14 * float(values.sum())).sqrt()
        inside = Gaussians(
            self.weights.log(),
            gap @ forth,
            forth.mT @ self.covariances @ forth,
            self.weights.new_zeros(len(self.weights), 0),
        )
        table = inside.coefficients
        table[0] += torch.linalg.slogdet(forth)[1]
        return mean, forth, table

    def log_terms(self, x: Tensor) -> Tensor:
        """Return log(w_k N_k) at rows ``(n, d)`` in the data's units: ``(n, k)``."""
        entries = density_entries(self.dim, self.components)
        terms = in_pieces(self._log_terms, entries, self._rows(x))
        return terms - self.scale.log().sum().to(self.means)

    def _log_terms(self, u: Tensor) -> Tensor:
        # Squares of values cut off so far out are finite, and so are their sums.
        z = matmul(u - self._mean, self._forth).clamp(-FAR, FAR)
        return matmul(features(z, z.new_zeros(len(z), 0)), self._table)

    def to_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        names = ("centre", "scale", "weights", "means", "covariances")
        return {name: getattr(self, name) for name in names}

    @cached_property
    def chart(self) -> WhiteChart:
        """The map from the data's units to standardised columns."""
        matrix, inverse = torch.diag(1 / self.scale), torch.diag(self.scale)
        return WhiteChart(self.centre, matrix, inverse, torch.ones_like(self.scale))

    @cached_property
    def process(self) -> ChartedProcess:
        """The Ornstein-Uhlenbeck process of the standardised columns, in the data's units."""
        return ChartedProcess(OrnsteinUhlenbeck(), self.chart)

    @property
    def clock(self) -> Clock:
        """The variance preserving clock."""
        return VariancePreserving()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a row, one axis."""
        return (len(self.centre),)

    @property
    def times(self) -> tuple[float, float]:
        """The first and the last time of the process that `score` can be evaluated at."""
        return 0.0, math.inf

    @property
    def components(self) -> int:
        """The number of Gaussians."""
        return len(self.weights)

    def facts(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Return the columns and the number of components."""
        names = [str(j) for j in range(self.dim)] if names is None else names
        return {
            "kind": "MixtureModel",
            "columns": [{"name": name, "kind": "free"} for name in names],
            "components": self.components,
        }

    def extra_repr(self) -> str:
        """Return what torch prints of the module."""
        return f"{self.dim} columns, {self.components} components"

    def _rows(self, x: Tensor) -> Tensor:
        """Return standardised columns, on the device and in the dtype of the components."""
        return self.chart.to_process(checks.points(x, dim=self.dim)).to(self.means)

    @staticmethod
    def _by_component(x: Tensor, matrices: Tensor) -> Tensor:
        """Return the rows ``(n, k, d)`` times the matrix of each component ``(k, d, d)``.

        The components come first: otherwise torch copies all matrices for each row.
        """
        return matmul(x.transpose(0, 1), matrices).transpose(0, 1)

    def _terms(self, u: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log(w_k N_k) ``(n, k)``, s_k along eigenvectors, and the variances C_k.

        t is one number or one per row.
        """
        alpha = torch.exp(-t)[..., None, None]
        variance = alpha.square() * self._values - torch.expm1(-2 * t)[..., None, None]
        gap = u[:, None] - alpha * self.means  # (n, k, d)
        along = self._by_component(gap, self._vectors)
        log_normal = -0.5 * (along.square() / variance + variance.log()).sum(dim=-1)
        constant = 0.5 * self.dim * math.log(2 * math.pi)
        return self.weights.log() + log_normal - constant, -along / variance, variance

    def _log_density(self, x: Tensor, **_: object) -> Tensor:
        """Return log p at rows ``(n, d)``: ``(n,)``, exactly."""

        def density(u: Tensor) -> Tensor:
            return torch.logsumexp(self._log_terms(u), dim=1)

        entries = density_entries(self.dim, self.components)
        result = in_pieces(density, entries, self._rows(x)) - self.scale.log().sum()
        return result.to(x)

    def _joint(self, u: Tensor, t: Tensor) -> Tensor:
        """Return the score and its divergence in standardised columns: ``(n, d + 1)``."""
        log_terms, along, variance = self._terms(u, t)
        share = torch.softmax(log_terms, dim=1)
        parts = self._by_component(along, self._vectors.mT)
        score = (share[..., None] * parts).sum(dim=1)
        curvature = along.square().sum(dim=-1) - (1 / variance).sum(dim=-1)
        divergence = (share * curvature).sum(dim=1) - score.square().sum(dim=1)
        return torch.cat((score, divergence[:, None]), dim=1)

    def _score_and_divergence(self, x: Tensor, t: Tensor | float) -> tuple[Tensor, Tensor]:
        u = self._rows(x).clamp(-FAR, FAR)
        time = checks.instants(t, "t", low=0.0, high=math.inf).to(u)
        if time.ndim and len(time) != len(u):
            raise ValueError(
                f"t must be one number or one per row: {len(u)} rows, {len(time)} values"
            )
        entries = score_entries(self.dim, self.components)
        both = in_pieces(self._joint, entries, u, time).to(x)
        return self.chart.pull_score(both[:, :-1]), both[:, -1]

    def score(self, x: Tensor, t: Tensor | float) -> Tensor:
        """Return ∇ log ρ_t(x) in the data's units: ``(n, d)``."""
        return self._score_and_divergence(x, t)[0]

    def score_and_diffused_divergence(self, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return the score and ∇·G∇ log ρ_t, which does not depend on the units: ``(n,)``."""
        score, divergence = self._score_and_divergence(x, t)
        return score, OrnsteinUhlenbeck().diffusivity * divergence

    def _sample(self, n: int, generator: torch.Generator | None, **_: object) -> Tensor:
        """Return n rows drawn from the mixture itself, float64."""
        return self.sample_with_components(n, generator)[0]

    def sample_with_components(
        self, n: int, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return n rows, and the component that each of them is drawn from: ``(n,)``."""
        n, weights = checks.integer(n, "n", minimum=0), self.weights.cpu()
        chosen = draws.multinomial(weights, n, generator)
        noise = draws.normal((n, self.dim), generator, dtype=torch.float64)
        spread = self._vectors.cpu() * self._values.cpu().sqrt()[:, None]
        u = self.means.cpu()[chosen] + multiplied(spread, chosen, noise)
        return self.chart.to_data(u).to(self.device), chosen

    def marginal(self, columns: Sequence[int]) -> MixtureModel:
        """Return the model of some columns alone, in the order given."""
        return self.restricted(distinct_columns(columns, self.dim, "columns"))

    def restricted(self, kept: Sequence[int]) -> MixtureModel:
        """Return the model of distinct columns, which may be none."""
        index = torch.tensor(list(kept), dtype=torch.int64)
        return MixtureModel(
            self.centre[index],
            self.scale[index],
            self.weights,
            self.means[:, index],
            self.covariances[:, index][:, :, index],
        )

    def conditional(self, given: Mapping[int, float]) -> MixtureModel:
        """Return the model of the other columns, in their order, given values of some."""
        known = distinct_columns(list(given), self.dim, "given")
        if len(known) == self.dim:
            raise ValueError(f"given must leave at least one of the {self.dim} columns")
        return self.given({c: checks.number(given[c], f"given[{c}]") for c in known})[1]

    def given(
        self, values: Mapping[int, float], log_factors: Tensor | None = None
    ) -> tuple[float, MixtureModel, Tensor]:
        """Return the log-density of values of some columns, and the mixture of the others.

        ``log_factors`` ``(k,)`` are added to the log-weights of the components before. The third
        result are the components that the mixture has kept.
        """
        known = list(values)
        rest = [column for column in range(self.dim) if column not in known]
        log_weights = self.weights.cpu().log()
        if log_factors is not None:
            log_weights = log_weights + log_factors
        point = torch.tensor([values[c] for c in known], dtype=torch.float64)
        u = ((point - self.centre[known]) / self.scale[known]).clamp(-FAR, FAR)
        gap = u - self.means[:, known].cpu()
        own, across = self._blocks(known, known), self._blocks(rest, known)
        factor = torch.linalg.cholesky(own)
        z = torch.linalg.solve_triangular(factor, gap[..., None], upper=False)
        root = torch.linalg.solve_triangular(factor, across.mT, upper=False)
        log_normal = -0.5 * z.square().sum(dim=(1, 2))
        log_normal = log_normal - factor.diagonal(dim1=-2, dim2=-1).log().sum(dim=1)
        log_normal = log_normal - 0.5 * len(known) * math.log(2 * math.pi)
        logs = log_weights + log_normal
        weights = torch.softmax(logs, dim=0)
        kept = (weights > 1e-12).nonzero()[:, 0]
        means = self.means[:, rest].cpu() + (root.mT @ z)[..., 0]
        covariances = self._blocks(rest, rest) - root.mT @ root
        mixture = MixtureModel(
            self.centre[rest],
            self.scale[rest],
            weights[kept] / weights[kept].sum(),
            means[kept],
            0.5 * (covariances + covariances.mT)[kept],
        ).to(self.device)
        log_mass = float(torch.logsumexp(logs, dim=0) - self.scale[known].log().sum())
        return log_mass, mixture, kept

    @torch.no_grad()
    def completed(self, rows: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return rows ``(n, d)`` whose missing values, NaN, are drawn given the other values."""
        result = rows.clone()
        for there, index in patterns(rows):
            if not there:
                result[index] = self.sample(len(index), generator).to(rows)
            if len(there) in (0, self.dim):
                continue
            known = rows[index][:, there].cpu().double()
            chance = torch.softmax(self.restricted(there).log_terms(known).cpu(), dim=1)
            drawn = self.draw_rest(there, known, draws.categorical(chance, generator), generator)
            gaps = [j for j in range(self.dim) if j not in there]
            result[index[:, None], torch.tensor(gaps, dtype=torch.int64)] = drawn.to(rows)
        return result

    def draw_rest(
        self, known: Sequence[int], x: Tensor, component: Tensor, generator: torch.Generator | None
    ) -> Tensor:
        """Return the other columns drawn given values of known ones, each row from a component.

        ``x`` is ``(n, len(known))`` and ``component`` ``(n,)``; the result ``(n, others)``.
        """
        known = list(known)
        rest = [column for column in range(self.dim) if column not in known]
        own, across = self._blocks(known, known), self._blocks(rest, known)
        gain = torch.linalg.solve(own, across.mT).mT  # (k, rest, known)
        spread = self._blocks(rest, rest) - gain @ across.mT
        values, vectors = torch.linalg.eigh(0.5 * (spread + spread.mT))
        root = vectors * values.clamp(min=0).sqrt()[:, None]
        means = self.means.cpu()
        place = ((x - self.centre[known]) / self.scale[known]).clamp(-FAR, FAR)
        gap = place - means[:, known][component]
        noise = draws.normal((len(x), len(rest)), generator, dtype=torch.float64)
        u = means[:, rest][component] + multiplied(gain, component, gap)
        u = u + multiplied(root, component, noise)
        drawn: Tensor = u * self.scale[rest] + self.centre[rest]
        return drawn

    def _blocks(self, rows: list[int], columns: list[int]) -> Tensor:
        return self.covariances[:, rows][:, :, columns].cpu()
