"""Random numbers by the number of the step.

Everything that is random in a step (rows, mirror images, times, noise and the masks of dropout) is
determined by the seed and the number of the step alone. So a resumed run continues as if it had
never stopped, and two runs with different networks see the same data with the same noise. So do one
process and several: each draws the whole batch and takes its rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from oism._core import checks
from oism._core.hashing import seed_from
from oism.objectives import NoiseLevels
from oism.training._data import Rows


@dataclass(frozen=True, eq=False)
class Batch:
    """Clean tensors of one process, their times, the noise to be added, and any labels."""

    x: Tensor
    tau: Tensor
    noise: Tensor
    labels: Tensor | None = None


class Draws:
    """The batches of a run, for one process of several.

    ``size`` is that of the whole batch, of which ``rank`` and ``world`` determine the part. A share
    ``dropped`` of the labels, if there are any, is replaced by that of no class.
    """

    def __init__(  # noqa: PLR0913
        self,
        rows: Rows,
        levels: NoiseLevels,
        *,
        size: int,
        seed: int,
        flip: bool,
        rank: int = 0,
        world: int = 1,
        dropped: float = 0.0,
    ) -> None:
        if size % world:
            raise ValueError(f"batch must be a multiple of the {world} processes, got {size}")
        if size > len(rows):
            raise ValueError(f"batch must be at most the {len(rows)} rows of data, got {size}")
        if flip and len(rows.shape) < 2:
            raise ValueError(
                f"flip must be False for vectors, which have no mirror images, got {flip!r} and "
                f"rows of shape {rows.shape}"
            )
        if flip:
            checks.mirrored(rows.shape)
        self.rows, self.levels, self.size, self.seed, self.flip = rows, levels, size, seed, flip
        self.part = slice(rank * size // world, (rank + 1) * size // world)
        self.rank, self.dropped = rank, dropped
        self._generator = torch.Generator(rows.device)
        self._order: tuple[int, Tensor] = (-1, torch.empty(0, dtype=torch.long))

    def step(self, k: int) -> Batch:
        """Return the batch of step k, and seed the global generators for dropout."""
        batch = self.batch(k)
        torch.manual_seed(seed_from(self.seed, k, 1 + self.rank))
        return batch

    def batch(self, k: int) -> Batch:
        """Return the batch of step k, for evaluation: the global generators are left alone."""
        generator = self._generator.manual_seed(seed_from(self.seed, k))
        device, size = self.rows.device, self.size
        tau = self.levels.draw(size, generator, device)[self.part]
        mirrored = None
        if self.flip:
            mirrored = torch.rand(size, generator=generator, device=device)[self.part] < 0.5
        spread = torch.rand(size, *self.rows.shape, generator=generator, device=device)[self.part]
        noise = torch.randn(size, *self.rows.shape, generator=generator, device=device)[self.part]
        indices = self._indices(k)[self.part]
        labels = self._labels(indices, generator)
        x = self.rows.take(indices, mirrored, spread)
        return Batch(x, tau, noise, labels)

    def _labels(self, indices: Tensor, generator: torch.Generator) -> Tensor | None:
        """Return the labels of rows, drawn last: a run without labels has the same noise."""
        labels, classes = self.rows.labels, self.rows.classes
        if labels is None or classes is None:
            return None
        own = labels[indices]
        if not self.dropped:
            return own
        chance = torch.rand(self.size, generator=generator, device=self.rows.device)[self.part]
        return torch.where(chance < self.dropped, classes, own)

    def _indices(self, k: int) -> Tensor:
        """Return the rows of step k: every epoch has all rows in an order of its own."""
        first, count = k * self.size, len(self.rows)
        epochs = range(first // count, (first + self.size - 1) // count + 1)
        parts = [
            self._permutation(epoch)[
                max(0, first - epoch * count) : first + self.size - epoch * count
            ]
            for epoch in epochs
        ]
        return torch.cat(parts)

    def _permutation(self, epoch: int) -> Tensor:
        if self._order[0] != epoch:
            generator = torch.Generator().manual_seed(seed_from(self.seed, epoch, 0))
            order = torch.randperm(len(self.rows), generator=generator)
            self._order = (epoch, order.to(self.rows.device))
        return self._order[1]
