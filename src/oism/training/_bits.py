"""Bits per dimension of a trained model, with estimates of their errors.

They are those of uniformly dequantised integers under the distribution at the smallest noise level,
by the probability flow: an upper bound of the bits of the integers, up to the error of the steps.

Three errors are estimated. The standard error over tensors is that of the mean; it contains the
spread of dequantisation and of random signs. The deviation due to signs alone is found from a few
tensors that are evaluated twice, with other signs: half the mean square of the differences is the
variance. The discretisation error is the change of the mean over the same tensors with twice the
steps and the same signs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from oism._core import checks
from oism._core.hashing import seed_from
from oism._core.progress import progress_bar
from oism._core.user_warnings import warn
from oism.flow import Estimate, OrdinaryMethod, RunningMean
from oism.nn import Diffusion

CHECKED = 16
"""The number of tensors from which errors are estimated."""

LARGEST = 0.01
"""The discretisation error, in bits, from which there is a warning."""


@dataclass(frozen=True)
class Bits:
    """Bits per dimension, and what is known about their errors.

    `probe_deviation` and `discretisation` are None where they were not estimated.

    Attributes
    ----------
    bits
        The mean with its standard error over tensors.
    evaluations
        The mean number of evaluations of the predictor for a tensor.
    probes
        The number of probes of the divergence at every evaluation.
    probe_deviation
        The standard deviation of the bits of one tensor due to the probes.
    discretisation
        The error of the mean that is due to the steps, negative where the bits are too few.
    """

    bits: Estimate
    evaluations: float
    probes: int = 1
    probe_deviation: float | None = None
    discretisation: float | None = None

    @property
    def is_accurate(self) -> bool:
        """Whether the discretisation error is at most 0.01 bits, as far as it is known."""
        return self.discretisation is None or abs(self.discretisation) <= LARGEST


def bits_per_dim(  # noqa: PLR0913
    model: Diffusion,
    values: Tensor,
    *,
    labels: Tensor | None = None,
    method: OrdinaryMethod | None = None,
    probes: int = 1,
    seed: int = 0,
    batch: int = Diffusion.chunk,
    checked: int = CHECKED,
    progress: bool | None = None,
) -> Bits:
    """Return the mean bits per dimension of integers ``(n, *shape)``, in batches.

    ``labels`` ``(n,)`` are the classes of the tensors, for a model that has some.
    The dequantisation and the probes of divergences are determined by the seed and the number of a
    batch. The errors due to probes and steps are estimated from the first ``checked`` tensors,
    which cost as much as five times as many; 0 omits the estimates. Warns if steps are too few.
    """
    checks.instance(model, Diffusion, "model")
    checks.instance(values, Tensor, "values")
    if values.ndim < 2 or not len(values):
        raise ValueError(f"values must be integers (n, *shape), got {tuple(values.shape)}")
    size = min(checks.integer(batch, "batch", minimum=1), model.chunk)
    method = model.likelihood_method() if method is None else method
    few = values[: checks.integer(checked, "checked", minimum=0)]
    mean, calls = RunningMean(), 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    if labels is not None and len(labels) != len(values):
        raise ValueError(f"labels must be one per row: {len(values)} rows, {len(labels)} labels")
    parts = torch.split(values, size)
    hook = model.predictor.register_forward_hook(count)
    try:
        with progress_bar(progress) as bar:
            bar.stage("bits per dimension", len(values))
            for number, part in enumerate(parts):
                source = torch.Generator(model.device).manual_seed(seed_from(seed, number))
                signs, rows = (
                    model.divergence(source, probes),
                    slice(number * size, (number + 1) * size),
                )
                own = model if labels is None else model.given(labels[rows])
                mean.add(
                    own.bits_per_dim(part, source, method=method, divergence=signs, progress=False)
                )
                bar.advance(len(part))
    finally:
        hook.remove()
    some = model if labels is None else model.given(labels[: len(few)])
    found = Bits(
        mean.estimate(),
        calls / len(parts),
        probes,
        *(_errors(some, few, method, probes, seed) if len(few) else ()),
    )
    if not found.is_accurate:
        warn(_too_few(found))
    return found


def _errors(
    model: Diffusion, values: Tensor, method: OrdinaryMethod, probes: int, seed: int
) -> tuple[float, float]:
    """Return the deviation due to probes and the error due to steps, from a few tensors."""
    draw = _repeated(model, values, probes, seed)
    one, other = draw(method, 0, fixed=False), draw(method, 1, fixed=False)
    deviation = math.sqrt(float((one - other).square().mean()) / 2)
    change = draw(method, 0, fixed=True) - draw(method.finer(), 0, fixed=True)
    return deviation, float(change.mean())


def _repeated(model: Diffusion, values: Tensor, probes: int, seed: int) -> Callable[..., Tensor]:
    """Return bits by method and number of the signs, for one draw of the dequantisation."""

    def draw(method: OrdinaryMethod, number: int, *, fixed: bool) -> Tensor:
        spread, signs = (
            torch.Generator(model.device).manual_seed(seed_from(seed, 0, key))
            for key in (0, 1 + number)
        )
        divergence = model.divergence(signs, probes, fixed=fixed)
        return model.bits_per_dim(
            values, spread, method=method, divergence=divergence, progress=False
        ).double()

    return draw


def _too_few(found: Bits) -> str:
    error = found.discretisation or 0.0
    way = "high" if error > 0 else "low"
    return (
        f"bits per dimension are about {abs(error):.2g} too {way}: {found.evaluations:.0f} "
        "evaluations of the network are too few, use more of them or a smaller tolerance"
    )
