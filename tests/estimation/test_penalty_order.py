"""The system with a penalty of chosen order, and the degree that data need."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from oism.basis import Averages, Hyperspherical, QuaternionBasis, Wigner
from oism.estimation import ProductEquations, ReversibleSystem, SampleMeans, moments_of
from oism.estimation._moments.transforms import TransformMoments, finest_degree
from oism.process import Rotations
from oism.score import RIDGES


def points(n: int, t: float, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    start = torch.tensor([[0.5, 0.5, 0.5, 0.5]]).double().expand(n, -1)
    return Rotations().transition(t).sample(start, generator=generator)


@pytest.mark.parametrize("basis", [Wigner(2), Hyperspherical(3)])
@pytest.mark.parametrize("level", [0.0, 1.5])
def test_solutions_are_those_of_the_dense_equations(basis: QuaternionBasis, level: float) -> None:
    x = points(200, 0.2)
    means = basis.doubled()(x).mean(dim=0)
    system = ReversibleSystem(basis, Averages.of_all(means))
    t, ridge, at = (
        torch.tensor([0.05]).double(),
        torch.tensor([0.02]).double(),
        torch.tensor([level]),
    )
    dense = ProductEquations(basis, means)
    matrix, right = dense.energies(t)[0], dense.right(t)[0, 1:]
    penalty = -basis.eigenvalues * system.penalty(at.double(), basis.eigenvalues)[0]
    expected = torch.linalg.solve(matrix + 0.02 * torch.diag(penalty), -right)
    found = system.solve(t, ridge, at.double()).alpha[0]
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-8)
    size = (expected @ matrix @ expected).sqrt()
    torch.testing.assert_close(system.norm(t, expected[None])[0], size, rtol=1e-10, atol=0)


def test_the_penalty_is_a_power_of_the_eigenvalue() -> None:
    system = ReversibleSystem(Wigner(3), Averages.of_all(torch.zeros(Wigner(6).size).double()))
    rates = torch.tensor([-2.0, -4.0]).double()
    found = system.penalty(torch.tensor([0.0, 2.0]).double(), rates)
    assert float(found[0, 1] / found[0, 0]) == pytest.approx(2)
    assert float(found[1, 1] / found[1, 0]) == pytest.approx(2**2.5)


def test_uniform_data_have_no_structure_and_sharp_data_have() -> None:
    basis = Wigner(6)
    uniform = Rotations().invariant.sample(
        (4000, 4), dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    rates = basis.eigenvalues
    assert finest_degree(basis(uniform).mean(dim=0), rates, 4000) == 0
    found = [
        finest_degree(basis(points(4000, t)).mean(dim=0), rates, 4000) for t in (0.4, 0.15, 0.02)
    ]
    assert found == sorted(found)
    assert 1 < found[0] < found[-1] == 6


@pytest.mark.parametrize("rows", [200, 6000])
def test_losses_are_those_of_the_folds_that_are_judged(rows: int) -> None:
    """The finite entries at the last time are the losses of dense solutions of each fold."""
    basis = Wigner(2)
    system = TransformMoments(basis, 5).update(points(rows, 0.3)).system(SampleMeans())
    t = torch.tensor([0.3, 0.5]).double()
    losses = system.losses(t)
    assert float(losses.shares.sum()) == pytest.approx(1)
    level, ridge = (losses.values[0, 1].isfinite()).nonzero()[-1].tolist()
    for fold, found in enumerate(losses.values[:, 1, level, ridge].tolist()):
        own, other = (
            ProductEquations(basis, getattr(system.averages, part)[fold])
            for part in ("training", "heldout")
        )
        rates = basis.eigenvalues
        penalty = -rates * system.penalty(torch.tensor([float(level)]).double(), rates)[0]
        matrix = own.energies(t)[1] + RIDGES[ridge] * torch.diag(penalty)
        alpha = torch.linalg.solve(matrix, -own.right(t)[1, 1:])
        expected = alpha @ other.energies(t)[1] @ alpha + 2 * other.right(t)[1, 1:] @ alpha
        assert found == pytest.approx(float(expected), rel=1e-3)


def test_the_basis_of_a_fit_has_the_degrees_that_the_data_need() -> None:
    few = TransformMoments(Wigner(12), 5).update(points(300, 0.6)).system(SampleMeans())
    assert few.basis == Wigner(4)
    assert few.averages.total.shape == (Wigner(8).size,)
    assert few.averages.training.shape == (5, Wigner(8).size)
    all_of_them = TransformMoments(Wigner(5), 5).update(points(2000, 0.02)).system(SampleMeans())
    assert all_of_them.basis == Wigner(5)
    assert type(moments_of(Wigner(1))) is type(moments_of(Hyperspherical(1))) is TransformMoments
    with pytest.raises(ValueError, match="shrinkage must not need variances"):
        moments_of(Wigner(2), 5, squares=True)
