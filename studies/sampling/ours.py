"""The library's samplers in the form that the study compares: noise in, tensors out.

*Prediction* needs second moments of the residual of the model, which are measured once for all
numbers of evaluations, along paths from noise of their own. Statistics and plans are kept with the
predictor, as a model keeps them; the time of a sampler is that of its steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import cast

from torch import Tensor

from oism.images import Prior
from oism.sampling import (
    Denoiser,
    Plan,
    Polynomial,
    Prediction,
    ResidualStatistics,
    SamplingMethod,
    alpha_sigma,
    measure_residual,
)
from studies.sampling.networks import Counted, noise_for

MEASURED = 500
"""The largest number of paths on which statistics are measured; at most four batches."""

Sampler = Callable[[Counted, Prior, Tensor, int], Tensor]
"""A function of predictor, prior, noise and number of evaluations."""

Chosen = Callable[[Counted, Prior], SamplingMethod]


def denoiser_of(predictor: Counted) -> Denoiser:
    """Return D(x, λ) = (x - σε̂)/α."""
    noising = predictor.noising

    def denoise(x: Tensor, level: Tensor) -> Tensor:
        alpha, sigma = (float(part) for part in alpha_sigma(level))
        tau = float(noising.tau_of_log_snr(2 * float(level)))
        return (x - sigma * predictor(x, tau)) / alpha

    return denoise


def statistics_of(predictor: Counted, prior: Prior) -> ResidualStatistics:
    """Return the statistics of the residual of a model, measured once."""
    if "statistics" not in predictor.memory:
        noise = noise_for(prior.shape, min(4 * predictor.batch, MEASURED), seed=2)
        apart = predictor.anew()  # these evaluations are not those of a sampler
        predictor.memory["statistics"] = measure_residual(
            denoiser_of(apart), prior.gaussian_part(), predictor.model.span, noise, progress=False
        )
    return cast("ResidualStatistics", predictor.memory["statistics"])


def planned(predictor: Counted, prior: Prior, name: str, chosen: Chosen, evaluations: int) -> Plan:
    """Return the plan of a method, made once."""
    key = f"{name}, {evaluations}"
    if key not in predictor.memory:
        method = chosen(predictor, prior)
        part, span = prior.gaussian_part(), predictor.model.span
        predictor.memory[key] = method.plan(part, span, evaluations)
    return cast("Plan", predictor.memory[key])


def _sample(
    name: str, chosen: Chosen, predictor: Counted, prior: Prior, noise: Tensor, evaluations: int
) -> Tensor:
    plan = planned(predictor, prior, name, chosen, evaluations)
    return plan.sample(denoiser_of(predictor), noise, progress=False)


def _prediction(predictor: Counted, prior: Prior) -> SamplingMethod:
    return Prediction(statistics_of(predictor, prior))


def _polynomial(order: int, predictor: Counted, prior: Prior) -> SamplingMethod:  # noqa: ARG001
    return Polynomial(order=order)


_CHOSEN: Mapping[str, Chosen] = {
    "prediction": _prediction,
    "polynomial, order 2": partial(_polynomial, 2),
    "polynomial, order 3": partial(_polynomial, 3),
}

OURS: Mapping[str, Sampler] = MappingProxyType(
    {name: partial(_sample, name, chosen) for name, chosen in _CHOSEN.items()}
)
"""The samplers by name; the first is the default of the library."""
