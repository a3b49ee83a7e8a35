"""The methods that are compared, by name and grid: the library's samplers and the peers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from torch import Tensor

from studies.sampling import ours, peers
from studies.sampling.networks import Counted

OWN = "own"
"""The name of the grid of the library's samplers."""

CONVERGED = "converged"
CONVERGING, CONVERGED_EVALUATIONS = ("DPM-Solver++(3M)", "uniform, short"), 40
"""The method and the number of evaluations of converged samples."""

Method = Callable[[Counted, Tensor, int], Tensor]


def known_methods(*, is_short: bool = True) -> Iterator[tuple[str, str, Method]]:
    """Yield name, grid and function of methods: the library's and short grids, or long grids."""
    if is_short:
        for name, sampler in ours.OURS.items():
            yield name, OWN, partial(_ours, sampler)
    for name, peer in peers.PEERS.items():
        for grid in peers.GRIDS:
            if grid.is_short == is_short:
                yield name, grid.name, partial(_peer, peer, grid)


def _ours(sampler: ours.Sampler, predictor: Counted, noise: Tensor, evaluations: int) -> Tensor:
    return sampler(predictor, predictor.prior, noise, evaluations)


def _peer(
    peer: peers.Peer, grid: peers.Grid, predictor: Counted, noise: Tensor, evaluations: int
) -> Tensor:
    first = predictor.model.first
    return peers.sample(peer, grid, predictor, predictor.noising, noise, evaluations, first=first)


def method(name: str, grid: str) -> Method:
    """Return the method of a name and a grid."""
    known = (*known_methods(), *known_methods(is_short=False))
    return next(found for one, other, found in known if (one, other) == (name, grid))
