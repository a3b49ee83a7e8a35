"""Mixtures whose scores and time scores are known at every t, with rules to integrate by.

Data are a few weighted points, so ρ_t is the mixture of their transitions: Gaussians for linear
processes, written down here with matrix exponentials, sums over images on the torus. Nothing of the
library is used but the names of the processes. Expectations are trapezoidal sums on grids, which
are exact to rounding for such distributions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from oism import Linear, OrnsteinUhlenbeck, Torus
from oism.process import Process

TIME = 0.3
Features = Callable[[Tensor], Tensor]


def gradient(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Return the gradient of the sum of f, which is that of each row."""
    found: Tensor = torch.func.grad(lambda y: f(y).sum())(x)
    return found


def matrices(process: Process, dim: int) -> tuple[Tensor, Tensor]:
    """Return F and G of a linear process."""
    eye = torch.eye(dim, dtype=torch.float64)
    if isinstance(process, OrnsteinUhlenbeck):
        return -process.theta * eye, 0.5 * process.sigma**2 * eye
    assert isinstance(process, Linear)
    return process.drift_matrix, 0.5 * process.noise_matrix @ process.noise_matrix.mT


def lyapunov(drift: Tensor, squared: Tensor) -> Tensor:
    """Return Σ with FΣ + ΣFᵀ + squared = 0, by Kronecker products."""
    eye = torch.eye(len(drift), dtype=torch.float64)
    system = torch.kron(drift, eye) + torch.kron(eye, drift)
    solution: Tensor = torch.linalg.solve(system, -squared.flatten()).reshape(drift.shape)
    return solution


@dataclass(frozen=True, eq=False)
class Distribution:
    """Weighted points that diffuse."""

    process: Process
    points: Tensor
    weights: Tensor

    @property
    def dim(self) -> int:
        return self.points.shape[1]

    @property
    def metric(self) -> Tensor:
        """G, ``(dim, dim)``."""
        if isinstance(self.process, Torus):
            return torch.eye(self.dim, dtype=torch.float64)
        return matrices(self.process, self.dim)[1]

    def log_transition(self, y: Tensor, t: Tensor) -> Tensor:
        """Return log ρ_t(y|a) for every one of the points: ``(n, points)``; one t per row."""
        if isinstance(self.process, Torus):
            step = y[:, None, :, None] - self.points[:, :, None]
            images = 2 * math.pi * torch.arange(-4, 5, dtype=torch.float64)
            exponent = -(step + images).square() / (4 * t[:, None, None, None])
            each = (
                torch.logsumexp(exponent, dim=-1) - 0.5 * torch.log(4 * math.pi * t)[:, None, None]
            )
            return each.sum(dim=-1)
        drift, metric = matrices(self.process, self.dim)
        limit = lyapunov(drift, 2 * metric)
        moved = torch.linalg.matrix_exp(drift * t[:, None, None])
        covariance = limit - moved @ limit @ moved.mT
        step = y[:, None, :] - torch.einsum("nij,aj->nai", moved, self.points)
        size = torch.einsum("nai,nij,naj->na", step, torch.linalg.inv(covariance), step)
        volume = torch.log(torch.linalg.det(2 * math.pi * covariance))
        return -0.5 * (size + volume[:, None])

    def log_density(self, y: Tensor, t: Tensor) -> Tensor:
        return torch.logsumexp(self.weights.log() + self.log_transition(y, t), dim=1)

    def log_invariant(self, y: Tensor) -> Tensor:
        if isinstance(self.process, Torus):
            return torch.full_like(y[:, 0], -self.dim * math.log(2 * math.pi))
        drift, metric = matrices(self.process, self.dim)
        limit = lyapunov(drift, 2 * metric)
        size = torch.einsum("ni,ij,nj->n", y, torch.linalg.inv(limit), y)
        return -0.5 * (size + torch.log(torch.linalg.det(2 * math.pi * limit)))

    def energy(self, y: Tensor, t: Tensor) -> Tensor:
        return self.log_density(y, t) - self.log_invariant(y)

    def score(self, y: Tensor, t: Tensor) -> Tensor:
        return gradient(lambda z: self.log_density(z, t), y)

    def score_of_ratio(self, y: Tensor, t: Tensor) -> Tensor:
        return gradient(lambda z: self.energy(z, t), y)

    def time_score(self, y: Tensor, t: Tensor) -> Tensor:
        return gradient(lambda s: self.log_density(y, s), t)

    def grid(self) -> tuple[Tensor, Tensor]:
        """Return points of a grid and the volume of each, ``(m, dim)`` and ``(m,)``."""
        if isinstance(self.process, Torus):
            side = torch.linspace(-math.pi, math.pi, 65, dtype=torch.float64)[:-1]
        else:
            side = torch.linspace(-8, 8, 97, dtype=torch.float64)
        y = torch.cartesian_prod(*[side] * self.dim).reshape(-1, self.dim)
        return y, torch.full((len(y),), float(side[1] - side[0]) ** self.dim, dtype=torch.float64)

    def rule(self) -> tuple[Tensor, Tensor]:
        """Return points and weights for E_t at the time of the tests."""
        y, volume = self.grid()
        return y, volume * self.log_density(y, at(y)).exp()


def at(y: Tensor, t: float = TIME) -> Tensor:
    return torch.full_like(y[:, 0], t)


def tensor(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


LINE = tensor([-1.3], [-0.2], [1.1])
PLANE = tensor([-1.3, 0.4], [0.6, 1.0], [0.9, -0.8])
SHARES = torch.tensor([0.3, 0.25, 0.45], dtype=torch.float64)
SHEARED = Linear(tensor([-1.0, 2.0], [0.0, -0.5]), tensor([1.0, 0.0, 0.3], [0.4, 0.8, -1.0]))
OU = OrnsteinUhlenbeck(theta=0.7, sigma=1.3)

DISTRIBUTIONS = {
    "line": Distribution(OU, LINE, SHARES),
    "plane": Distribution(OU, PLANE, SHARES),
    "circle": Distribution(Torus(), LINE, SHARES),
    "torus": Distribution(Torus(), PLANE, SHARES),
    "asymmetric": Distribution(SHEARED, PLANE, SHARES),
}


def features(mixture: Distribution) -> Features:
    """Return functions that energies are sums of: ``(n, k)``; few are eigenfunctions."""
    if isinstance(mixture.process, Torus):

        def waves(x: Tensor) -> Tensor:
            a, b = x[:, 0], x[:, -1]
            every = (a.sin(), a.cos().exp(), (2 * a).cos(), (b - 0.3).sin().exp(), (a + b).sin())
            return torch.stack(every, dim=1)

        return waves

    def bumps(x: Tensor) -> Tensor:
        a, b = x[:, 0], x[:, -1]
        every = (
            a,
            a.square(),
            (1.3 * a).sin(),
            (b + 0.5).cos(),
            (-0.5 * (a + b - 1).square()).exp(),
        )
        return torch.stack(every, dim=1)

    return bumps


def minimiser(loss: Callable[[Tensor], Tensor], size: int) -> Tensor:
    """Return where a quadratic is least, from its gradients at zero and at the unit vectors."""

    def slope(alpha: Tensor) -> Tensor:
        alpha = alpha.clone().requires_grad_()
        (found,) = torch.autograd.grad(loss(alpha), alpha)
        return found

    zero = slope(torch.zeros(size, dtype=torch.float64))
    eye = torch.eye(size, dtype=torch.float64)
    matrix = torch.stack([slope(unit) - zero for unit in eye], dim=1)
    least: Tensor = torch.linalg.solve(matrix, -zero)
    return least
