"""A table of eight columns of all kinds, each depending on earlier ones, with its exact density.

    p(row) = Π_j p(x_j | x_<j)

is a density in the continuous columns and a probability in the others.

| column      | kind                    | given the earlier columns                  |
|-------------|-------------------------|--------------------------------------------|
| site        | three levels            |                                            |
| direction   | periodic, 360           | two von Mises distributions for each site  |
| humidity    | bounded, 0 to 100       | Beta, of site and direction                |
| rain        | positive                | Gamma, of humidity, direction and site     |
| temperature | free                    | Student t, of direction, humidity and site |
| visitors    | counts                  | Poisson, of temperature, rain and site     |
| open        | two levels              | logistic in rain, visitors and humidity    |
| duration    | positive                | Weibull, of visitors, open and direction   |

The families of the conditional distributions are those of no method that is compared: a log-normal
or logit-normal column would be a Gaussian after the transform that one makes by hand.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special, stats

Array = NDArray[np.float64]

PERIODIC = {"direction": 360.0}
BOUNDS: dict[str, tuple[float | None, float | None]] = {
    "humidity": (0.0, 100.0),
    "rain": (0.0, None),
    "duration": (0.0, None),
}
LEVELS = {"site": ("coast", "hill", "town"), "open": ("no", "yes")}
COLUMNS = (
    "site",
    "direction",
    "humidity",
    "rain",
    "temperature",
    "visitors",
    "open",
    "duration",
)


class ByRow(NamedTuple):
    """Distributions of one column, a separate one for every row, as frozen ones of SciPy."""

    frozen: Any
    scale: float = 1.0  # the column is this times a draw

    def draw(self, rng: np.random.Generator) -> Any:  # noqa: ANN401
        """Return a draw for every row."""
        return self.scale * self.frozen.rvs(random_state=rng)

    def log(self, values: Any) -> Any:  # noqa: ANN401
        """Return the log-densities of the values."""
        return self.frozen.logpdf(np.asarray(values) / self.scale) - np.log(self.scale)


class Counts(NamedTuple):
    """Distributions of a column of counts."""

    frozen: Any

    def draw(self, rng: np.random.Generator) -> Any:  # noqa: ANN401
        """Return a draw for every row."""
        return self.frozen.rvs(random_state=rng)

    def log(self, values: Any) -> Any:  # noqa: ANN401
        """Return the log-probabilities of the values."""
        return self.frozen.logpmf(np.asarray(values))


class Levels(NamedTuple):
    """Distributions of a column of levels: probabilities ``(n, levels)``."""

    shares: Array
    names: tuple[str, ...]

    def draw(self, rng: np.random.Generator) -> Any:  # noqa: ANN401
        """Return a draw for every row."""
        places = (rng.random((len(self.shares), 1)) > self.shares.cumsum(axis=1)).sum(axis=1)
        codes = np.minimum(places, len(self.names) - 1)  # a sum may end below 1 by rounding
        return pd.Categorical.from_codes(codes, list(self.names))

    def log(self, values: Any) -> Any:  # noqa: ANN401
        """Return the log-probabilities of the values; unknown levels are an error."""
        places = [self.names.index(value) for value in values]
        return np.log(self.shares[np.arange(len(places)), places])


class Winds(NamedTuple):
    """Two von Mises distributions for every row, in degrees."""

    shares: Array  # (n, 2), as the others
    centres: Array
    concentrations: Array

    def draw(self, rng: np.random.Generator) -> Any:  # noqa: ANN401
        """Return a draw for every row."""
        rows = np.arange(len(self.shares))
        second = (rng.random(len(rows)) > self.shares[:, 0]).astype(int)
        centre, concentration = (part[rows, second] for part in (self.centres, self.concentrations))
        return np.remainder(np.degrees(rng.vonmises(np.radians(centre), concentration)), 360.0)

    def log(self, values: Any) -> Any:  # noqa: ANN401
        """Return the log-densities per degree."""
        gap = np.radians(np.asarray(values)[:, None] - self.centres)
        scaled = np.log(360 * special.ive(0, self.concentrations))
        parts = np.log(self.shares) + self.concentrations * (np.cos(gap) - 1) - scaled
        return special.logsumexp(parts, axis=1)


SITE_SHARES = np.array([0.5, 0.3, 0.2])
WIND_SHARES = np.array([[0.65, 0.35], [0.5, 0.5], [0.85, 0.15]])
WIND_CENTRES = np.array([[40.0, 200.0], [120.0, 300.0], [350.0, 90.0]])
WIND_CONCENTRATIONS = np.array([[4.0, 8.0], [3.0, 6.0], [1.5, 12.0]])
HUMIDITY = np.array([0.7, -0.5, 0.1])
RAIN = np.array([0.3, 0.8, -0.4])
TEMPERATURE = np.array([15.0, 8.0, 17.0])
VISITORS = np.array([1.3, 0.6, 1.9])


def conditional(column: str, earlier: pd.DataFrame) -> Any:  # noqa: ANN401, PLR0911
    """Return the distributions of a column given the earlier columns of each row."""
    if column == "site":
        return Levels(np.tile(SITE_SHARES, (len(earlier), 1)), LEVELS["site"])
    site = np.array([LEVELS["site"].index(value) for value in earlier["site"]], dtype=int)
    if column == "direction":
        return Winds(WIND_SHARES[site], WIND_CENTRES[site], WIND_CONCENTRATIONS[site])
    angle = np.radians(earlier["direction"].to_numpy())
    if column == "humidity":
        mean = special.expit(HUMIDITY[site] + 0.9 * np.cos(angle - 1.0))
        return ByRow(stats.beta(12 * mean, 12 * (1 - mean)), 100.0)
    damp = earlier["humidity"].to_numpy() / 100 - 0.5
    if column == "rain":
        mean = np.exp(RAIN[site] + 2.2 * damp + 0.5 * np.sin(angle))
        return ByRow(stats.gamma(1.6, scale=mean / 1.6))
    rain = earlier["rain"].to_numpy()
    if column == "temperature":
        mean = TEMPERATURE[site] + 5 * np.cos(angle - 3.5) - 8 * damp
        return ByRow(stats.t(5, loc=mean, scale=1.5 + 2 * (damp + 0.5)))
    warm = np.tanh((earlier["temperature"].to_numpy() - 12) / 6)
    if column == "visitors":
        return Counts(stats.poisson(np.exp(VISITORS[site] + 0.7 * warm - 0.5 * np.tanh(rain / 3))))
    visitors = earlier["visitors"].to_numpy()
    if column == "open":
        yes = special.expit(0.6 + 0.5 * (visitors - 4) - 0.6 * rain + 2 * damp)
        return Levels(np.stack((1 - yes, yes), axis=1), LEVELS["open"])
    is_open = (earlier["open"] == "yes").to_numpy()
    size = 0.1 * np.minimum(visitors, 15) + 0.6 * is_open + 0.3 * np.cos(angle)
    return ByRow(stats.weibull_min(1.5, scale=0.5 * np.exp(size)))


def mixed_table(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Return n random rows."""
    table = pd.DataFrame(index=range(n))
    for column in COLUMNS:
        table[column] = conditional(column, table).draw(rng)
    return table


def mixed_log_factors(table: pd.DataFrame) -> pd.DataFrame:
    """Return log p(x_j | x_<j) of every row, one column for each."""
    logs = {
        column: conditional(column, table[list(COLUMNS[:place])]).log(table[column])
        for place, column in enumerate(COLUMNS)
    }
    return pd.DataFrame(logs, index=table.index)


def mixed_log_density(table: pd.DataFrame) -> Array:
    """Return the log-density of every row: per unit of the continuous columns."""
    logs: Array = mixed_log_factors(table).to_numpy().sum(axis=1)
    return logs


def outside(table: pd.DataFrame) -> dict[str, int]:
    """Return the number of rows of each column that no row of the table can have."""
    counts = {}
    for column in COLUMNS:
        values = table[column]
        if column in LEVELS:
            wrong = ~values.isin(LEVELS[column])
        elif column == "visitors":
            wrong = (values < 0) | (values != np.round(values))
        else:
            low, high = BOUNDS.get(column, (None, None))
            wrong = ~np.isfinite(values)
            wrong |= values < (-np.inf if low is None else low)
            wrong |= values > (np.inf if high is None else high)
        counts[column] = int(wrong.sum())
    return counts
