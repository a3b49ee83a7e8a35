"""Random tensors for any device from a generator of any device.

torch draws only where the generator is. A model on a GPU and a generator of the CPU are a usual
pair, and give the same samples as on the CPU: numbers are drawn where the generator is, and moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor


def filled(
    fill: Callable[[Tensor], Tensor],
    shape: Sequence[int],
    generator: torch.Generator | None,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """Return a tensor on ``device``, filled on the device of the generator if there is one."""
    place = device if generator is None else generator.device
    return fill(torch.empty(tuple(shape), dtype=dtype, device=place)).to(device)


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Within, the generators of torch for the CPU and for ``device`` begin with a seed.

    After the block those of the CPU and of a CUDA device have their state from before. Those of
    other devices are not touched: `torch.manual_seed` would seed all of them.
    """
    kind = "cpu" if device is None else device.type
    with torch.random.fork_rng(devices=[device] if kind == "cuda" else []):
        torch.default_generator.manual_seed(seed)
        if kind == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        elif kind != "cpu" and device is not None:
            torch.get_device_module(device).manual_seed(seed)
        yield


def normal_like(x: Tensor, generator: torch.Generator | None) -> Tensor:
    """Return independent standard normal numbers, of the shape, dtype and device of ``x``."""
    return normal(x.shape, generator, dtype=x.dtype, device=x.device)


def normal(
    shape: Sequence[int],
    generator: torch.Generator | None,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """Return independent standard normal numbers."""

    def fill(x: Tensor) -> Tensor:
        return x.normal_(generator=generator)

    return filled(fill, shape, generator, dtype=dtype, device=device)


def uniform_like(x: Tensor, generator: torch.Generator | None) -> Tensor:
    """Return independent numbers, uniform in [0, 1), of the shape, dtype and device of ``x``."""
    return uniform(x.shape, generator, dtype=x.dtype, device=x.device)


def uniform(
    shape: Sequence[int],
    generator: torch.Generator | None,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """Return independent numbers, uniform in [0, 1)."""

    def fill(u: Tensor) -> Tensor:
        return u.uniform_(generator=generator)

    return filled(fill, shape, generator, dtype=dtype, device=device)


def multinomial(weights: Tensor, n: int, generator: torch.Generator | None) -> Tensor:
    """Return n places ``(n,)``, drawn with replacement in proportion to ``weights`` ``(k,)``.

    For n = 0, which torch refuses, nothing is drawn.
    """
    if not n:
        return torch.zeros(0, dtype=torch.int64, device=weights.device)
    place = weights.device if generator is None else generator.device
    drawn = torch.multinomial(weights.to(place), n, replacement=True, generator=generator)
    return drawn.to(weights.device)


def categorical(chances: Tensor, generator: torch.Generator | None) -> Tensor:
    """Return a place for each row, drawn in proportion to its ``chances`` ``(n, k)``: ``(n,)``."""
    place = chances.device if generator is None else generator.device
    drawn = torch.multinomial(chances.to(place), 1, generator=generator)[:, 0]
    return drawn.to(chances.device)


def gamma(shape: Tensor, generator: torch.Generator | None) -> Tensor:
    """Return a number with a gamma distribution of scale 1 for each parameter of shape."""
    place = shape.device if generator is None else generator.device
    return torch._standard_gamma(shape.to(place), generator=generator).to(shape.device)


def permutation(n: int, generator: torch.Generator | None) -> Tensor:
    """Return the numbers 0, …, n - 1 in random order, on the CPU."""
    place = None if generator is None else generator.device
    return torch.randperm(n, generator=generator, device=place).cpu()
