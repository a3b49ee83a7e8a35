"""Time score matching: the derivative of log ρ_t in t instead of the one in x.

For a time score g and the truth g* = ∂_t log ρ_t, E_t[g g*] = d/dt E_t[g] at fixed g = E_t[Lg], so

    E_t[(g - g*)²] = E_t[g² - 2 Lg] + constant.

It is L for every process, symmetric or not, because ρ_t evolves by P_t.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from oism.objectives._base import Objective
from oism.objectives._models import Model, scalar
from oism.process import InfinitesimalGenerator


@dataclass(frozen=True)
class TimeScoreMatching(Objective):
    """E_t[g² - 2 Lg] of a time score g = ∂_t log ρ_t; `time_score_of` makes one of an energy.

    Examples
    --------
    >>> import torch
    >>> from oism import OrnsteinUhlenbeck
    >>> x = torch.tensor([[-1.0], [1.0]])  # L x = -x and E[x] = 0
    >>> TimeScoreMatching(OrnsteinUhlenbeck())(lambda y, t: 0.5 * y[:, 0], x, t=0.1)
    tensor(0.2500)
    """

    def _terms(self, model: Model, x: Tensor, t: Tensor | float) -> Tensor:
        g = scalar(model, t, "time_score")
        return g(x).square() - 2 * InfinitesimalGenerator(self.process)(g)(x)
