"""`OISM`: the closed-form diffusion model as a scikit-learn density estimator.

    data ─► chart ─► moments ─► score ─► flow ─► log-densities and samples, in the data's units

This is the way of up to three numeric columns, but for some tables of few rows (see
`oism.tables._few_rows`). Other tables are modelled by mixtures, without a flow: see
`oism.tables._joint`.

The model's density is that of the probability flow, mixed with a *background* Gaussian of small
weight where columns are free: p(x) = (1 - w) ρ(x) + w N(x; m, 4S) with the data's mean and
covariance. The weight is w = (1 + k)/(n + 1) for k of n rows outside of the box, which outliers do
not stretch. So the log-density is finite everywhere. Samples are drawn from the same mixture.

The flow is integrated by Runge and Kutta's method on a grid of times that is fixed when the model
is fitted. It is refined until the log-densities of samples do not change; then the density of a
point does not depend on the other points that are evaluated with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, Self, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, DensityMixin, _fit_context, clone
from sklearn.utils import Tags, check_array
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import (
    _check_feature_names,
    _check_n_features,
    _check_sample_weight,
    check_is_fitted,
    validate_data,
)
from torch import Tensor

from oism._core import checks
from oism._core.batches import Batch
from oism._core.transforms import shared_tensor
from oism.estimation import (
    JamesStein,
    Modulation,
    Monotone,
    SampleMeans,
    Shrinkage,
)
from oism.flow import StochasticHeun
from oism.process import Clock, Process
from oism.storage import Storable, storable
from oism.tables._beside import (
    Training,
    check_network,
    joint_with_network,
    torus_with_network,
)
from oism.tables._choices import NAMES, choose_family, choose_folds
from oism.tables._collector import Collector, Settings
from oism.tables._columns import Columns, check_periodic, index_of
from oism.tables._comparison import Comparison, compare_with_baselines
from oism.tables._contract import TabularModel
from oism.tables._copies import CopyCheck, nearest_neighbour_check
from oism.tables._directions import Directions
from oism.tables._discrete import DiscreteModel
from oism.tables._distribution import TableDistribution, given_values
from oism.tables._ends import choose_at_ends
from oism.tables._family import Family
from oism.tables._few_rows import FewRowsFamily
from oism.tables._frame import (
    USES_GAPS,
    Table,
    check_complete,
    check_finite,
    check_is_table,
    read_columns,
    read_rows,
)
from oism.tables._gaps import log_density
from oism.tables._hints import warn_of_atoms, warn_of_rows
from oism.tables._html import model_html
from oism.tables._impute import filled, with_index_of
from oism.tables._joint import JointModel
from oism.tables._output import write_rows
from oism.tables._parameters import RandomState, from_plain, to_plain, torch_generator
from oism.tables._streaming import Batches, Stream
from oism.tables._summary import describe

Array = NDArray[np.float64]
SHRINKAGES: dict[str, type[Shrinkage]] = {
    "none": SampleMeans,
    "james-stein": JamesStein,
    "modulation": Modulation,
    "monotone": Monotone,
}

OF_FLOWS = (
    "max_eigenvalue", "order", "network", "ridge", "shrinkage", "clock", "flow_steps", "device",
)  # fmt: skip
"""Parameters for models with a flow: where one differs from its default, the model has a flow."""


@storable
class OISM(Storable, DensityMixin, BaseEstimator):  # type: ignore[misc]
    """A diffusion model fitted in closed form: density, samples and the scores of all noise levels.

    `score` is the log-likelihood of rows, as in every density estimator of scikit-learn;
    `score_function` is the gradient ∇ log ρ_t.

    Parameters are listed in four groups:

    - what your table is: ``periodic``, ``bounds``, ``box``, ``discrete``, ``sphere``,
      ``sphere_unit``;
    - what is fitted: ``process``, ``max_eigenvalue``, ``order``, ``frame``, ``network``;
    - how it is chosen: ``ridge``, ``cv``, ``shrinkage``, ``clock``, ``flow_steps``;
    - where it runs: ``device``, ``random_state``.

    Only the first group has facts that rows do not show. *Models with a flow* are those of up to
    three numeric columns (for few rows see ``process``), of the sphere, and of all processes that
    are given as objects or as "torus" and "ou". *Joint models* are those of more columns and of
    categories; they have no flow and ignore the parameters for models with a flow. Rotations have a
    function of their own, `fit_rotations`.

    Parameters
    ----------
    periodic : dict of column -> period, or float, optional
        Columns that are angles or the like; they count modulo the period. A column is given by its
        index, or by its name where the data are a frame. One number is the period of all columns.
    bounds : dict of column -> (low, high), optional
        Columns that cannot leave an interval. One end may be None: (0, None) for positive numbers.
        A single such column with at least 100 rows is modelled, for process="auto", by a pool of
        reflection on the torus and of diffusions that end at the bounds, with weights from held-out
        rows and scores at t = 0 only; process=Jacobi(a, b), or Laguerre(a) for one bound, gives one
        of these. Their density may be infinite at a bound: a value there has the density at 1e-9 of
        the range from it.
    box : (low, high), optional
        One interval for all columns, periodic: (-π, π) for angles in radians.
    discrete : "auto" or list of columns
        Numeric columns with few values, which repeat, as counts or rounded numbers. Each value is
        spread over the cell around it, and samples are such values. By default those with at most
        256 different values and at least 2 rows per value; () for none.
    sphere : two or three columns, optional
        Points of a sphere: the columns of latitude and longitude, or of the three entries of unit
        vectors, by name or index. Densities are then per steradian, with respect to area on the
        unit sphere, whatever the units of the columns. Other columns, of any kind, are modelled
        given the point.
    sphere_unit : {"degrees", "radians"}
        The unit of latitude and longitude.
    process : {"auto", "torus", "joint", "mixture", "ou"} or Process
        The noising process, or the kind of model. "auto": the torus for at most three numeric
        columns, "joint" otherwise: a pool of mixtures of Gaussians in several coordinates, for
        columns of any kind and without a single process. "mixture" are mixtures of free columns
        with the scores of all noise levels. "ou" are polynomials of each direction under the
        Ornstein-Uhlenbeck process. A `Torus`, `OrnsteinUhlenbeck` or `Linear` process may be
        given; the latter two need free columns, and a `Linear` process one entry for each column.
        For up to 100 different rows of three free columns "auto" chooses between "torus" and
        "mixture" by held-out rows, unless a parameter for models with a flow, ``cv`` or ``device``
        is given. `summary` prints the choice.
    max_eigenvalue : "auto" or float
        The finest detail that the density may have, on the torus and the sphere: the largest
        squared frequency ‖ξ‖² of waves, or l(l + 1) of spherical harmonics of degree l. It is an
        upper bound, below which cross-validation chooses a cutoff at each noise level. By default
        it grows with the number of rows. A larger value costs time, and changes the density little
        where the rows have no finer detail.
    order : "auto" or int
        The same for processes with polynomials: their largest degree. By default 6 for
        `OrnsteinUhlenbeck`, a total degree of 4 for `Linear`, 48 for `Jacobi` and 12 for
        `Laguerre`.
    frame : {"pca", "identity"}
        "ou" only: polynomials along the principal directions of the standardised columns, or
        along the columns themselves.
    network : float, "auto" or None
        Seconds for training networks beside the model, which is kept as it is unless they improve
        the likelihood of held-out rows; "auto": 30 up to 3,000 rows, and 60 above. `fit` only, for
        numeric columns on the torus and in joint models; rows with gaps are not trained on. Above
        three columns a model with networks has no marginals and conditionals.
    ridge : "cv" or float
        Models with a flow: the penalty on the coefficients of the score, as in ridge regression. A
        larger one gives a smoother density. "cv" chooses it at every noise level by
        cross-validation, together with the cutoff; a number is used at all noise levels, without a
        cutoff.
    cv : int or cross-validation splitter
        Models with a flow: the number of folds, to which rows are assigned by their content; or a
        splitter of scikit-learn, or its splits, whose test sets hold every row once. Joint models
        hold out folds of their own.
    shrinkage : {"none", "james-stein", "modulation", "monotone"}
        Models with a flow: whether averages of functions over the rows are multiplied by factors
        below 1 that reduce their sampling error: one factor for all ("james-stein"), one for each
        function ("modulation"), or factors that fall with the frequency ("monotone"). "none" is
        the default, because a cross-validated ``ridge`` already limits the sampling error.
    clock : Clock, optional
        Models with a flow: the range of noise levels, from that of a sample to that of pure noise.
        By default it follows from the finest function on the torus, and from the process elsewhere.
    flow_steps : "auto" or int
        Models with a flow: the number of Runge-Kutta steps by which densities follow it; samples
        take twice as many, shorter ones. By default it is doubled until one more doubling would
        change log-densities by less than 10⁻³. More steps cost time in proportion.
    device : str or torch.device, optional
        Models with a flow, except on the sphere: where averages are summed and scores are
        evaluated, for densities and samples, and on the torus also where equations are solved.
    random_state : int, Generator or RandomState of NumPy, or None
        For `sample`, where it is given none of its own. Fitting is deterministic, but for
        ``network``.

    Attributes
    ----------
    model_ : TabularModel
        The fitted density: a `JointModel`, a `MixtureModel`, a `SphereModel`, a `StackedTable` for
        one column with bounds or, on the torus and for polynomials, a `TableModel`. Of the latter,
        ``model_.operator_score`` are the scores of all noise levels in the coordinates of the
        process, ``model_.chart`` maps rows there, ``model_.steps`` is the number of steps of the
        flow. After `partial_fit` the model is made when it is next read.
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

    family_: Family[Any]
    collector_: Collector
    columns_: Columns
    _model: TabularModel | None  # None where rows were added since the equations were solved
    _choice: dict[str, Any] | None = None  # see `Collector.choice`

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "process": [StrOptions({"auto", *NAMES}), Process],
        "periodic": [Mapping, Interval(Real, 0, None, closed="neither"), None],
        "bounds": [Mapping, None],
        "box": ["array-like", None],
        "discrete": [StrOptions({"auto"}), "array-like"],
        "sphere": ["array-like", None],
        "sphere_unit": [StrOptions({"degrees", "radians"})],
        "max_eigenvalue": [StrOptions({"auto"}), Interval(Real, 1, None, closed="left")],
        "order": [StrOptions({"auto"}), Interval(Integral, 2, None, closed="left")],
        "frame": [StrOptions({"pca", "identity"})],
        "shrinkage": [StrOptions(set(SHRINKAGES))],
        "ridge": [StrOptions({"cv"}), Interval(Real, 0, None, closed="left")],
        "cv": ["cv_object"],
        "clock": [Clock, None],
        "flow_steps": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "network": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither"), None],
        "random_state": ["random_state", np.random.Generator],
        "device": [str, torch.device, None],
    }

    def __init__(  # noqa: PLR0913
        self,
        *,
        process: str | Process = "auto",
        periodic: Mapping[Any, float] | float | None = None,
        bounds: Mapping[Any, tuple[float | None, float | None]] | None = None,
        box: tuple[float, float] | None = None,
        discrete: str | Sequence[Any] = "auto",
        sphere: Sequence[Any] | None = None,
        sphere_unit: str = "degrees",
        max_eigenvalue: float | str = "auto",
        order: int | str = "auto",
        frame: str = "pca",
        shrinkage: str = "none",
        ridge: float | str = "cv",
        cv: Any = 5,  # noqa: ANN401
        clock: Clock | None = None,
        flow_steps: int | str = "auto",
        network: float | str | None = None,
        random_state: RandomState = None,
        device: str | torch.device | None = None,
    ) -> None:
        self.process = process
        self.periodic = periodic
        self.bounds = bounds
        self.box = box
        self.discrete = discrete
        self.sphere = sphere
        self.sphere_unit = sphere_unit
        self.max_eigenvalue = max_eigenvalue
        self.order = order
        self.frame = frame
        self.shrinkage = shrinkage
        self.ridge = ridge
        self.cv = cv
        self.clock = clock
        self.flow_steps = flow_steps
        self.network = network
        self.random_state = random_state
        self.device = device

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> Self:  # noqa: N803, ARG002
        """Fit the model to rows ``(n, d)``; ``sample_weight`` has one entry per row.

        ``y`` is ignored.
        """
        rows = self._rows(X, reset=True, gaps=True)
        weights = self._weights(sample_weight, rows)
        fold = self._begin(rows, weights)
        if self.network is not None:
            check_network(self.family_, self.columns_, weights)
        self._add(rows, weights, fold)
        if self.network is None:
            self._model = self._finalise()
        else:
            self._model = self._quantised(self._with_network(self.network, rows, weights, fold))
        return self

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def partial_fit(
        self,
        X: ArrayLike,  # noqa: N803
        y: object = None,  # noqa: ARG002
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Add rows to those before: moments merge, so the order and the batches do not matter.

        The first batch determines the scale of free columns, the levels of discrete and categorical
        ones, and, unless given, the number of functions; discrete columns have to be given;
        ``periodic``, ``bounds`` and ``box`` do not depend on it. Equations are solved
        when the model is next used.
        """
        self._check_no_network("partial_fit")
        first = not hasattr(self, "collector_")
        if first and hasattr(self, "_model"):
            raise ValueError(
                "partial_fit needs the moments of the rows seen before, and a loaded model has "
                "none: fit a new one, or pickle the estimator instead"
            )
        gaps = first or self.family_.allows_gaps
        rows = self._rows(X, reset=first, gaps=gaps, detect=False)  # there may be more levels
        weights = self._weights(sample_weight, rows)
        if self.cv is not None and not isinstance(self.cv, Integral):
            raise ValueError("partial_fit needs a number of folds: cv must be an integer")
        if first:
            self._begin(rows, weights)
        else:
            self.columns_.check_bounds(rows[weights > 0])
            self.collector_.warn_of_outside(self._dequantised(rows[weights > 0]))
        self._add(rows, weights)
        self._model = None
        return self

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit_batches(self, batches: Batches) -> Self:
        """Fit the model to rows that come in batches, in two passes and bounded memory.

        ``batches()`` returns an iterable of the batches: arrays or frames, pairs of these with
        weights, or `Batch`. It is called once for each pass: the first finds the ranges of the
        columns, the second adds up moments. In at most three columns every row counts in full.
        Where `torch.distributed` is initialised, each process passes its own batches, and all get
        the model of all rows. Equations are solved when the model is next used.
        """
        self._check_no_network("fit_batches")
        if self.cv is not None and not isinstance(self.cv, Integral):
            raise ValueError("fit_batches needs a number of folds: cv must be an integer")
        stream = Stream(batches)
        pilot, weights = stream.pilot(self._numbers())
        self._begin(self._rows(pilot, reset=True, gaps=True), weights)
        self.collector_.prepare(stream.weight)

        def add(batch: Batch) -> None:
            rows = self._rows(batch.rows, gaps=self.family_.allows_gaps)
            weights = self._weights(batch.weights, rows)
            self._add(rows, weights, positions=torch.from_numpy(batch.positions))

        stream.each(add)
        self.collector_ = self.collector_.across_processes()
        self._model = None
        return self

    def _validate_params(self) -> None:
        check_periodic(self.periodic)
        super()._validate_params()

    def __sklearn_tags__(self) -> Tags:
        """Return scikit-learn's description of the estimator.

        Not all fits allow gaps: in at most three columns only new rows may have some.
        """
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = False
        tags.input_tags.categorical = True
        return tags

    @property
    def model_(self) -> Any:  # noqa: ANN401 (a TabularModel; which one depends on the columns)
        """The fitted density; equations are solved now where `partial_fit` has added rows."""
        check_is_fitted(self)
        if self._model is None:
            self._model = self._finalise()
        return self._model

    def score_samples(self, X: ArrayLike) -> Array:  # noqa: N803
        """Return the log-density of each row, per unit of the data.

        In a row with gaps (NaN, None) it is that of the other entries: the density integrated over
        the columns that are missing. Of a row without entries it is 0.
        """
        return log_density(self.model_, self._rows(X, gaps=True)).numpy()

    def score(self, X: ArrayLike, y: object = None) -> float:  # noqa: N803, ARG002
        """Return the sum of the log-densities of the rows: their log-likelihood."""
        return float(np.sum(self.score_samples(X)))

    def sample(
        self,
        n_samples: int = 1,
        random_state: RandomState = None,
        *,
        given: Mapping[Any, Any] | None = None,
        method: str = "ode",
    ) -> Any:  # noqa: ANN401 (an array or a data frame)
        """Return rows drawn from the model: ``(n_samples, d)``.

        A model that was fitted to a data frame of pandas or polars returns one, with its names and
        dtypes. Otherwise rows are an array, of objects if columns are categorical.

        Parameters
        ----------
        n_samples
            The number of rows; 0 is allowed.
        random_state
            A seed, or a NumPy ``Generator`` or ``RandomState``; the estimator's own by default.
        given
            Values or levels of some columns, by index or name: the others are drawn given these.
        method
            "ode", the probability flow, or "sde", the reverse SDE.
        """
        model = self.model_
        n = checks.integer(n_samples, "n_samples", minimum=0)
        if method not in ("ode", "sde"):
            raise ValueError(f"method must be 'ode' or 'sde', got {method!r}")
        generator = torch_generator(self.random_state if random_state is None else random_state)
        if given and method == "sde":
            raise ValueError("method must be 'ode' where columns are given")
        if given:
            return self._written(
                self._sampled_given(given_values(self.columns_, given), n, generator)
            )
        stochastic = None
        if method == "sde":
            steps = getattr(model, "steps", None)
            if not isinstance(steps, int):
                chosen = (
                    "" if self._choice is None else " (few rows chose a mixture: see summary())"
                )
                raise ValueError(
                    f"method must be 'ode': this model has no flow{chosen}, and samples are drawn "
                    "directly; 'sde' needs process='torus' or 'ou'"
                )
            stochastic = StochasticHeun(max(256, 4 * steps))
        return self._written(model.sample(n, generator, method=stochastic))

    def impute(self, X: ArrayLike, random_state: RandomState = None) -> Any:  # noqa: ANN401, N803
        """Return the rows with missing entries filled by draws given the other entries of the row.

        Entries that are there stay as they are, and a frame of pandas keeps its index. Several
        seeds give several filled tables, which show how uncertain the missing entries are.
        """
        rows = self._rows(X, gaps=True)
        generator = torch_generator(self.random_state if random_state is None else random_state)
        return with_index_of(X, self._written(filled(self.model_, rows, generator)))

    def marginal(self, columns: Sequence[Any]) -> TableDistribution:
        """Return the distribution of some columns alone, by name or index.

        It has `score_samples`, `sample`, `marginal` and `conditional` of its own.
        """
        return self._distribution().marginal(columns)

    def conditional(self, given: Mapping[Any, Any]) -> TableDistribution:
        """Return the distribution of the other columns, given values or levels of some."""
        return self._distribution().conditional(given)

    def _distribution(self) -> TableDistribution:
        return TableDistribution(self.model_, self.columns_)

    def score_function(self, X: ArrayLike, t: ArrayLike) -> Array:  # noqa: N803
        """Return ∇ log ρ_t at rows, per unit of the data: ``(n, d)``.

        ``t`` is the process's own time, one number or one per row, within ``model_.times``. On the
        torus ρ_t is the distribution of the data with noise whose standard deviation is
        √(2t) · ``model_.chart.units[j]`` in the units of column j; for any process it is
        ``model_.noise_deviations(t)``, see `TableModel.score`. A mixture, which few rows of three
        columns may have chosen (see ``process``), has the times of the Ornstein-Uhlenbeck process.
        """
        model = self.model_
        rows = self._rows(X)
        times = torch.as_tensor(np.asarray(t, dtype=np.float64))
        score: Tensor = model.score(rows, times)
        return score.numpy()

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
        check_is_fitted(self)
        if samples is None:
            samples = self.sample(n_samples, random_state=random_state)
        rows = self._rows(X).numpy()
        if isinstance(samples, np.ndarray) and samples.dtype != object:  # without column names
            drawn = check_array(samples, dtype=np.float64)
            _check_n_features(self, drawn, reset=False)
        else:
            drawn = self._rows(samples).numpy()
        periods = np.array([column.period or 0.0 for column in self.columns_])
        return nearest_neighbour_check(drawn, rows, periods=periods)

    def compare(
        self,
        X: ArrayLike,  # noqa: N803
        train: ArrayLike,
        *,
        baselines: Sequence[str] | None = None,
        seconds: float = 60.0,
        random_state: int = 0,
    ) -> Comparison:
        """Return held-out log-likelihoods beside those of baselines, with paired errors.

        Parameters
        ----------
        X
            Test rows, which neither the model nor the baselines are fitted to.
        train
            The rows that the model was fitted to; the baselines are fitted to them now.
        baselines
            Out of "kde", "mixture" (of Gaussians, by BIC) and "flow" (a spline flow of zuko); by
            default all, the flow only where zuko is installed.
        seconds
            The longest training time of the flow.
        random_state
            The seed of the baselines.
        """
        return compare_with_baselines(
            self.score_samples(X),
            self._rows(X, gaps=True),
            self._rows(train, gaps=True),
            self.columns_,
            baselines=baselines,
            seconds=seconds,
            seed=random_state,
        )

    def summary(self) -> str:
        """Return the choices that were made, as text; docs/parameters.md explains its words."""
        return describe(self.facts())

    def facts(self) -> dict[str, Any]:
        """Return the choices that were made, as plain numbers, texts, lists and dictionaries."""
        names = getattr(self, "feature_names_in_", range(self.model_.dim))
        found: dict[str, Any] = self.model_.facts([str(name) for name in names])
        return found if self._choice is None else {**found, "choice": self._choice}

    def _repr_html_inner(self) -> str:
        """Return a fitted model as HTML, and scikit-learn's diagram of one that is not fitted."""
        if getattr(self, "_model", None) is None:
            # The diagram reads all fitted attributes, which would solve the equations.
            bare = clone(self) if hasattr(self, "_model") else self
            diagram: str = super(OISM, bare)._repr_html_inner()  # type: ignore[misc]
            return diagram
        defaults = type(self)().get_params(deep=False)
        parameters = self.get_params(deep=False).items()
        facts = self.facts()
        for column, known in zip(facts["columns"], self.columns_, strict=True):
            if known.categorical:
                column["levels"] = list(known.levels)
        return model_html(
            type(self).__name__,
            facts,
            rows=self.collector_.count if hasattr(self, "collector_") else None,
            parameters={k: v for k, v in parameters if repr(v) != repr(defaults[k])},
            summary=self.summary(),
        )

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:  # noqa: ANN401
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:
            bundle["text/html"] = self._repr_html_inner()
        return bundle

    def to_config(self) -> dict[str, Any]:
        """Return the parameters, the fitted model and the columns, to be stored."""
        config = {
            "parameters": to_plain(self.get_params(deep=False)),
            "model": self.model_,
            "columns": self.columns_,
        }
        return config if self._choice is None else {**config, "choice": self._choice}

    @classmethod
    def from_config(
        cls,
        *,
        parameters: dict[str, Any],
        model: TabularModel,
        columns: Columns,
        choice: dict[str, Any] | None = None,
    ) -> Self:
        """Return the fitted estimator that was stored."""
        estimator = cls(**from_plain(parameters, cls._get_param_names()))
        estimator._validate_params()
        if len(columns) != model.dim:
            raise ValueError(
                f"columns must be {model.dim}, as many as those of the model, got {len(columns)}"
            )
        estimator._model, estimator.columns_, estimator._choice = model, columns, choice
        estimator.n_features_in_ = model.dim
        if columns.names is not None:
            estimator.feature_names_in_ = np.array(columns.names, dtype=object)
        return estimator

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether rows were fitted, or a model was loaded."""
        return hasattr(self, "_model")

    def _rows(
        self,
        X: ArrayLike,  # noqa: N803
        *,
        reset: bool = False,
        gaps: bool = False,
        detect: bool = True,
    ) -> Tensor:
        """Return rows as a float64 tensor, levels as their indices; a gap, if allowed, is NaN.

        With ``reset`` the columns are learned from these rows, and discrete ones are detected
        unless ``detect`` is false. Tables of numbers are checked by scikit-learn.
        """
        check_is_table(X)
        table, rows = Table.of(X), None
        if table is None or (table.is_numeric and (reset or not self.columns_.categorical)):
            array = validate_data(
                self, X, dtype=np.float64, order="C", reset=reset, ensure_all_finite=False
            )
            rows = shared_tensor(array)
        else:
            _check_feature_names(self, X, reset=reset)
        if reset:
            count = self.n_features_in_ if table is None else len(table.dtypes)
            labels = getattr(self, "feature_names_in_", None if table is None else table.labels)
            declared = Columns.of(count, labels, self.periodic, self.bounds, self.box)
            automatic = isinstance(self.discrete, str)
            detect = detect and self.sphere is None
            discrete = () if automatic and not detect else self.discrete
            self.columns_, rows = read_columns(table, rows, declared, discrete)
        elif rows is None and table is not None:
            rows = read_rows(table, self.columns_)
        assert rows is not None
        check_array(rows.numpy(), ensure_all_finite=False)
        _check_n_features(self, rows.numpy(), reset=reset)
        check_finite(self.columns_, rows)
        if not gaps:
            check_complete(self.columns_, rows)
        return rows

    def _sampled_given(
        self, given: Mapping[int, float], n: int, generator: torch.Generator
    ) -> Tensor:
        """Return n rows with the given values, by the index of their column."""
        drawn = self.model_.conditional(given).sample(n, generator).cpu()
        rows = torch.empty(n, self.columns_.count, dtype=torch.float64)
        rows[:, [j for j in range(rows.shape[1]) if j not in given]] = drawn.double()
        for j, value in given.items():
            rows[:, j] = value
        return rows

    def _written(self, rows: Tensor) -> Any:  # noqa: ANN401 (an array or a data frame)
        """Return rows as a table of the kind that was fitted."""
        return write_rows(self.columns_, rows)

    @staticmethod
    def _weights(sample_weight: ArrayLike | None, rows: Tensor) -> Tensor:
        weights = _check_sample_weight(
            sample_weight, rows.numpy(), dtype=np.float64, ensure_non_negative=True
        )
        return shared_tensor(weights)

    def _numbers(self) -> Callable[[Any], Array]:
        """Return a function of batches: their numbers, with NaN for gaps; checks their columns."""
        first = True

        def numbers(rows: Any) -> Array:  # noqa: ANN401
            nonlocal first
            reset, first = first, False
            found: Array = validate_data(
                self, rows, dtype=np.float64, ensure_all_finite="allow-nan", reset=reset
            )
            return found

        return numbers

    def _begin(self, rows: Tensor, weights: Tensor) -> Tensor | None:
        """Choose a family for the columns, and make its collector of rows.

        Returns the folds of the rows, where those do not follow from their content.
        """
        if self.device is not None:
            checks.device(self.device)  # better to fail now than after the fit
        used = weights > 0
        if not bool(used.any()):
            raise ValueError("sample_weight must have a positive sum")
        columns = self.columns_
        self.family_ = choose_family(
            self.process,
            columns,
            self._directions(),
            max_eigenvalue=self.max_eigenvalue,
            order=self.order,
            frame=self.frame,
        )
        if not self.family_.allows_gaps:
            check_complete(columns, rows, USES_GAPS if self.sphere is None else "")
        if self.sphere is None:
            warn_of_rows(columns, rows[used])
            if not self.family_.resolves_peaks:
                warn_of_atoms(columns, rows[used])
        columns.check_bounds(rows[used])
        folds, fold = choose_folds(self.cv, len(rows))
        if self._chooses_at_ends:
            own = rows[used], weights[used]
            self.family_ = choose_at_ends(self.family_, columns, *own, self._settings(folds))
        if self._chooses_by_rows:
            self.family_ = FewRowsFamily.of(self.family_, columns)
        self.collector_ = self._collector(self._dequantised(rows[used]), weights[used], folds)
        self._model = self._choice = None
        return fold

    def _directions(self) -> Directions | None:
        """Return how rows are read as points of the sphere, if they are."""
        if self.sphere is None:
            return None
        columns, named = self.columns_, list(self.sphere)
        indices = [index_of(key, columns.count, columns.names, "sphere") for key in named]
        return Directions.of(named, self.sphere_unit, indices)

    def _collector(self, rows: Tensor, weights: Tensor, folds: int) -> Collector:
        """Return an empty collector for spread rows like these."""
        settings = self._settings(folds)
        return self.family_.collector(self.columns_.continuous, rows, weights, settings)

    def _settings(self, folds: int) -> Settings:
        """Return the parameters that concern a fit, whatever the family."""
        return Settings(
            folds=folds,
            clock=self.clock,
            shrinkage=SHRINKAGES[self.shrinkage](),
            ridge=self.ridge,
            steps=self.flow_steps,
            device=self.device,
            levels=self.columns_ if self._has_copies else None,
        )

    @property
    def _has_copies(self) -> bool:
        """Whether rows are spread over cells of levels, and equal rows are copies."""
        # Where all columns have levels, equal rows are no copies, and one fold would hold all rows
        # of a level.
        return bool(self.columns_.discrete) and not self.columns_.have_levels

    @property
    def _chooses_at_ends(self) -> bool:
        """Whether the process at bounds is chosen: nothing is given that belongs to the torus."""
        automatic = isinstance(self.process, str) and self.process == "auto"
        own = self.clock is not None or self.network is not None or self.max_eigenvalue != "auto"
        own |= not SHRINKAGES[self.shrinkage].keeps_positivity  # others need the torus' projection
        return automatic and not own and self.order == "auto"

    @property
    def _chooses_by_rows(self) -> bool:
        """Whether few rows choose the process: nothing is given that belongs to a flow."""
        usual = type(self)()
        given = [name for name in OF_FLOWS if getattr(self, name) != getattr(usual, name)]
        own_folds = self.cv is not None and not (isinstance(self.cv, int) and self.cv == usual.cv)
        automatic = isinstance(self.process, str) and self.process == "auto"
        return automatic and not given and not own_folds

    def _add(
        self,
        rows: Tensor,
        weights: Tensor,
        fold: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> None:
        fold = self._folds(rows, fold)
        self.collector_.update(self._dequantised(rows), weights, fold, positions)

    def _folds(self, rows: Tensor, fold: Tensor | None) -> Tensor | None:
        """Return the folds of rows, or None where those follow from the content of spread rows."""
        return self.collector_.folds_of(rows) if fold is None and self._has_copies else fold

    def _dequantised(self, rows: Tensor) -> Tensor:
        """Return rows whose discrete columns are spread over the cells of their levels."""
        if not self.columns_.discrete:
            return rows
        return self.columns_.dequantised(rows, torch.Generator().manual_seed(len(rows)))

    def _finalise(self) -> TabularModel:
        """Return the model of all rows."""
        model = self._quantised(self.collector_.model())
        self._choice = self.collector_.choice
        return model

    def _quantised(self, model: TabularModel) -> TabularModel:
        """Return the model of rows as they are, from that of spread rows."""
        return DiscreteModel(model, self.columns_) if self.columns_.discrete else model

    def _with_network(
        self, network: float | str, rows: Tensor, weights: Tensor, fold: Tensor | None
    ) -> TabularModel:
        """Return the model of all rows, spread out, with networks beside it if these help."""
        model, held_out = self.collector_.cross_fitted()
        used = weights > 0
        training = Training.of(network, int(used.sum()))
        if held_out is not None:
            return joint_with_network(cast("JointModel", model), held_out, training)
        fold = self._folds(rows, fold)
        spread_out, weights = self._dequantised(rows)[used], weights[used]
        fold = None if fold is None else fold[used]

        def refit(part: Tensor) -> TabularModel:
            own = spread_out[part], weights[part]
            collector = self._collector(*own, self.collector_.folds)
            collector.update(*own, None if fold is None else fold[part])
            return collector.model()

        return torus_with_network(model, spread_out, fold, refit, training)

    def _check_no_network(self, name: str) -> None:
        if self.network is not None:
            raise ValueError(
                f"{name} cannot train a network, which needs all rows at once: use fit, or leave "
                "network out"
            )
