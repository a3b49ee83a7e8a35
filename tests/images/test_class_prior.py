"""Gaussians by class: scores against torch's distributions, shrinkage against brute force."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor
from torch.distributions import Distribution, MultivariateNormal

from oism import fit_prior, load
from oism.basis import CosineFrame, Frame, IdentityFrame
from oism.flow import Pixels
from oism.images import PCA, ClassPrior
from oism.images._classes import ClassMoments

DIM, CLASSES = 6, 3


def log_prob(distribution: Distribution, x: Tensor) -> Tensor:
    result: Tensor = distribution.log_prob(x)
    return result


def classes(n: int = 900, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return rows of three Gaussians with directions in common, and their labels."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, CLASSES, (n,), generator=generator)
    centres = torch.tensor([[-1.0, 0.5], [0.8, 0.4], [0.1, -0.9]], dtype=torch.float64)
    spreads = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    z = torch.randn(n, DIM, generator=generator, dtype=torch.float64)
    z *= torch.linspace(1.0, 0.3, DIM) * spreads[labels][:, None]
    z[:, :2] += centres[labels]
    return z @ rotation(), labels


def rotation() -> Tensor:
    generator = torch.Generator().manual_seed(5)
    matrix = torch.randn(DIM, DIM, generator=generator, dtype=torch.float64)
    found: Tensor = torch.linalg.qr(matrix)[0]
    return found


def normal(prior: ClassPrior, label: int, t: float) -> MultivariateNormal:
    """Return the noised Gaussian of a class with its full covariance."""
    alpha, variance = math.exp(-t), -math.expm1(-2 * t)
    eye = torch.eye(DIM, dtype=torch.float64)
    v = eye if prior.directions is None else prior.directions.double()
    if prior.directions is None:
        v = prior.frame.directions(DIM).double()
    covariance = v.mT @ torch.diag(prior.variances[label].double()) @ v
    if prior.rest is not None:
        covariance = covariance + prior.rest * (eye - v.mT @ v)
    mean = prior.mean.double() + prior.means[label].double() @ v
    return MultivariateNormal(alpha * mean, alpha**2 * covariance + variance * eye)


FRAMES: dict[str, Frame | PCA] = {"principal": PCA(), "leading": PCA(2), "entries": IdentityFrame(),
          "cosines": CosineFrame((DIM,))}  # fmt: skip


@pytest.mark.parametrize("name", FRAMES)
@pytest.mark.parametrize("tau", [0.05, 0.6])
def test_noise_given_labels_is_that_of_the_gaussian(name: str, tau: float) -> None:
    x, labels = classes()
    prior = fit_prior(x, labels=labels, frame=FRAMES[name])
    noisy = torch.randn(7, DIM, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    t = float(prior.clock.time(torch.tensor(tau)))
    given = torch.tensor([0, 1, 2, 2, 1, 0, 1])
    found = prior.conditional_noise(noisy, tau, given)
    point = noisy.clone().requires_grad_()
    logs = torch.stack(
        [log_prob(normal(prior, int(k), t), y) for k, y in zip(given, point, strict=True)]
    )
    (score,) = torch.autograd.grad(logs.sum(), point)
    sigma = math.sqrt(-math.expm1(-2 * t))
    torch.testing.assert_close(found, -sigma * score, rtol=1e-5, atol=1e-5)
    alone = torch.cat(
        [prior.given(int(k)).noise(y[None], tau) for k, y in zip(given, noisy, strict=True)]
    )
    torch.testing.assert_close(found, alone, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(
        prior.conditional_noise(noisy, tau, 1), prior.given(1).noise(noisy, tau),
        rtol=1e-5, atol=1e-6,
    )  # fmt: skip


def test_without_a_label_it_is_the_mixture() -> None:
    x, labels = classes()
    prior = fit_prior(x, labels=labels)
    noisy, tau = x[:9].float(), torch.linspace(0.1, 0.9, 9)
    free = torch.tensor([CLASSES] * 9)
    mixed = free.clone()
    mixed[::2] = 1
    torch.testing.assert_close(prior.conditional_noise(noisy, tau, free), prior.noise(noisy, tau))
    found = prior.conditional_noise(noisy, tau, mixed)
    torch.testing.assert_close(found[1::2], prior.noise(noisy, tau)[1::2])
    one = prior.conditional_noise(noisy, tau, 1)
    torch.testing.assert_close(found[::2], one[::2])
    share = torch.bincount(labels).double() / len(labels)
    logs = torch.stack([prior.given(k).log_density(noisy) for k in range(CLASSES)], dim=1)
    torch.testing.assert_close(
        prior.log_density(noisy),
        (logs + share.log()).logsumexp(dim=1).float(),
        rtol=1e-5,
        atol=1e-5,
    )


def test_moments_by_class_converge() -> None:
    x, labels = classes(60_000)
    prior = fit_prior(x, labels=labels)
    for k in range(CLASSES):
        own, found = x[labels == k], normal(prior, k, 0.0)
        torch.testing.assert_close(found.mean, own.mean(dim=0), atol=2e-3, rtol=0)
        torch.testing.assert_close(found.covariance_matrix, own.mT.cov(), atol=3e-3, rtol=0)
    # The expected error is that measured with labels.
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(3), dtype=x.dtype)
    for tau in (0.1, 0.4):
        t = float(prior.clock.time(torch.tensor(tau)))
        noisy = math.exp(-t) * x + math.sqrt(-math.expm1(-2 * t)) * noise
        error = (prior.conditional_noise(noisy, tau, labels) - noise).square().mean()
        assert float(error) == pytest.approx(float(prior.expected_error(tau)), rel=0.01)
        assert float((prior.noise(noisy, tau) - noise).square().mean()) > float(error)


def test_shrinkage_is_the_minimum_of_the_held_out_error() -> None:
    generator = torch.Generator().manual_seed(0)
    fold = torch.randint(0, 4, (300,), generator=generator)
    labels = torch.randint(0, 5, (300,), generator=generator)
    centres = torch.tensor([0.0, 0.15, -0.15, 0.05, 0.3], dtype=torch.float64)
    z = (torch.randn(300, 1, generator=generator, dtype=torch.float64)
         * (1 + 0.8 * (labels == 2)[:, None]) + centres[labels][:, None])  # fmt: skip
    moments = ClassMoments(4, 5, 1, torch.device("cpu"))
    for rows in torch.split(torch.arange(300), 70):
        moments.update(z[rows], fold[rows], labels[rows])
    a, b = moments.shrinkage()

    def held_out(a: float, b: float) -> tuple[float, float]:
        first = second = 0.0
        for f in range(4):
            train, test = fold != f, fold == f
            mean = z[train].mean()
            within = sum(z[train & (labels == k)].var() * float((train & (labels == k)).sum())
                         for k in range(5)) / float(train.sum())  # fmt: skip
            for k in range(5):
                own, rows = z[train & (labels == k)], z[test & (labels == k)]
                centre = mean + a * (own.mean() - mean)
                first += float((rows - centre).square().sum())
                spread = within + b * (own.var() - within)
                second += float(((rows - centre).square() - spread).square().sum())
        return first, second

    assert 0 < float(a) < 1
    assert 0 < float(b) < 1
    best = held_out(float(a), float(b))
    for step in (-0.02, 0.02):
        assert held_out(float(a) + step, float(b))[0] > best[0]
        assert held_out(float(a), float(b) + step)[1] > best[1]


def test_labels_without_meaning_change_little() -> None:
    x = torch.randn(400, DIM, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.arange(400) % 20
    prior, plain = fit_prior(x, labels=labels), fit_prior(x, order=2)
    new = torch.randn(4000, DIM, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    loss = float(plain.log_density(new).mean())
    given = torch.stack([prior.given(k).log_density(new).mean() for k in range(20)]).mean()
    assert loss - float(given) < 0.03  # separate means and variances lose DIM/20 and more
    own = [x[labels == k] for k in range(20)]
    raw = [log_prob(MultivariateNormal(r.mean(dim=0), torch.diag(r.var(dim=0))), new) for r in own]
    assert loss - float(torch.stack(raw).mean()) > 0.3


def test_digits_are_described_better_with_their_class() -> None:
    digits = load_digits()
    images = torch.from_numpy(digits.images)[:, None]
    labels, pixels = torch.from_numpy(digits.target), Pixels(0, 16)
    train, test = slice(0, 1400), slice(1400, None)
    plain = fit_prior(images[train], order=2, pixels=pixels)
    prior = fit_prior(images[train], labels=labels[train], pixels=pixels)
    x = prior.prepare(images[test], torch.Generator().manual_seed(0)).double()
    logs = torch.stack([prior.given(k).log_density(x) for k in range(10)], dim=1)
    own = logs.gather(1, labels[test][:, None])[:, 0]
    assert float((own - plain.log_density(x)).mean()) > 5
    assert float((prior.log_density(x) - plain.log_density(x)).mean()) > 3
    right = (logs.argmax(dim=1) == labels[test]).double().mean()
    assert float(right) > 0.9  # the most likely class of a new image


def test_flips_and_batches() -> None:
    digits = load_digits()
    images = torch.from_numpy(digits.images * 15).byte()[:, None]
    labels = torch.from_numpy(digits.target)
    both = torch.cat((images, images.flip(-1)))
    flipped = fit_prior(images, labels=labels, flip=True)
    parts = list(torch.split(images, 500))
    in_batches = fit_prior(parts, labels=labels.numpy(), flip=True)
    again = fit_prior(both, labels=torch.cat((labels, labels)))
    for name in ("means", "variances"):
        torch.testing.assert_close(getattr(flipped, name), getattr(in_batches, name))
    x = prior_units(images[:5])
    # Folds differ, and with them the cross-validated numbers, by little.
    torch.testing.assert_close(
        flipped.conditional_noise(x, 0.3, labels[:5]), again.conditional_noise(x, 0.3, labels[:5]),
        atol=0.05, rtol=0,
    )  # fmt: skip


def prior_units(images: Tensor) -> Tensor:
    return Pixels().units(images).float()


def test_files_and_facts(tmp_path: Path) -> None:
    x, labels = classes()
    prior = fit_prior(x, labels=labels, frame=PCA(4))
    prior.save(tmp_path / "prior.safetensors")
    again = load(tmp_path / "prior.safetensors")
    assert isinstance(again, ClassPrior)
    assert again.classes == CLASSES
    assert again.facts() == prior.facts()
    assert prior.facts()["classes"] == CLASSES
    noisy = x[:4].float()
    given = torch.tensor([0, 1, 2, 3])
    assert torch.equal(
        again.conditional_noise(noisy, 0.3, given), prior.conditional_noise(noisy, 0.3, given)
    )


def test_a_prior_without_classes_ignores_labels() -> None:
    x, labels = classes()
    prior = fit_prior(x, order=2)
    assert prior.classes is None
    noisy = x[:5].float()
    found = prior.conditional_noise(noisy, 0.3, labels[:5])
    assert torch.equal(found, prior.noise(noisy, 0.3))


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([0, 1], "one per row of the data: 2 labels, more rows"),
        ([0] * 30, "30 labels, 20 rows"),
        ([0, 2] * 10, "no row has 1"),
        ([-1, 0] * 10, "at least 0"),
        ([0.5, 1.0] * 10, "integers"),
        ([[0, 1]] * 10, "one per row|one number"),
    ],
)
def test_wrong_labels_are_named(labels: object, words: str) -> None:
    x = torch.randn(20, 2, generator=torch.Generator().manual_seed(0))
    with pytest.raises((ValueError, TypeError), match=words):
        fit_prior(x, labels=labels)


def test_wrong_arguments_are_named() -> None:
    x, labels = classes(60)
    with pytest.raises(ValueError, match="order must be 2 with labels"):
        fit_prior(x, labels=labels, order=4)
    with pytest.raises(ValueError, match="ridge must not be given with labels"):
        fit_prior(x, labels=labels, ridge=0.1)
    prior = fit_prior(x, labels=labels)
    with pytest.raises(ValueError, match=r"labels must be from 0 to 2, or 3 for no class, got 4"):
        prior.conditional_noise(x[:2], 0.5, torch.tensor([0, 4]))
    with pytest.raises(ValueError, match="2 rows, 3 labels"):
        prior.conditional_noise(x[:2], 0.5, torch.tensor([0, 1, 1]))
    with pytest.raises(ValueError, match="label must be from 0 to 2, got 3"):
        prior.given(3)


@pytest.mark.parametrize("frame", [PCA(), PCA(5), IdentityFrame()], ids=["all", "five", "pixels"])
def test_constant_entries(frame: Frame | PCA) -> None:
    """Variances of zero, as of the margin of digits in floating point."""
    x = torch.rand(300, 1, 4, 4, generator=torch.Generator().manual_seed(0)) * 2 - 1
    x[:, :, 0] = -1.0
    prior = fit_prior(x, labels=[0, 1] * 150, frame=frame)
    z, labels = torch.randn(4, 1, 4, 4), torch.tensor([0, 1, 2, 0])
    for tau in (0.0, 1e-5, 0.5, 1.0):
        assert bool(prior.noise(z, tau).isfinite().all())
        assert bool(prior.conditional_noise(z, tau, labels).isfinite().all())
        assert bool(prior.score_and_divergence(z, tau)[1].isfinite().all())
        assert 0 < float(prior.expected_error(tau)) <= 1
    assert bool(prior.log_density(x[:3]).isfinite().all())
    sample = prior.given(1).sample(5, torch.Generator().manual_seed(1))
    if frame != PCA(5):  # beyond the five directions entries have a variance in common
        assert float((sample[:, :, 0] + 1).abs().max()) < 1e-4


def test_rows_without_any_variance_beyond_the_frame() -> None:
    x = torch.zeros(200, 6)
    x[:, 0] = torch.randn(200, generator=torch.Generator().manual_seed(0))
    prior = fit_prior(x, labels=[0, 1] * 100, frame=PCA(2))
    assert bool(prior.noise(torch.randn(4, 6), 0.0).isfinite().all())
    assert bool(prior.expected_error(torch.tensor([0.0, 0.5])).isfinite().all())


@pytest.mark.parametrize("entries", [1, 7, 40, 1000])
def test_sums_by_class_in_pieces_of_any_size(entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    fold = torch.randint(0, 2, (50,), generator=generator)
    labels = torch.randint(0, 3, (50,), generator=generator)
    z = torch.randint(-8, 9, (50, 2), generator=generator).double()  # their sums are exact
    largest = 0
    equal = Tensor.__eq__

    def watched(one: Tensor, other: Tensor) -> Tensor:
        nonlocal largest
        found: Tensor = equal(one, other)
        largest = max(largest, found.numel())
        return found

    monkeypatch.setattr("oism.images._classes.ENTRIES", entries)
    monkeypatch.setattr(Tensor, "__eq__", watched)
    moments = ClassMoments(2, 3, 2, torch.device("cpu"))
    moments.update(z, fold, labels)
    monkeypatch.undo()
    assert 0 < largest <= max(entries, 6)  # a row at least, of six folds and classes
    for f in range(2):
        for k in range(3):
            own = z[(fold == f) & (labels == k)]
            assert float(moments.count[f, k]) == len(own)
            assert torch.equal(moments.first[f, k], own.sum(dim=0))
            assert torch.equal(moments.second[f, k], own.square().sum(dim=0))
