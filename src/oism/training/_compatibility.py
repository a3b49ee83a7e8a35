"""What must agree: network, prior, data and noise levels; a run and what it goes on from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from oism._core.plain import plain
from oism.images import Prior
from oism.images._base import Setting
from oism.nn import Informed
from oism.nn._storage import describe_form
from oism.objectives import NoiseLevels
from oism.tables import describe as describe_prior
from oism.training._data import Rows
from oism.training._settings import Training

SLACK = 1e-3
"""How far two priors of the same data may be apart, of what they predict: other devices round."""


def demand_alike(predictor: nn.Module, rows: Rows, levels: NoiseLevels, setting: Setting) -> None:
    """Raise unless network, prior, data and noise levels belong together."""
    clock = levels.noising.clock
    if setting.clock != clock:
        raise ValueError(
            f"setting must have the clock of the levels, {clock!r}, got {setting.clock!r}"
        )
    rows.demand(setting, "setting")
    if isinstance(predictor, Informed):
        prior = predictor.prior
        rows.demand(prior.setting, "prior")
        if prior.clock != clock:
            raise ValueError(
                f"prior must have been fitted for the clock {clock!r}, got {prior.clock!r}"
            )
    shape = getattr(predictor, "shape", None)
    if shape is not None and tuple(shape) != rows.shape:
        raise ValueError(
            f"net must take tensors of the data's shape {rows.shape}, got {tuple(shape)}"
        )


def demand_said(settings: Training, rows: Rows, levels: NoiseLevels) -> None:
    """Raise unless data and noise levels are what the settings say of them."""
    if settings.first != levels.first:
        raise ValueError(f"levels must begin at first = {settings.first:g}, got {levels.first:g}")
    if rows.pixels is not None and settings.dequantise != rows.dequantise:
        raise ValueError(
            f"data must be those of dequantise = {settings.dequantise}, got {rows.dequantise}"
        )


def described_prior(predictor: nn.Module) -> dict[str, Any]:
    """Return what a checkpoint says of the prior of a run: another one is another run."""
    if not isinstance(predictor, Informed):
        return {"prior": None}
    return {"prior": fingerprint(predictor.prior), "form": describe_form(predictor)}


def fingerprint(prior: Prior) -> str:
    """Return a digest of everything that a prior says, to the last bit."""
    settings, tensors = describe_prior(prior)
    digest = hashlib.sha256(json.dumps(plain(settings), sort_keys=True).encode())
    for name, part in sorted(tensors.items()):
        digest.update(f"{name} {tuple(part.shape)} {part.dtype}".encode())
        digest.update(part.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def difference(
    before: Mapping[str, Any], now: Mapping[str, Any], within: str = ""
) -> tuple[str, Any, Any] | None:
    """Return the first entry in which settings differ, with both values, or nothing.

    >>> difference({"net": {"width": 8}, "seed": 0}, {"net": {"width": 16}, "seed": 0})
    ('net.width', 8, 16)
    """
    for name in (*before, *(name for name in now if name not in before)):
        first, second = before.get(name), now.get(name)
        if isinstance(first, Mapping) and isinstance(second, Mapping):
            found = difference(first, second, f"{within}{name}.")
            if found is not None:
                return found
        elif first != second:
            return f"{within}{name}", first, second
    return None


@torch.no_grad()
def are_alike(prior: Prior, other: Prior) -> bool:
    """Tell whether two priors predict the same noise, but for rounding."""
    source = torch.Generator().manual_seed(0)
    tau = torch.linspace(0, prior.clock.horizon, 18, dtype=torch.float64)[1:-1]
    x = torch.randn(len(tau), *prior.shape, generator=source)
    places = [one.error.values.device for one in (prior, other)]
    first, second = (
        one.noise(x.to(place), tau.to(place)).cpu()
        for one, place in zip((prior, other), places, strict=True)
    )
    return bool((first - second).norm() <= SLACK * first.norm())
