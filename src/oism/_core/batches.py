"""A batch of the rows of a table that is read in several passes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Batch(NamedTuple):
    """Rows ``(n, d)``, an array or a frame, with weights and positions ``(n,)`` if they are known.

    ``positions`` are the numbers of the rows in the whole table. A random subsample is drawn by
    them, so it does not depend on the batches. Without them rows are counted as they are read.
    """

    rows: Any
    weights: NDArray[np.float64] | None = None
    positions: NDArray[np.int64] | None = None
