"""The models of objectives: an energy, a score or a time score, each a function of (x, t).

    energy        f(x, t) = log(ρ_t/π)(x), up to a constant of t    (n,)
    score         s(x, t) = ∇log ρ_t(x) = ∇f + ∇log π               the shape of x
    time score    g(x, t) = ∂_t log ρ_t(x) = ∂_t f                  (n,)

Points are ``(n, *shape)``, and a model is given one time per row, ``(n,)``, in the dtype of the
points: any network that takes (x, t) will do. Rows must not depend on each other. Models are
differentiated by ``torch.func`` inside, and through their parameters by autograd outside, so they
must be made of operations of torch that act on x and t themselves.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import grad, jvp

from oism._core import checks
from oism._core.transforms import per_row
from oism.flow import FittedModel
from oism.process import Function, Process


class Model(Protocol):
    """An energy, a score or a time score."""

    def __call__(self, x: Tensor, t: Tensor, /) -> Tensor:
        """Return values at points ``(n, *shape)`` and times ``(n,)``."""


def times(t: Tensor | float, x: Tensor) -> Tensor:
    """Return times t ≥ 0, one per row, in the dtype of the points."""
    own = per_row(checks.time(t), x.flatten(1)[:, 0])
    return own if own.ndim else own.to(x.device).repeat(len(x))


def scalar(model: Model, t: Tensor | float, name: str = "energy") -> Function:
    """Return an energy or a time score at its times, as a function of the points alone."""
    return _frozen(model, t, name, field=False)


def field(model: Model, t: Tensor | float, name: str = "score") -> Function:
    """Return a score at its times, as a function of the points alone."""
    return _frozen(model, t, name, field=True)


def _frozen(model: Model, t: Tensor | float, name: str, *, field: bool) -> Function:
    def frozen(x: Tensor) -> Tensor:
        return _checked(model, x, times(t, x), name, field=field)

    return frozen


def _checked(
    model: Model, x: Tensor, t: Tensor, name: str, *, field: bool, variable: str = "x"
) -> Tensor:
    """Return the values of a model of the right shape that depend on the variable."""
    if not callable(model):
        raise TypeError(f"{name} must be a function of (x, t), got {type(model).__name__}")
    if isinstance(model, FittedModel):
        raise TypeError(
            f"{name} must be a function of (x, t), but a fitted model as a function is its noise "
            "at clock times: give its method, such as model.score"
        )
    values = _evaluated(model, x, t, name)
    wanted = tuple(x.shape) if field else (len(x),)
    if not isinstance(values, Tensor) or values.shape != wanted:
        got = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        what = "the shape of x" if field else "one number per row"
        raise ValueError(
            f"{name} must map points {tuple(x.shape)} and times ({len(x)},) to {what}, {wanted}, "
            f"got {got}"
        )
    if not values.is_floating_point():
        raise TypeError(f"{name} must have floating-point values, got {values.dtype}")
    if _wrapped(x) and not _follows(values):
        raise ValueError(
            f"{name} must be differentiable in {variable}, but what it returned was not computed "
            f"from {variable} by operations of torch, or was detached"
        )
    return values


def _evaluated(model: Model, x: Tensor, t: Tensor, name: str) -> object:
    try:
        return model(x, t)
    except RuntimeError as error:
        if _wrapped(x) and any(word in str(error) for word in ("numpy()", "have storage")):
            raise ValueError(
                f"{name} must be differentiable in x, but it takes x out of torch: {error}"
            ) from error
        raise


def _wrapped(x: Tensor) -> bool:
    """Return whether a transform of torch.func acts on ``x``."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(x))


def _follows(values: Tensor) -> bool:
    """Return whether the innermost transform differentiates values; parameters do not count."""
    dual = forward_ad.unpack_dual(values)  # type: ignore[no-untyped-call]
    return _wrapped(values) and (values.requires_grad or dual.tangent is not None)


def derivative_in_time(model: Model, t: Tensor | float, name: str, *, field: bool) -> Function:
    """Return ∂_t of a model at its times, as a function of the points alone."""

    def differentiated(x: Tensor) -> Tensor:
        own = times(t, x)

        def along(s: Tensor) -> Tensor:
            return _checked(model, x, s, name, field=field, variable="t")

        slope: Tensor = jvp(along, (own,), (torch.ones_like(own),))[1]
        return slope

    return differentiated


def gradient(f: Function) -> Function:
    """Return ∇f of a function with values ``(n,)``, of the shape of the points."""

    def differentiated(x: Tensor) -> Tensor:
        slope: Tensor = grad(lambda y: f(y).sum())(x)
        return slope

    return differentiated


def score_of(energy: Model, process: Process) -> Model:
    """Return the score ∇f + ∇log π of an energy f = log(ρ_t/π).

    >>> from oism import OrnsteinUhlenbeck
    >>> score = score_of(lambda x, t: x.sum(dim=1), OrnsteinUhlenbeck())  # N(1, I)
    >>> score(torch.tensor([[0.5, 2.0]]), torch.zeros(1))
    tensor([[ 0.5000, -1.0000]])
    """
    checks.instance(process, Process, "process")

    def score(x: Tensor, t: Tensor) -> Tensor:
        return gradient(scalar(energy, t))(checks.points(x)) + process.invariant.score(x)

    return score


def time_score_of(energy: Model) -> Model:
    """Return the time score ∂_t f of an energy.

    >>> g = time_score_of(lambda x, t: t.square() * x[:, 0])
    >>> g(torch.tensor([[2.0]]), torch.tensor([0.5]))
    tensor([2.])
    """

    def time_score(x: Tensor, t: Tensor) -> Tensor:
        return derivative_in_time(energy, t, "energy", field=False)(checks.points(x))

    return time_score
