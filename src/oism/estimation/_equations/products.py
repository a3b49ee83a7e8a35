"""Averages of products of eigenfunctions at every noise level, and both objectives from them.

With φ₀ = 1 before the functions of the basis, let

    M_t[k, ℓ] = E_t[φ_kφ_ℓ],    so that E_t[φ_k] = M_t[0, k].

A product of two eigenfunctions is a sum Σ_h β_hφ_h over a wider basis, of twice the degree or
frequency, whose averages decay at known rates. So M_t and its derivative dM_t/dt = E_t[L(φ_kφ_ℓ)]
follow for every t from averages over the clean data. For f = Σ α_kφ_k and a time score g = Σ a_kφ_k
of a symmetric process the objectives on clean data are then, with Λ = diag(λ),

    E_0[P_t(Γ(f) + 2Lf)] = αᵀA_tα + 2b_tᵀα,    A_t = ½(dM_t/dt - ΛM_t - M_tΛ),
    E_0[P_t(g² - 2Lg)]   = aᵀM_ta - 2b_tᵀa,    b_t[k] = E_t[Lφ_k] = λ_k M_t[0, k],

minimal at α = -A_t⁻¹b_t and a = M_t⁻¹b_t. The β are not computed: M_t = ∫ φ_kφ_ℓ r dπ with
r = Σ_h E_t[φ_h]φ_h for the density ratio, and a quadrature rule integrates this exactly.
"""

from __future__ import annotations

import torch
from torch import Tensor

from oism._core import checks
from oism.basis import Basis


class ProductEquations:
    """M_t, A_t and b_t of a basis from the averages of ``basis.doubled()``, ``(*batch, wide)``.

    >>> from oism.basis import TensorHermite
    >>> basis = TensorHermite(dim=1, order=2)
    >>> x = torch.tensor([[-1.0], [1.0]]).double()  # φ₁ = ±1, φ₂ = 0
    >>> means = basis.doubled().values(x).mean(dim=0)
    >>> ProductEquations(basis, means).gram(torch.tensor([0.0]))[0].round(decimals=9) + 0.0
    tensor([[1., 0., 0.],
            [0., 1., 0.],
            [0., 0., 0.]], dtype=torch.float64)
    """

    def __init__(self, basis: Basis, means: Tensor) -> None:
        wide = basis.doubled()
        if means.shape[-1:] != (wide.size,):
            raise ValueError(
                f"means must hold one average for each of the {wide.size} functions of "
                f"basis.doubled(), got shape {tuple(means.shape)}"
            )
        self.basis, self.means = basis, checks.floating(means, "means").double()
        self._decay = wide.eigenvalues
        points, self._weights = basis.rule()
        self._wide = wide.values(points)
        self._values = _with_constant(basis.values(points))

    @property
    def eigenvalues(self) -> Tensor:
        """0 for the constant, then those of the basis: ``(1 + size,)``."""
        return torch.cat((torch.zeros(1, dtype=torch.float64), self.basis.eigenvalues))

    def _ratio(self, t: Tensor, derivative: int = 0) -> Tensor:
        """Return the weights of the rule times r, or its derivative: ``(T, *batch, m)``."""
        evolved = torch.exp(t.double()[:, None] * self._decay) * self._decay**derivative
        evolved = evolved.reshape(len(t), *[1] * (self.means.ndim - 1), -1)
        ratio = (evolved * self.means) @ self._wide.mT + (derivative == 0)
        return ratio * self._weights

    def gram(self, t: Tensor, derivative: int = 0) -> Tensor:
        """Return M_t for times ``(T,)``, or its derivative: ``(T, *batch, 1 + size, 1 + size)``."""
        ratio = self._ratio(t, derivative)
        parts = [
            (self._values.mT * own) @ self._values for own in ratio.reshape(-1, ratio.shape[-1])
        ]
        return torch.stack(parts).reshape(*ratio.shape[:-1], *parts[0].shape)

    def right(self, t: Tensor) -> Tensor:
        """Return b_t: ``(T, *batch, 1 + size)``, 0 for the constant."""
        return self.eigenvalues * (self._ratio(t) @ self._values)

    def energies(self, t: Tensor) -> Tensor:
        """Return A_t without the constant, which has no gradient: ``(T, *batch, size, size)``."""
        rates, matrix = self.eigenvalues, self.gram(t)
        whole = 0.5 * (self.gram(t, 1) - rates[:, None] * matrix - matrix * rates)
        return whole[..., 1:, 1:]

    def implicit(self, alpha: Tensor, t: Tensor | float) -> Tensor:
        """Return E_0[P_t(Γ(f) + 2Lf)] for f = Σ α_kφ_k, coefficients ``(size,)``, at one t."""
        time = checks.time(t).reshape(1)
        return alpha @ self.energies(time)[0] @ alpha + 2 * self.right(time)[0, 1:] @ alpha

    def time(self, a: Tensor, t: Tensor | float) -> Tensor:
        """Return E_0[P_t(g² - 2Lg)] for g = Σ a_kφ_k, coefficients ``(1 + size,)``, at one t."""
        time = checks.time(t).reshape(1)
        return a @ self.gram(time)[0] @ a - 2 * self.right(time)[0] @ a


def _with_constant(values: Tensor) -> Tensor:
    return torch.cat((torch.ones_like(values[:, :1]), values), dim=1)
