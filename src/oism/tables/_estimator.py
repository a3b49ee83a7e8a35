"""`OISM`: the closed-form diffusion model as a scikit-learn density estimator.

    data ─► chart ─► moments ─► score ─► flow ─► log-densities and samples, in the data's units

The model's density is that of the probability flow, mixed with a light *defensive* Gaussian where
columns are free: p(x) = (1 - w) ρ(x) + w N(x; m, 4S) with the data's mean and covariance and
w = 1/(n + 1), or more where the data have wild rows that a box should not be stretched for. So the
log-density is finite everywhere, and a point outside of the box costs what a rare event should.
Samples are drawn from the same mixture.

The flow is integrated by Runge and Kutta's method on a grid of times that is fixed when the model
is fitted: it is refined until the log-densities of samples do not change, and then a point's
density does not depend on which other points came with it.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, DensityMixin, _fit_context
from sklearn.utils import check_array, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import (
    _check_n_features,
    _check_sample_weight,
    check_is_fitted,
    validate_data,
)
from torch import Tensor

from oism._core import checks
from oism.basis import Fourier
from oism.estimation import (
    CrossValidation,
    EvenKnots,
    FourierMoments,
    JamesStein,
    Modulation,
    Moments,
    Monotone,
    PlacedKnots,
    SampleMeans,
    Shrinkage,
    fit_moments,
    fold_of,
    moments_of,
)
from oism.flow import StochasticHeun
from oism.process import Clock, Process
from oism.tables import _choices as plan
from oism.tables import _storage as storage
from oism.tables._background import Spread
from oism.tables._chart import BoxChart
from oism.tables._columns import Columns, by_index
from oism.tables._conditional import DIM as CONDITIONAL_DIM
from oism.tables._conditional import sample_given
from oism.tables._copies import CopyCheck, nearest_neighbour_check
from oism.tables._model import DensityModel, settled_steps
from oism.tables._summary import describe, facts

Array = NDArray[np.float64]
RandomState = int | np.random.RandomState | None

SHRINKAGES: dict[str, type[Shrinkage]] = {
    "none": SampleMeans,
    "james-stein": JamesStein,
    "modulation": Modulation,
    "monotone": Monotone,
}

FEW_ROWS_RIDGE = 0.1
"""The ridge where rows are too few, or too equal, to fall into two folds."""

OUTSIDE = 0.01
"""The share of a later batch that may lie outside of the box without a word."""

TIMES = 17
"""The number of times at which ridge and cutoff are chosen."""

KNOT_ERROR = 1e-2
"""The relative error of scores between the times at which they are solved for."""


class OISM(DensityMixin, BaseEstimator):  # type: ignore[misc]
    """A diffusion model fitted in closed form: density, samples and the scores of all noise levels.

    Parameters
    ----------
    process : {"auto", "torus", "ou"} or Process
        What diffuses. "auto": the torus for at most three columns, the Ornstein-Uhlenbeck process
        above.
    periodic : dict of column -> period, optional
        Columns that are angles or the like; they count modulo the period. A column is named by its
        index, or by its name where the data are a frame.
    bounds : dict of column -> (low, high), optional
        Columns that cannot leave an interval; they are reflected at its ends.
    box : (low, high), optional
        One interval for all columns: (-π, π) means angles in radians, or data already in place.
    max_eigenvalue : "auto" or float
        Torus: waves with 0 < ‖ξ‖² ≤ this. An upper bound; what is used of it is cross-validated.
    order : "auto" or int
        Ornstein-Uhlenbeck: the largest degree of the polynomials, likewise an upper bound.
    frame : {"pca", "identity"}
        Ornstein-Uhlenbeck: polynomials along the principal directions of the standardised columns,
        or of the columns themselves.
    shrinkage : {"none", "james-stein", "modulation", "monotone"}
        How averages are estimated.
    ridge : "cv" or float
        Chosen by cross-validation at every noise level, or one number for all.
    cv : int or cross-validation splitter
        The number of folds, to which rows are assigned by their content; or a splitter of
        scikit-learn's, or its splits, whose test sets hold every row once.
    clock : Clock, optional
        The range of noise levels.
    n_times : "auto" or int
        The number of steps of the flow.
    random_state : int, RandomState or None
        For `sample`, where it is given none of its own. Fitting is deterministic.
    device : str or torch.device, optional
        Where scores are evaluated; fitting runs on the CPU.

    Attributes
    ----------
    model_ : DensityModel
        Everything that was fitted: ``model_.score`` are the scores of all noise levels in the
        process's coordinates, ``model_.chart`` leads there, ``model_.steps`` is the number of
        steps of the flow.
    n_features_in_, feature_names_in_
        As in every scikit-learn estimator.

    Examples
    --------
    >>> import numpy as np
    >>> from oism import OISM
    >>> X = np.random.default_rng(0).normal(size=(500, 1))
    >>> model = OISM().fit(X)
    >>> model.score_samples([[1.0]]).round(1)  # the truth is -1.42
    array([-1.4])
    >>> model.sample(3, random_state=0).shape
    (3, 1)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "process": [StrOptions({"auto", "torus", "ou"}), Process],
        "periodic": [Mapping, None],
        "bounds": [Mapping, None],
        "box": ["array-like", None],
        "max_eigenvalue": [StrOptions({"auto"}), Interval(Real, 1, None, closed="left")],
        "order": [StrOptions({"auto"}), Interval(Integral, 2, None, closed="left")],
        "frame": [StrOptions({"pca", "identity"})],
        "shrinkage": [StrOptions(set(SHRINKAGES))],
        "ridge": [StrOptions({"cv"}), Interval(Real, 0, None, closed="left")],
        "cv": ["cv_object"],
        "clock": [Clock, None],
        "n_times": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
        "device": [str, torch.device, None],
    }

    def __init__(  # noqa: PLR0913
        self,
        *,
        process: str | Process = "auto",
        periodic: Mapping[Any, float] | None = None,
        bounds: Mapping[Any, tuple[float, float]] | None = None,
        box: tuple[float, float] | None = None,
        max_eigenvalue: float | str = "auto",
        order: int | str = "auto",
        frame: str = "pca",
        shrinkage: str = "none",
        ridge: float | str = "cv",
        cv: Any = 5,  # noqa: ANN401
        clock: Clock | None = None,
        n_times: int | str = "auto",
        random_state: RandomState = None,
        device: str | torch.device | None = None,
    ) -> None:
        self.process = process
        self.periodic = periodic
        self.bounds = bounds
        self.box = box
        self.max_eigenvalue = max_eigenvalue
        self.order = order
        self.frame = frame
        self.shrinkage = shrinkage
        self.ridge = ridge
        self.cv = cv
        self.clock = clock
        self.n_times = n_times
        self.random_state = random_state
        self.device = device

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> Self:  # noqa: N803, ARG002
        """Fit the model to rows ``(n, d)``; ``sample_weight`` has one entry per row.

        ``y`` is ignored.
        """
        rows = self._rows(X, reset=True)
        weights = self._weights(sample_weight, rows)
        fold = self._begin(rows, weights)
        self._add(rows, weights, fold)
        self._settle()
        return self

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def partial_fit(
        self,
        X: ArrayLike,  # noqa: N803
        y: object = None,  # noqa: ARG002
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Add rows to those seen before: moments merge, so the order and the batches do not matter.

        The first batch decides the scale of free columns and, unless given, the number of
        functions; ``periodic``, ``bounds`` and ``box`` do not depend on it. Equations are solved
        when the model is next used.
        """
        first = not hasattr(self, "moments_")
        if first and hasattr(self, "model_"):
            raise ValueError(
                "partial_fit needs the moments of the rows seen before, and a loaded model has "
                "none: fit a new one, or pickle the estimator instead"
            )
        rows = self._rows(X, reset=first)
        weights = self._weights(sample_weight, rows)
        if self.cv is not None and not isinstance(self.cv, Integral):
            raise ValueError("partial_fit needs a number of folds: cv must be an integer")
        if first:
            self._begin(rows, weights)
        elif isinstance(self.chart_, BoxChart):
            self._tell_of_outside(rows[weights > 0])
        self._add(rows, weights)
        self._stale = True
        return self

    def score_samples(self, X: ArrayLike) -> Array:  # noqa: N803
        """Return the log-density of each row, per unit of the data."""
        model = self._fitted()
        return model.log_density(self._rows(X)).numpy()

    def score(self, X: ArrayLike, y: object = None) -> float:  # noqa: N803, ARG002
        """Return the sum of the log-densities of the rows."""
        return float(np.sum(self.score_samples(X)))

    def sample(
        self,
        n_samples: int = 1,
        random_state: RandomState = None,
        *,
        given: Mapping[Any, float] | None = None,
        method: str = "ode",
    ) -> Array:
        """Return rows drawn from the model: ``(n_samples, d)``.

        Parameters
        ----------
        n_samples
            How many; 0 is allowed.
        random_state
            A seed or a NumPy ``RandomState``; the estimator's own by default.
        given
            Values of some columns, by index or name: the others are drawn given these. On the
            torus, in at most three dimensions.
        method
            "ode", the probability flow, or "sde", the reverse SDE.
        """
        model = self._fitted()
        n = checks.integer(n_samples, "n_samples", minimum=0)
        if method not in ("ode", "sde"):
            raise ValueError(f"method must be 'ode' or 'sde', got {method!r}")
        state = check_random_state(self.random_state if random_state is None else random_state)
        generator = torch.Generator().manual_seed(int(state.randint(2**31 - 1)))
        if given and method == "sde":
            raise ValueError("method must be 'ode' where columns are given")
        if given:
            return sample_given(model, self._columns_given(given), n, generator).numpy()
        stochastic = StochasticHeun(max(256, 4 * model.steps)) if method == "sde" else None
        return model.sample(n, generator, stochastic).numpy()

    def score_function(self, X: ArrayLike, t: ArrayLike) -> Array:  # noqa: N803
        """Return ∇ log ρ_t at rows, per unit of the data: ``(n, d)``.

        ``t`` is the process's own time, one number or one per row, within ``model_.score.times``:
        on the torus ρ_t is the law of the data with noise of variance 2t in the box's coordinates.
        """
        model = self._fitted()
        rows = self._rows(X)
        times = torch.as_tensor(np.asarray(t, dtype=np.float64))
        return model.score_at(rows, times).numpy()

    def check_copies(
        self,
        X: ArrayLike,  # noqa: N803
        samples: ArrayLike | None = None,
        *,
        n_samples: int = 1000,
        random_state: RandomState = 0,
    ) -> CopyCheck:
        """Tell whether samples are copies of the rows the model was fitted to.

        Compares the distances from samples to their nearest rows with those between rows; draws
        ``n_samples`` samples unless some are given.
        """
        model = self._fitted()
        if samples is None:
            samples = self.sample(n_samples, random_state=random_state)
        periods = np.zeros(self.n_features_in_)
        if isinstance(model.chart, BoxChart):
            chart = model.chart
            periods = torch.where(chart.periodic, 2 * math.pi / chart.scale, 0.0).numpy()
        rows = self._rows(X).numpy()
        if isinstance(samples, np.ndarray):  # as `sample` returns them: without column names
            drawn = check_array(samples, dtype=np.float64)
            _check_n_features(self, drawn, reset=False)
        else:
            drawn = self._rows(samples).numpy()
        return nearest_neighbour_check(drawn, rows, periods=periods)

    def summary(self) -> str:
        """Return what was chosen, as text."""
        return describe(self.facts())

    def facts(self) -> dict[str, Any]:
        """Return what was chosen, as plain numbers, texts, lists and dictionaries."""
        model = self._fitted()
        names = getattr(self, "feature_names_in_", range(self.n_features_in_))
        return facts(model, [str(name) for name in names])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one safetensors file, atomically."""
        model = self._fitted()
        settings: dict[str, object] = {"parameters": storage.plain(self.get_params(deep=False))}
        names = getattr(self, "feature_names_in_", None)
        if names is not None:
            settings["feature_names_in"] = [str(name) for name in names]
        storage.save(model, path, settings)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Return the estimator that was saved to a file."""
        model, settings = storage.load(path)
        estimator = cls(**storage.parameters(settings["parameters"]))
        estimator.model_ = model
        estimator.chart_ = model.chart
        estimator.n_features_in_ = model.score.basis.dim
        if "feature_names_in" in settings:
            estimator.feature_names_in_ = np.array(settings["feature_names_in"], dtype=object)
        return estimator

    def __sklearn_is_fitted__(self) -> bool:
        """Tell whether there is a model, or what one can be made of."""
        return hasattr(self, "model_") or hasattr(self, "moments_")

    def _rows(self, X: ArrayLike, *, reset: bool = False) -> Tensor:  # noqa: N803
        """Return rows as a float64 tensor, as scikit-learn demands them."""
        array = validate_data(self, X, dtype=np.float64, order="C", reset=reset)
        return torch.from_numpy(np.require(array, requirements=["C", "W"]))

    @staticmethod
    def _weights(sample_weight: ArrayLike | None, rows: Tensor) -> Tensor:
        weights = _check_sample_weight(
            sample_weight, rows.numpy(), dtype=np.float64, ensure_non_negative=True
        )
        return torch.from_numpy(np.require(weights, requirements=["C", "W"]))

    def _fitted(self) -> DensityModel:
        check_is_fitted(self)
        if not hasattr(self, "model_") or getattr(self, "_stale", False):
            self._settle()
        return self.model_

    def _begin(self, rows: Tensor, weights: Tensor) -> Tensor | None:
        """Choose process, chart and basis by a first look at the rows, and start counting.

        Returns the folds of the rows, where those do not follow from their content.
        """
        if self.device is not None:
            checks.device(self.device)  # better to fail now than after the fit
        used = weights > 0
        if not bool(used.any()):
            raise ValueError("sample_weight must have a positive sum")
        names = getattr(self, "feature_names_in_", None)
        columns = Columns.of(rows.shape[1], names, self.periodic, self.bounds, self.box)
        process = plan.choose_process(self.process, columns)
        columns.tell_of_constants(rows[used])
        self.columns_, self.outside_ = columns, 0.0
        self.spread_ = Spread(rows[used].mean(dim=0))
        self.chart_, n = plan.choose_chart(process, columns, rows[used], weights[used], self.frame)
        self.basis_ = plan.choose_basis(process, columns.count, n, self.max_eigenvalue, self.order)
        folds, fold = plan.choose_folds(self.cv, len(rows))
        squares = SHRINKAGES[self.shrinkage].needs_variances
        self.moments_ = moments_of(self.basis_, folds, squares=squares)
        return fold

    def _add(self, rows: Tensor, weights: Tensor, fold: Tensor | None = None) -> None:
        if fold is None:  # by what the rows hold: a chart rounds, differently in another order
            fold = fold_of(rows, self.moments_.folds)
        self.spread_.update(rows, weights)
        if isinstance(self.chart_, BoxChart):
            outside = ~self.chart_.covers(rows)
            self.outside_ += float(weights[outside].sum())
            weights = weights.where(~outside, 0.0)
        self.moments_.update(self.chart_.to(rows), weights, fold=fold)

    def _tell_of_outside(self, rows: Tensor) -> None:
        self.columns_.demand_bounds(rows)
        outside = (~self.chart_.covers(rows)).double().mean()
        if float(outside) > OUTSIDE:
            warnings.warn(
                f"{float(outside):.1%} of {len(rows)} rows lie outside of the box that the first "
                "batch gave, and are left to the defensive Gaussian: give bounds or box, or a "
                "first batch that covers the range",
                UserWarning,
                stacklevel=3,
            )

    def _settle(self) -> None:
        """Solve the equations and fix the flow."""
        moments = self.moments_
        if isinstance(moments, FourierMoments):
            assert isinstance(self.chart_, BoxChart)
            moments = moments.reflected(self.chart_.bounded)
        score = fit_moments(
            moments,
            clock=plan.choose_clock(self.basis_) if self.clock is None else self.clock,
            shrinkage=SHRINKAGES[self.shrinkage](),
            ridge=self._choose_ridge(moments),
            knots=PlacedKnots(KNOT_ERROR) if isinstance(self.basis_, Fourier) else EvenKnots(),
        )
        span = plan.choose_span(score)
        defence = plan.choose_defence(self.chart_, self.spread_, self.outside_)
        if self.device is not None:
            score = score.to(self.device)
        steps = settled_steps(score, span) if isinstance(self.n_times, str) else int(self.n_times)
        self.model_ = DensityModel(score, self.chart_, defence, span, steps)
        self._stale = False

    def _choose_ridge(self, moments: Moments) -> CrossValidation | float:
        if not isinstance(self.ridge, str):
            return float(self.ridge)
        if int((moments.weight > 0).sum()) < 2:
            return FEW_ROWS_RIDGE
        if isinstance(moments, FourierMoments):
            return CrossValidation(max(2, moments.folds), TIMES)
        return CrossValidation(max(2, moments.folds))

    def _columns_given(self, given: Mapping[Any, float]) -> dict[int, float]:
        count, names = self.n_features_in_, getattr(self, "feature_names_in_", None)
        if not isinstance(self.chart_, BoxChart) or count > CONDITIONAL_DIM:
            raise ValueError(
                f"given needs the torus in at most {CONDITIONAL_DIM} dimensions; this model has "
                f"{count} columns and process {type(self.model_.score.basis.process).__name__}"
            )
        values = {
            column: checks.number(value, f"given[{key!r}]")
            for column, key, value in by_index(given, count, names, "given")
        }
        if len(values) == count:
            raise ValueError(f"given must leave at least one of the {count} columns to be drawn")
        return values
