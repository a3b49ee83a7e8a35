"""A small classifier with a fixed recipe, whose features compare samples with images.

Inception's weights, which FID uses, are a download, and were trained on photographs. The features
here are those before the last layer of a residual network of nine layers that is trained on the
images themselves: stochastic gradients with Nesterov's momentum, a learning rate that rises and
falls once, shifted images, smoothed labels. The recipe is fixed and the seed is given, so that
others can repeat it. Distances in its features are comparable for one classifier only.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from oism._core import checks
from oism._core.draws import seeded
from oism._core.labels import training_labels
from oism._core.progress import progress_bar
from oism.storage import storable

EPOCHS, LEAST_STEPS = 12, 300
"""The number of passes over the images, and the least number of steps, by default."""

WIDTHS = {3072: 64, 400: 32, 0: 16}
"""The width by the smallest number of entries of an image, in descending order."""

BATCH, PAD = 512, 4
PEAK, MOMENTUM, DECAY, SMOOTHING, RISE = 0.4, 0.9, 5e-4, 0.1, 0.2
AT_ONCE = 1000
"""The number of images that are evaluated at a time."""


def _layer(inputs: int, outputs: int, *, pool: bool = False) -> nn.Sequential:
    layers = [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)]
    after = [nn.MaxPool2d(2, ceil_mode=True)] if pool else []
    return nn.Sequential(*layers, nn.ReLU(inplace=True), *after)


class _Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(_layer(width, width), _layer(width, width))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = x + self.layers(x)
        return found


@storable
class Classifier(nn.Module):
    """A residual network of nine layers for images of bytes; called, it returns 8·width features.

    It is an extractor of `features_of`. `fit_classifier` trains one.

    >>> net = Classifier(channels=1, classes=3, width=4)
    >>> net(torch.zeros(5, 1, 8, 8, dtype=torch.uint8)).shape
    torch.Size([5, 32])
    """

    stores_state = True

    def __init__(self, channels: int, classes: int, width: int = 64) -> None:
        super().__init__()
        self.channels = checks.integer(channels, "channels", minimum=1)
        self.classes = checks.integer(classes, "classes", minimum=1)
        self.width = width = checks.integer(width, "width", minimum=1)
        self.body = nn.Sequential(
            _layer(channels, width),
            _layer(width, 2 * width, pool=True), _Residual(2 * width),
            _layer(2 * width, 4 * width, pool=True),
            _layer(4 * width, 8 * width, pool=True), _Residual(8 * width),
            nn.AdaptiveMaxPool2d(1), nn.Flatten(),
        )  # fmt: skip
        self.head = nn.Linear(8 * width, classes, bias=False)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def to_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {"channels": self.channels, "classes": self.classes, "width": self.width}

    def forward(self, images: Tensor) -> Tensor:
        """Return the features of images ``(n, channels, height, width)`` of bytes, in float32."""
        with _half(images.device):
            return self._features(_scaled(images)).float()

    def logits(self, images: Tensor) -> Tensor:
        """Return the logits of the classes of images of bytes: ``(n, classes)``."""
        with _half(images.device):
            return self._logits(_scaled(images)).float()

    @torch.no_grad()
    def predict(self, images: Tensor) -> Tensor:
        """Return the most probable classes of images of bytes, on any device: ``(n,)``, int64."""
        device = self.head.weight.device
        parts = [self.logits(part.to(device)).argmax(1) for part in torch.split(images, AT_ONCE)]
        return torch.cat(parts).cpu()

    def accuracy(self, images: Tensor, labels: Tensor) -> float:
        """Return the share of images whose class is predicted."""
        return float((self.predict(images) == labels.cpu()).double().mean())

    def _features(self, x: Tensor) -> Tensor:
        found: Tensor = self.body(x.contiguous(memory_format=torch.channels_last))
        return found

    def _logits(self, x: Tensor) -> Tensor:
        found: Tensor = 0.125 * self.head(self._features(x))  # the rate of the last layer is large
        return found


def fit_classifier(  # noqa: PLR0913
    images: Tensor,
    labels: object,
    *,
    width: int | None = None,
    epochs: int | None = None,
    flip: bool = False,
    seed: int = 0,
    device: torch.device | str | None = None,
    progress: bool | None = None,
) -> Classifier:
    """Return a classifier of images ``(n, channels, height, width)`` of bytes, in evaluation mode.

    ``labels`` ``(n,)`` are integers from 0. ``flip`` mirrors images at random. By default there are
    12 passes over the images, and at least 300 steps; the width is 64 from 3 × 32 × 32 entries on,
    32 from 20 × 20 on, and 16 below.
    """
    checks.instance(images, Tensor, "images")
    if images.dtype != torch.uint8 or images.ndim != 4:
        raise ValueError(
            "images must be bytes (n, channels, height, width), got "
            f"{images.dtype} {tuple(images.shape)}"
        )
    known, place = training_labels(labels, len(images)), checks.device(device or images.device)
    entries = images[0].numel() if len(images) else 0
    width = next(w for least, w in WIDTHS.items() if entries >= least) if width is None else width
    batch = max(2, min(BATCH, len(images) // 8))
    per_epoch = max(1, len(images) // batch)
    passes = max(EPOCHS, -(-LEAST_STEPS // per_epoch)) if epochs is None else epochs
    total = per_epoch * checks.integer(passes, "epochs", minimum=1)
    with seeded(seed, place):
        net = Classifier(images.shape[1], int(known.max()) + 1, width).to(place).train()
        optimiser = _optimiser(net)
        images, known = images.to(place), known.to(place)
        with progress_bar(progress) as bar:
            bar.stage("classifier", total)
            order = torch.empty(0, dtype=torch.long, device=place)
            for k in range(total):
                if k % per_epoch == 0:
                    order = torch.randperm(len(images), device=place)
                first = k % per_epoch * batch
                chosen = order[first : first + batch]
                _step(net, optimiser, images[chosen], known[chosen], k / total, flip=flip)
                bar.advance(1)
    return net.eval()


def _optimiser(net: Classifier) -> torch.optim.SGD:
    decayed = [part for part in net.parameters() if part.ndim > 1]
    plain = [part for part in net.parameters() if part.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": DECAY}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.SGD(groups, lr=PEAK, momentum=MOMENTUM, nesterov=True)


def _step(
    net: Classifier,
    optimiser: torch.optim.SGD,
    images: Tensor,
    labels: Tensor,
    part: float,
    *,
    flip: bool,
) -> None:
    """Take one step after a part of all steps."""
    for group in optimiser.param_groups:
        group["lr"] = PEAK * (part / RISE if part < RISE else (1 - part) / (1 - RISE))
    with _half(images.device):
        logits = net._logits(_augmented(_scaled(images), flip=flip))
    loss = functional.cross_entropy(logits.float(), labels, label_smoothing=SMOOTHING)
    optimiser.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimiser.step()


def _scaled(images: Tensor) -> Tensor:
    """Return bytes as floats from -1 to 1."""
    return images.float() * (2 / 255) - 1


def _augmented(images: Tensor, *, flip: bool) -> Tensor:
    """Return images shifted at random by an eighth of their height, at most 4, and mirrored."""
    n, _, height, width = images.shape
    pad = min(PAD, min(height, width) // 8)
    if flip:
        mirrored = torch.rand(n, device=images.device) < 0.5
        images = torch.where(mirrored[:, None, None, None], images.flip(-1), images)
    padded = functional.pad(images, [pad] * 4, mode="reflect")
    shifts = torch.randint(0, 2 * pad + 1, (2, n, 1), device=images.device)
    rows = shifts[0] + torch.arange(height, device=images.device)
    columns = shifts[1] + torch.arange(width, device=images.device)
    place = torch.arange(n, device=images.device)[:, None, None]
    moved = padded.permute(0, 2, 3, 1)[place, rows[:, :, None], columns[:, None, :]]
    return moved.permute(0, 3, 1, 2)


def _half(where: torch.device) -> torch.autocast:
    return torch.autocast(where.type, torch.bfloat16, enabled=where.type == "cuda")
