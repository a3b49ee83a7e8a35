"""Densities of rotations in the forms that people have."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation
from torch import Tensor

import oism
from oism.basis import Wigner
from oism.estimation import fit_moments, moments_of
from oism.flow import EulerMaruyama, RungeKutta4
from oism.process import Rotations
from oism.tables import RotationModel, fit_rotations
from oism.tables._folds import folds_of_rotations
from oism.tables._rotation_pool import FOLDS
from oism.tables._rotations import quaternions_of, rotations_from

CENTRES = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.5, 0.5]]).double()
TIMES = torch.tensor([0.25, 0.12]).double()


def draws(n: int, seed: int = 0) -> Tensor:
    """Return unit quaternions of two isotropic Gaussians with weights 0.6 and 0.4."""
    generator = torch.Generator().manual_seed(seed)
    k = (torch.rand(n, generator=generator) > 0.6).long()
    return Rotations().transition(TIMES[k]).sample(CENTRES[k], generator=generator)


def truth(q: Tensor) -> Tensor:
    parts = [
        math.log(weight) + Rotations().transition(t).log_density(q, centre.expand_as(q))
        for weight, t, centre in zip((0.6, 0.4), TIMES, CENTRES, strict=True)
    ]
    return torch.logsumexp(torch.stack(parts), dim=0)


def in_form(q: Tensor, form: str) -> Any:
    rotation = Rotation.from_quat(np.roll(q.numpy(), -1, axis=1))
    return {
        "quaternions": q.numpy(),
        "matrices": rotation.as_matrix(),
        "flat matrices": rotation.as_matrix().reshape(-1, 9),
        "Rotation": rotation,
    }[form]


PARTS = ["flow", "uniform", "kernels", "mixtures"]

FORMS = ["quaternions", "matrices", "flat matrices", "Rotation"]


@pytest.fixture(scope="module")
def model() -> RotationModel:
    return fit_rotations(draws(1200), degree=3)


@pytest.mark.parametrize("form", FORMS)
@given(seed=st.integers(0, 1000), n=st.integers(1, 5))
def test_forms_are_converted_to_quaternions_and_back(form: str, seed: int, n: int) -> None:
    q = Rotations().wrap(torch.randn(n, 4, generator=torch.Generator().manual_seed(seed)).double())
    found = quaternions_of(in_form(q, form))
    torch.testing.assert_close(found, q, rtol=0, atol=1e-12)
    back = rotations_from(found, form)
    if form == "Rotation":
        back = back.as_matrix()
        assert np.allclose(back, in_form(q, "matrices"), atol=1e-12)
    else:
        assert np.allclose(back, in_form(q, form), atol=1e-12)


def test_the_order_of_quaternions_and_their_sign() -> None:
    q = draws(5)
    last = torch.roll(q, -1, 1)
    assert torch.equal(quaternions_of(last, scalar_first=False), quaternions_of(q))
    assert torch.equal(quaternions_of(-q), quaternions_of(q))
    assert np.array_equal(rotations_from(q, "quaternions", scalar_first=False), last.numpy())


def test_the_density_is_near_the_truth_and_has_mass_one(model: RotationModel) -> None:
    test = draws(1000, seed=1)
    gap = truth(test) - torch.as_tensor(model.log_density(test))
    assert -0.01 < float(gap.mean()) < 0.03
    ratio = torch.exp(-gap)  # ∫p dH = E[p/truth] under the truth
    error = float(ratio.std() / math.sqrt(len(ratio)))
    assert error < 0.01
    assert abs(float(ratio.mean()) - 1) < 3 * error
    nodes, weights = Rotations().invariant.quadrature(4, 20)  # kernels may be too narrow for it
    for part in (model.scores.log_density(nodes)[:, None], *(
        mixture.log_densities(nodes) for mixture in model.pool.mixtures
    )):  # fmt: skip
        assert float(weights @ part[:, 0].exp()) == pytest.approx(1, abs=2e-3)


def test_every_form_has_the_same_density(model: RotationModel) -> None:
    q = draws(4, seed=2)
    expected = model.log_density(q.numpy())
    assert isinstance(expected, np.ndarray)
    assert expected.shape == (4,)
    for form in FORMS:
        assert np.allclose(model.log_density(in_form(q, form)), expected, atol=1e-9)
    assert np.allclose(model.log_density(-q.numpy()), expected, atol=1e-12)
    assert isinstance(model.log_density(q), Tensor)


@pytest.mark.parametrize("method", [None, EulerMaruyama(100)], ids=["flow", "reverse SDE"])
def test_samples_follow_the_density(model: RotationModel, method: EulerMaruyama | None) -> None:
    """Averages of Wigner functions over samples are their integrals; uniform samples fail."""
    basis, n = Wigner(3), 2000
    samples = model.sample(n, random_state=0, method=method)
    assert isinstance(samples, Tensor)
    assert float((samples.norm(dim=1) - 1).abs().max()) < 1e-12
    nodes, weights = Rotations().invariant.quadrature(4, 16)
    expected = (weights * torch.as_tensor(model.log_density(nodes)).exp()) @ basis(nodes)

    def worst(q: Tensor) -> tuple[float, float]:
        values = basis(q)
        error = (values.mean(dim=0) - expected) / (values.std(dim=0) / math.sqrt(n))
        return float(error.abs().max()), float(error.square().mean())

    largest, mean = worst(samples)
    assert largest < 4.5
    assert mean < 1.7  # 1 up to correlations for 83 functions
    uniform = Rotations().invariant.sample((n, 4), dtype=torch.float64,
                                           generator=torch.Generator().manual_seed(0))  # fmt: skip
    assert worst(uniform)[1] > 5


def test_it_is_saved_and_loaded(model: RotationModel, tmp_path: Path) -> None:
    path = tmp_path / "rotations.safetensors"
    model.save(path)
    again = oism.load(path)
    assert isinstance(again, RotationModel)
    q = draws(3, seed=5)
    assert torch.equal(again.log_density(q), model.log_density(q))
    assert torch.equal(again.sample(2, random_state=1), model.sample(2, random_state=1))
    assert again.facts()["form"] == "quaternions"
    t = torch.tensor([0.05]).double()
    exact = again.scores.coefficients(t, exact=True)
    torch.testing.assert_close(again.scores.coefficients(t), exact, rtol=0.02, atol=0.01)


@pytest.mark.parametrize("form", ["matrices", "Rotation"])
def test_samples_have_the_form_of_the_data(model: RotationModel, form: str) -> None:
    model = replace(model, form=form, tensors=False)
    samples = model.sample(3, random_state=0)
    if form == "Rotation":
        assert isinstance(samples, Rotation)
        samples = samples.as_matrix()
    assert samples.shape == (3, 3, 3)
    assert np.allclose(samples @ samples.swapaxes(1, 2), np.eye(3), atol=1e-12)
    assert np.allclose(np.linalg.det(samples), 1)
    assert not np.array_equal(samples, model.sample(3, random_state=1))


@pytest.mark.slow
def test_weights_are_repetitions_for_the_flow_and_rows_of_weight_zero_are_left_out() -> None:
    q, x = draws(80), draws(20, seed=4)
    weights = torch.ones(80).double()
    weights[:20] = 2
    weighted = fit_rotations(q, degree=1, sample_weight=weights)
    repeated = fit_rotations(torch.cat((q, q[:20])), degree=1)
    expected = repeated.scores.log_density(x)
    torch.testing.assert_close(weighted.scores.log_density(x), expected, rtol=0, atol=2e-3)
    weights[20:] = 0
    few = fit_rotations(q, degree=1, sample_weight=weights.tolist())
    assert torch.equal(few.log_density(x), fit_rotations(q[:20], degree=1).log_density(x))


@pytest.mark.slow
def test_the_flow_of_the_pool_is_the_generic_fit(model: RotationModel) -> None:
    """With folds by content, in which copies of a row are together."""
    x, q = draws(4, seed=3), quaternions_of(draws(1200))
    moments = moments_of(Wigner(3), FOLDS).update(q, fold=folds_of_rotations(q, FOLDS))
    plain = fit_moments(moments, ridge=oism.CrossValidation(times=20))
    found, expected = (s.log_density(x, method=RungeKutta4(24)) for s in (model.scores, plain))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("rows", [1, 2, 5, [0, 0, 0]], ids=str)
def test_few_and_equal_rotations(rows: int | list[int]) -> None:
    q = draws(5)[: rows if isinstance(rows, int) else None]
    q = q if isinstance(rows, int) else q[rows]
    model = fit_rotations(in_form(q, "flat matrices"), degree=1)
    assert model.sample(2).shape == (2, 9)
    model = replace(model, form="quaternions", tensors=True)
    assert bool(model.log_density(torch.cat((q, draws(20, seed=6)))).isfinite().all())
    nodes, weights = Rotations().invariant.quadrature(4, 20)
    assert float(weights @ model.log_density(nodes).exp()) == pytest.approx(1, abs=0.01)
    assert model.sample(3, random_state=0).shape == (3, 4)
    assert model.sample(0).shape == (0, 4)
    assert sum(model.facts()["pool"][part] for part in PARTS) == pytest.approx(1)


def test_what_is_no_rotation_is_rejected() -> None:
    q = draws(4).numpy()
    matrices = in_form(draws(4), "matrices")
    with pytest.raises(ValueError, match=r"x must be rotations: .* got shape \(4, 3\)"):
        fit_rotations(q[:, :3])
    with pytest.raises(
        ValueError, match=r"x must be unit quaternions, but the norm of row 2 is 3 "
    ):
        fit_rotations(np.where(np.arange(4)[:, None] == 2, 3 * q, q))
    mirrored = matrices.copy()
    mirrored[1, 0] *= -1
    with pytest.raises(ValueError, match=r"row 1 is a reflection, with determinant -1 \(1 of 4"):
        fit_rotations(mirrored)
    with pytest.raises(ValueError, match="row 0 is not orthogonal: RRᵀ differs from I by 3"):
        fit_rotations(2 * matrices.reshape(-1, 9))
    with pytest.raises(ValueError, match="x must be finite, but row 3"):
        fit_rotations(np.where(np.arange(4)[:, None] == 3, np.nan, q))
    with pytest.raises(ValueError, match="x must hold at least one rotation, got none"):
        fit_rotations(np.zeros((0, 4)))
    with pytest.raises(ValueError, match="degree must be at most 32, got 33"):
        fit_rotations(q, degree=33)
    with pytest.raises(ValueError, match=r"sample_weight must have shape \(4,\), got \(3,\)"):
        fit_rotations(q, sample_weight=[1, 1, 1])
    with pytest.raises(ValueError, match="sample_weight must be finite and not negative"):
        fit_rotations(q, sample_weight=[1, 1, 1, -1])
    with pytest.raises(ValueError, match="form must be one of quaternions"):
        RotationModel(None, "euler")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="random_state must be an integer >= 0, got -1"):
        RotationModel(None).sample(1, random_state=-1)  # type: ignore[arg-type]
