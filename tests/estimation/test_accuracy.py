"""Accuracy in hard cases: drifting, constant and collinear columns, unusual weights and inputs."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from oism import Fourier, Hermite, TensorHermite
from oism.basis._hermite import affine, gram, products, tabulate
from oism.estimation import (
    FourierMoments,
    GaussianMoments,
    HermiteMoments,
    JamesStein,
    Modulation,
    Monotone,
    TensorHermiteMoments,
    fit_moments,
    gather,
    principal_frame,
)


def normal(n: int, dim: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(100 * dim + seed)
    return torch.randn(n, dim, generator=generator, dtype=torch.float64)


def agrees(moments: HermiteMoments, x: Tensor) -> float:
    """Return the largest difference from two passes, relative to max(1, |value|)."""
    standard = moments.standardised()
    shift, scale = x.mean(dim=0), x.std(dim=0, correction=0)
    exact = tabulate((x - shift) / scale, moments.degree).mean(dim=0)
    error = (standard.averages.total - exact).abs() / exact.abs().clamp(min=1)
    return max(float((standard.scale / scale - 1).abs().max()), float(error.max()))


@pytest.mark.parametrize("gamma", [0.5, 0.1, 0.01, 1e-3])
def test_affine_is_accurate_relative_to_each_entry(gamma: float) -> None:
    matrix = affine(torch.tensor(gamma, dtype=torch.float64), torch.tensor(0.0), 16)
    powers = gamma ** torch.arange(17, dtype=torch.float64)
    torch.testing.assert_close(matrix.diagonal(), powers, rtol=1e-12, atol=0)


@pytest.mark.parametrize("order", [5, 9])
@pytest.mark.parametrize("ratio", [1e-1, 1e-2, 1e-3, 1e-6, 1e-9])
def test_columns_that_vary_only_in_later_rows(order: int, ratio: float) -> None:
    x = torch.cat((ratio * normal(1024, 1), normal(3000, 1, 1)))
    assert agrees(HermiteMoments(Hermite(1, order)).update(x), x) < 1e-12


@pytest.mark.parametrize("n", [2_000, 20_000])
@pytest.mark.parametrize("order", [5, 9])
def test_sorted_rows(order: int, n: int) -> None:
    z = normal(n, 1)
    x = (z + 0.2 * z.square()).sort(dim=0).values
    assert agrees(HermiteMoments(Hermite(1, order)).update(x), x) < 1e-11


@pytest.mark.parametrize("step", [32.0, 64.0])
@pytest.mark.parametrize("order", [5, 9])
@pytest.mark.parametrize("squares", [False, True])
def test_batches_that_drift(order: int, step: float, squares: bool) -> None:
    batches = [normal(300, 1, k) + step * k for k in range(7)]
    one, merged = (HermiteMoments(Hermite(1, order), squares=squares) for _ in range(2))
    for batch in batches:
        one.update(batch)
        merged = merged.merge(HermiteMoments(Hermite(1, order), squares=squares).update(batch))
    assert agrees(one, torch.cat(batches)) < 1e-12
    assert agrees(merged, torch.cat(batches)) < 1e-12


@pytest.mark.parametrize("seed", range(5))
def test_small_splits_merge(seed: int) -> None:
    x = normal(7000, 1, seed)
    merged = HermiteMoments(Hermite(1, 3), squares=True)
    for part in torch.split(x, [1, 2, 2, 5, 90, 2900, 4000]):
        merged = merged.merge(HermiteMoments(Hermite(1, 3), squares=True).update(part))
    assert agrees(merged, x) < 1e-12


@pytest.mark.parametrize("order", [3, 9])
@pytest.mark.parametrize("unit", [0.1, 1e-2, 1e-3, 1e-8])
def test_accuracy_after_a_single_first_row(order: int, unit: float) -> None:
    x = unit * normal(500, 1)
    basis = Hermite(1, order)
    assert agrees(HermiteMoments(basis).update(x[:1]).update(x[1:]), x) < 1e-12
    merged = HermiteMoments(basis).update(x[:1]).merge(HermiteMoments(basis).update(x[1:]))
    assert agrees(merged, x) < 1e-12


@pytest.mark.parametrize(("squares", "allowed"), [(False, 1e-11), (True, 1e-6)])
def test_a_constant_whose_deviation_rounds_to_more_than_zero(squares: bool, allowed: float) -> None:
    flat = torch.full((1000, 1), 0.1, dtype=torch.float64)
    assert float(flat.std(dim=0, correction=0)) > 0  # 2.8e-17
    x = torch.cat((flat, normal(500, 1)))
    moments = HermiteMoments(Hermite(1, 9), squares=squares).update(flat).update(x[1000:])
    # The deviation falls by √3 at once, and rounding is multiplied by √3^degree at least.
    assert agrees(moments, x) < allowed


@pytest.mark.parametrize("offset", [10.0, 1e3, 1e6])
def test_leading_rows_of_weight_zero_do_not_matter(offset: float) -> None:
    x, none = offset + normal(300, 2), normal(50, 2, 1)
    moments = HermiteMoments(Hermite(2, 5)).update(none, torch.zeros(50)).update(x)
    assert agrees(moments, x) < 1e-9
    gaussian = GaussianMoments(TensorHermite(2, 2)).update(none, torch.zeros(50)).update(x)
    standard = gaussian.standardised()
    assert standard.rotation is not None
    covariance = (standard.rotation.mT * standard.scale.square()) @ standard.rotation
    assert float((covariance - torch.cov(x.mT, correction=0)).abs().max()) < 1e-9


def test_rows_of_weight_zero_do_not_widen_the_range() -> None:
    x = torch.tensor([[0.0], [1.0], [100.0]])
    assert FourierMoments(Fourier.lattice(1, 1)).update(x, [1, 1, 0]).high.tolist() == [1.0]
    standard = HermiteMoments(Hermite(1, 3)).update(x, [1, 1, 0]).standardised()
    assert standard.high.tolist() == [1.0]


def test_merging_into_an_empty_accumulator_far_away() -> None:
    full = HermiteMoments(Hermite(1, 9), squares=True).update(1e12 + normal(100, 1))
    empty = HermiteMoments(Hermite(1, 9), squares=True)
    assert bool(empty.merge(full).standardised().averages.total.isfinite().all())


def collinear(ratio: float) -> Tensor:
    z = normal(2000, 2)
    return torch.stack((z[:, 0], z[:, 0] + ratio * z[:, 1]), dim=1)


def product_error(moments: TensorHermiteMoments, x: Tensor) -> float:
    standard = moments.standardised()
    assert standard.rotation is not None
    z = moments.basis.frame.analyse(x)
    u = (z @ standard.rotation.mT - standard.shift) / standard.scale
    exact = products(u, moments.indices).mean(dim=0)
    return float((standard.averages.total - exact).abs().max())


def test_products_of_correlated_columns() -> None:
    x = collinear(0.1)
    assert product_error(TensorHermiteMoments(TensorHermite(2, 4)).update(x), x) < 1e-7


@pytest.mark.parametrize("ratio", [0.01, 1e-3])
def test_nearly_collinear_columns_give_a_warning(ratio: float) -> None:
    x = collinear(ratio)
    with pytest.warns(RuntimeWarning, match="give the basis frame=principal_frame"):
        TensorHermiteMoments(TensorHermite(2, 4)).update(x).standardised()
    frame = principal_frame(x, dim=2)
    largest = torch.linalg.eigh(torch.cov(x.mT))[1][:, -1]
    assert float((frame.matrix[0] @ largest).abs()) == pytest.approx(1, abs=1e-12)
    turned = TensorHermiteMoments(TensorHermite(2, 4, frame=frame)).update(x)
    assert product_error(turned, x) < 1e-9


@pytest.mark.parametrize(("n", "order"), [(50, 5), (100, 9), (200, 9)])
def test_james_stein_keeps_training_moments_positive(n: int, order: int) -> None:
    for seed in range(10):
        moments = HermiteMoments(Hermite(1, order), 5, squares=True).update(normal(n, 1, seed))
        training = moments.shrunk(JamesStein()).averages.training
        assert float(torch.linalg.eigvalsh(gram(training.mT, order - 1)).min()) > -1e-12


@pytest.mark.parametrize("shrinkage", [JamesStein(), Modulation()])
def test_shrinkage_of_hermite_moments_requires_squares(shrinkage: JamesStein | Modulation) -> None:
    moments = HermiteMoments(Hermite(1, 4)).update(normal(100, 1))
    with pytest.raises(ValueError, match="squares must be True"):
        moments.shrunk(shrinkage)
    with pytest.raises(ValueError, match="squares must be True"):
        fit_moments(moments, shrinkage=shrinkage)


def test_monotone_in_float32_without_signal() -> None:
    zero = torch.zeros(3)
    assert bool(Monotone().factors(zero, zero, -torch.arange(1.0, 4.0)).isfinite().all())


def test_arrays_with_negative_strides() -> None:
    x = normal(20, 2).numpy()
    assert gather(x[::-1], Hermite(2, 3)).count == 20
    assert gather(x, Hermite(2, 3), sample_weight=np.ones(20)[::-1]).count == 20


def test_unsigned_integers_do_not_wrap() -> None:
    x = np.full((3, 1), 2**63 + 2**20, dtype=np.uint64)
    standard = gather(x, Hermite(1, 2)).standardised()  # type: ignore[attr-defined]
    assert float(standard.shift) > 0


def test_masked_arrays_are_rejected() -> None:
    x = np.ma.masked_greater(normal(20, 1).numpy(), 0.5)
    with pytest.raises((TypeError, ValueError), match="data"):
        gather(x, Hermite(1, 2))


def test_invalid_sample_weights_are_rejected() -> None:
    x = normal(5, 1)
    for wrong in ("abcde", np.ones(5, dtype=object), np.ones(5) + 1j):
        with pytest.raises((TypeError, ValueError), match="sample_weight"):
            gather(x, Hermite(1, 2), sample_weight=wrong)
    for weights in ([np.ones(5)], [np.ones(5)] * 3):
        with pytest.raises(ValueError, match="sample_weight"):
            gather([x, x], Hermite(1, 2), sample_weight=weights)


def test_sample_weights_of_other_dtypes() -> None:
    x = normal(5, 1)
    for weights in (np.ones(5, ">f8"), np.ones(5, np.longdouble), np.broadcast_to(1.0, 5)):
        assert gather(x, Hermite(1, 2), sample_weight=weights).count == 5


def test_a_rejected_batch_does_not_change_the_accumulator() -> None:
    moments = HermiteMoments(Hermite(1, 3))
    moments.block = 4
    x = normal(20, 1)
    x[13] = math.nan
    with pytest.raises(ValueError, match="row 13"):
        moments.update(x)
    assert moments.count == 0


def test_weights_of_very_different_size() -> None:
    weights = torch.ones(20, dtype=torch.float64)
    weights[0] = 1e20
    with pytest.raises(ValueError, match="sample_weight must not lie in one fold"):
        FourierMoments(Fourier.lattice(1, 1)).update(normal(20, 1), weights).averages()


def test_huge_rows_are_rejected_or_give_finite_results() -> None:
    x = torch.tensor([[1e308], [1e308], [0.0]], dtype=torch.float64)
    try:
        standard = HermiteMoments(Hermite(1, 3)).update(x).standardised()
    except ValueError:
        return
    assert bool(standard.shift.isfinite().all())
