"""A pipeline of a network, a scheduler and a prior, in a folder that needs `oism` and nothing else.

    model_index.json    {"_class_name": ["pipeline", "OperatorPipeline"],
                         "unet": ["diffusers", "UNet2DModel"],
                         "scheduler": ["oism_part", "OperatorScheduler"],
                         "prior": ["oism_part", "OperatorPrior"]}
    pipeline.py         from oism.diffusers import OperatorPipeline
    scheduler/, prior/  oism_part.py, which imports the class of the part, and its files

diffusers imports a class that is not its own only from a file in the folder, and only with
``trust_remote_code=True``. The files here hold one import each.
"""

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from diffusers import DiffusionPipeline, ImagePipelineOutput, ModelMixin, SchedulerMixin
from diffusers.utils.torch_utils import randn_tensor

from oism._core import checks
from oism._core.labels import labels_of_rows
from oism.diffusers._components import OperatorNetwork, OperatorPrior
from oism.diffusers._scheduler import OperatorScheduler
from oism.images import GaussianPart, Prior
from oism.nn import Diffusion
from oism.sampling import PATHS, ResidualStatistics

PART, PIPELINE, PACKAGE = "oism_part", "pipeline", "oism.diffusers"


class OperatorPipeline(DiffusionPipeline):
    """Images from a network, sampled in the coordinates of a prior.

    Parameters
    ----------
    unet
        A `UNet2DModel`, or an `OperatorNetwork`, which may have a prior of its own.
    scheduler
        An `OperatorScheduler`. It gets the prior.
    prior
        A prior or an `OperatorPrior`, or None for that of the network, or else of the scheduler.
        Without any the method is DPM-Solver++.

    Examples
    --------
    >>> import torch
    >>> from diffusers import UNet2DModel
    >>> from oism import fit_prior
    >>> unet = UNet2DModel(
    ...     sample_size=8, in_channels=1, out_channels=1, block_out_channels=(8, 8),
    ...     layers_per_block=1, norm_num_groups=4, down_block_types=("DownBlock2D",) * 2,
    ...     up_block_types=("UpBlock2D",) * 2,
    ... )
    >>> prior = fit_prior(torch.randint(0, 256, (100, 1, 8, 8)).byte(), order=2)
    >>> pipe = OperatorPipeline(unet, OperatorScheduler(), prior)
    >>> pipe.set_progress_bar_config(disable=True)
    >>> pipe(2, num_inference_steps=4, output_type="pt").images.shape
    torch.Size([2, 1, 8, 8])
    """

    model_cpu_offload_seq = "unet"
    _optional_components = ["prior"]  # noqa: RUF012 (as diffusers declares it)

    def __init__(
        self,
        unet: ModelMixin,
        scheduler: SchedulerMixin,
        prior: ModelMixin | Prior | None = None,
    ) -> None:
        super().__init__()
        checks.instance(scheduler, OperatorScheduler, "scheduler")
        if prior is not None and not hasattr(prior, "statistics"):
            prior = OperatorPrior(prior)  # it checks the type
        self.register_modules(unet=unet, scheduler=scheduler, prior=prior)
        own = _prior_of(unet) if prior is None else prior
        measured = own is not None and own.statistics is not None
        # Those of a scheduler are new to a prior that has none, and give way to others.
        self._known_statistics = scheduler.statistics if measured else None
        """The statistics of the scheduler when it was last given a prior."""
        self._give_prior()

    def _give_prior(self) -> None:
        """Give the scheduler the prior of the pipeline, or that of its network, or none.

        Without any the coordinates are those of no variance: the method is DPM-Solver++.
        """
        self._adopt_prior()
        own = _prior_of(self.unet) if self.prior is None else self.prior
        if own is not None:
            self.scheduler.set_prior(own)
        else:
            dim = math.prod(_image_shape(self.unet.config))
            self.scheduler.set_part(GaussianPart.isotropic(dim, 0.0, self.unet.device))
        self._known_statistics = self.scheduler.statistics

    def _adopt_prior(self) -> None:
        """Store in the parts what only the scheduler has: a prior, or new statistics beside it."""
        own, found = (getattr(self.scheduler, name, None) for name in ("prior", "statistics"))
        inner = _prior_of(self.unet)
        if self.prior is None and own is not None and inner is None:
            self.register_modules(prior=OperatorPrior(own, found))
        holder = inner if self.prior is None else self.prior
        is_new = found is not None and found is not self._known_statistics
        if is_new and holder is not None and holder.prior is own:
            owner = self.unet.model if self.prior is None else self.prior
            owner.statistics = self._known_statistics = found

    @torch.no_grad()
    def __call__(  # noqa: PLR0913
        self,
        batch_size: int = 1,
        generator: torch.Generator | list[torch.Generator] | None = None,
        num_inference_steps: int = 8,
        output_type: str = "pil",
        *,
        class_labels: int | Sequence[int] | torch.Tensor | None = None,
        guidance_scale: float | None = None,
        return_dict: bool = True,
    ) -> ImagePipelineOutput | tuple[Any]:
        """Return images: as "pil", as "np" arrays ``(n, h, w, c)``, or as "pt" tensors, in [0, 1].

        The network is evaluated ``num_inference_steps`` times, on a noise that the prior has
        already moved to the first of these levels. ``class_labels``, one or one per image, are for
        a network with classes; ``guidance_scale`` other than 1 is classifier-free guidance towards
        them, which evaluates the network twice.
        """
        if output_type not in ("pil", "np", "pt"):
            raise ValueError(f"output_type must be 'pil', 'np' or 'pt', got {output_type!r}")
        # It can be replaced after the pipeline is made.
        checks.instance(self.scheduler, OperatorScheduler, "scheduler")
        shape = (batch_size, *_image_shape(self.unet.config))
        device = self._execution_device
        labels = self._labels(class_labels, guidance_scale, batch_size)
        noise = randn_tensor(shape, generator=generator, device=device, dtype=self.unet.dtype)
        self.scheduler.set_timesteps(num_inference_steps, device, from_noise=False)
        x = self.scheduler.start(noise)
        for timestep in self.progress_bar(self.scheduler.timesteps):
            output = self._predicted(x, timestep, labels, guidance_scale)
            x = self.scheduler.step(output, timestep, x, generator=generator).prev_sample
        images: Any = (x / 2 + 0.5).clamp(0, 1)
        if output_type != "pt":
            images = images.float().cpu().permute(0, 2, 3, 1).numpy()
            images = self.numpy_to_pil(images) if output_type == "pil" else images
        self.maybe_free_model_hooks()
        return ImagePipelineOutput(images=images) if return_dict else (images,)

    def _labels(self, labels: Any, guidance: float | None, batch_size: int) -> torch.Tensor | None:
        """Return one label per image, None if there are none."""
        if labels is None:
            if guidance is not None:
                raise ValueError("guidance_scale must not be given without class_labels")
            return None
        classes = getattr(self.unet.config, "num_class_embeds", None)
        if classes is None:
            raise ValueError("class_labels must not be given for a network without classes")
        if guidance not in (None, 1) and not getattr(self.unet, "predicts_without_labels", False):
            raise ValueError(
                "guidance_scale must be 1 for a network that does not predict without labels, got "
                f"{guidance}"
            )
        place = self._execution_device
        return labels_of_rows(labels, batch_size, classes, place, "class_labels", required=True)

    def _predicted(
        self, x: torch.Tensor, timestep: Any, labels: torch.Tensor | None, guidance: float | None
    ) -> torch.Tensor:
        """Return the output of the network, guided towards the labels if there are any."""
        if labels is None:
            free: torch.Tensor = self.unet(x, timestep).sample
            return free
        given: torch.Tensor = self.unet(x, timestep, class_labels=labels).sample
        if guidance in (None, 1):
            return given
        return torch.lerp(self.unet(x, timestep).sample, given, float(guidance or 0.0))

    def measure(
        self, count: int = PATHS, generator: torch.Generator | None = None
    ) -> ResidualStatistics:
        """Measure the residual of the network once, and return the statistics.

        With them levels and weights are chosen for every number of evaluations. They are stored
        with the prior of the pipeline, or with the model that has the prior. See
        `OperatorScheduler.measure`.
        """
        found: ResidualStatistics = self.scheduler.measure(self.unet, count, generator)
        self._adopt_prior()
        return found

    def to(self, *args: Any, **kwargs: Any) -> "OperatorPipeline":
        """Move the parts; the scheduler keeps the moved prior and the statistics beside it."""
        super().to(*args, **kwargs)
        self._give_prior()
        return self

    def save_pretrained(self, *args: Any, **kwargs: Any) -> None:
        """Write the parts, with the prior and the statistics of the scheduler."""
        self._adopt_prior()
        super().save_pretrained(*args, **kwargs)

    def save_config(
        self,
        save_directory: str | os.PathLike[str],
        push_to_hub: bool = False,
        **kwargs: Any,
    ) -> None:
        """Write model_index.json, and beside the parts of this package the files that import them.

        diffusers calls it after the parts are written, and before a folder is uploaded.
        """
        super().save_config(save_directory, push_to_hub=push_to_hub, **kwargs)
        folder = Path(save_directory)
        index = json.loads((folder / self.config_name).read_text(encoding="utf-8"))
        own = {k: v[1] for k, v in index.items() if isinstance(v, list) and v[0] == PACKAGE}
        for name, kind in own.items():
            # diffusers copies files of equal name to one place: all of them hold all parts.
            _write_import(folder / name / f"{PART}.py", list(own.values()))
            index[name] = [PART, kind]
        _write_import(folder / f"{PIPELINE}.py", [type(self).__name__])
        index["_class_name"] = [PIPELINE, type(self).__name__]
        text = json.dumps(index, indent=2, sort_keys=True)
        (folder / self.config_name).write_text(f"{text}\n", encoding="utf-8")


