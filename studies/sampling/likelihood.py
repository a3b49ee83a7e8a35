"""Bits per dimension of test images by evaluations, and the deviation due to one probe."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from oism.flow import Hutchinson, RungeKutta4, log_density
from studies.images import device
from studies.sampling.context import Context, Table
from studies.sampling.networks import COMBINED

BIT_IMAGES, BIT_EVALUATIONS = 100, (96, 48, 32, 24, 16)
"""The number of test images whose bits per dimension are computed, and those of evaluations."""

WHOLE_SCORE, DEFAULT_BITS = "whole score, fixed signs, RK4 in log t", "residual, 32 evaluations"
"""The names of the first estimate of bits, and of the library's default."""


def bits(context: Context) -> None:
    """Measure bits per dimension of test images by evaluations, and the deviation by one probe.

    Each estimate is computed twice, with other probes and the same dequantisation: half the mean
    square of the difference is the variance due to one probe.
    """
    sampled = context.networks.predictor(COMBINED).model
    precision = "bf16" if device() == "cuda" else "no"  # gradients exceed the range of float16
    model = type(sampled)(sampled.predictor, sampled.spec, first=sampled.first, precision=precision)
    values = context.images.sets.test[:BIT_IMAGES].to(device())
    table = Table(context.place / "bits.json", ("name",), images=len(values))
    whole = partial(Hutchinson, probes=1, known=None, fixed=True)
    ways: dict[str, tuple[Any, Any]] = {
        WHOLE_SCORE: (RungeKutta4(24), whole),
        **{
            f"residual, {n} evaluations": (model.likelihood_method(n), model.divergence)
            for n in BIT_EVALUATIONS
        },
    }
    flow = partial(log_density, model.flow, chunk=len(values), progress=False)
    for name, (way, divergence) in ways.items():
        found = []
        for seed in (1, 2):
            torch.manual_seed(0)
            generator = torch.Generator(device()).manual_seed(0)
            x = model.prepare(values, generator)
            estimate = divergence(torch.Generator(device()).manual_seed(seed))
            along = flow if divergence is whole else partial(model.log_density, progress=False)
            with torch.compiler.set_stance("force_eager"):  # compiling gradients takes longer
                nats = along(x, method=way, divergence=estimate)
            assert model.pixels is not None
            found.append(model.pixels.bits(nats, model.dim))
        mean = float(torch.stack(found).mean())
        probe = float((found[0] - found[1]).square().mean().div(2).sqrt())
        table.add(name=name, bits=mean, deviation=probe)
        context.say(f"{name}: {mean:.4f} bits, deviation by one probe {probe:.4f}")
        if context.left < 10:
            break
