"""Implicit score matching in operator form, and in the form with generators only.

For an energy f and the truth f* = log(ρ_t/π), both objectives are E_t[Γ(f - f*)] up to the constant
E_t[Γ(f*)]. With S = ½(L + L*), ∫ Γ(f, ρ_t/π) dπ = -∫ Sf dρ_t, so

    E_t[Γ(f - f*)] = E_t[Γ(f) + 2 Sf] + constant.

For a symmetric process S = L, which is how the paper prints it; for an asymmetric one neither L nor
L* will do. The diffusion property L(e^f)/e^f = Lf + Γ(f) rewrites it with S alone,

    E_t[Γ(f) + 2 Sf] = E_t[S(ν)/ν + S log ν],    ν = e^f,

the generalised form, for processes on other spaces as well. There ν is a density with respect to π,
not to Lebesgue measure, and need not be normalised.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from oism.objectives._base import Objective
from oism.objectives._models import Model, scalar
from oism.process import CarreDuChamp, SymmetricPart


@dataclass(frozen=True)
class ImplicitScoreMatching(Objective):
    """E_t[Γ(f) + 2 ½(L + L*)f] of an energy f = log(ρ_t/π).

    Takes two derivatives along each column of the noise matrix; `SlicedScoreMatching` along random
    ones instead.

    Examples
    --------
    >>> import torch
    >>> from oism import OrnsteinUhlenbeck
    >>> process = OrnsteinUhlenbeck()
    >>> x = torch.linspace(-1.0, 3.0, 5)[:, None]  # of mean 1, as N(1, 1): f = x
    >>> objective = ImplicitScoreMatching(process)
    >>> [round(objective(lambda y, t: a * y[:, 0], x, 0.1).item(), 2) for a in (0.8, 1, 1.2)]
    [-0.96, -1.0, -0.96]
    """

    def _terms(self, model: Model, x: Tensor, t: Tensor | float) -> Tensor:
        f = scalar(model, t)
        return CarreDuChamp(self.process)(f)(x) + 2 * SymmetricPart(self.process)(f)(x)


@dataclass(frozen=True)
class GeneralisedScoreMatching(Objective):
    """E_t[Sν/ν + S log ν] of an energy log ν, ν a density with respect to π, S = ½(L + L*).

    Examples
    --------
    >>> import torch
    >>> from oism import Torus
    >>> x = torch.rand(7, 2, generator=torch.Generator().manual_seed(0))
    >>> def energy(x, t):
    ...     return torch.cos(x[:, 0] - x[:, 1])
    >>> generalised = GeneralisedScoreMatching(Torus()).terms(energy, x, 0.1)
    >>> torch.allclose(generalised, ImplicitScoreMatching(Torus()).terms(energy, x, 0.1), atol=1e-5)
    True
    """

    def _terms(self, model: Model, x: Tensor, t: Tensor | float) -> Tensor:
        f, part = scalar(model, t), SymmetricPart(self.process)
        # Sν/ν does not depend on the scale of ν: with that of each point, ν(x) = 1 and none
        # overflows. Derivatives in parameters must see f, though, not the scale.
        level = f(x).detach()
        ratio = part(lambda y: (f(y) - level).exp())(x)
        return ratio / (f(x) - level).exp() + part(f)(x)
