"""The products of eigenfunctions at every noise level, and both objectives that follow from them.

With φ₀ = 1 before the functions of the basis, let

    M_t[k, ℓ] = E_t[φ_kφ_ℓ],    so that E_t[φ_k] = M_t[0, k].

A product of two eigenfunctions is a sum Σ_h β_hφ_h over a wider basis, of the doubled degree or
frequency, whose averages decay each at its own rate: M_t follows from averages over the clean data
for every t, and so does its derivative dM_t/dt = E_t[L(φ_kφ_ℓ)]. For f = Σ α_kφ_k and a time score
g = Σ a_kφ_k of a symmetric process the objectives on clean data are then, with Λ = diag(λ),

    E_0[P_t(Γ(f) + 2Lf)] = αᵀA_tα + 2b_tᵀα,    A_t = ½(dM_t/dt - ΛM_t - M_tΛ),
    E_0[P_t(g² - 2Lg)]   = aᵀM_ta - 2b_tᵀa,    b_t[k] = E_t[Lφ_k] = λ_k M_t[0, k],

least at α = -A_t⁻¹b_t and a = M_t⁻¹b_t. The β are never formed: with r = Σ_h E_t[φ_h]φ_h in the
place of the density ratio, M_t is ∫ φ_kφ_ℓ r dπ, and a finite rule integrates that exactly.
"""

from __future__ import annotations

import torch
from torch import Tensor

from oism import checks
from oism.basis import Basis, Fourier, TensorHermite
from oism.moments import batches, rows
from oism.moments.fourier import extended
from oism.moments.rows import demand_finite, weights_of
from oism.process import Torus

BLOCK = 2**22
"""The number of values of the wider basis that are held at a time."""


def doubled(basis: Basis) -> Basis:
    """Return the basis that the products of two functions of a basis lie in, beside constants.

    >>> doubled(TensorHermite(dim=1, order=3)).eigenvalues
    tensor([-1., -2., -3., -4., -5., -6.], dtype=torch.float64)
    """
    if isinstance(basis, Fourier) and isinstance(basis.process, Torus):
        return Fourier(extended(basis))
    if isinstance(basis, TensorHermite):
        return TensorHermite(basis.dim, 2 * basis.order, basis.process, basis.frame)
    raise TypeError(
        "basis must be TensorHermite, or Fourier on the torus, whose products are known, got "
        f"{type(basis).__name__}"
    )


class ProductEquations:
    """M_t, A_t and b_t of a basis from the averages of `doubled` (basis), ``(wide,)``.

    >>> basis = TensorHermite(dim=1, order=2)
    >>> x = torch.tensor([[-1.0], [1.0]])  # φ₁ = ±1, φ₂ = 0
    >>> ProductEquations.of(x, basis).gram(torch.tensor([0.0]))[0].round(decimals=9) + 0.0
    tensor([[1., 0., 0.],
            [0., 1., 0.],
            [0., 0., 0.]], dtype=torch.float64)
    """

    def __init__(self, basis: Basis, means: Tensor) -> None:
        wide = doubled(basis)
        if means.shape != (wide.size,):
            raise ValueError(
                f"means must hold one average for each of the {wide.size} functions of "
                f"doubled(basis), got shape {tuple(means.shape)}"
            )
        self.basis, self.means = basis, checks.floating(means, "means").double()
        self._decay = wide.eigenvalues
        # Exact for φ_kφ_ℓr: four times the frequency, or a degree of 4·order, in each coordinate.
        reach = basis.order if isinstance(basis, TensorHermite) else _reach(basis)
        nodes = 2 * reach + 1 if isinstance(basis, TensorHermite) else 4 * reach + 1
        points, self._weights = basis.process.invariant.quadrature(basis.dim, nodes)
        self._wide = wide.values(points)
        self._values = _with_constant(basis.values(points))

    @classmethod
    def of(cls, data: object, basis: Basis, sample_weight: object = None) -> ProductEquations:
        """Return the equations of data: rows as `oism.fit` takes them, read once."""
        checks.instance(basis, Basis, "basis")
        wide, count = doubled(basis), 0
        total = torch.zeros(wide.size, dtype=torch.float64)
        mass = torch.zeros((), dtype=torch.float64)
        for batch, given in batches(data, sample_weight):
            x = rows(batch, basis.dim)
            demand_finite(x, count)
            weights = weights_of(given, len(x))
            weights = torch.ones(len(x), dtype=torch.float64) if weights is None else weights
            count, mass = count + len(x), mass + weights.sum()
            step = max(1, BLOCK // wide.size)
            for part, own in zip(torch.split(x, step), torch.split(weights, step), strict=True):
                total += own @ wide.values(part.cpu().double())
        if not float(mass) > 0:
            raise ValueError("data must hold at least one row with a positive weight, got none")
        return cls(basis, total / mass)

    @property
    def eigenvalues(self) -> Tensor:
        """0 for the constant, then those of the basis: ``(1 + size,)``."""
        return torch.cat((torch.zeros(1, dtype=torch.float64), self.basis.eigenvalues))

    def gram(self, t: Tensor, derivative: int = 0) -> Tensor:
        """Return M_t for times ``(T,)``, or its derivative in t: ``(T, 1 + size, 1 + size)``."""
        evolved = torch.exp(t.double()[:, None] * self._decay) * self._decay**derivative
        ratio = (evolved * self.means) @ self._wide.mT + (derivative == 0)
        return torch.stack(
            [(self._values.mT * own) @ self._values for own in ratio * self._weights]
        )

    def right(self, t: Tensor) -> Tensor:
        """Return b_t: ``(T, 1 + size)``, 0 for the constant."""
        ratio = (torch.exp(t.double()[:, None] * self._decay) * self.means) @ self._wide.mT + 1
        return self.eigenvalues * ((ratio * self._weights) @ self._values)

    def energies(self, t: Tensor) -> Tensor:
        """Return A_t without the constant, which has no gradient: ``(T, size, size)``."""
        rates, matrix = self.eigenvalues, self.gram(t)
        whole = 0.5 * (self.gram(t, 1) - rates[:, None] * matrix - matrix * rates)
        return whole[:, 1:, 1:]

    def implicit(self, alpha: Tensor, t: Tensor | float) -> Tensor:
        """Return E_0[P_t(Γ(f) + 2Lf)] for f = Σ α_kφ_k, coefficients ``(size,)``, at one t."""
        time = checks.time(t).reshape(1)
        return alpha @ self.energies(time)[0] @ alpha + 2 * self.right(time)[0, 1:] @ alpha

    def time(self, a: Tensor, t: Tensor | float) -> Tensor:
        """Return E_0[P_t(g² - 2Lg)] for g = Σ a_kφ_k, coefficients ``(1 + size,)``, at one t."""
        time = checks.time(t).reshape(1)
        return a @ self.gram(time)[0] @ a - 2 * self.right(time)[0] @ a


def _reach(basis: Basis) -> int:
    assert isinstance(basis, Fourier)
    return int(basis.frequencies.abs().max())


def _with_constant(values: Tensor) -> Tensor:
    return torch.cat((torch.ones_like(values[:, :1]), values), dim=1)