def pipeline(model: Diffusion) -> OperatorPipeline:
    """Return a trained model of images as a pipeline of diffusers; it shares the weights.

    ``pipeline(model).save_pretrained(folder)`` writes a folder that
    ``DiffusionPipeline.from_pretrained(folder, trust_remote_code=True)`` loads where oism is
    installed.
    """
    network = OperatorNetwork(model)
    time = model.clock.time(torch.tensor(model.first, dtype=torch.float64))
    lowest = float(network.timesteps.timestep(time))
    scheduler = OperatorScheduler(**network.timesteps.schedule, lowest_timestep=lowest)
    return OperatorPipeline(network, scheduler)


def _prior_of(unet: Any) -> OperatorPrior | None:
    """Return the prior of the model in a network, with the statistics of its residual."""
    model = getattr(unet, "model", None)
    informed = getattr(model, "informed", None)
    if informed is None:
        return None
    return OperatorPrior(informed.prior, getattr(model, "statistics", None))


def _image_shape(config: Any) -> tuple[int, ...]:
    size: int | Sequence[int] = config.sample_size
    return (config.in_channels, *((size, size) if isinstance(size, int) else size))


def _write_import(path: Path, names: Sequence[str]) -> None:
    names = ", ".join(sorted(names))
    text = f"# Parts of oism: pip install 'oism[diffusers]'\nfrom {PACKAGE} import {names}\n"
    path.write_text(text, encoding="utf-8")
