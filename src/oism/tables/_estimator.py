"""`OISM`: the closed-form diffusion model as a scikit-learn density estimator.

    data ─► chart ─► moments ─► score ─► flow ─► log-densities and samples, in the data's units

The model's density is that of the probability flow, mixed with a *background* Gaussian of small
weight where columns are free: p(x) = (1 - w) ρ(x) + w N(x; m, 4S) with the data's mean and
covariance. The weight is w = (1 + k)/(n + 1) for k of n rows outside of the box, which outliers do
not stretch. So the log-density is finite everywhere. Samples are drawn from the same mixture.

The flow is integrated by Runge and Kutta's method on a grid of times that is fixed when the model
is fitted. It is refined until the log-densities of samples do not change; then the density of a
point does not depend on the other points that are evaluated with it.
"""

from __future__ import annotations

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
from oism._core.progress import progress_bar
from oism.estimation import (
    CrossValidation,
    JamesStein,
    Modulation,
    Moments,
    Monotone,
    SampleMeans,
    Shrinkage,
    fold_of,
)
from oism.flow import StochasticHeun
from oism.process import Clock, Process
from oism.storage import Storable, storable
from oism.tables._background import Background, Spread
from oism.tables._choices import NAMES, choose_family, choose_folds
from oism.tables._columns import Columns, by_index
from oism.tables._conditional import sample_given
from oism.tables._copies import CopyCheck, nearest_neighbour_check
from oism.tables._model import TableModel, converged_steps
from oism.tables._parameters import from_plain, to_plain
from oism.tables._summary import describe

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
"""The share of a later batch that may lie outside of the box without a warning."""


