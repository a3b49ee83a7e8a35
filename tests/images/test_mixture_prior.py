from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from torch import Tensor
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal

from oism import fit_mixture, fit_prior
from oism.flow import Pixels
from oism.images import PCA, MixturePrior
from oism.images._mixture import PSEUDO_ROWS, Components, maximise

DIM = 6


def contrasts(n: int = 600, seed: int = 0) -> Tensor:
    """Return rows that are small in all directions (70%) or large in all of them."""
    generator = torch.Generator().manual_seed(seed)
    loud = torch.rand(n, 1, generator=generator, dtype=torch.float64) < 0.3
    x = torch.randn(n, DIM, generator=generator, dtype=torch.float64)
    spread = torch.linspace(0.5, 1.0, DIM, dtype=torch.float64)
    return x * spread * torch.where(loud, 1.0, 0.1) + torch.where(loud, 0.4, -0.2)


def full(prior: MixturePrior, t: float = 0.0) -> MixtureSameFamily:
    """Return the noised mixture as a distribution of torch, with full covariances."""
    alpha, variance = math.exp(-t), -math.expm1(-2 * t)
    assert prior.directions is not None
    v = prior.directions.double()
    eye = torch.eye(prior.dim, dtype=torch.float64)
    mean = prior.mean.double()
    centres = mean + prior.means.double() @ v
    covariances = v.mT @ torch.diag_embed(prior.variances.double()) @ v
    if prior.rest is not None:
        covariances = covariances + prior.rest * (eye - v.mT @ v)
    parts = MultivariateNormal(
        alpha * centres, alpha**2 * covariances + variance * eye, validate_args=False
    )
    return MixtureSameFamily(Categorical(logits=prior.log_weights.double()), parts)


def log_prob(distribution: MixtureSameFamily, x: Tensor) -> Tensor:
    result: Tensor = distribution.log_prob(x)  # type: ignore[no-untyped-call]
    return result


COUNTS = pytest.mark.parametrize("count", [None, 2], ids=["all directions", "and a rest"])


@COUNTS
@pytest.mark.parametrize("components", [1, 4])
def test_density_and_score_are_those_of_the_mixture(count: int | None, components: int) -> None:
    prior = fit_mixture(contrasts(), components=components, frame=PCA(count))
    x = contrasts(12, seed=1)
    torch.testing.assert_close(prior.log_density(x), log_prob(full(prior), x), rtol=1e-4, atol=1e-4)
    for t in (0.0, 0.003, 0.1, 2.0):
        y = x.clone().requires_grad_(True)
        (expected,) = torch.autograd.grad(log_prob(full(prior, t), y).sum(), y)
        torch.testing.assert_close(prior.score(x, t), expected, rtol=1e-4, atol=1e-3)


