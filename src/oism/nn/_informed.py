"""A network that learns the residual of a prior.

A noise predictor is a function ε̂(x, τ) of noised tensors ``(n, *shape)`` and clock times ``(n,)``.
A network alone is one. Together with a prior, whose scores have a closed form,

    ε̂(x, τ) = g(τ)·ε̂_prior(x, τ) + c(τ)·net(x, τ),    ε̂_prior = σ(x - s̃),

the network learns the residual only. The paper has g = c = 1. By default the gate g follows the
prior's own expected error, and c is the standard deviation of the residual. With ``condition`` the
network also gets g·ε̂_prior as input, in further channels; where the gate is closed these are zero,
because the predictions of the prior are large where they are wrong.

A network that learns the residual gets less to learn at high noise, and does not learn there what
it needs at the levels in between: `Combined` trains it on the whole noise.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from oism._core import checks
from oism._core.plain import plain
from oism._core.transforms import one_per_row, per_row
from oism.flow import TensorSpec
from oism.images import DEFAULT_GATE, Gate, Open, Prior
from oism.nn._contexts import full_precision
from oism.nn._labels import classes_of, with_labels
from oism.storage import External, public_name, storable

Draws = Iterable[tuple[Tensor, ...]]
"""Noised tensors, their clock times and their noise, and for a network that takes them labels."""


class Informed(nn.Module, ABC):
    """A network, which is trained, and a prior, which is not: it has buffers and no parameters."""

    trains_net_alone: ClassVar[bool] = False
    """Whether the network is trained without the prior, and `calibrate` is to be called after."""

    def __init__(self, net: nn.Module, prior: Prior, *, extra: int = 0) -> None:
        super().__init__()
        checks.instance(net, nn.Module, "net")
        checks.instance(prior, Prior, "prior")
        _check_shapes(net, prior, extra)
        self.net, self.prior = net, prior

    @property
    def classes(self) -> int | None:
        """The number of classes of a network that takes labels."""
        return classes_of(self.net)

    @property
    def spec(self) -> TensorSpec:
        """The tensors of the prior."""
        return self.prior.spec

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a tensor."""
        return self.prior.shape

    @abstractmethod
    def to_config(self) -> dict[str, Any]:
        """Return what `storage` needs: network, prior and how they are combined."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Return how network and prior are combined, as plain numbers and texts."""

    @property
    def first_used(self) -> float:
        """The largest clock time at which the network has a part in the prediction."""
        return self.prior.clock.horizon

    def calibrate(self, draws: Draws) -> None:
        """Set what depends on the trained network; by default nothing does."""

    def _prior_noise(self, x: Tensor, tau: Tensor | float, labels: Tensor | None = None) -> Tensor:
        """Return what the prior predicts, in float32 or float64."""
        x = x if x.dtype == torch.float64 else x.float()
        if labels is None:
            return self.prior.noise(x, tau)
        return self.prior.conditional_noise(x, tau, labels)


