from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from oism.training import FeatureMoments, extractor_of, features_of, frechet_distance
from oism.training._frechet import INCEPTION, pixels


def draw(n: int, dim: int, seed: int, size: float = 1.0) -> Tensor:
    """Correlated rows about a mean of their own."""
    generator = torch.Generator().manual_seed(seed)
    mixed = torch.randn(dim, dim, generator=generator, dtype=torch.float64)
    z = torch.randn(n, dim, generator=generator, dtype=torch.float64)
    return size * (z @ mixed + torch.randn(dim, generator=generator, dtype=torch.float64))


def moments(rows: Tensor) -> FeatureMoments:
    return FeatureMoments(rows.shape[1]).update(rows)


def distance(one: Tensor, other: Tensor) -> float:
    return frechet_distance(moments(one), moments(other))


def oracle(one: Tensor, other: Tensor) -> float:
    """The formula as it stands, by SciPy's square root of a matrix."""
    (m, a), (k, b) = (
        (x.mean(axis=0), np.atleast_2d(np.cov(x, rowvar=False)))
        for x in (one.numpy(), other.numpy())
    )
    root = scipy.linalg.sqrtm(a @ b)
    return float(((m - k) ** 2).sum() + np.trace(a + b - 2 * root.real))


# The distance


@given(dim=st.integers(1, 12), seed=st.integers(0, 99), size=st.sampled_from([1e-3, 1.0, 1e3]))
def test_it_is_the_formula(dim: int, seed: int, size: float) -> None:
    one, other = draw(60, dim, seed, size), draw(50, dim, seed + 100, 2 * size)
    expected = oracle(one, other)
    assert distance(one, other) == pytest.approx(expected, rel=1e-8, abs=1e-12 * size**2)
    assert distance(other, one) == pytest.approx(expected, rel=1e-8, abs=1e-12 * size**2)


def test_commuting_covariances_have_a_closed_form() -> None:
    """Σ(m - m')² + Σ(s - s')², for deviations along axes in common."""
    turn = torch.linalg.qr(draw(6, 6, 3)).Q
    z = draw(40, 6, 4)
    z = torch.linalg.qr(z - z.mean(dim=0)).Q * 39**0.5  # centred, of covariance I
    s, t = torch.tensor([[3.0, 2, 1, 0.5, 0, 1], [1.0, 2, 4, 0, 0.5, 1e-3]]).double()
    shift = torch.arange(6.0).double()
    found = distance((z * s) @ turn, (z.flip(0) * t + shift) @ turn)
    expected = float((s - t).square().sum() + shift.square().sum())
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("rows", [3, 30, 500])
def test_a_set_has_no_distance_from_itself(rows: int) -> None:
    x = draw(rows, 40, 0)
    assert distance(x, x) < 1e-10
    assert distance(x, x.flip(0)) < 1e-10
    assert distance(x, x + 0.1) == pytest.approx(40 * 0.01, rel=1e-10)


def test_rotations_change_nothing_and_scales_are_squared() -> None:
    one, other = draw(80, 9, 1), draw(70, 9, 2)
    turn = torch.linalg.qr(draw(9, 9, 3)).Q
    here = distance(one, other)
    assert distance(one @ turn, other @ turn) == pytest.approx(here, rel=1e-10)
    assert distance(3 * one, 3 * other) == pytest.approx(9 * here, rel=1e-10)
    assert distance(one + 1e4, other + 1e4) == pytest.approx(here, rel=1e-9)


def test_fewer_rows_than_features() -> None:
    """Singular covariances: against the same rows in the coordinates that they span."""
    one, other = draw(12, 300, 1), draw(9, 300, 2)
    span = torch.linalg.qr(torch.cat((one, other)).mT).Q
    expected = oracle(one @ span, other @ span)  # 21 directions, and still singular
    assert distance(one, other) == pytest.approx(expected, rel=1e-6)
    apart = torch.zeros(4, 4).double()
    apart[:2, 0], apart[2:, 1] = torch.tensor([1.0, -1.0]), torch.tensor([1.0, -1.0])
    assert distance(apart[:2], apart[2:]) == pytest.approx(4.0, rel=1e-14), "nothing in common"