@COUNTS
def test_pieces_of_a_batch_are_put_together(
    count: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    prior, x = fit_mixture(contrasts(), components=3, frame=PCA(count)), contrasts(7, seed=1)
    t = torch.linspace(0.01, 1, 7)
    whole = prior.score_and_divergence(x, t)
    monkeypatch.setattr("oism.images._mixture.ENTRIES", 2 * prior.means.numel())
    for one, other in zip(whole, prior.score_and_divergence(x, t), strict=True):
        torch.testing.assert_close(one, other)


# --- expectation maximisation --------------------------------------------------------------------


def standardised(n: int = 500) -> Tensor:
    x = contrasts(n)
    return (x - x.mean(dim=0)) / x.std(dim=0, correction=0)


def likelihood(u: Tensor, parts: Components) -> float:
    return float(parts.log_joint(u).logsumexp(dim=1).sum())


def test_every_round_raises_the_posterior() -> None:
    """Variances drawn to one by P rows maximise the likelihood less P Σ (log v + 1/v)/2."""
    u, nothing = standardised(), torch.zeros(DIM, dtype=torch.float64)
    heights, plain = [], []
    for rounds in range(1, 12):
        parts = maximise(u, 3, nothing, rounds=rounds)
        penalty = 0.5 * PSEUDO_ROWS * float((parts.variances.log() + 1 / parts.variances).sum())
        plain.append(likelihood(u, parts))
        heights.append(plain[-1] - penalty)
    assert all(later > earlier - 1e-8 for earlier, later in itertools.pairwise(heights))
    assert heights[-1] > heights[0] + 1
    assert plain[-1] > plain[0] + 1


def test_a_round_is_that_of_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oism.images._mixture.PSEUDO_ROWS", 0.0)
    u, nothing = standardised(), torch.zeros(DIM, dtype=torch.float64)
    start, end = (maximise(u, 3, nothing, rounds=rounds) for rounds in (4, 5))
    other = GaussianMixture(
        3,
        covariance_type="diag",
        reg_covar=0.0,
        max_iter=1,
        weights_init=start.log_weights.exp().numpy(),
        means_init=start.means.numpy(),
        precisions_init=1 / start.variances.numpy(),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        other.fit(u.numpy())
    np.testing.assert_allclose(end.log_weights.exp().numpy(), other.weights_, rtol=1e-9)
    np.testing.assert_allclose(end.means.numpy(), other.means_, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(end.variances.numpy(), other.covariances_, rtol=1e-8)


def test_pieces_of_rows_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    u, some = standardised(100), torch.full((DIM,), 0.1, dtype=torch.float64)
    whole = maximise(u, 2, some)
    monkeypatch.setattr("oism.images._mixture.ENTRIES", 7 * DIM)
    parts = maximise(u, 2, some)
    torch.testing.assert_close(parts.variances, whole.variances)
    torch.testing.assert_close(parts.means, whole.means)


def test_two_classes_of_contrast_are_found() -> None:
    prior = fit_mixture(contrasts(3000), components=2)
    loud = int(prior.variances.sum(dim=1).argmax())
    weights = prior.log_weights.exp()
    assert float(weights[loud]) == pytest.approx(0.3, abs=0.03)
    means = (prior.mean + prior.means @ prior.directions).detach()  # type: ignore[operator]
    assert means[loud].tolist() == pytest.approx([0.4] * DIM, abs=0.1)
    assert means[1 - loud].tolist() == pytest.approx([-0.2] * DIM, abs=0.03)
    ratio = prior.variances[loud].sum() / prior.variances[1 - loud].sum()
    assert 50 < float(ratio) < 110  # 100 but for the rows that are borrowed
    new = contrasts(2000, seed=1)
    gaussian = fit_prior(contrasts(3000), order=2)
    gain = float((prior.log_density(new) - gaussian.log_density(new)).mean())
    assert gain > 1, "a nat a row over one Gaussian"


@pytest.mark.parametrize("components", [1, 4])
def test_fewer_rows_than_directions(components: int) -> None:
    """Where the rows have no spread components have that of new rows, not that of rounding."""
    generator = torch.Generator().manual_seed(0)
    spread = torch.linspace(1, 0.1, 60, dtype=torch.float64)
    x = spread * torch.randn(330, 60, generator=generator, dtype=torch.float64)
    train, test = x[:30], x[30:]
    mixture, gaussian = fit_mixture(train, components=components), fit_prior(train, order=2)
    loss = float((gaussian.log_density(test) - mixture.log_density(test)).mean())
    assert loss < 6, "a tenth of a nat for each direction"
    noise = torch.randn(test.shape, generator=generator, dtype=torch.float64)
    alpha, sigma = mixture.noising.alpha(0.2), mixture.noising.sigma(0.2)
    error = (noise - mixture.noise(alpha * test + sigma * noise, 0.2)).square().mean()
    assert float(error) < 1.1 * float(gaussian.expected_error(0.2))
    assert float(mixture.expected_error(0.2)) == pytest.approx(float(error), rel=0.1)


@pytest.mark.parametrize("flip", [False, True])
def test_few_rows_are_held_in_memory(flip: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    data = contrasts(2000)
    monkeypatch.setattr("oism.images._statistics.HELD", 1000 * DIM)
    seen = []

    def watch(u: Tensor, count: int, extra: Tensor) -> Components:
        seen.append(u)
        return maximise(u, count, extra)

    monkeypatch.setattr("oism.images._fitting.maximise", watch)
    batches = [data[:701], data[701:702], data[702:]]
    prior = fit_mixture(batches, components=2, flip=flip)
    assert len(seen[0]) == 1000
    weights = prior.log_weights.exp()
    assert float(weights.min()) == pytest.approx(0.3, abs=0.06)
    if not flip:
        assert prior.directions is not None
        expected = (data[::2] - data.mean(dim=0)) @ prior.directions.double().mT
        scale = ((data - data.mean(dim=0)) @ prior.directions.double().mT).std(dim=0, correction=0)
        torch.testing.assert_close(seen[0].double(), expected / scale, rtol=1e-4, atol=1e-4)


# --- integers, flips and samples -----------------------------------------------------------------


def test_dequantisation_adds_its_variance() -> None:
    generator = torch.Generator().manual_seed(0)
    data = torch.randint(0, 8, (400, DIM), generator=generator)
    pixels = Pixels(0, 7)
    one = fit_mixture(data, components=1, pixels=pixels)
    other = fit_prior(data, order=2, pixels=pixels)
    torch.testing.assert_close(
        one.variances[0].double(), other.lines.scale.square(), rtol=1e-4, atol=0
    )
    bare = fit_mixture(data, components=1, pixels=pixels, dequantise=False)
    noise = (2 / 7) ** 2 / 12
    torch.testing.assert_close(bare.variances + noise, one.variances, rtol=1e-3, atol=0)
    bits = one.bits_per_dim(data[:50], torch.Generator().manual_seed(0))
    x = pixels.dequantised(pixels.units(data[:50]), torch.Generator().manual_seed(0))
    expected = -(log_prob(full(one), x.double()) / DIM + math.log(2 / 7)) / math.log(2)
    torch.testing.assert_close(bits.double(), expected, rtol=1e-4, atol=1e-4)


def test_flips_are_mirror_images_in_the_data() -> None:
    data = contrasts()
    data[:, 0] *= 3
    flipped = fit_mixture(data, components=2, flip=True)
    doubled = fit_mixture(torch.cat((data, data.flip(-1))), components=2)
    torch.testing.assert_close(flipped.mean, doubled.mean)
    # Variances are cross-validated, and the folds of the mirror images are not the same.
    x = contrasts(200, seed=1)
    one, other = flipped.log_density(x), doubled.log_density(x)
    assert float((one - other).abs().mean()) < 0.2
    torch.testing.assert_close(flipped.log_density(x.flip(-1)), one, rtol=0.1, atol=0.5)


@COUNTS
def test_samples_have_the_moments_of_the_mixture(count: int | None) -> None:
    prior, n = fit_mixture(contrasts(), components=3, frame=PCA(count)), 40_000
    x = prior.sample(n, torch.Generator().manual_seed(0)).double()
    distribution = full(prior)
    mean = distribution.mean
    deviation = distribution.variance.sqrt()
    assert float(((x.mean(dim=0) - mean) / deviation).abs().max()) < 5 / math.sqrt(n)
    spread = (x - mean).square()
    error = spread.std(dim=0) / math.sqrt(n)
    assert float(((spread.mean(dim=0) - distribution.variance) / error).abs().max()) < 5
    # The contrast is one of the whole row: energies of coordinates go together.
    energy = spread / distribution.variance
    assert float(torch.corrcoef(energy.mT)[0, -1]) > 0.2
