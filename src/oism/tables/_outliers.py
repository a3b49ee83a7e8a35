"""Outliers: rows whose density is below a threshold that holds for new rows.

A row x is an outlier if log p(x) < c. The threshold c is such that a share α of *new* rows of the
same distribution is below it. The quantile α of the log-densities of the rows that the model was
fitted to is too high for that: the model is denser at its own rows. (At α = 5%, 6 to 13% of new
rows were below it with 500 rows in 2 to 6 columns.) Samples of the model give the quantile of the
model, which is the same only where the model is right (3.8 to 6.7%). Here c is a quantile of
*held-out* log-densities. The rows fall into k folds, and a fold has the log-densities of a model
that was fitted to the others (4.7 to 5.2%). With m held-out rows

    c = the α(m + 1)-th smallest of them, interpolated,

below which an exchangeable new row falls with probability α. The standard error of the share is
√(α(1 - α)/m). So folds are used until m is 1,000: five of them below 1,250 rows, one above 5,000.

A row with gaps has the density of its other entries, which is one of fewer columns and in other
units. It is compared by log p - s_G with the shift s_G = q_G - q, where q and q_G are the quantiles
α of samples of the model and of the same samples with these gaps. So a share α of samples with any
gaps is below q, and held-out rows with and without gaps determine one c. The threshold of log p is
c + s_G.
"""

from __future__ import annotations

import math
import warnings
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OutlierMixin, _fit_context, clone
from sklearn.model_selection import KFold
from sklearn.utils import _safe_indexing
from sklearn.utils._param_validation import HasMethods, Interval
from sklearn.utils.validation import _num_samples, check_is_fitted

from oism._core import checks
from oism._core.progress import progress_bar
from oism._core.user_warnings import warn
from oism.tables._estimator import OISM
from oism.tables._gaps import log_density
from oism.tables._input import rows_of

Array = NDArray[np.float64]

HELD_OUT = 1000
"""The number of held-out rows that determine the threshold, where there are as many."""

GAP_SAMPLES = 2000
"""The number of samples that determine the thresholds of rows with gaps."""

SAMPLES = 10_000
"""The number of samples that determine the threshold of a fitted model without rows."""