def test_rounding_has_no_root() -> None:
    """Where all variance of one lies in the null space of the other nothing may be shared."""
    generator = torch.Generator().manual_seed(0)
    turn = torch.linalg.qr(torch.randn(200, 200, generator=generator, dtype=torch.float64)).Q
    z = torch.randn(150, 100, generator=generator, dtype=torch.float64)
    one, other = moments(z @ turn[:100]), moments(z @ turn[100:])
    total = sum(float(part.mean_and_covariance()[1].trace()) for part in (one, other))
    means = float((one.mean_and_covariance()[0] - other.mean_and_covariance()[0]).square().sum())
    assert frechet_distance(one, other) == pytest.approx(total + means, rel=1e-12)


# The moments


@given(cuts=st.lists(st.integers(0, 90), max_size=5), seed=st.integers(0, 20))
def test_batches_do_not_matter(cuts: list[int], seed: int) -> None:
    x, y = draw(90, 5, seed), draw(40, 5, seed + 50)
    parts = torch.tensor_split(x, sorted(cuts))
    whole, batched, merged = moments(x), FeatureMoments(5), FeatureMoments(5)
    for part in parts:
        batched.update(part)
        merged = merged.merge(moments(part))
    expected = frechet_distance(whole, moments(y))
    assert batched.rows == merged.rows == 90
    for one in (batched, merged):
        assert frechet_distance(one, moments(y)) == pytest.approx(expected, rel=1e-10)


def test_the_law_is_numpys() -> None:
    x = draw(30, 4, 0)
    mean, covariance = moments(x).mean_and_covariance()
    np.testing.assert_allclose(mean, x.mean(dim=0), rtol=1e-12)
    np.testing.assert_allclose(covariance, np.cov(x.numpy(), rowvar=False), rtol=1e-12)
    assert covariance.dtype == torch.float64
    assert moments(x.float()).mean_and_covariance()[1].dtype == torch.float64


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        (torch.zeros(3, 4), ValueError, r"features must have shape \(n, 5\), got \(3, 4\)"),
        (torch.zeros(5), ValueError, r"features must have shape \(n, 5\), got \(5,\)"),
        (torch.zeros(3, 5).long(), TypeError, "floating point or uint8, got torch.int64"),
        (np.zeros((3, 5)), TypeError, "features"),
        (torch.tensor([[1.0] * 5, [torch.nan] * 5]), ValueError, "finite, but row 3 holds NaN"),
        (torch.tensor([[torch.inf] * 5]), ValueError, "features must be finite, but row 2"),
    ],
)
def test_bad_features(rows: Any, error: type[Exception], message: str) -> None:
    known = moments(draw(2, 5, 0))
    with pytest.raises(error, match=message):
        known.update(rows)
    assert known.rows == 2, "a refused batch leaves nothing"


def test_bad_sets() -> None:
    x = moments(draw(9, 3, 0))
    for few in (FeatureMoments(3), moments(draw(1, 3, 0))):
        with pytest.raises(ValueError, match="features must have at least two rows, got"):
            frechet_distance(x, few)
    with pytest.raises(ValueError, match="as many features as first, 3, got 2"):
        frechet_distance(x, moments(draw(9, 2, 0)))
    with pytest.raises(TypeError, match="second"):
        frechet_distance(x, draw(9, 3, 0))  # type: ignore[arg-type]


# Features of images


def images(n: int, channels: int = 1, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (n, channels, 3, 2), generator=generator).byte()


def test_pixels() -> None:
    x, y = images(40), images(30, seed=1)
    one, other = (features_of(extractor_of("pixels"), torch.split(z, 7)) for z in (x, y))
    expected = oracle(*(z.flatten(1).double() for z in (x, y)))
    assert frechet_distance(one, other) == pytest.approx(expected, rel=1e-10)
    assert one.rows == 40
    arrays = features_of(pixels, [x.numpy()])
    assert frechet_distance(arrays, one) < 1e-9


class Means(nn.Module):
    """Means of the channels, in evaluation mode."""

    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        assert not self.training
        assert not torch.is_grad_enabled()
        return x.float().mean(dim=(2, 3)) * self.scale


@pytest.fixture
def features(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of a user's own."""
    own = ModuleType("own_features")
    own.Means, own.means = Means, Means()  # type: ignore[attr-defined]
    own.deep = ModuleType("deep")  # type: ignore[attr-defined]
    own.deep.rows, own.number = pixels, 3  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "own_features", own)


