"""The parts of a noise predictor in training: its network, and its prior if it has one.

A predictor with a prior follows the contract of `oism.nn.Informed`: ``net``, ``prior``, ``spec``,
``trains_net_alone`` and ``calibrate``. Any other module is a network alone.
"""

from __future__ import annotations

from torch import nn

from oism.flow import TensorSpec
from oism.images import Prior


def has_prior(predictor: nn.Module) -> bool:
    """Return whether a predictor combines a network with a prior."""
    return hasattr(predictor, "trains_net_alone")


def trained_parts(predictor: nn.Module) -> tuple[nn.Module, nn.Module]:
    """Return the network, whose weights are trained, and the module whose loss is taken."""
    if not has_prior(predictor):
        return predictor, predictor
    net: nn.Module = predictor.net  # type: ignore[assignment]
    return net, net if predictor.trains_net_alone else predictor


def spec_of(predictor: nn.Module) -> TensorSpec | None:
    """Return the specification of the prior's tensors, or None for a network alone."""
    found: TensorSpec | None = predictor.spec if has_prior(predictor) else None  # type: ignore[assignment]
    return found


def prior_of(predictor: nn.Module) -> Prior | None:
    """Return the prior, or None for a network alone."""
    found: Prior | None = predictor.prior if has_prior(predictor) else None  # type: ignore[assignment]
    return found
