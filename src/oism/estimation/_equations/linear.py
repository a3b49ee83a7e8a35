"""The equations of polynomials under a linear SDE, in standardised coordinates of each time.

X_0 = m + Tz + N(0, V) for standardised data z ``(k,)``; the term N(0, V) are added velocities. Then
X_t has mean and covariance

    m_t = S_t m,    C_t = S_t(TTᵀ + V)S_tᵀ + Σ_t,

and u = W_t(X_t - m_t), with W_tC_tW_tᵀ = I, is u = B_t z + noise, B_t = W_tS_tT: its moments are
Γ(B_t)E[φ(z)], see ``oism.basis._ladder``. No stationary distribution is needed, and F may have any
spectrum.

f = Σ α_kφ_k(u) models log ρ_t minus the Gaussian log N(m_t, C_t). Its gradient is matched in a
metric R ⪰ 0, E‖R^{½}(∇f - ∇log(ρ_t/N(m_t, C_t)))‖²: R = G for what the flow needs, R = I for the
whole score. Integration by parts gives

    A_kℓ = E[∇φ_kᵀR∇φ_ℓ],    b_k = E[∇·R∇φ_k - ⟨RC_t⁻¹(x - m_t), ∇φ_k⟩]

(with π for the Gaussian and R = G: b = E[½(L + L*)φ], not E[Lφ] or E[L*φ]). With R = NNᵀ and a
matrix J_q for the derivative along each column of W_tN this is

    A = Σ_q J_q E[φφᵀ] J_qᵀ,    b = -Σ_q J_qJ_qᵀ E[φ].

b vanishes up to degree two, which the Gaussian part contains. If R is singular, W_t is triangular
in coordinates that start with the kernel of R: functions of these coordinates only have zero rows
in A and b, and are left out.
"""

from __future__ import annotations

import math
from functools import cached_property

import torch
from torch import Tensor

from oism.basis import Ladder, Standardised
from oism.basis._hermite import TensorGram
from oism.process import Linear, PhaseSpace
from oism.score import FLOOR, LinearLaw, Metric

MOST_ENTRIES = 2**27
"""The largest table of functions at the nodes of the quadrature rule: one gigabyte."""


def matched(slopes: Tensor, products: Tensor, means: Tensor) -> tuple[Tensor, Tensor]:
    """Return A and b from J ``(..., q, s, l)``, E[φφᵀ] ``(..., l, l)`` and E[φ] ``(..., s)``."""
    matrix = (slopes @ products[..., None, :, :] @ slopes.mT).sum(dim=-3)
    right = -(slopes @ (slopes.mT @ means[..., None, :, None])).sum(dim=-3)
    return matrix, right[..., 0]


def start(space: Linear | PhaseSpace, standard: Standardised) -> LinearLaw:
    """Return the moments of X_t for standardised data at t = 0, with or without velocities."""
    process = space.dynamics
    dim, width = process.size, len(standard.scale)
    shift = torch.zeros(dim, dtype=torch.float64)
    factor = torch.zeros(dim, width, dtype=torch.float64)
    noise = space.unseen_covariance()
    rotation = standard.rotation
    assert rotation is not None
    shift[:width] = rotation.mT @ standard.shift
    factor[:width] = rotation.mT * standard.scale
    # Along directions in which the data are constant, X_0 has no density and no score.
    floor = FLOOR * standard.scale.square().max().clamp(min=1.0)
    missing = torch.where(standard.scale.square() < floor, floor, 0.0)
    noise[:width, :width] += (rotation.mT * missing) @ rotation
    return LinearLaw(process, shift, factor, noise, standard.low, standard.high)


def check_size(dim: int, order: int) -> None:
    """Raise unless the products of gradients of an order fit into a table."""
    degree = max(order, 2 * order - 2)
    entries = (2 * order - 1) ** dim * math.comb(dim + degree, dim)
    if entries > MOST_ENTRIES:
        raise ValueError(
            f"order must be smaller in {dim} dimensions, got {order}: products of gradients "
            f"would need a table of {entries:.2g} numbers, allowed {MOST_ENTRIES:.2g} (order 2 "
            "is possible in any dimension)"
        )


class LinearEquations:
    """A ``(T, *folds, size, size)`` and b ``(T, *folds, size)`` of the `kept` functions.

    ``means`` are averages over all |m| ≤ 2·order - 2 of the data, ``(*folds, functions)``.
    """

    def __init__(self, order: int, law: LinearLaw, metric: Metric, means: Tensor) -> None:
        self.order, self.law, self.metric = order, law, metric
        dim, width = law.factor.shape
        degree = max(order, 2 * order - 2)
        check_size(dim, order)
        self.ladder, self._source = Ladder(dim, degree), Ladder(width, degree)
        self.means = means[..., : len(self._source.indices)]

    @cached_property
    def _gram(self) -> TensorGram:
        return TensorGram(len(self.law.shift), self.order - 1, self.ladder.degree)

    @cached_property
    def _steps(self) -> Ladder:
        return Ladder(len(self.law.shift), self.order)

    @cached_property
    def kept(self) -> Tensor:
        """The mask of the functions of degree ≤ order that vary along the range of R."""
        return (self._steps.indices[:, self.metric.hidden :] > 0).any(dim=1)

    @property
    def indices(self) -> Tensor:
        """The multi-indices of the kept functions: ``(size, d)``."""
        return self._steps.indices[self.kept]

    def evolved(self, t: Tensor) -> Tensor:
        """Return E[φ_m(u)] for all |m| ≤ degree: ``(T, *folds, functions)``."""
        return self._evolved(t)[0]

    def _evolved(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return E[φ(u)], and W_tN ``(T, d, q)``."""
        moment = self.law.at(t)
        whiten, directions = self.metric.whiten(moment.covariance)
        means = self.ladder.spread(whiten @ moment.factor, self.means, self._source)
        return means, directions

    def at(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return A_t and b_t."""
        means, directions = self._evolved(t)
        slopes = self._steps.slopes(directions.mT)
        slopes = slopes.reshape(len(t), *[1] * (means.ndim - 2), *slopes.shape[1:])
        few = means[..., : len(self._steps.indices)]
        matrix, right = matched(slopes, self._gram(means), few)
        return matrix[..., self.kept, :][..., self.kept], right[..., self.kept]

    def rates(self, t: Tensor) -> Tensor:
        """Return the diagonal of A_t for a Gaussian: ``(T, size)``."""
        _, directions = self.metric.whiten(self.law.at(t).covariance)
        return directions.square().sum(dim=-1) @ self.indices.double().mT