class OutlierDetector(OutlierMixin, BaseEstimator):  # type: ignore[misc]
    """Rows of low density, flagged at a share of new rows that is given.

    Parameters
    ----------
    estimator : density estimator, optional
        Anything with ``fit`` and ``score_samples``; an `OISM` by default.
    contamination : float
        The share of new rows of the same distribution that are flagged, at most 0.5.
    cv : int
        The number of folds. At most as many models are fitted besides the one for all rows.
    random_state : int
        The seed of the folds.

    Attributes
    ----------
    estimator_
        The density estimator, fitted to all rows.
    offset_ : float
        The threshold: rows with a lower log-density are outliers. Rows with gaps have thresholds
        of their own, those of the columns that they have.
    offset_error_ : float
        The standard error of the flagged share.

    Examples
    --------
    >>> from sklearn.mixture import GaussianMixture
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> detector = OutlierDetector(GaussianMixture(), contamination=0.01).fit(X)
    >>> detector.predict([[0.0, 0.0], [4.0, 4.0]])
    array([ 1, -1])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "estimator": [HasMethods(["fit", "score_samples"]), None],
        "contamination": [Interval(Real, 0, 0.5, closed="right")],
        "cv": [Interval(Integral, 2, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        estimator: Any = None,  # noqa: ANN401
        *,
        contamination: float = 0.05,
        cv: int = 5,
        random_state: int = 0,
    ) -> None:
        self.estimator = estimator
        self.contamination = contamination
        self.cv = cv
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=False)  # type: ignore[untyped-decorator]
    def fit(self, X: ArrayLike, y: object = None) -> Self:  # noqa: N803, ARG002
        """Fit the density to all rows, and set the threshold by held-out rows.

        ``y`` is ignored.
        """
        self.estimator_ = self._density().fit(X)
        self._set_offset(self._held_out(X, HELD_OUT))
        return self

    @_fit_context(prefer_skip_nested_validation=False)  # type: ignore[untyped-decorator]
    def fit_predict(self, X: ArrayLike, y: object = None, **kwargs: Any) -> NDArray[np.int64]:  # noqa: ANN401, ARG002, N803
        """Fit, and return 1 and -1 for the rows: -1 for outliers.

        A row is judged by a model that was fitted without it, so that its own weight does not hide
        it; `predict` does not know which rows were fitted. All folds are used.
        """
        self.estimator_ = self._density().fit(X)
        held = self._held_out(X, _num_samples(X))
        self._set_offset(held)
        return np.where(held < self.offset_, -1, 1)

    @classmethod
    def from_fitted(
        cls,
        estimator: Any,  # noqa: ANN401
        *,
        contamination: float = 0.05,
        train: ArrayLike | None = None,
        held_out: ArrayLike | None = None,
        random_state: int = 0,
    ) -> OutlierDetector:
        """Return a detector with a density that is fitted already.

        The threshold is set by rows that the density was not fitted to, ``held_out``, or by those
        that it was fitted to, ``train``, by fits of folds as in `fit`. Without any it is set by
        samples of the model: then the share is right as far as the model is.
        """
        if train is not None and held_out is not None:
            raise ValueError("held_out must be None where train is given: one of them is enough")
        detector = cls(estimator, contamination=contamination, random_state=random_state)
        detector._validate_params()
        detector.estimator_ = estimator
        if train is not None:
            found = detector._held_out(train, HELD_OUT)
        elif held_out is not None:
            found = np.asarray(estimator.score_samples(held_out), dtype=np.float64)
            found -= detector._shifts(held_out)
        else:
            samples = estimator.sample(SAMPLES, random_state=random_state)
            with warnings.catch_warnings():  # samples may be arrays without the columns' names
                warnings.filterwarnings("ignore", "X does not have valid feature names")
                found = np.asarray(estimator.score_samples(samples), dtype=np.float64)
        detector._set_offset(found)
        return detector

    def score_samples(self, X: ArrayLike) -> Array:  # noqa: N803
        """Return the log-density of each row."""
        check_is_fitted(self)
        return np.asarray(self.estimator_.score_samples(X), dtype=np.float64)

    def decision_function(self, X: ArrayLike) -> Array:  # noqa: N803
        """Return the log-densities above the threshold; negative for outliers."""
        return self.score_samples(X) - self._shifts(X) - self.offset_

    def _shifts(self, X: ArrayLike) -> Array | float:  # noqa: N803
        """Return the shift of each row, which is 0 without gaps."""
        found = gaps_of(self.estimator_, X)
        if found is None or not found.any():
            return 0.0
        result = np.zeros(len(found))
        with warnings.catch_warnings():  # samples may be arrays without the columns' names
            warnings.filterwarnings("ignore", "X does not have valid feature names")
            drawn = rows_of(self.estimator_, self.estimator_.sample(GAP_SAMPLES, self.random_state))
        share = self.contamination
        whole = np.quantile(log_density(self.estimator_.model_, drawn).numpy(), share)
        patterns, place = np.unique(found, axis=0, return_inverse=True)
        for k, pattern in enumerate(patterns):
            if pattern.any():
                masked = drawn.masked_fill(torch.from_numpy(pattern), math.nan)
                logs = log_density(self.estimator_.model_, masked).numpy()
                result[place == k] = np.quantile(logs, share) - whole
        return result

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:  # noqa: N803
        """Return 1 for each row, and -1 for outliers."""
        return np.where(self.decision_function(X) < 0, -1, 1)

    @property
    def n_features_in_(self) -> int:
        """The number of columns."""
        check_is_fitted(self)
        return int(self.estimator_.n_features_in_)

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """The names of the columns, where the rows had names."""
        names: NDArray[Any] = self.estimator_.feature_names_in_
        return names

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether there is a threshold."""
        return hasattr(self, "offset_")

    def _density(self) -> Any:  # noqa: ANN401
        return OISM() if self.estimator is None else clone(self.estimator)

    def _held_out(self, X: Any, wanted: int) -> Array:  # noqa: ANN401, N803
        """Return the log-densities of held-out rows less their shifts, at least ``wanted`` or all.

        They are in the order of the rows if all rows are held out.
        """
        X = X if hasattr(X, "__getitem__") else np.asarray(X)  # noqa: N806
        n = _num_samples(X)
        folds = min(self.cv, n)
        if folds < 2:
            raise ValueError(f"X must have at least two rows to hold some out, got {n}")
        needed = min(folds, math.ceil(wanted * folds / n))
        splits = KFold(folds, shuffle=True, random_state=self.random_state).split(np.zeros(n))
        found = np.full(n, np.nan)
        with progress_bar(None) as bar:
            bar.stage("held-out rows", needed)
            for (rest, held), _ in zip(splits, range(needed), strict=False):
                density = self._fitted_without(X, rest)
                found[held] = density.score_samples(_safe_indexing(X, held))
                bar.advance(1)
        found -= self._shifts(X)
        return found[~np.isnan(found)]

    def _fitted_without(self, X: Any, rest: NDArray[np.int64]) -> Any:  # noqa: ANN401, N803
        """Return a density that is fitted to the rows ``rest``, and knows the levels of all.

        A level that occurs once is in no row but the one that is held out. Rows of weight 0 count
        for nothing, but the columns are learned from all rows.
        """
        columns = getattr(self.estimator_, "columns_", None)
        if columns is None or not columns.categorical:
            return self._density().fit(_safe_indexing(X, rest))
        weights = np.zeros(_num_samples(X))
        weights[rest] = 1.0
        return self._density().fit(X, sample_weight=weights)

    def _set_offset(self, held: Array) -> None:
        share = checks.positive(self.contamination, "contamination")
        if share * (len(held) + 1) < 1:
            warn(
                f"contamination {share:g} is below 1/{len(held) + 1}, and {len(held)} rows set the "
                "threshold: it is their lowest log-density, and the flagged share is larger"
            )
        self.offset_ = float(np.quantile(held, share, method="weibull"))
        self.offset_error_ = math.sqrt(share * (1 - share) / len(held))


def gaps_of(estimator: Any, X: ArrayLike) -> NDArray[np.bool_] | None:  # noqa: ANN401, N803
    """Return which entries of rows are missing ``(n, d)``; None for estimators without gaps."""
    if not hasattr(estimator, "columns_"):
        return None
    missing: NDArray[np.bool_] = rows_of(estimator, X, gaps=True).isnan().numpy()
    return missing
