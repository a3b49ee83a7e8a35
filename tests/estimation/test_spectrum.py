from __future__ import annotations

import numpy as np
import pytest
import sklearn.decomposition
import sklearn.isotonic
import torch
from torch import Tensor

from oism.estimation import PairMoments, Spectrum, spectrum

DIM = 60
POWER = (1 + torch.arange(DIM, dtype=torch.float64)) ** -1.5


def rotation(dim: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    matrix: Tensor = torch.randn(dim, dim, generator=generator, dtype=torch.float64)
    orthogonal: Tensor = torch.linalg.qr(matrix)[0]
    return orthogonal


def draw(n: int, values: Tensor, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return rows of a Gaussian, and its covariance."""
    basis = rotation(len(values))
    generator = torch.Generator().manual_seed(100 + seed)
    z = torch.randn(n, len(values), generator=generator, dtype=torch.float64)
    return 2 + (z * values.sqrt()) @ basis.mT, (basis * values) @ basis.mT


def gathered(x: Tensor, folds: int = 5) -> PairMoments:
    fold = torch.arange(len(x)) % folds
    return PairMoments(x.shape[1], folds).update(x, fold)


def truth(found: Spectrum, covariance: Tensor) -> Tensor:
    return ((found.directions @ covariance) * found.directions).sum(dim=1)


def test_directions_and_sample_variances_are_those_of_scikit_learn() -> None:
    x, _ = draw(200, POWER[:8])
    found = spectrum(gathered(x))
    pca = sklearn.decomposition.PCA().fit(x.numpy())
    np.testing.assert_allclose(found.sample.numpy() * 200 / 199, pca.explained_variance_)
    overlap = np.abs((pca.components_ * found.directions.numpy()).sum(axis=1))
    np.testing.assert_allclose(overlap, 1, atol=1e-8)
    np.testing.assert_allclose(found.mean.numpy(), x.mean(dim=0).numpy())


@pytest.mark.parametrize("n", [150, 40, 2])
def test_directions_are_orthonormal_with_fixed_signs_by_decreasing_variance(n: int) -> None:
    x, _ = draw(n, POWER)
    found = spectrum(gathered(x))
    gram = found.directions @ found.directions.mT
    torch.testing.assert_close(gram, torch.eye(DIM).double(), rtol=0, atol=1e-12)
    largest = found.directions.abs().argmax(dim=1, keepdim=True)
    assert bool((found.directions.gather(1, largest) > 0).all())
    for part in (found.sample, found.variances):
        assert bool((part.diff() <= 0).all())
        assert bool((part >= 0).all())


@pytest.mark.parametrize("n", [150, 40])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "values", [POWER, torch.ones(DIM).double()], ids=["falling", "all the same"]
)
def test_validated_variances_are_closer_to_those_of_new_rows(
    n: int, seed: int, values: Tensor
) -> None:
    x, covariance = draw(n, values, seed)
    found = spectrum(gathered(x))
    exact = truth(found, covariance)
    floor = 1e-4 * float(values[0])

    def off(estimate: Tensor) -> float:
        return float(((estimate + floor).log() - (exact + floor).log()).square().mean().sqrt())

    assert off(found.variances) < 0.5 * off(found.sample)
    assert float(found.variances.min()) > 0
    # The trace is almost unbiased: it does not depend on the directions.
    total = float(found.variances.sum() / exact.sum())
    assert 0.75 < total < 1.25


def test_validated_variances_agree_with_their_definition() -> None:
    x, _ = draw(90, POWER[:5])
    fold = torch.arange(90) % 3
    expected = np.zeros(5)
    for f in range(3):
        train, test = x[fold != f].numpy(), x[fold == f].numpy()
        pca = sklearn.decomposition.PCA().fit(train)
        expected += np.square(pca.transform(test)).mean(axis=0) / 3
    isotonic = sklearn.isotonic.IsotonicRegression(increasing=False)
    expected = isotonic.fit_transform(np.arange(5), expected)
    np.testing.assert_allclose(spectrum(gathered(x, 3)).variances.numpy(), expected, rtol=1e-10)


def test_without_validation_variances_are_those_of_the_sample() -> None:
    x, _ = draw(50, POWER[:6])
    for pairs, validate in ((gathered(x), False), (gathered(x, 1), True)):
        found = spectrum(pairs, validate=validate)
        assert torch.equal(found.variances, found.sample)


@pytest.mark.parametrize("count", [1, 3, 5])
def test_a_count_keeps_the_leading_directions_and_averages_the_others(count: int) -> None:
    x, _ = draw(80, POWER[:6])
    whole, part = spectrum(gathered(x)), spectrum(gathered(x), count)
    assert whole.rest is None
    assert torch.equal(part.directions, whole.directions[:count])
    assert torch.equal(part.variances, whole.variances[:count])
    assert torch.equal(part.sample, whole.sample[:count])
    assert part.rest == pytest.approx(float(whole.variances[count:].mean()), rel=1e-12)
    assert spectrum(gathered(x), 6).rest is None


def test_data_of_low_rank() -> None:
    x, _ = draw(300, torch.tensor([4.0, 1.0, 0.25, 0.0, 0.0, 0.0]).double())
    found = spectrum(gathered(x))
    for part in (found.sample, found.variances):
        np.testing.assert_allclose(part.numpy(), [4, 1, 0.25, 0, 0, 0], rtol=0.3, atol=1e-13)


@pytest.mark.parametrize("rows", [torch.ones(1, 3), torch.ones(4, 3)], ids=["one", "equal"])
def test_constant_rows(rows: Tensor) -> None:
    found = spectrum(gathered(rows.double()))
    assert found.mean.tolist() == [1, 1, 1]
    assert found.variances.tolist() == [0, 0, 0]
    torch.testing.assert_close(found.directions @ found.directions.mT, torch.eye(3).double())


def test_invalid_counts_are_rejected() -> None:
    pairs = gathered(torch.ones(3, 2))
    with pytest.raises(ValueError, match="count must be at most the dimension, 2, got 3"):
        spectrum(pairs, 3)
    with pytest.raises(ValueError, match="count must be an integer >= 1, got 0"):
        spectrum(pairs, 0)
    with pytest.raises(TypeError, match=r"count must be an integer >= 1, got float 1.5"):
        spectrum(pairs, 1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="data must hold at least one row, got none"):
        spectrum(PairMoments(2))
