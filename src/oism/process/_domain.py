"""Where a process lives: all of ℝ^d, or the flat torus [-π, π)^d."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from oism._core import checks


class Domain(ABC):
    """A set of points with the map that brings any point of ℝ^d into it.

    ``period`` is that of every coordinate, or None where coordinates do not wrap.
    """

    period: float | None = None

    @abstractmethod
    def wrap(self, x: Tensor) -> Tensor:
        """Return the representative of each point inside the domain."""

    def _wrap(self, x: Tensor) -> Tensor:
        """Return the same where values need not be checked: reading them waits for a device."""
        return self.wrap(x)

    @abstractmethod
    def contains(self, x: Tensor) -> Tensor:
        """Tell which points of a batch ``(n, *shape)`` lie inside: ``(n,)``, bool."""


@dataclass(frozen=True)
class Euclidean(Domain):
    """ℝ^d: nothing to wrap.

    >>> Euclidean().contains(torch.tensor([[1e9, -7.0]]))
    tensor([True])
    """

    def wrap(self, x: Tensor) -> Tensor:
        """Return ``x`` itself."""
        return checks.points(x)

    def _wrap(self, x: Tensor) -> Tensor:
        return x

    def contains(self, x: Tensor) -> Tensor:
        """Return True for every point."""
        return torch.ones(len(checks.points(x)), dtype=torch.bool, device=x.device)


@dataclass(frozen=True)
class FlatTorus(Domain):
    """[-π, π)^d with opposite faces glued: coordinates count modulo 2π.

    >>> FlatTorus().wrap(torch.tensor([[4.0, -3.0]]))
    tensor([[-2.2832, -3.0000]])
    """

    period = 2 * math.pi

    def wrap(self, x: Tensor) -> Tensor:
        """Shift every coordinate by a multiple of 2π into [-π, π).

        Coordinates already inside come back bit for bit; the derivative is the identity.
        """
        return wrapped(checks.points(x))

    def _wrap(self, x: Tensor) -> Tensor:
        return wrapped(x)

    def contains(self, x: Tensor) -> Tensor:
        """Tell whether every coordinate is in [-π, π)."""
        return _inside(checks.points(x)).flatten(1).all(dim=1)


def wrapped(x: Tensor) -> Tensor:
    """Return ``x`` modulo 2π in [-π, π), for a tensor of any shape that was checked before."""
    turns = torch.floor((x + math.pi) / (2 * math.pi))
    shifted = x - 2 * math.pi * turns
    # Rounding can leave a coordinate a hair outside: glue it to the face it belongs to, by a shift
    # that derivatives do not see.
    shifted = torch.where(shifted >= math.pi, shifted - 2 * math.pi, shifted)
    glued = shifted + (-math.pi - shifted).detach()
    return torch.where(_inside(x), x, torch.where(shifted < -math.pi, glued, shifted))


def _inside(x: Tensor) -> Tensor:
    return (x >= -math.pi) & (x < math.pi)
