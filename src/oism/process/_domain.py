"""State spaces of processes: ℝ^d, and the flat torus [-π, π)^d."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from oism._core import checks


class Domain(ABC):
    """A set of points with a map from ℝ^d into it.

    ``period`` is that of every coordinate, or None if coordinates are not periodic.
    """

    period: float | None = None

    @abstractmethod
    def wrap(self, x: Tensor) -> Tensor:
        """Return the representative of each point inside the domain."""

    def _wrap(self, x: Tensor) -> Tensor:
        """Return `wrap` without checking the values, which would synchronise with a GPU."""
        return self.wrap(x)

    @abstractmethod
    def contains(self, x: Tensor) -> Tensor:
        """Return which points of a batch ``(n, *shape)`` are inside: ``(n,)``, bool."""

    def admit(self, x: Tensor, name: str = "x") -> Tensor:  # noqa: ARG002
        """Return data as points of the domain, or raise; by default `wrap`."""
        return self.wrap(x)


@dataclass(frozen=True)
class Euclidean(Domain):
    """ℝ^d, without wrapping.

    >>> Euclidean().contains(torch.tensor([[1e9, -7.0]]))
    tensor([True])
    """

    def wrap(self, x: Tensor) -> Tensor:
        """Return ``x``."""
        return checks.points(x)

    def _wrap(self, x: Tensor) -> Tensor:
        return x

    def contains(self, x: Tensor) -> Tensor:
        """Return True for every point."""
        return torch.ones(len(checks.points(x)), dtype=torch.bool, device=x.device)


@dataclass(frozen=True)
class FlatTorus(Domain):
    """[-π, π)^d with opposite faces identified: coordinates are taken modulo 2π.

    >>> FlatTorus().wrap(torch.tensor([[4.0, -3.0]]))
    tensor([[-2.2832, -3.0000]])
    """

    period = 2 * math.pi

    def wrap(self, x: Tensor) -> Tensor:
        """Return the points with every coordinate shifted by a multiple of 2π into [-π, π).

        Coordinates inside are returned bit for bit; the derivative is the identity.
        """
        return wrapped(checks.points(x))

    def _wrap(self, x: Tensor) -> Tensor:
        return wrapped(x)

    def contains(self, x: Tensor) -> Tensor:
        """Return whether every coordinate is in [-π, π)."""
        return _inside(checks.points(x)).flatten(1).all(dim=1)


def wrapped(x: Tensor) -> Tensor:
    """Return ``x`` modulo 2π in [-π, π), for a checked tensor of any shape."""
    turns = torch.floor((x + math.pi) / (2 * math.pi))
    shifted = x - 2 * math.pi * turns
    # Rounding can leave a coordinate just outside: move it to the end of the interval, by a shift
    # without derivative.
    shifted = torch.where(shifted >= math.pi, shifted - 2 * math.pi, shifted)
    glued = shifted + (-math.pi - shifted).detach()
    return torch.where(_inside(x), x, torch.where(shifted < -math.pi, glued, shifted))


def _inside(x: Tensor) -> Tensor:
    return (x >= -math.pi) & (x < math.pi)
