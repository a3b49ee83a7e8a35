"""A fitted table as an estimator of scikit-learn: densities, samples, conditionals and summaries.

The contract is small: a class that fits tables sets the columns and returns the model of all rows,
when that is needed. Rows are read and written as tables of the kind that was fitted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, DensityMixin, clone
from sklearn.utils import check_array
from sklearn.utils.validation import _check_n_features, check_is_fitted
from torch import Tensor

from oism._core import checks
from oism.flow import StochasticHeun
from oism.tables._collector import Collector
from oism.tables._columns import Columns
from oism.tables._comparison import Comparison, compare_with_baselines
from oism.tables._contract import TabularModel
from oism.tables._copies import CopyCheck, nearest_neighbour_check
from oism.tables._distribution import TableDistribution, given_values
from oism.tables._frame import readable
from oism.tables._gaps import log_density
from oism.tables._html import model_html
from oism.tables._impute import rows_given, with_index_of, write_filled
from oism.tables._input import rows_of
from oism.tables._output import write_rows
from oism.tables._parameters import RandomState, torch_generator
from oism.tables._summary import describe

Array = NDArray[np.float64]

COMPLETED = 4096
"""The number of rows whose missing entries are drawn at a time: that bounds the memory."""


class FittedTable(DensityMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """What a fitted estimator of tables returns; a subclass has the parameters, and fits.

    A fit sets ``columns_``, ``collector_`` and ``_model``, which is None until the equations are
    solved; then `_finalise` returns the model.
    """

    random_state: RandomState
    columns_: Columns
    collector_: Collector  # not in a model that was loaded
    _model: TabularModel | None  # None where rows were added since the equations were solved
    _choice: dict[str, Any] | None = None  # see `Collector.choice`

    @abstractmethod
    def _finalise(self) -> TabularModel:
        """Return the model of all rows, and set the choice that was made by them."""

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether rows were fitted, or a model was loaded."""
        return hasattr(self, "_model")

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
        return log_density(self.model_, rows_of(self, X, gaps=True)).numpy()

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
        generator = self._generator(random_state)
        if given and method == "sde":
            raise ValueError("method must be 'ode' where columns are given")
        if given:
            values = given_values(self.columns_, given)
            rows = rows_given(model, values, n, self.columns_.count, generator)
        else:
            stochastic = self._reverse_sde() if method == "sde" else None
            rows = model.sample(n, generator, method=stochastic)
        return write_rows(self.columns_, rows)

    def _reverse_sde(self) -> StochasticHeun:
        """Return the method for samples by the reverse SDE, or raise where there is no flow."""
        steps = self.model_.steps
        if steps is None:
            chosen = "" if self._choice is None else " (a mixture was chosen: see summary())"
            raise ValueError(
                f"method must be 'ode': this model has no flow{chosen}, and samples are drawn "
                "directly; 'sde' needs process='torus' or 'ou'"
            )
        return StochasticHeun(max(256, 4 * steps))

    def _generator(self, random_state: RandomState) -> torch.Generator:
        return torch_generator(self.random_state if random_state is None else random_state)

    def impute(self, X: ArrayLike, random_state: RandomState = None) -> Any:  # noqa: ANN401, N803
        """Return the rows with missing entries filled by draws given the other entries of the row.

        Entries that are there stay as they are, and a frame of pandas keeps its index. Columns have
        the dtypes that were fitted, but that of X where it alone holds its entries exactly. Several
        seeds give several filled tables, which show how uncertain the missing entries are.
        """
        check_is_fitted(self)
        X = readable(X)  # noqa: N806
        rows = rows_of(self, X, gaps=True)
        generator = self._generator(random_state)
        parts = torch.split(rows, COMPLETED)
        pieces = [self.model_.completed(one, generator) for one in parts]
        filled = torch.cat(pieces)
        return with_index_of(X, write_filled(self.columns_, X, rows, filled))

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
        ``model_.noise_deviations(t)``, see `TableModel.score`. A mixture, which held-out rows
        of two or three columns may have chosen (see ``process``), has the times of the
        Ornstein-Uhlenbeck process. A pool of mixtures has no scores, and raises a TypeError.
        """
        model = self.model_
        rows = rows_of(self, X)
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
        rows = rows_of(self, X).numpy()
        samples = readable(samples)
        if isinstance(samples, np.ndarray) and samples.dtype.kind in "biuf":  # without names
            drawn = check_array(samples, dtype=np.float64)
            _check_n_features(self, drawn, reset=False)
        else:
            drawn = rows_of(self, samples).numpy()
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
            rows_of(self, X, gaps=True),
            rows_of(self, train, gaps=True),
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
            diagram: str = super(FittedTable, bare)._repr_html_inner()  # type: ignore[misc]
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