@storable
class OISM(Storable, DensityMixin, BaseEstimator):  # type: ignore[misc]
    """A diffusion model fitted in closed form: density, samples and the scores of all noise levels.

    `score` is the log-likelihood of rows, as in every density estimator of scikit-learn;
    `score_function` is the gradient ∇ log ρ_t.

    Parameters
    ----------
    process : {"auto", "torus", "ou"} or Process
        The noising process. "auto": the torus for at most three columns or where columns are
        periodic or bounded, the Ornstein-Uhlenbeck process otherwise. A `Torus`,
        `OrnsteinUhlenbeck` or `Linear` process may be given; the latter two need free columns, and
        a `Linear` process one entry for each column.
    periodic : dict of column -> period, or float, optional
        Columns that are angles or the like; they count modulo the period. A column is given by its
        index, or by its name where the data are a frame. One number is the period of all columns.
    bounds : dict of column -> (low, high), optional
        Columns that cannot leave an interval; they are reflected at its ends.
    box : (low, high), optional
        One interval for all columns, periodic: (-π, π) for angles in radians.
    max_eigenvalue : "auto" or float
        Torus: waves with 0 < ‖ξ‖² ≤ this. An upper bound: cross-validation chooses a cutoff.
    order : "auto" or int
        Other processes: the largest degree of the polynomials, likewise an upper bound. By default
        6 for `OrnsteinUhlenbeck`, and a total degree of 4 for `Linear`.
    frame : {"pca", "identity"}
        Ornstein-Uhlenbeck: polynomials along the principal directions of the standardised columns,
        or of the columns themselves.
    shrinkage : {"none", "james-stein", "modulation", "monotone"}
        How averages are estimated.
    ridge : "cv" or float
        Chosen by cross-validation at every noise level, or one number for all.
    cv : int or cross-validation splitter
        The number of folds, to which rows are assigned by their content; or a splitter of
        scikit-learn, or its splits, whose test sets hold every row once.
    clock : Clock, optional
        The range of noise levels.
    flow_steps : "auto" or int
        The number of steps of the flow; by default doubled until log-densities converge.
    random_state : int, RandomState or None
        For `sample`, where it is given none of its own. Fitting is deterministic.
    device : str or torch.device, optional
        Where scores are evaluated; fitting runs on the CPU.

    Attributes
    ----------
    model_ : TableModel
        The fitted density: ``model_.operator_score`` are the scores of all noise levels in the
        process's coordinates, ``model_.chart`` maps rows there, ``model_.steps`` is the number of
        steps of the flow. After `partial_fit` the equations are solved when it is next read.
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

    _model: TableModel | None  # None where rows were added since the equations were solved

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "process": [StrOptions({"auto", *NAMES}), Process],
        "periodic": [Mapping, Interval(Real, 0, None, closed="neither"), None],
        "bounds": [Mapping, None],
        "box": ["array-like", None],
        "max_eigenvalue": [StrOptions({"auto"}), Interval(Real, 1, None, closed="left")],
        "order": [StrOptions({"auto"}), Interval(Integral, 2, None, closed="left")],
        "frame": [StrOptions({"pca", "identity"})],
        "shrinkage": [StrOptions(set(SHRINKAGES))],
        "ridge": [StrOptions({"cv"}), Interval(Real, 0, None, closed="left")],
        "cv": ["cv_object"],
        "clock": [Clock, None],
        "flow_steps": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
        "device": [str, torch.device, None],
    }

    def __init__(  # noqa: PLR0913
        self,
        *,
        process: str | Process = "auto",
        periodic: Mapping[Any, float] | float | None = None,
        bounds: Mapping[Any, tuple[float, float]] | None = None,
        box: tuple[float, float] | None = None,
        max_eigenvalue: float | str = "auto",
        order: int | str = "auto",
        frame: str = "pca",
        shrinkage: str = "none",
        ridge: float | str = "cv",
        cv: Any = 5,  # noqa: ANN401
        clock: Clock | None = None,
        flow_steps: int | str = "auto",
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
        self.flow_steps = flow_steps
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
        self._model = self._finalise()
        return self

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def partial_fit(
        self,
        X: ArrayLike,  # noqa: N803
        y: object = None,  # noqa: ARG002
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Add rows to those before: moments merge, so the order and the batches do not matter.

        The first batch determines the scale of free columns and, unless given, the number of
        functions; ``periodic``, ``bounds`` and ``box`` do not depend on it. Equations are solved
        when the model is next used.
        """
        first = not hasattr(self, "moments_")
        if first and hasattr(self, "_model"):
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
        else:
            self.columns_.check_bounds(rows[weights > 0])
            self._warn_of_outside(rows[weights > 0])
        self._add(rows, weights)
        self._model = None
        return self

    @property
    def model_(self) -> TableModel:
        """The fitted density; equations are solved now where `partial_fit` has added rows."""
        check_is_fitted(self)
        if self._model is None:
            self._model = self._finalise()
        return self._model

    def score_samples(self, X: ArrayLike) -> Array:  # noqa: N803
        """Return the log-density of each row, per unit of the data."""
        model = self.model_
        return model.log_density(self._rows(X)).numpy()

    def score(self, X: ArrayLike, y: object = None) -> float:  # noqa: N803, ARG002
        """Return the sum of the log-densities of the rows: their log-likelihood."""
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
            The number of rows; 0 is allowed.
        random_state
            A seed or a NumPy ``RandomState``; the estimator's own by default.
        given
            Values of some columns, by index or name: the others are drawn given these. On the
            torus, in at most three dimensions.
        method
            "ode", the probability flow, or "sde", the reverse SDE.
        """
        model = self.model_
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
        return model.sample(n, generator, method=stochastic).cpu().numpy()

    def score_function(self, X: ArrayLike, t: ArrayLike) -> Array:  # noqa: N803
        """Return ∇ log ρ_t at rows, per unit of the data: ``(n, d)``.

        ``t`` is the process's own time, one number or one per row, within ``model_.times``. On the
        torus ρ_t is the distribution of the data with noise whose standard deviation is
        √(2t) · ``model_.chart.units[j]`` in the units of column j; for any process it is
        ``model_.noise_deviations(t)``, see `TableModel.score`.
        """
        model = self.model_
        rows = self._rows(X)
        times = torch.as_tensor(np.asarray(t, dtype=np.float64))
        return model.score(rows, times).numpy()

    def check_copies(
        self,
        X: ArrayLike,  # noqa: N803
        samples: ArrayLike | None = None,
        *,
        n_samples: int = 1000,
        random_state: RandomState = 0,
    ) -> CopyCheck:
        """Return whether samples are copies of the rows the model was fitted to.

        Compares the distances from samples to their nearest rows with those between rows; draws
        ``n_samples`` samples unless some are given.
        """
        model = self.model_
        if samples is None:
            samples = self.sample(n_samples, random_state=random_state)
        rows = self._rows(X).numpy()
        if isinstance(samples, np.ndarray):  # as `sample` returns them: without column names
            drawn = check_array(samples, dtype=np.float64)
            _check_n_features(self, drawn, reset=False)
        else:
            drawn = self._rows(samples).numpy()
        return nearest_neighbour_check(drawn, rows, periods=model.chart.periods.numpy())

    def summary(self) -> str:
        """Return the choices that were made, as text."""
        return describe(self.facts())

    def facts(self) -> dict[str, Any]:
        """Return the choices that were made, as plain numbers, texts, lists and dictionaries."""
        names = getattr(self, "feature_names_in_", range(self.model_.dim))
        return self.model_.facts([str(name) for name in names])

    def to_config(self) -> dict[str, Any]:
        """Return the parameters, the fitted model and the names of the columns, to be stored."""
        model, names = self.model_, getattr(self, "feature_names_in_", None)
        return {
            "parameters": to_plain(self.get_params(deep=False)),
            "model": model,
            "feature_names": None if names is None else tuple(str(name) for name in names),
        }

    @classmethod
    def from_config(
        cls,
        *,
        parameters: dict[str, Any],
        model: TableModel,
        feature_names: tuple[str, ...] | None,
    ) -> Self:
        """Return the fitted estimator that was stored."""
        estimator = cls(**from_plain(parameters, cls._get_param_names()))
        estimator._validate_params()
        if feature_names is not None and len(feature_names) != model.dim:
            raise ValueError(
                f"feature_names must be {model.dim}, one for each column of the model, got "
                f"{len(feature_names)}"
            )
        estimator._model = model
        estimator.n_features_in_ = model.dim
        if feature_names is not None:
            estimator.feature_names_in_ = np.array(feature_names, dtype=object)
        return estimator

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether rows were fitted, or a model was loaded."""
        return hasattr(self, "_model")

    def _rows(self, X: ArrayLike, *, reset: bool = False) -> Tensor:  # noqa: N803
        """Return rows as a float64 tensor, checked by scikit-learn."""
        array = validate_data(self, X, dtype=np.float64, order="C", reset=reset)
        return torch.from_numpy(np.require(array, requirements=["C", "W"]))

    @staticmethod
    def _weights(sample_weight: ArrayLike | None, rows: Tensor) -> Tensor:
        weights = _check_sample_weight(
            sample_weight, rows.numpy(), dtype=np.float64, ensure_non_negative=True
        )
        return torch.from_numpy(np.require(weights, requirements=["C", "W"]))

    def _begin(self, rows: Tensor, weights: Tensor) -> Tensor | None:
        """Choose family, chart and functions for the first rows, and make an accumulator.

        Returns the folds of the rows, where those do not follow from their content.
        """
        if self.device is not None:
            checks.device(self.device)  # better to fail now than after the fit
        used = weights > 0
        if not bool(used.any()):
            raise ValueError("sample_weight must have a positive sum")
        names = getattr(self, "feature_names_in_", None)
        columns = Columns.of(rows.shape[1], names, self.periodic, self.bounds, self.box)
        self.family_ = choose_family(
            self.process,
            columns,
            max_eigenvalue=self.max_eigenvalue,
            order=self.order,
            frame=self.frame,
        )
        columns.warn_of_constants(rows[used])
        self.columns_, self.outside_ = columns, 0.0
        self.spread_ = Spread(rows[used].mean(dim=0))
        first = Spread(rows[used].mean(dim=0))
        first.update(rows[used], weights[used])
        self.chart_ = self.family_.chart(columns, rows[used], weights[used], first)
        folds, fold = choose_folds(self.cv, len(rows))
        squares = SHRINKAGES[self.shrinkage].needs_variances
        self.moments_ = self.family_.moments(columns.count, first.count, folds, squares=squares)
        self._model = None
        return fold

    def _add(self, rows: Tensor, weights: Tensor, fold: Tensor | None = None) -> None:
        if fold is None:  # by the content of the rows: a chart rounds, differently in another order
            fold = fold_of(rows, self.moments_.folds)
        self.spread_.update(rows, weights)
        used = self.chart_.uses(rows)
        self.outside_ += float(weights[~used].sum())
        weights = weights.where(used, 0.0)
        step = max(1, self.moments_.block // rows.shape[1])  # as the accumulator takes them
        with progress_bar(None) as bar:
            bar.stage("rows", len(rows))
            for start in range(0, len(rows), step):
                part = slice(start, start + step)
                u = self.chart_.to_process(rows[part])
                self.moments_.update(u, weights[part], fold=fold[part])
                bar.advance(len(u))

    def _warn_of_outside(self, rows: Tensor) -> None:
        outside = (~self.chart_.uses(rows)).double().mean()
        if float(outside) > OUTSIDE:
            warnings.warn(
                f"{float(outside):.1%} of {len(rows)} rows lie outside of the box that the first "
                "batch gave, and are left to the background Gaussian: give bounds or box, or a "
                "first batch that covers the range",
                UserWarning,
                stacklevel=3,
            )

    def _finalise(self) -> TableModel:
        """Return the model of all rows: solve the equations and fix the flow."""
        chart = self.chart_
        moments = self.moments_.reflected(chart.reflections)
        score = self.family_.fit(
            moments,
            clock=self.clock,
            shrinkage=SHRINKAGES[self.shrinkage](),
            ridge=self._choose_ridge(moments),
        )
        span = self.family_.span(score)
        background = None
        if bool(chart.free.any()):
            background = Background.of(
                self.spread_, chart.free, chart.low, chart.width, outside=self.outside_
            )
        if self.device is not None:
            score = score.to(self.device)
        auto = isinstance(self.flow_steps, str)
        steps = converged_steps(score, span) if auto else int(self.flow_steps)
        return TableModel(score, chart, background, span, steps)

    def _choose_ridge(self, moments: Moments) -> CrossValidation | float:
        if not isinstance(self.ridge, str):
            return float(self.ridge)
        if int((moments.weight > 0).sum()) < 2:
            return FEW_ROWS_RIDGE
        return CrossValidation(max(2, moments.folds), self.family_.times)

    def _columns_given(self, given: Mapping[Any, float]) -> dict[int, float]:
        count, names = self.n_features_in_, getattr(self, "feature_names_in_", None)
        values = {
            column: checks.number(value, f"given[{key!r}]")
            for column, key, value in by_index(given, count, names, "given")
        }
        if len(values) == count:
            raise ValueError(f"given must leave at least one of the {count} columns to be drawn")
        return values