@pytest.mark.parametrize("name", ["own_features:Means", "own_features:means"])
def test_features_of_ones_own(features: None, name: str) -> None:
    found = features_of(extractor_of(name), [images(9, 3), images(4, 3, 1)])
    expected = torch.cat([images(9, 3), images(4, 3, 1)]).double().mean(dim=(2, 3))
    torch.testing.assert_close(
        found.mean_and_covariance()[0], expected.mean(dim=0), rtol=1e-6, atol=0
    )
    assert (found.rows, found.dim) == (13, 3)


def test_names(features: None) -> None:
    assert extractor_of("own_features:deep.rows") is pixels
    for name in ("", "inception", "own_features", "own_features:", ":x"):
        with pytest.raises(ValueError, match="one of pixels, torch-fidelity, torchmetrics, or pac"):
            extractor_of(name)
    for name in ("own_features:nothing", "no_such_module_here:x", "own_features:deep.none"):
        with pytest.raises(ValueError, match=f"extractor '{name}' cannot be imported: "):
            extractor_of(name)
    with pytest.raises(TypeError, match="extractor 'own_features:number' must be callable, got in"):
        extractor_of("own_features:number")


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([], "at least one batch of images, got none"),
        ([torch.zeros(2, 1, 3, 3)], "of uint8, got torch.float32"),
        ([torch.zeros(2, 3, 3).byte()], r"uint8 \(2, 3, 3\)"),
    ],
)
def test_bad_images(batches: list[Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        features_of(pixels, batches)


@pytest.mark.parametrize(
    ("extractor", "message"),
    [
        (lambda x: x, r"extractor must return features \(4, k\), got \(4, 1, 3, 2\)"),
        (lambda x: x.flatten(1)[1:], r"features \(4, k\), got \(3, 6\)"),
        (lambda x: [x], r"features \(4, k\), got list"),
        (lambda x: x.flatten(1) / 0.0 * 0.0, "features must be finite, but row 0 holds NaN"),
    ],
)
def test_bad_extractors(extractor: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        features_of(extractor, [images(4)])


# Inception, of which there are neither packages nor weights here


class Net(nn.Module):
    """What both packages call Inception, as far as it matters: colour in, features out."""

    weights = True

    def __init__(self, *, name: str, features_list: list[str]) -> None:
        super().__init__()
        assert (name, features_list) == ("inception-v3-compat", ["2048"])
        if not self.weights:
            raise OSError("<urlopen error>")
        self.register_buffer("scale", torch.ones(()))

    def forward(self, x: Tensor) -> tuple[Tensor, ...] | Tensor:
        assert x.shape[1] == 3
        assert x.dtype == torch.uint8
        return (x.flatten(1).float(),)


class Flat(Net):
    def forward(self, x: Tensor) -> tuple[Tensor, ...] | Tensor:
        return super().forward(x)[0]


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, kind in (("torch-fidelity", Net), ("torchmetrics", Flat)):
        place, title = INCEPTION[name]
        parts = place.split(".")
        for k in range(1, len(parts) + 1):
            module = ModuleType(".".join(parts[:k]))
            module.__spec__ = ModuleSpec(module.__name__, None)
            module.__path__ = []
            setattr(module, title, kind)
            monkeypatch.setitem(sys.modules, module.__name__, module)


@pytest.mark.parametrize("name", INCEPTION)
def test_inception(packages: None, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for channels in (1, 3):
        found = features_of(extractor_of(name), [images(8, channels)])
        assert (found.rows, found.dim) == (8, 18)
    monkeypatch.setattr(Net, "weights", False)
    with pytest.raises(OSError, match=f"'{name}' has no weights here, and they could not be down"):
        extractor_of(name)


@pytest.mark.parametrize("name", INCEPTION)
def test_packages_that_are_not_there(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ImportError, match=f"'{name}' needs the package {name}: pip install {name}"):
        extractor_of(name)


def test_torchmetrics_needs_the_other_package(
    packages: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name == "torchmetrics" or None)
    with pytest.raises(ImportError, match="'torchmetrics' needs the package torch-fidelity"):
        extractor_of("torchmetrics")
