"""Parts of a pipeline that hold objects of the library: a prior, and a trained model.

diffusers stores a part as a folder with config.json and one safetensors file. Here that file is one
of `oism.storage`, so that every bit of it is kept whatever its dtype, `oism.load` reads it as well,
and nothing in it decides which code is run.
"""

from __future__ import annotations

import dataclasses
import os
from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from diffusers import ConfigMixin, ModelMixin
from diffusers.models.unets.unet_2d import UNet2DOutput
from huggingface_hub import hf_hub_download
from torch import Tensor

from oism import storage
from oism._core import checks
from oism.diffusers._timesteps import Timesteps, schedule_for
from oism.images import Prior, image_shape
from oism.nn import Diffusion
from oism.sampling import ResidualStatistics
from oism.storage import storable

WEIGHTS = "diffusion_pytorch_model.safetensors"
DOWNLOADS = ("cache_dir", "force_download", "local_files_only", "revision", "token")


class StoredPart(ModelMixin, ConfigMixin):
    """A part of a pipeline whose weights are one file of `oism.storage`."""

    config_name = "config.json"
    held: ClassVar[type[Any]]
    """The class of the object in the file."""

    @property
    @abstractmethod
    def content(self) -> Any:
        """The object in the file."""

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Move to a device; the dtypes stay, since half precision is coarser than low noise."""
        device: torch.device | None = torch._C._nn._parse_to(*args, **kwargs)[0]
        moved: Self = self if device is None else super().to(device)
        return moved

    def save_pretrained(self, save_directory: str | os.PathLike[str], **unused: object) -> None:
        """Write config.json and the file of the object to a folder."""
        if unused.get("push_to_hub"):
            raise ValueError("push_to_hub must be that of the pipeline that holds this part")
        self.save_config(save_directory)
        storage.save(self.content, Path(save_directory) / WEIGHTS)

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | os.PathLike[str],
        *,
        subfolder: str | None = None,
        **more: Any,
    ) -> Self:
        """Return the part in a folder, or in a repository of the Hub, with the dtypes of its file.

        Arguments of diffusers that concern dtypes and the way of loading are accepted and ignored.
        """
        folder = Path(pretrained_model_name_or_path, subfolder or "")
        if Path(pretrained_model_name_or_path).is_dir():
            file = folder / WEIGHTS
        else:
            chosen = {name: more[name] for name in DOWNLOADS if name in more}
            name = str(pretrained_model_name_or_path)
            file = Path(hf_hub_download(name, WEIGHTS, subfolder=subfolder, **chosen))
        return cls.of_content(storage.load(file, expected=cls.held))

    @classmethod
    @abstractmethod
    def of_content(cls, content: Any) -> Self:
        """Return the part of what a file holds."""


@storable
@dataclasses.dataclass(frozen=True, eq=False)
class MeasuredPrior:
    """A prior, and statistics of the residual that a network has beside it."""

    prior: Prior
    statistics: ResidualStatistics | None = None


class OperatorPrior(StoredPart):
    """A prior of the library as a part of a pipeline, with statistics of the network's residual.

    >>> import torch
    >>> from oism import fit_prior
    >>> part = OperatorPrior(fit_prior(torch.randn(100, 1, 4, 4), order=2))
    >>> part.save_pretrained("prior")
    >>> OperatorPrior.from_pretrained("prior").prior.shape
    (1, 4, 4)
    """

    held = MeasuredPrior

    def __init__(self, prior: Prior, statistics: ResidualStatistics | None = None) -> None:
        super().__init__()
        checks.instance(prior, Prior, "prior")
        checks.optional(statistics, ResidualStatistics, "statistics")
        self.register_to_config(shape=list(prior.shape), kind=type(prior).__name__)
        self.prior, self.statistics = prior, statistics

    @classmethod
    def of_content(cls, content: MeasuredPrior) -> Self:
        """Return the part of what a file holds."""
        return cls(content.prior, content.statistics)

    @property
    def content(self) -> MeasuredPrior:
        """Prior and statistics."""
        return MeasuredPrior(self.prior, self.statistics)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of its coordinates."""
        return torch.float32


class OperatorNetwork(StoredPart):
    """A trained model of the library as the network of a pipeline, which predicts ε.

    Timestep j of 1,000 is the clock time (j + 1)/1000 of the horizon.
    """

    held = Diffusion
    predicts_without_labels = True

    def __init__(self, model: Diffusion) -> None:
        super().__init__()
        checks.instance(model, Diffusion, "model")
        shape = image_shape(model.spec)
        if shape is None or len(model.shape) != 3:
            raise ValueError(
                "model must be one of images, 1 or 3 channels of pixels, to be that of a pipeline, "
                f"got shape {model.shape}"
            )
        self.timesteps = Timesteps(schedule_for(model.clock))
        self.register_to_config(
            sample_size=list(shape[1:]), in_channels=shape[0], out_channels=shape[0],
            num_class_embeds=model.classes,
        )  # fmt: skip
        self.model = model

    @classmethod
    def of_content(cls, content: Diffusion) -> Self:
        """Return the part of what a file holds."""
        return cls(content)

    @property
    def content(self) -> Diffusion:
        """The model."""
        return self.model

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of images."""
        return torch.float32

    def forward(
        self,
        sample: Tensor,
        timestep: Tensor | float,
        class_labels: Tensor | None = None,
        *,
        return_dict: bool = True,
    ) -> UNet2DOutput | tuple[Tensor]:
        """Return the predicted noise of noised images at a timestep, one or one per image.

        A model with classes predicts that of all images where no labels are given.
        """
        model = self.model if class_labels is None else self.model.given(class_labels)
        timestep = torch.as_tensor(timestep, device=self.timesteps.times.device)
        clock = model.clock
        tau = clock._inverse(self.timesteps.time(timestep)).clamp(0.0, clock.horizon)
        noise = model.noise(sample, tau)
        return UNet2DOutput(sample=noise) if return_dict else (noise,)
