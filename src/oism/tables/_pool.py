"""The weights of a pool of densities, p = Σ v_i p_i, by the likelihood of held-out rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

GROUPS = 5

PATH = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
"""The numbers of steps for the weights of the pool that are tried."""


def pool_weights(log_densities: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the weights of the models of a pool from log-densities ``(n, m)`` of held-out rows.

    Steps of expectation maximisation from equal weights lead to the largest likelihood of these
    rows, and with many models and few rows beyond what new rows support. So the number of steps is
    chosen by cross-validation over five groups of the rows. The second result, ``(n,)``, are the
    log-densities of the pool with weights from the other groups.

    >>> logs = torch.tensor([[0.0, -1.0], [0.0, -1.0], [-1.0, 0.0]]).repeat(50, 1)
    >>> pool_weights(logs)[0]
    tensor([0.8..., 0.1...])
    """
    n = len(log_densities)
    weights = torch.ones_like(log_densities[:, 0]) if weights is None else weights
    group = torch.arange(n) % min(GROUPS, n)
    found = log_densities.new_zeros(len(PATH), n)
    for one in range(int(group.max()) + 1):
        own = group == one
        others = ~own if n > 1 else own
        for k, chance in enumerate(weight_path(log_densities[others], weights[others], PATH)):
            logs = log_densities[own] + chance.clamp(min=1e-300).log()
            found[k, own] = torch.logsumexp(logs, dim=1)
    best = int((found @ weights).argmax())
    *_, chance = weight_path(log_densities, weights, PATH[: best + 1])
    return chance, found[best]


def weight_path(logs: Tensor, weights: Tensor, path: Sequence[int]) -> Iterator[Tensor]:
    """Yield the weights after numbers of steps of expectation maximisation."""
    chance = torch.full_like(logs[0], 1 / logs.shape[1])
    ratio = (logs - logs.amax(dim=1, keepdim=True)).exp()
    share, done = weights / weights.sum(), 0
    for steps in path:
        for _ in range(steps - done):
            chance = chance * (share / (ratio @ chance) @ ratio)
        done = steps
        yield chance
