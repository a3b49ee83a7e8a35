"""Modules of torch and their tensors: a module from its arguments and its state dict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _EXTRA_STATE_KEY_SUFFIX
from torch.overrides import TorchFunctionMode

from oism.storage._entry import StorageError

M = TypeVar("M", bound=nn.Module)


def build_module(cls: type[M], arguments: Mapping[str, Any], state: Mapping[str, Tensor]) -> M:
    """Return a module made with ``arguments`` and filled with ``state``, in evaluation mode.

    It is first built on the meta device, where tensors have a shape and no memory, and compared
    with ``state``: a file gets no memory for sizes that it claims and does not have. So a
    constructor must not read values of the tensors that it makes. The dtypes become those of
    ``state``. Torch's random state is left as it was.
    """
    maker: Callable[..., M] = getattr(cls, "from_config", cls)
    # The limit may end a constructor while gradients are off, and then they must come back.
    gradients = torch.set_grad_enabled(torch.is_grad_enabled())
    with torch.random.fork_rng(devices=[]):
        with gradients, torch.device("meta"), _CallLimit(10_000 + 100 * len(state)):
            skeleton = maker(**arguments)
        _compare(skeleton, state)
        module = maker(**arguments)
    fill(module, state)
    return module.eval()


class _CallLimit(TorchFunctionMode):
    """Ends the construction of a module with far more layers than there are tensors for."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.left = limit

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        self.left -= 1
        if self.left < 0:
            raise StorageError("it has far more layers than there are tensors")
        return func(*args, **(kwargs or {}))


def _compare(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Raise unless a module has the tensors of a state, by name and shape."""
    own, kind = module.state_dict(), type(module).__name__
    for name in (*own, *state):
        if name not in state and name.endswith(_EXTRA_STATE_KEY_SUFFIX):
            continue  # earlier versions wrote none for priors; `load_state_dict` decides
        if name not in state or name not in own:
            fault = "is missing" if name not in state else f"is unknown to {kind}"
            raise StorageError(f"tensor {name!r} {fault}")
        shape, found = tuple(own[name].shape), tuple(state[name].shape)
        if shape != found:
            raise StorageError(f"tensor {name!r} has shape {found}, but {kind} has {shape} there")


def fill(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    _compare(module, state)
    for name, own in module.state_dict(keep_vars=True).items():
        if name in state and own.dtype != state[name].dtype:
            own.data = own.data.to(state[name].dtype)  # as `Module.to` does: a copy would be cast
    module.load_state_dict(dict(state))
