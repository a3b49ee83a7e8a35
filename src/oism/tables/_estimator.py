"""`OISM`: the closed-form diffusion model as a scikit-learn density estimator.

    data ─► chart ─► moments ─► score ─► flow ─► log-densities and samples, in the data's units

This is the way of up to three numeric columns, unless a mixture of Gaussians is clearly better on
held-out rows (see `oism.tables._torus_or_mixture`). Other tables are modelled by mixtures, without
a flow: see `oism.tables._joint`.

The model's density is that of the probability flow, mixed with a wide *background* of small
weight where columns are free: p(x) = (1 - w) ρ(x) + w q(x), with a Student distribution q that has
the data's mean and four times their covariance. The weight is w = (1 + k)/(n + 1) for k of n rows
outside of the box, which outliers do not stretch. So the log-density is finite everywhere. Samples
are drawn from the same mixture.

The flow is integrated by Runge and Kutta's method on a grid of times that is fixed when the model
is fitted. It is refined until the log-densities of samples do not change; then the density of a
point does not depend on the other points that are evaluated with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import _fit_context
from sklearn.utils import Tags
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from oism._core.batches import Batch
from oism.process import Clock, Process
from oism.storage import Storable, storable
from oism.tables._beside import check_network
from oism.tables._choices import NAMES, SHRINKAGES
from oism.tables._columns import Columns
from oism.tables._contract import TabularModel
from oism.tables._declared import check_periodic
from oism.tables._family import Family
from oism.tables._fitted_table import FittedTable
from oism.tables._input import batch_reader, check_folds, learn_columns, rows_of, weights_of
from oism.tables._parameters import RandomState, from_plain, to_plain
from oism.tables._streaming import Batches, Stream
from oism.tables._table_fit import TableFit, spread_out


@storable
class OISM(Storable, FittedTable):
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
    three numeric columns (but see ``process``), of the sphere, and of all processes that
    are given as objects or as "torus" and "ou". *Joint models* are those of more columns and of
    categories; they have no flow and ignore the parameters for models with a flow. Rotations have a
    function of their own, `fit_rotations`.

    Parameters
    ----------
    periodic : dict of column -> period, or float, optional
        Columns that are angles or the like; they count modulo the period. A column is given by its
        index, or by its name where the data are a frame; a number that is the name of one column
        and the index of another one is an error. One number is the period of all columns.
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
        For up to three columns and 50,000 rows "auto" takes "mixture" instead of "torus", or
        "joint" for one column and where a column is not free, if it is clearly better on held-out
        rows; for up to 100
        different rows of three columns unless it is worse. A parameter for models with a flow,
        ``cv`` or ``device`` keeps "torus". `summary` prints the comparison.
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
        splitter of scikit-learn, or its splits, whose test sets hold every row once. For rows in
        groups give splits, as list(GroupKFold(5).split(X, groups=groups)). Joint models hold out
        folds of their own.
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
    _table_fit: TableFit  # not in a model that was loaded

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
        with self._unchanged_by_errors():
            rows = learn_columns(self, X)
            weights = weights_of(sample_weight, rows)
            fit, fold = TableFit.of(self, self.columns_, rows, weights)
            if self.network is not None:
                check_network(fit.family, self.columns_, weights)
            fit.add(rows, weights, fold)
            if self.network is None:
                model = fit.model()
            else:
                model = fit.model_with_network(self.network, rows, weights, fold)
            return self._keep(fit, model)

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def partial_fit(
        self,
        X: ArrayLike,  # noqa: N803
        y: object = None,  # noqa: ARG002
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Add rows to those before.

        Moments merge, so the order and the batches do not matter, except for discrete columns:
        their values are spread over cells at random in each batch, and densities depend on these
        random numbers.
        The first batch determines the scale of free columns, the levels of discrete and categorical
        ones, and, unless given, the number of functions; discrete columns have to be given;
        ``periodic``, ``bounds`` and ``box`` do not depend on it. Equations are solved
        when the model is next used.
        """
        self._check_no_network("partial_fit")
        self._check_folds("partial_fit")
        with self._unchanged_by_errors():
            return self._added_to(X, sample_weight)

    def _added_to(self, X: ArrayLike, sample_weight: ArrayLike | None) -> Self:  # noqa: N803
        """Return self after more rows, not solved yet."""
        first = not hasattr(self, "collector_")
        if first and hasattr(self, "_model"):
            raise ValueError(
                "partial_fit needs the moments of the rows seen before, and a loaded model has "
                "none: fit a new one, or pickle the estimator, for the same version of oism"
            )
        if first:
            rows = learn_columns(self, X, detect=False)  # there may be more levels
        else:
            rows = rows_of(self, X, gaps=self.family_.allows_gaps)
        weights = weights_of(sample_weight, rows)
        if first:
            fit, _ = TableFit.of(self, self.columns_, rows, weights)
        else:
            fit, used = self._table_fit, rows[weights > 0]
            self.columns_.check_bounds(used)
            self.collector_.warn_of_outside(spread_out(self.columns_, used))
        fit.add(rows, weights)
        return self._keep(fit)

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
        self._check_folds("fit_batches")
        with self._unchanged_by_errors():
            return self._fitted_to(Stream(batches))

    def _fitted_to(self, stream: Stream) -> Self:
        """Return self, fitted to the rows of a stream, not solved yet."""
        pilot, weights = stream.pilot(batch_reader(self))
        rows = learn_columns(self, pilot)
        fit, _ = TableFit.of(self, self.columns_, rows, weights)
        fit.collector.prepare(stream.weight)

        def add(batch: Batch) -> None:
            rows = rows_of(self, batch.rows, gaps=fit.family.allows_gaps)
            weights = weights_of(batch.weights, rows)
            fit.add(rows, weights, positions=torch.from_numpy(batch.positions))

        stream.each(add)
        fit.collector = fit.collector.across_processes()
        return self._keep(fit)

    @contextmanager
    def _unchanged_by_errors(self) -> Iterator[None]:
        """Within, an error leaves the estimator as it was: with its earlier fit, or with none."""
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__ = before
            raise

    def _keep(self, fit: TableFit, model: TabularModel | None = None) -> Self:
        """Keep a fit, solved or not, and return self."""
        self._table_fit = fit
        self.family_, self.collector_ = fit.family, fit.collector
        self._model, self._choice = model, None if model is None else fit.collector.choice
        return self

    def _finalise(self) -> TabularModel:
        model = self._table_fit.model()
        self._choice = self.collector_.choice
        return model

    def _check_no_network(self, name: str) -> None:
        if self.network is not None:
            raise ValueError(
                f"{name} cannot train a network, which needs all rows at once: use fit, or leave "
                "network out"
            )

    def _check_folds(self, name: str) -> None:
        if self.cv is not None and not isinstance(self.cv, Integral):
            raise ValueError(f"{name} needs a number of folds: cv must be an integer")

    def _validate_params(self) -> None:
        check_periodic(self.periodic)
        check_folds(self.cv)
        super()._validate_params()

    def __sklearn_tags__(self) -> Tags:
        """Return scikit-learn's description of the estimator.

        Not all fits allow gaps: in at most three columns only new rows may have some.
        """
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = False
        tags.input_tags.categorical = True
        return tags

    def to_config(self) -> dict[str, Any]:
        """Return the parameters, the fitted model and the columns, to be stored."""
        check_is_fitted(self)
        self.columns_.check_storable()
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
        if columns.texts is not None:
            estimator.feature_names_in_ = columns.texts
        return estimator