@storable
class OperatorInformed(Informed):
    """A noise predictor from a network ``net(x, tau)`` that learns the residual of a prior.

    Parameters
    ----------
    net
        Any module of noised tensors and clock times. With ``condition`` it gets twice the channels:
        those of the tensor, then the gated prediction of the prior.
    prior
        The prior, which is not trained: it has buffers and no parameters.
    gate
        The factor of the prior by noise level: by its expected error, or `Open()` for the paper's
        form.
    condition
        Whether the network gets the gated prediction of the prior, as ``extra`` channels.

    Examples
    --------
    >>> from oism import fit_prior
    >>> from oism.nn import DDPMpp, OperatorInformed
    >>> images = torch.randint(0, 256, (200, 1, 8, 8), generator=torch.Generator().manual_seed(0))
    >>> prior = fit_prior(images.byte(), order=2)
    >>> net = DDPMpp(prior.shape, width=16, multipliers=(1, 2), blocks=1)
    >>> predictor = OperatorInformed(net, prior)
    >>> x, tau = torch.randn(3, 1, 8, 8), torch.full((3,), 0.9)
    >>> gated = prior.gate(tau).reshape(-1, 1, 1, 1) * prior.noise(x, tau)
    >>> torch.allclose(predictor(x, tau), gated)  # the output of a new network is zero
    True
    """

    def __init__(
        self, net: nn.Module, prior: Prior, *, gate: Gate = DEFAULT_GATE, condition: bool = False
    ) -> None:
        checks.instance(prior, Prior, "prior")
        checks.instance(gate, Gate, "gate")
        super().__init__(net, prior, extra=prior.shape[0] if condition else 0)
        self.gate, self.condition = gate, bool(condition)

    @classmethod
    def paper(cls, net: nn.Module, prior: Prior) -> Self:
        """Return the paper's form: ε̂ = σ(x - s̃) + net(x, τ)."""
        return cls(net, prior, gate=Open(), condition=False)

    def to_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            "net": External(self.net),
            "prior": self.prior,
            "gate": External(self.gate),
            "condition": self.condition,
        }

    def facts(self) -> dict[str, Any]:
        """Return the gate, and whether the network gets the prior's prediction."""
        return {
            "kind": "OperatorInformed",
            "gate": described(self.gate),
            "condition": self.condition,
        }

    def forward(self, x: Tensor, tau: Tensor | float, labels: Tensor | None = None) -> Tensor:
        """Return the predicted noise, in float32 or float64 as ``x`` is.

        ``tau`` is one per row or one number; the network gets one per row. ``labels`` ``(n,)`` are
        those of a network that takes them.
        """
        with full_precision(x.device):
            error, known = self.prior.expected_error(tau), self._prior_noise(x, tau, labels)
            opening, scale = (
                per_row(f(error), known) for f in (self.gate.opening, self.gate.scale)
            )
            known = opening * known
        given = torch.cat((x, known), dim=1) if self.condition else x
        residual: Tensor = self.net(given, one_per_row(tau, x), *with_labels(labels))
        return torch.addcmul(known, scale, residual.to(known.dtype))


def as_informed(predictor: nn.Module) -> Informed | None:
    """Return a predictor that combines a network with a prior, or None for a network alone."""
    return predictor if isinstance(predictor, Informed) else None


def trained_network(predictor: nn.Module) -> nn.Module:
    """Return the network that is trained: that beside a prior, or the predictor itself."""
    informed = as_informed(predictor)
    return predictor if informed is None else informed.net


def described(part: object) -> dict[str, Any]:
    """Return class and arguments of a part of oism, or the class alone of a user's own."""
    name = public_name(type(part))
    if not name.startswith("oism."):
        return {"kind": name}
    if callable(facts := getattr(part, "facts", None)):
        found: dict[str, Any] = facts()
        return found
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        return {"kind": type(part).__name__, **plain(dataclasses.asdict(part))}
    return {"kind": type(part).__name__, **plain(getattr(part, "to_config", dict)())}


def _check_shapes(net: nn.Module, prior: Prior, wanted: int) -> None:
    """Raise where a network states its tensors or its clock, and they are not the prior's."""
    shape, extra = getattr(net, "shape", None), getattr(net, "extra", None)
    if shape is not None and tuple(shape) != prior.shape:
        raise ValueError(f"net must take tensors of the prior's shape {prior.shape}, got {shape}")
    clock = getattr(net, "clock", prior.clock)
    if clock != prior.clock:
        raise ValueError(f"net must have the clock of the prior, {prior.clock!r}, got {clock!r}")
    classes = classes_of(net)
    if classes is not None and prior.classes not in (None, classes):
        raise ValueError(f"net must have classes = {prior.classes} as the prior, got {classes}")
    if extra is not None and extra != wanted:
        why = " for the prediction of the prior" if wanted else ""
        raise ValueError(f"net must have extra = {wanted} channels{why}, got {extra}")


def check_spec(predictor: nn.Module, spec: TensorSpec) -> None:
    """Raise where a predictor states its tensors or its clock, and they are not the spec's."""
    shape, informed = getattr(predictor, "shape", None), as_informed(predictor)
    if shape is not None and tuple(shape) != spec.shape:
        raise ValueError(
            f"predictor must take tensors of the shape {spec.shape} of the spec, got {tuple(shape)}"
        )
    clock = getattr(predictor, "clock", spec.clock)
    if clock != spec.clock:
        raise ValueError(
            f"predictor must have the clock of the spec, {spec.clock!r}, got {clock!r}"
        )
    if informed is not None and informed.spec.clock != spec.clock:
        raise ValueError(
            f"predictor must have a prior with the clock of the spec, {spec.clock!r}, got "
            f"{informed.spec.clock!r}"
        )
