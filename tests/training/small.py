"""Small runs, alike in every test and in every process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from oism import fit_prior
from oism.basis import IdentityFrame
from oism.flow import Pixels
from oism.images import ByError, Prior
from oism.nn import DDPMpp, OperatorInformed
from oism.training import Rows, Run, TrainingConfig, new_accelerator, read_metrics
from oism.training import _checkpoint as checkpoint

SHAPE = (1, 4, 4)
PIXELS = Pixels(0, 16)
NET: dict[str, Any] = {"width": 8, "multipliers": (1,), "blocks": 1, "attention": ()}


def images(n: int = 90, seed: int = 0) -> Tensor:
    """Return images whose pixels go together, from 0 to 16."""
    generator = torch.Generator().manual_seed(seed)
    u = torch.rand(n, 1, 1, 1, generator=generator) + torch.rand(n, *SHAPE, generator=generator)
    return (8 * u.square() / 2).round().byte()


def fitted(data: Tensor | None = None, *, shared: bool = False) -> Prior:
    """Return a prior of all images, or of what several processes hold of them together."""
    data = images() if data is None else data
    return fit_prior(data, order=4, frame=IdentityFrame(), pixels=PIXELS, shared=shared)


def predictor(prior: Prior | None = None, *, dropout: float = 0.1, **sizes: Any) -> nn.Module:
    """Return a network with fixed weights, trained on the residual of a prior if there is one."""
    torch.manual_seed(0)
    arguments: dict[str, Any] = {**NET, "dropout": dropout, **sizes}
    if prior is None:
        return DDPMpp(SHAPE, **arguments)
    net = DDPMpp(SHAPE, extra=1, **arguments)
    return OperatorInformed(net, prior, gate=ByError(half=0.05), condition=True)


def config(**changes: Any) -> TrainingConfig:
    """Return the configuration of a short run."""
    common: dict[str, Any] = {
        "steps": 12, "batch": 16, "rate": 1e-2, "warmup": 4, "decay": 0.9, "log_every": 1,
        "save_every": 4, "sample_every": 0,
    }  # fmt: skip
    return TrainingConfig(**{**common, **changes})


def short_run(
    folder: Path,
    net: nn.Module | None = None,
    *,
    data: Tensor | None = None,
    resume: bool = False,
    draw: Any = None,
    **changes: Any,
) -> Run:
    """Return a run of a few steps, by default of a network around a prior."""
    rows = Rows(images() if data is None else data, PIXELS)
    net = predictor(fitted()) if net is None else net
    return Run(
        folder, net, rows, config(**changes), resume=resume, draw=draw,
        accelerator=new_accelerator(cpu=True),
    )  # fmt: skip


def state_of(folder: Path) -> dict[str, Tensor]:
    """Return everything that a run continues from, by name."""
    found = checkpoint.read_latest(folder / "checkpoints")
    assert found is not None
    return {
        f"{part}.{name}": value
        for part in checkpoint.PARTS
        for name, value in getattr(found, part).items()
    }


def assert_same(one: Path, other: Path) -> None:
    first, second = state_of(one), state_of(other)
    assert set(first) == set(second)
    assert [name for name in first if not torch.equal(first[name], second[name])] == []
    assert (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()


def steps_and_losses(folder: Path) -> list[tuple[int, float]]:
    return [(line["step"], line["loss"]) for line in read_metrics(folder)]
