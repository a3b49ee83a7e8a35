"""Precision, recall and neighbours against brute force; a classifier with a fixed recipe."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.spatial import cKDTree
from sklearn.datasets import load_digits
from torch import Tensor

from oism import load
from oism.storage import save
from oism.training import (
    Classifier,
    feature_rows,
    features_of,
    fit_classifier,
    frechet_distance,
    nearest_rows,
    precision_recall,
)
from oism.training import _fidelity as fidelity
from oism.training._classifier import _augmented


def cloud(n: int, seed: int, spread: float = 1.0, shift: float = 0.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return shift + spread * torch.randn(n, 3, generator=generator)


def brute(rows: Tensor, manifold: Tensor, k: int) -> float:
    tree = cKDTree(manifold.double().numpy())
    radius = tree.query(manifold.double().numpy(), k + 1)[0][:, k]
    distances = np.linalg.norm(rows.double().numpy()[:, None] - manifold.double().numpy(), axis=2)
    return float((distances <= radius).any(axis=1).mean())


@pytest.mark.parametrize("k", [1, 3, 5])
def test_precision_and_recall_by_brute_force(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    images, samples = cloud(150, 0), cloud(90, 1, spread=0.7, shift=0.4)
    found = precision_recall(images, samples, k)
    assert found.precision == pytest.approx(brute(samples, images, k))
    assert found.recall == pytest.approx(brute(images, samples, k))
    assert found.neighbours == k
    monkeypatch.setattr(fidelity, "ENTRIES", 1000)  # in parts
    assert precision_recall(images, samples, k) == found
    swapped = precision_recall(samples, images, k)
    assert (swapped.precision, swapped.recall) == (found.recall, found.precision)
    far = precision_recall(images + 1000.0, samples + 1000.0, k)  # a mean costs few digits
    assert far.precision == pytest.approx(found.precision, abs=0.02)


def test_what_precision_and_recall_mean() -> None:
    images = torch.cat((cloud(200, 0, 0.2), cloud(200, 1, 0.2, shift=5.0)))
    one_mode = precision_recall(images, cloud(200, 2, 0.15))
    assert one_mode.precision > 0.9
    assert one_mode.recall < 0.5
    spread = precision_recall(images, cloud(2000, 3, 4.0, shift=2.5))
    assert spread.precision < 0.2
    same = precision_recall(images, images)
    assert (same.precision, same.recall) == (1.0, 1.0)


def test_neighbours_by_brute_force(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, others = cloud(40, 0), cloud(70, 1)
    wanted = cKDTree(others.double().numpy()).query(rows.double().numpy(), 4)
    for _ in range(2):
        distance, place = nearest_rows(rows, others, 4)
        assert np.array_equal(place.numpy(), wanted[1])
        np.testing.assert_allclose(distance.numpy(), wanted[0], rtol=1e-5)
        monkeypatch.setattr(fidelity, "ENTRIES", 300)
    assert not nearest_rows(others[:5], others)[0].any()  # copies are at distance 0


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="samples must have more than neighbours = 3 rows, got 3"):
        precision_recall(cloud(10, 0), cloud(3, 0))
    with pytest.raises(ValueError, match="one number of features"):
        precision_recall(cloud(10, 0), cloud(10, 0)[:, :2])
    with pytest.raises(ValueError, match="count must be at most the 5 rows of others, got 6"):
        nearest_rows(cloud(10, 0), cloud(5, 0), 6)


def digits() -> tuple[Tensor, Tensor]:
    found = load_digits()
    images = torch.from_numpy((found.images * 15).astype(np.uint8))[:, None]
    return images, torch.from_numpy(found.target)


@pytest.fixture(scope="module")
def classifier() -> Classifier:
    images, labels = digits()
    return fit_classifier(images[:600], labels[:600], epochs=12, width=8)


def test_a_classifier_recognises_new_digits(classifier: Classifier) -> None:
    images, labels = digits()
    assert not classifier.training
    assert classifier.accuracy(images[1200:], labels[1200:]) > 0.9
    shuffled = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))]
    assert classifier.accuracy(images[1200:], shuffled[1200:]) < 0.2


def test_a_classifier_does_not_seed_the_generators_of_the_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seeds: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)
    images, before = torch.zeros(8, 1, 8, 8, dtype=torch.uint8), torch.get_rng_state()
    fit_classifier(images, torch.arange(8) % 2, epochs=1, width=4)
    assert seeds == []
    assert torch.equal(torch.get_rng_state(), before)


def test_the_recipe_is_fixed_and_leaves_the_generator_alone() -> None:
    images, labels = digits()
    torch.manual_seed(5)
    state = torch.get_rng_state()
    nets = [fit_classifier(images[:80], labels[:80], epochs=2, width=4, seed=s) for s in (0, 0, 1)]
    assert torch.equal(torch.get_rng_state(), state)
    a, b, c = (net(images[:5]) for net in nets)
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


def test_its_file_and_its_features(classifier: Classifier, tmp_path: Path) -> None:
    images, labels = digits()
    save(classifier, tmp_path / "classifier.safetensors")
    again = load(tmp_path / "classifier.safetensors").eval()
    assert isinstance(again, Classifier)
    features = feature_rows(again, torch.split(images[:300], 100))
    assert features.shape == (300, 64)
    assert torch.equal(features, feature_rows(classifier, [images[:300]]))
    zeros, ones = (features_of(classifier, [images[labels == k]]) for k in (0, 1))
    halves = [features_of(classifier, [images[labels == 0][k::2]]) for k in (0, 1)]
    assert frechet_distance(zeros, ones) > 5 * frechet_distance(*halves)


def test_classifiers_refuse_other_data() -> None:
    images, labels = digits()
    with pytest.raises(ValueError, match=r"images must be bytes \(n, channels, height, width\)"):
        fit_classifier(images.float(), labels)
    with pytest.raises(ValueError, match="labels must be one per row"):
        fit_classifier(images, labels[:5])


@pytest.mark.parametrize("shape", [(1, 4, 4), (3, 6, 10), (1, 28, 28)])
def test_images_of_any_size(shape: tuple[int, ...]) -> None:
    images = torch.randint(0, 256, (12, *shape), generator=torch.Generator().manual_seed(0)).byte()
    net = fit_classifier(images, torch.arange(12) % 2, epochs=1, width=4, flip=True)
    assert net(images).shape == (12, 32)


def test_images_are_moved_and_mirrored_as_a_whole() -> None:
    images = torch.arange(2 * 3 * 16 * 16, dtype=torch.float32).reshape(2, 3, 16, 16)
    torch.manual_seed(0)
    found = _augmented(images, flip=False)
    assert found.shape == images.shape
    for before, after in zip(images, found, strict=True):
        torch.testing.assert_close(after[1] - after[0], before[1] - before[0])
        assert float(after[0, 8, 8]) in before[0, 6:11, 6:11]
