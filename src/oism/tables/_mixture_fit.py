"""Mixtures of Gaussians fitted to free columns, with the scores of all noise levels."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from oism._core import checks
from oism.tables._candidates import Candidates
from oism.tables._column import Column
from oism.tables._joint_fit import fit_joint
from oism.tables._mixture import MixtureModel


def fit_mixtures(
    data: Tensor,
    *,
    counts: Sequence[int] | None = None,
    starts: int | None = None,
    local: bool = False,
    seed: int = 0,
    progress: bool | None = None,
) -> MixtureModel:
    """Return a pool of Gaussian mixtures, weighted by the likelihood of held-out rows.

    Parameters
    ----------
    data
        Rows ``(n, d)``, finite.
    counts
        The numbers of components that are tried, as far as there are three rows for each; by
        default up to 64, and up to 256 for more than 3,000 rows.
    starts
        The number of random starts of each; by default 4 up to 300 rows, and 2 above.
    local
        Whether to pool them with a Gaussian at each row; then the mixture has at least n
        components.
    seed
        Of the random starts.
    progress
        Show a progress bar; by default on a terminal, when a fit takes more than a second.

    Examples
    --------
    >>> import torch
    >>> rows = torch.randn(300, 4, generator=torch.Generator().manual_seed(0)).double()
    >>> model = fit_mixtures(rows, counts=(1, 2), starts=1)
    >>> model.log_density(torch.zeros(1, 4).double())  # the truth is -2 log 2π = -3.68
    tensor([-3.7...], dtype=torch.float64)
    """
    x = checks.points(data, "data").flatten(1).double()
    if not len(x):
        raise ValueError("data must hold at least one row, got none")
    seed = checks.integer(seed, "seed", minimum=0)
    if starts is not None:
        starts = checks.integer(starts, "starts", minimum=1)
    candidates = Candidates(("plain",), counts, starts, local)
    columns = [Column()] * x.shape[1]
    model = fit_joint(x, columns, candidates=candidates, seed=seed, progress=progress)
    return model.parts[0].mixture
