"""A network of diffusers as a noise predictor of the library.

The network gets noised tensors and timesteps j, and predicts one of

    ε,    v = αε - σx_0,    x_0,    with x = αx_0 + σε,

so that ε̂ = ax + bF for its output F (`oism.nn.Parametrisation`). A clock time τ stands for the
timestep with the same log-SNR (`oism.diffusers._timesteps`), which is fractional: sines and cosines
of j embed any number. Noise levels outside of the timesteps have the prediction of the nearest one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import torch
from diffusers import UNet2DModel
from torch import Tensor, nn

from oism._core import checks
from oism._core.transforms import one_per_row, per_row
from oism.diffusers._timesteps import PREDICTIONS, Timesteps, prediction_of, schedule_of
from oism.flow import FIRST
from oism.process import Clock, OrnsteinUhlenbeck, VariancePreserving
from oism.storage import storable

PROCESS = OrnsteinUhlenbeck()


@storable
class UNetPredictor(nn.Module):
    """A `UNet2DModel` as ε̂(x, τ), for the noise levels of a clock; see `predictor`.

    Parameters
    ----------
    unet
        The network, without classes.
    schedule
        The settings of the `DDPMScheduler` whose timesteps the network was trained on.
    prediction
        What it predicts: "epsilon", "v_prediction" or "sample".
    clock
        The clock of τ.
    lowest
        The lowest timestep that the network gets: 0, or down to -1, which has no noise.
    """

    stores_state = True

    def __init__(
        self,
        unet: UNet2DModel,
        schedule: Mapping[str, Any],
        prediction: str = "epsilon",
        clock: Clock | None = None,
        lowest: float = 0.0,
    ) -> None:
        super().__init__()
        checks.instance(unet, UNet2DModel, "unet")
        checks.optional(clock, Clock, "clock")
        if prediction not in PREDICTIONS:
            raise ValueError(
                f"prediction must be one of {', '.join(PREDICTIONS)}, got {prediction!r}"
            )
        _check_usable(unet)
        self.unet, self.timesteps, self.prediction = unet, Timesteps(schedule), prediction
        self.clock = VariancePreserving() if clock is None else clock
        self.lowest = checks.number(lowest, "lowest")
        if not -1 <= self.lowest <= 0:
            raise ValueError(f"lowest must be in [-1, 0], got {lowest!r}")

    def to_config(self) -> dict[str, Any]:
        """Return the arguments of `from_config`."""
        config = {k: v for k, v in self.unet.config.items() if not k.startswith("_")}
        return {
            "network": config,
            "schedule": self.timesteps.schedule,
            "prediction": self.prediction,
            "clock": self.clock,
            "lowest": self.lowest,
        }

    @classmethod
    def from_config(
        cls,
        *,
        network: dict[str, Any],
        schedule: dict[str, Any],
        prediction: str,
        clock: Clock,
        lowest: float,
    ) -> Self:
        """Return a predictor with new weights, from the settings of its network."""
        return cls(UNet2DModel(**network), schedule, prediction, clock, lowest)

    @property
    def shape(self) -> tuple[int, int, int] | None:
        """Channels, height and width of an image, or None where the network does not state them."""
        size, channels = self.unet.config.sample_size, int(self.unet.config.in_channels)
        if size is None:
            return None
        height, width = (size, size) if isinstance(size, int) else size
        return channels, int(height), int(width)

    @property
    def first(self) -> float:
        """The clock time of the lowest timestep, at least 1e-5."""
        time = self.timesteps.time(torch.tensor(self.lowest, device=self.timesteps.times.device))
        return max(FIRST, float(self.clock._inverse(time.cpu())))

    def forward(self, x: Tensor, tau: Tensor) -> Tensor:
        """Return ε̂ for clock times ``(n,)``, in the dtype of ``x``."""
        table = self.timesteps
        time = self.clock._time(one_per_row(tau, x).to(table.times))
        timestep = table.timestep(time).clamp(min=self.lowest)
        channels = self.unet.config.in_channels  # a network may predict variances as well
        output = self.unet(x.to(self.unet.dtype), timestep.float(), return_dict=False)[0]
        found: Tensor = output[:, :channels].to(x.dtype)
        time = table.time(timestep)
        alpha, sigma = PROCESS._alpha(time), PROCESS._variance(time).sqrt()
        a, b, _ = PREDICTIONS[self.prediction].factors(alpha, sigma)
        return per_row(a, x) * x + per_row(b, x) * found


def predictor(
    unet: UNet2DModel,
    scheduler: Any,
    *,
    clock: Clock | None = None,
    lowest: float = 0.0,
) -> UNetPredictor:
    """Return a network of diffusers as a noise predictor ε̂(x, τ) of the library.

    It can be combined with a prior, trained, evaluated and stored like any other: files name it
    `oism.diffusers.UNetPredictor`, and load where diffusers is installed.

    Parameters
    ----------
    unet
        The network. It predicts ε, v or x_0, according to the scheduler.
    scheduler
        A scheduler with the timesteps that the network was trained on, as that of its pipeline.
    clock
        The noise levels, by default `VariancePreserving()`; beside a prior those of the prior.
    lowest
        The lowest timestep that the network gets: 0, the lowest that it was trained on in
        diffusers. Lower noise levels have its prediction. A network that is trained here can
        distinguish them: -1, the timestep without noise.

    Examples
    --------
    >>> from diffusers import DDPMScheduler, UNet2DModel
    >>> unet = UNet2DModel(
    ...     sample_size=8, in_channels=1, out_channels=1, block_out_channels=(8, 8),
    ...     layers_per_block=1, norm_num_groups=4, down_block_types=("DownBlock2D",) * 2,
    ...     up_block_types=("UpBlock2D",) * 2,
    ... )
    >>> net = predictor(unet, DDPMScheduler())
    >>> net(torch.randn(5, 1, 8, 8), torch.rand(5)).shape
    torch.Size([5, 1, 8, 8])
    """
    checks.instance(unet, UNet2DModel, "unet")
    return UNetPredictor(unet, schedule_of(scheduler), prediction_of(scheduler), clock, lowest)


def _check_usable(unet: UNet2DModel) -> None:
    """Raise for networks that need more than noised tensors and timesteps."""
    config = unet.config
    if unet.class_embedding is not None:
        raise ValueError("unet must be a network without classes: no class labels are given to it")
    if config.time_embedding_type != "positional":
        raise ValueError(
            "unet must embed timesteps by position, as fractional timesteps need, got "
            f"time_embedding_type = {config.time_embedding_type!r}"
        )
    if config.out_channels not in (config.in_channels, 2 * config.in_channels):
        raise ValueError(
            f"unet must predict as many channels as it gets, {config.in_channels}, or twice as "
            f"many, with variances, got {config.out_channels}"
        )
