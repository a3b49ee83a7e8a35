"""The Fréchet distance of two sets of images, from means and covariances of their features.

For Gaussians with these means and covariances,

    d² = |μ₁ - μ₂|² + tr(Σ₁ + Σ₂ - 2(Σ₁Σ₂)^½).

With Inception's features this is the FID. Σ₁Σ₂ has the eigenvalues of the symmetric Σ₁^½Σ₂Σ₁^½, and
their roots are the singular values of Σ₁^½Σ₂^½: with Σᵢ = RᵢRᵢᵀ,

    tr (Σ₁Σ₂)^½ = ‖R₁ᵀR₂‖_*, the sum of the singular values,

so that no root of a rounding error is taken, and there may be fewer rows than features. Everything
is float64; covariances are the unbiased ones, over n - 1.

Features are those of an *extractor*, which maps images ``(n, c, h, w)`` of uint8 to ``(n, k)``.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterable, Iterator
from typing import Self

import torch
from torch import Tensor, nn

from oism._core import checks
from oism.estimation import PairMoments
from oism.estimation._moments.rows import check_finite, tensor

Extractor = Callable[[Tensor], Tensor]
"""A map from images ``(n, c, h, w)`` of uint8 to features ``(n, k)``."""

INCEPTION = {
    "torch-fidelity": (
        "torch_fidelity.feature_extractor_inceptionv3",
        "FeatureExtractorInceptionV3",
    ),
    "torchmetrics": ("torchmetrics.image.fid", "NoTrainInceptionV3"),
}
"""Packages that have Inception with the weights of FID, and the module and class there."""


class FeatureMoments(PairMoments):
    """Number, mean and covariance of features ``(n, dim)``, batch by batch; it merges.

    >>> moments = FeatureMoments(2).update(torch.tensor([[0.0, 2.0], [4.0, 6.0]]))
    >>> moments.mean_and_covariance()[1]
    tensor([[8., 8.],
            [8., 8.]], dtype=torch.float64)
    """

    def __init__(self, dim: int, *, device: torch.device | str | None = None) -> None:
        super().__init__(dim, 1, device=device)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self.count.sum())

    def update(self, x: Tensor, fold: Tensor | None = None) -> Self:
        """Add rows ``(n, dim)``, floating point or uint8; there is one fold."""
        checks.instance(x, Tensor, "features")
        if x.ndim != 2 or x.shape[1] != self.dim:
            raise ValueError(f"features must have shape (n, {self.dim}), got {tuple(x.shape)}")
        if not x.is_floating_point() and x.dtype != torch.uint8:
            raise TypeError(f"features must be floating point or uint8, got {x.dtype}")
        check_finite(x, self.rows, "features")
        return super().update(x.detach(), fold)

    def mean_and_covariance(self) -> tuple[Tensor, Tensor]:
        """Return mean ``(dim,)`` and unbiased covariance ``(dim, dim)``."""
        if self.rows < 2:
            raise ValueError(f"features must have at least two rows, got {self.rows}")
        mean, covariance = self.covariance()
        return mean, covariance * (self.rows / (self.rows - 1))


def frechet_distance(first: FeatureMoments, second: FeatureMoments) -> float:
    """Return d², the squared Fréchet distance of two sets of features, not below 0.

    >>> x = torch.tensor([[0.0], [2.0], [4.0]])
    >>> moments = [FeatureMoments(1).update(rows) for rows in (x, 2 * x + 1)]
    >>> frechet_distance(*moments)  # means 2 and 5, deviations 2 and 4
    13.0
    """
    for name, moments in (("first", first), ("second", second)):
        checks.instance(moments, FeatureMoments, name)
    if first.dim != second.dim:
        raise ValueError(
            f"second must have as many features as first, {first.dim}, got {second.dim}"
        )
    mean, covariance = first.mean_and_covariance()
    other, theirs = (part.to(mean) for part in second.mean_and_covariance())
    shared = torch.linalg.svdvals(_root(covariance).mT @ _root(theirs)).sum()
    spread = covariance.trace() + theirs.trace() - 2 * shared
    return max(0.0, float((mean - other).square().sum() + spread))


def _root(covariance: Tensor) -> Tensor:
    """Return R with RRᵀ = Σ, a column for each eigenvalue that exceeds the rounding error."""
    values, vectors = torch.linalg.eigh(covariance)
    least = len(values) * torch.finfo(values.dtype).eps * values.abs().max()
    kept = values > least
    root: Tensor = vectors[:, kept] * values[kept].sqrt()
    return root


def features_of(extractor: Extractor, batches: Iterable[object]) -> FeatureMoments:
    """Return the moments of the features of images, batches ``(n, c, h, w)`` of uint8.

    If the extractor is a module, images are moved to its device.
    """
    moments: FeatureMoments | None = None
    for features in _features(extractor, batches):
        if moments is None:
            moments = FeatureMoments(features.shape[1], device=features.device)
        moments.update(features)
    if moments is None:
        raise ValueError("batches must hold at least one batch of images, got none")
    return moments


def feature_rows(extractor: Extractor, batches: Iterable[object]) -> Tensor:
    """Return the features of images, batches ``(n, c, h, w)`` of uint8, as rows ``(n, k)``."""
    found = [features.float() for features in _features(extractor, batches)]
    if not found:
        raise ValueError("batches must hold at least one batch of images, got none")
    return torch.cat(found)


@torch.no_grad()
def _features(extractor: Extractor, batches: Iterable[object]) -> Iterator[Tensor]:
    """Yield the features of batches of images."""
    state = extractor.state_dict() if isinstance(extractor, nn.Module) else {}
    device = next((part.device for part in state.values()), None)
    for batch in batches:
        images = tensor(batch, "batches")
        if images.dtype != torch.uint8 or images.ndim != 4:
            raise ValueError(
                "batches must be images (n, channels, height, width) of uint8, got "
                f"{images.dtype} {tuple(images.shape)}"
            )
        features: object = extractor(images if device is None else images.to(device))
        if not isinstance(features, Tensor) or features.ndim != 2 or len(features) != len(images):
            got = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
            raise ValueError(f"extractor must return features ({len(images)}, k), got {got}")
        yield features


def extractor_of(name: str) -> Extractor:
    """Return the extractor of a name.

    ``pixels`` are the levels themselves; ``torch-fidelity`` and ``torchmetrics`` give Inception's
    2,048 features by that package; ``package.module:callable`` is one's own. A class of modules is
    instantiated, and a module is put in evaluation mode.
    """
    if name == "pixels":
        return pixels
    if name in INCEPTION:
        return Inception(name).eval()
    place, colon, path = name.partition(":")
    if not (colon and place and path):
        known = ", ".join(["pixels", *INCEPTION])
        raise ValueError(f"extractor must be one of {known}, or package.module:callable: {name!r}")
    try:
        found: object = importlib.import_module(place)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"extractor {name!r} cannot be imported: {error}") from error
    if isinstance(found, type) and issubclass(found, nn.Module):
        found = found()
    if not callable(found):
        raise TypeError(f"extractor {name!r} must be callable, got {type(found).__name__}")
    return found.eval() if isinstance(found, nn.Module) else found


def pixels(images: Tensor) -> Tensor:
    """Return images as rows of levels: ``(n, c·h·w)``."""
    return images.flatten(1)


class Inception(nn.Module):
    """The 2,048 features of Inception of the FID; grey images are converted to colour."""

    def __init__(self, name: str) -> None:
        super().__init__()
        place, kind = INCEPTION[name]
        for package in dict.fromkeys((place.split(".")[0], "torch_fidelity")):
            if importlib.util.find_spec(package) is None:
                wanted = package.replace("_", "-")
                raise ImportError(
                    f"extractor {name!r} needs the package {wanted}: pip install {wanted}"
                )
        try:
            self.net = getattr(importlib.import_module(place), kind)(
                name="inception-v3-compat", features_list=["2048"]
            )
        except (OSError, RuntimeError) as error:
            raise OSError(
                f"extractor {name!r} has no weights here, and they could not be downloaded: {error}"
            ) from error

    def forward(self, images: Tensor) -> Tensor:
        """Return features ``(n, 2048)``."""
        if images.shape[1] == 1:
            images = images.expand(-1, 3, -1, -1)
        found = self.net(images)
        features: Tensor = found[0] if isinstance(found, tuple) else found
        return features
