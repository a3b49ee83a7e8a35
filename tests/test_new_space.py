"""A new space with its own basis, in this file alone: cosines on [0, 1] with reflecting ends.

Brownian motion dX = √2 dW, reflected at 0 and 1, has the uniform distribution as invariant measure
and the eigenfunctions φ_k = √2 cos πkx with λ_k = -(πk)², k = 1, 2, …. Their products are
φ_jφ_k = (φ_{j+k} + φ_{|j-k|})/√2: twice the frequency is enough. Nothing of the library changes;
fit, sample, log_density, save and load are its public calls.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from oism import Brownian, VarianceExploding, fit, load
from oism.basis import Basis
from oism.estimation import JamesStein, Modulation
from oism.flow import FittedModel, RungeKutta4
from oism.process import Domain, Measure
from oism.storage import storable


class Interval(Domain):
    def wrap(self, x: Tensor) -> Tensor:
        return 1 - (x.remainder(2) - 1).abs()  # folded back at the ends

    def contains(self, x: Tensor) -> Tensor:
        return ((x >= 0) & (x <= 1)).flatten(1).all(dim=1)


class UniformOnInterval(Measure):
    def score(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)

    def log_density(self, x: Tensor) -> Tensor:
        return x.new_zeros(len(x))

    def _fill(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        return x.uniform_(generator=generator)

    def quadrature(self, dim: int, nodes: int) -> tuple[Tensor, Tensor]:
        assert dim == 1
        points = (torch.arange(nodes, dtype=torch.float64) + 0.5) / nodes  # exact below 2·nodes
        return points[:, None], torch.full((nodes,), 1 / nodes, dtype=torch.float64)


@storable
@dataclass(frozen=True)
class Reflected(Brownian):
    """Brownian motion, folded back at the ends: drift, noise and transitions before are its own."""

    domain = Interval()
    invariant = UniformOnInterval()


@storable
@dataclass(frozen=True)
class Cosines(Basis):
    count: int
    process = Reflected()
    dim = 1

    @property
    def eigenvalues(self) -> Tensor:
        return -(math.pi * torch.arange(1, self.count + 1, dtype=torch.float64)).square()

    def _table(self, x: Tensor) -> Tensor:
        phase = x * self.eigenvalues.neg().sqrt().to(x)
        return math.sqrt(2) * torch.stack((phase.cos(), phase.sin()))

    def _values(self, table: Tensor) -> Tensor:
        return table[0]

    def _gradients(self, table: Tensor) -> Tensor:
        return (-self.eigenvalues.neg().sqrt().to(table) * table[1])[..., None]

    def _laplacians(self, table: Tensor) -> Tensor:
        return self.eigenvalues.to(table) * table[0]

    def doubled(self) -> Cosines:
        return Cosines(2 * self.count)

    def rule(self) -> tuple[Tensor, Tensor]:
        return self.process.invariant.quadrature(1, 2 * self.count + 1)


CLOCK = VarianceExploding(sigma_min=0.02, sigma_max=2.0)


def beta(n: int, seed: int = 0) -> Tensor:
    """Return draws from Beta(2, 1), p(x) = 2x: the density does not vanish at the end 1."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(n, 1, generator=generator, dtype=torch.float64).sqrt()


@pytest.fixture(scope="module")
def model() -> FittedModel:
    return fit(beta(5000), Cosines(16), clock=CLOCK)


def test_the_new_space_takes_less_than_a_hundred_lines() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert text.index("CLOCK = ") == text.rindex("\nCLOCK = ") + 1
    assert text[: text.index("\nCLOCK = ")].count("\n") < 100


def test_eigenfunctions_and_rule_agree() -> None:
    basis = Cosines(5)
    points, weights = basis.rule()
    values = basis.values(points)
    torch.testing.assert_close(values.mT @ (weights[:, None] * values), torch.eye(5).double())


def test_it_is_fitted_and_its_density_is_that_of_the_data(model: FittedModel) -> None:
    x = torch.linspace(0.05, 0.98, 40, dtype=torch.float64)[:, None]
    found = model.log_density(x, method=RungeKutta4(64)).exp()
    assert float((found - 2 * x[:, 0]).abs().mean()) < 0.06
    grid = (torch.arange(400, dtype=torch.float64)[:, None] + 0.5) / 400
    mass = model.log_density(grid, method=RungeKutta4(64)).exp().mean()
    assert float(mass) == pytest.approx(1, abs=1e-3)


def test_samples_stay_in_the_interval_and_follow_the_density(model: FittedModel) -> None:
    x = model.sample(4000, torch.Generator().manual_seed(1), method=RungeKutta4(64))
    assert x.shape == (4000, 1)
    assert float(x.min()) >= 0
    assert float(x.max()) <= 1
    # The distribution function is x²; the standard error of an empirical one is below 0.008.
    grid = torch.linspace(0.1, 0.9, 9)
    empirical = (x <= grid).float().mean(dim=0)
    assert float((empirical - grid.square()).abs().max()) < 0.03


def test_it_is_saved_and_loaded(model: FittedModel, tmp_path: Path) -> None:
    path = tmp_path / "interval.safetensors"
    model.save(path)
    again = load(path)
    assert again.process == Reflected()
    x = beta(7, seed=2)
    assert torch.equal(again.score(x, 0.05), model.score(x, 0.05))
    assert torch.equal(again.sample(3, torch.Generator().manual_seed(0)),
                       model.sample(3, torch.Generator().manual_seed(0)))  # fmt: skip


def test_shrinkage_and_exact_coefficients() -> None:
    x = beta(300)
    shrunk = fit(x, Cosines(8), clock=CLOCK, shrinkage=JamesStein())
    t = torch.tensor([0.01, 0.1], dtype=torch.float64)
    exact = shrunk.coefficients(t, exact=True)
    torch.testing.assert_close(shrunk.coefficients(t), exact, rtol=0.02, atol=1e-3)
    with pytest.raises(ValueError, match="shrinkage must give moments of a density"):
        fit(x, Cosines(8), clock=CLOCK, shrinkage=Modulation())
