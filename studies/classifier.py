"""A classifier of the images, whose features measure the distance of samples from images.

Inception's weights, which FID uses, may not be at hand; so the features are those before the last
layer of a residual network that is trained here: nine layers, Nesterov's method with a learning
rate that rises and falls once, crops, mirror images, smoothed labels. Fréchet distances in its
features are compared with each other only. A stored classifier has weights in float16, so that its
file is small enough to be kept with results.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from studies.images import device
from studies.labelled import Labelled
from studies.study import draft_of, write_json

BATCH = 512
PAD = 4
PEAK, MOMENTUM, DECAY, SMOOTHING = 0.4, 0.9, 5e-4, 0.1
RISE = 0.2
EPOCHS = (6, 30)
"""The fewest and the most passes over the images."""

TIMED = 20


def _layer(inputs: int, outputs: int, *, pool: bool = False) -> nn.Sequential:
    layers = [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)]
    return nn.Sequential(*layers, nn.ReLU(inplace=True), *([nn.MaxPool2d(2)] if pool else []))


class _Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(_layer(width, width), _layer(width, width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x)  # type: ignore[no-any-return]


class Classifier(nn.Module):
    """A residual network of nine layers for images of bytes; called, it returns its features."""

    def __init__(self, channels: int, classes: int, width: int = 64, high: int = 255) -> None:
        super().__init__()
        self.settings = {"channels": channels, "classes": classes, "width": width, "high": high}
        self.high = high
        self.body = nn.Sequential(
            _layer(channels, width),
            _layer(width, 2 * width, pool=True), _Residual(2 * width),
            _layer(2 * width, 4 * width, pool=True),
            _layer(4 * width, 8 * width, pool=True), _Residual(8 * width),
            nn.AdaptiveMaxPool2d(1), nn.Flatten(),
        )  # fmt: skip
        self.head = nn.Linear(8 * width, classes, bias=False)

    def features(self, images: Tensor) -> Tensor:
        """Return the features of images of floats: ``(n, 8·width)``."""
        found: Tensor = self.body(images.contiguous(memory_format=torch.channels_last))
        return found

    def logits(self, images: Tensor) -> Tensor:
        """Return the logits of the classes; an eighth of the last layer, as its rate is large."""
        return 0.125 * self.head(self.features(images))  # type: ignore[no-any-return]

    def scaled(self, images: Tensor) -> Tensor:
        """Return images of bytes as floats from -1 to 1."""
        return images.float() * (2 / self.high) - 1

    def forward(self, images: Tensor) -> Tensor:
        """Return the features of images of bytes, in float32."""
        with _half(images.device):
            return self.features(self.scaled(images)).float()


def fit(
    data: Labelled,
    path: Path,
    *,
    flip: bool,
    seconds: float,
    width: int = 64,
    report: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Train a classifier in about ``seconds``, store it, and return its accuracy."""
    torch.manual_seed(0)
    begin, sets = time.perf_counter(), data.sets
    images, labels = sets.train.to(device()), data.train_labels.to(device()).long()
    net = Classifier(images.shape[1], int(labels.max()) + 1, width, sets.pixels.high)
    net.to(device(), memory_format=torch.channels_last)  # type: ignore[call-overload]
    batch = min(BATCH, len(images) // 8)
    decayed = [part for part in net.parameters() if part.ndim > 1]
    plain = [part for part in net.parameters() if part.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": DECAY}, {"params": plain, "weight_decay": 0.0}]
    optimiser = torch.optim.SGD(groups, lr=PEAK, momentum=MOMENTUM, nesterov=True)
    per_epoch = len(images) // batch
    total, k, started = EPOCHS[1] * per_epoch, 0, begin
    while k < total:
        order = torch.randperm(len(images), device=images.device)
        for chosen in torch.split(order[: per_epoch * batch], batch):
            if k == TIMED:  # the first steps choose algorithms
                _wait(images.device)
                started = time.perf_counter()
            if k == 2 * TIMED:
                _wait(images.device)
                now = time.perf_counter()
                step = (now - started) / TIMED
                fitting = int((seconds - (now - begin)) / step) + k
                total = max(min(total, fitting), min(total, EPOCHS[0] * per_epoch))
                report(f"classifier: {1000 * step:.1f} ms a step, {total / per_epoch:.1f} epochs")
            for group in optimiser.param_groups:
                group["lr"] = PEAK * max(0.0, _one_cycle(k / total))
            with _half(images.device):
                inputs = _augmented(net.scaled(images[chosen]), flip=flip)
                logits = net.logits(inputs)
            loss = F.cross_entropy(logits.float(), labels[chosen], label_smoothing=SMOOTHING)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            k += 1
            if k >= total:
                break
    net.eval()
    state = {
        name: part.half() if part.is_floating_point() else part
        for name, part in net.state_dict().items()
    }
    net.load_state_dict(state)  # as it will be read
    found = {
        "train_seconds": time.perf_counter() - begin,
        "epochs": k / per_epoch,
        "features": 8 * width,
        "accuracy": accuracy(net, sets.test.to(device()), data.test_labels.to(device())),
    }
    report(f"classifier: accuracy {found['accuracy']:.4f} after {found['train_seconds']:.0f} s")
    with draft_of(path) as draft:
        torch.save({"settings": net.settings, "state": state}, draft)
    write_json(path.with_suffix(".json"), found)
    return found


def load(path: Path) -> Classifier:
    """Return a stored classifier in evaluation mode."""
    found = torch.load(path, weights_only=True, map_location=device())
    net = Classifier(**found["settings"])
    net.load_state_dict(found["state"])
    return net.to(device(), memory_format=torch.channels_last).eval()  # type: ignore[call-overload,no-any-return]


@torch.no_grad()
def accuracy(net: Classifier, images: Tensor, labels: Tensor) -> float:
    """Return the share of images whose class is predicted."""
    right = 0
    for part, wanted in zip(torch.split(images, 2000), torch.split(labels, 2000), strict=True):
        with _half(images.device):
            right += int((net.logits(net.scaled(part)).argmax(1) == wanted).sum())
    return right / len(images)


def _one_cycle(part: float) -> float:
    """Return the learning rate relative to its peak after a part of the steps."""
    return part / RISE if part < RISE else (1 - part) / (1 - RISE)


def _augmented(images: Tensor, *, flip: bool) -> Tensor:
    """Return images shifted at random by up to ``PAD`` pixels, and mirrored at random."""
    n, _, height, width = images.shape
    pad = min(PAD, height // 8)
    if flip:
        mirrored = torch.rand(n, device=images.device) < 0.5
        images = torch.where(mirrored[:, None, None, None], images.flip(-1), images)
    padded = F.pad(images, [pad] * 4, mode="reflect")
    shifts = torch.randint(0, 2 * pad + 1, (2, n, 1), device=images.device)
    rows = shifts[0] + torch.arange(height, device=images.device)
    columns = shifts[1] + torch.arange(width, device=images.device)
    place = torch.arange(n, device=images.device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[place, rows[:, :, None], columns[:, None, :]].permute(
        0, 3, 1, 2
    )


def _half(where: torch.device) -> torch.autocast:
    return torch.autocast(where.type, torch.bfloat16, enabled=where.type == "cuda")


def _wait(where: torch.device) -> None:
    if where.type == "cuda":
        torch.cuda.synchronize()
