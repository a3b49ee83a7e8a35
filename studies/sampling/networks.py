"""The networks of the study: their training, their weights as files, and their evaluation.

Networks are trained by `oism.training` with the noise of DDPM++ on continuous times: Adam, average
weights, times uniform in the log-SNR. Each is trained alone and then combined with a Gaussian along
principal directions (`Combined`); the same weights are evaluated *bare* and *combined*.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import oism
from oism.flow import RungeKutta4
from oism.images import Prior, fit_prior
from oism.nn import Combined, Diffusion, compile_blocks, unet_for
from oism.objectives import DenoisingScoreMatching, UniformLogSNR
from oism.training import Loop, Rows, TrainingConfig
from studies.images import ImageSets, device, device_name
from studies.study import draft_of, write_json

COMBINED, BARE = "combined", "bare"
"""The forms of a predictor: with the prior, and the network alone."""

REPORT = 50
MEBIBYTES = 15.5
"""The largest size of an exported file."""


@dataclass(frozen=True)
class Case:
    """A network and its images; ``marks`` are the numbers of steps whose weights are kept.

    Training ends at the last mark, or ``seconds`` after the first step, and keeps those weights.
    ``images`` is the name of the set, ``kind`` the network: "ddpm++" with ``sizes``, or "unet2d"
    of diffusers.
    """

    name: str
    images: str
    kind: str
    marks: tuple[int, ...]
    sizes: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 3600.0
    batch: int = 128
    rate: float = 2e-4
    warmup: int = 500
    first: float = 1e-5
    flip: bool = True
    seed: int = 0


TINY = {"width": 16, "multipliers": (1, 2), "blocks": 1, "attention": ()}
DDPM_CIFAR10 = {
    "block_out_channels": (128, 256, 256, 256),
    "down_block_types": ("DownBlock2D", "AttnDownBlock2D", "DownBlock2D", "DownBlock2D"),
    "up_block_types": ("UpBlock2D", "UpBlock2D", "AttnUpBlock2D", "UpBlock2D"),
    "layers_per_block": 2,
    "downsample_padding": 0,
    "flip_sin_to_cos": False,
    "freq_shift": 1,
    "norm_eps": 1e-6,
    "attention_head_dim": None,
    "dropout": 0.1,
}
"""The settings of google/ddpm-cifar10-32: 36 million parameters."""

TINY_UNET = {
    "block_out_channels": (32, 32),
    "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
    "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
    "layers_per_block": 1,
}

CASES: Mapping[str, Case] = MappingProxyType(
    {
        case.name: case
        for case in (
            Case("cifar10", "cifar10", "ddpm++", (1000, 2500, 8000)),
            Case("mnist", "mnist", "ddpm++", (100_000,), seconds=60, flip=False),
            Case(
                "unet", "cifar10", "unet2d", (100_000,), DDPM_CIFAR10, seconds=200, first=1e-3
            ),
            Case(
                "digits", "digits", "ddpm++", (40, 120), TINY, batch=32, rate=2e-3, warmup=20,
                flip=False,
            ),
            Case(
                "digits-unet", "digits", "unet2d", (20,), TINY_UNET, batch=16, rate=1e-3,
                warmup=5, flip=False, first=1e-3,
            ),
        )
    }
)  # fmt: skip
"""The networks by name; those for digits are for trying everything on a CPU."""


def unet_of_diffusers(shape: tuple[int, ...], settings: Mapping[str, Any]) -> nn.Module:
    """Return a `UNet2DModel` of diffusers as ε̂(x, τ), with the timesteps of DDPM."""
    from diffusers import DDPMScheduler, UNet2DModel  # noqa: PLC0415 (only for this network)

    from oism.diffusers import predictor  # noqa: PLC0415

    channels, size = shape[0], shape[-1]
    unet = UNet2DModel(sample_size=size, in_channels=channels, out_channels=channels, **settings)
    for part in unet.modules():
        if type(part).__name__ in ("ResnetBlock2D", "Attention"):
            part.compiles_alone = True
    return predictor(unet.to(memory_format=torch.channels_last), DDPMScheduler())


def network(case: Case, shape: tuple[int, ...]) -> nn.Module:
    """Return the network of a case, with the initial weights of its seed."""
    torch.manual_seed(case.seed)
    if case.kind == "unet2d":
        return unet_of_diffusers(shape, case.sizes)
    return unet_for(shape, **case.sizes)


def prior_of(case: Case, sets: ImageSets, folder: Path) -> Prior:
    """Return the Gaussian along principal directions of the training images, stored once."""
    path = folder / "prior.oism"
    if not path.exists():
        images = sets.train.to(device())
        fitted = fit_prior(images, order=2, pixels=sets.pixels, flip=case.flip)
        with draft_of(path) as draft:
            fitted.save(draft)
    found: Prior = oism.load(path)
    return found.to(device())


def train(
    case: Case,
    sets: ImageSets,
    folder: Path,
    *,
    deadline: float,
    report: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Train the network of a case, store its average weights at the marks, return the numbers.

    It ends before ``deadline``, a `time.perf_counter`, and stores the weights of the last step.
    """
    on_device = device() == "cuda"
    prior = prior_of(case, sets, folder)
    predictor = Combined(network(case, prior.shape), prior, first=case.first)
    config = TrainingConfig(
        steps=case.marks[-1], batch=case.batch, rate=case.rate, warmup=case.warmup,
        first=case.first, flip=case.flip, seed=case.seed,
        precision="bf16" if on_device else "no", compile=on_device,
    )  # fmt: skip
    objective = DenoisingScoreMatching(UniformLogSNR(prior.noising, config.first))
    loop = Loop(predictor, Rows(sets.train, sets.pixels), objective, config)
    report(f"{case.name}: a loop on {loop.device}")
    numbers: dict[str, Any] = {
        "case": asdict(case),
        "config": asdict(config),
        "parameters": sum(part.numel() for part in loop.net.parameters()),
        "device": device_name(),
        "losses": [],
        "marks": [],
    }
    begin = started = time.perf_counter()
    spent = 0.0
    for k in range(1, config.steps + 1):
        loop.step()
        if k == 1:
            _wait()
            numbers["first_step_seconds"] = time.perf_counter() - begin
            started = time.perf_counter()
        ends = k == config.steps
        if k % REPORT == 0 or k in case.marks:
            found = loop.report()  # waits for the device
            now = time.perf_counter()
            ends = ends or now - started > case.seconds or now > deadline
            numbers["losses"].append((k, found.loss))
            numbers["seconds_per_step"] = (now - started - spent) / max(1, k - 1)
            if k % (10 * REPORT) == 0 or ends:
                report(f"{case.name}: step {k}, loss {found.loss:.4f}, {now - begin:.0f} s")
        if not (k in case.marks or ends):
            continue
        _wait()
        paused = time.perf_counter()
        with loop.averaged():
            error = loop.model_error()
            _store(folder / f"weights-{k}.pt", loop.net, predictor, k)
        spent += time.perf_counter() - paused
        mark = {"step": k, "error": error.mean, "by_level": error.by_level}
        numbers["marks"].append(mark)
        numbers["seconds"] = time.perf_counter() - begin
        write_json(folder / "train.json", numbers)
        report(f"{case.name}: stored step {k}, error {error.mean:.5f}")
        if ends:
            break
    return numbers


def _store(path: Path, net: nn.Module, predictor: Combined, step: int) -> None:
    state = {name: part.cpu() for name, part in net.state_dict().items()}
    with draft_of(path) as draft:
        kept = {"step": step, "net": state, "share": predictor.share.cpu()}
        torch.save({**kept, "parameters": [name for name, _ in net.named_parameters()]}, draft)


def stored_steps(folder: Path) -> list[int]:
    """Return the numbers of steps whose weights are in a folder, increasing."""
    return sorted(int(path.stem.split("-")[1]) for path in folder.glob("weights-*.pt"))


def export_weights(folder: Path, step: int, to: Path) -> list[Path]:
    """Write the parameters in bfloat16 as files below 16 MiB, and return them."""
    found = torch.load(folder / f"weights-{step}.pt", weights_only=True)
    parameters = [found["net"][name] for name in found["parameters"]]
    flat = torch.cat([part.flatten().to(torch.bfloat16) for part in parameters])
    values = flat.view(torch.int16).numpy()
    most = int(MEBIBYTES * 2**20 / values.itemsize)
    parts = np.array_split(values, -(-len(values) // most))
    to.mkdir(parents=True, exist_ok=True)
    paths = [to / f"weights-{step}.{place}.npy" for place in range(len(parts))]
    for path, part in zip(paths, parts, strict=True):
        np.save(path, part)
    head = {"step": step, "share": found["share"].tolist(), "files": len(parts)}
    (to / f"weights-{step}.json").write_text(json.dumps(head), encoding="utf-8")
    return [*paths, to / f"weights-{step}.json"]


def import_weights(case: Case, shape: tuple[int, ...], source: Path, folder: Path) -> list[int]:
    """Store the weights that `export_weights` wrote, rounded to bfloat16; return their steps."""
    steps = []
    for path in sorted(source.glob("weights-*.json")):
        head = json.loads(path.read_text(encoding="utf-8"))
        step, count = head["step"], head["files"]
        parts = [np.load(source / f"weights-{step}.{place}.npy") for place in range(count)]
        flat = torch.from_numpy(np.concatenate(parts)).view(torch.bfloat16)
        net = network(case, shape)
        names, own = zip(*net.named_parameters(), strict=True)
        sizes = [part.numel() for part in own]
        if sum(sizes) != len(flat):
            raise ValueError(f"{path} must have {sum(sizes)} weights, got {len(flat)}")
        with torch.no_grad():
            for part, piece in zip(own, torch.split(flat, sizes), strict=True):
                part.copy_(piece.reshape(part.shape))
        kept = {"step": step, "net": net.state_dict(), "parameters": list(names)}
        share = torch.tensor(head["share"], dtype=torch.float64)
        with draft_of(folder / f"weights-{step}.pt") as draft:
            torch.save({**kept, "share": share}, draft)
        steps.append(step)
    return steps


class Networks:
    """The network of a case with any of its stored weights, bare and combined, ready to sample."""

    def __init__(self, case: Case, sets: ImageSets, folder: Path, *, batch: int) -> None:
        self.case, self.folder, self.batch = case, folder, batch
        self.prior = prior_of(case, sets, folder)
        net = network(case, self.prior.shape).to(device())
        on_device = device() == "cuda"
        self.combined = Combined(net, self.prior, first=case.first).to(device()).eval()
        if on_device:
            torch.compiler.reset()  # or the size of the batches of training would count
            compile_blocks(self.combined)
        self.models = {
            (form, exact): Diffusion(
                part, self.prior.spec, first=case.first,
                precision="no" if exact or not on_device else "fp16",
            )
            for form, part in ((COMBINED, self.combined), (BARE, net))
            for exact in (False, True)
        }  # fmt: skip
        self.step = 0
        self._memories: dict[tuple[str, bool, int], dict[str, object]] = {}

    def load(self, step: int) -> None:
        """Use the weights after a number of steps."""
        if step == self.step:
            return
        found = torch.load(self.folder / f"weights-{step}.pt", weights_only=True)
        self.combined.net.load_state_dict(found["net"])
        self.combined.share.copy_(found["share"])
        self.step = step

    def predictor(self, form: str, batch: int | None = None, *, exact: bool = False) -> Counted:
        """Return the predictor in a form, with its evaluations counted, for `exactly` if exact."""
        memory = self._memories.setdefault((form, exact, self.step), {})
        size = self.batch if batch is None else batch
        return Counted(self.models[form, exact], size, self.prior, memory)


@contextmanager
def exactly() -> Iterator[None]:
    """Compute in float32 with nothing compiled, and without the products of TF32.

    Rounding of half precision changes samples on CIFAR-10 by 0.002, which is most of the distance
    between 20 evaluations and 400.
    """
    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    before = products.allow_tf32, convolutions.allow_tf32
    products.allow_tf32 = convolutions.allow_tf32 = False
    try:
        with torch.compiler.set_stance("force_eager"):
            yield
    finally:
        products.allow_tf32, convolutions.allow_tf32 = before


class Counted:
    """ε̂(x, τ) of a model in batches of one size; ``evaluations`` counts the calls.

    ``memory`` is for what samplers compute once for a model.
    """

    def __init__(
        self, model: Diffusion, batch: int, prior: Prior, memory: dict[str, object] | None = None
    ) -> None:
        self.model, self.batch, self.prior, self.evaluations = model, batch, prior, 0
        self.memory: dict[str, object] = {} if memory is None else memory

    def anew(self) -> Counted:
        """Return the same predictor with a count of its own."""
        return Counted(self.model, self.batch, self.prior, self.memory)

    def without_network(self) -> Counted:
        """Return a predictor that takes no time, for that of a sampler alone."""
        return _Immediate(self.model, self.batch, self.prior, self.memory)

    @torch.no_grad()
    def __call__(self, x: Tensor, tau: Tensor | float) -> Tensor:
        """Return the predicted noise; the last batch is filled up with its own rows."""
        self.evaluations += 1
        found = [
            self.model.noise(_filled(part, self.batch), tau) for part in torch.split(x, self.batch)
        ]
        return torch.cat(found)[: len(x)]

    def reference(self, noise: Tensor, steps: int) -> Tensor:
        """Return the end of the flow by a Runge-Kutta method of order four in log t.

        It takes four evaluations a step, and one more for the denoised tensor at the end.
        """
        self.evaluations += 4 * steps
        end = self.model.flow.pull(
            noise, method=RungeKutta4(steps), chunk=self.batch, progress=False
        )
        first = self.model.first
        alpha, sigma = (float(part(first)) for part in (self.noising.alpha, self.noising.sigma))
        return (end - sigma * self(end, first)) / alpha

    @property
    def noising(self) -> Any:  # noqa: ANN401
        """The process with its clock."""
        return self.model.noising


class _Immediate(Counted):
    """A predictor that returns its argument."""

    def __call__(self, x: Tensor, tau: Tensor | float) -> Tensor:  # noqa: ARG002
        self.evaluations += 1
        return x


def _filled(x: Tensor, size: int) -> Tensor:
    """Return rows, repeated until there are ``size``: another size would be compiled again."""
    missing = size - len(x)
    return x if missing <= 0 else x.repeat(-(-size // len(x)), *[1] * (x.ndim - 1))[:size]


def noise_for(shape: tuple[int, ...], n: int, seed: int = 0) -> Tensor:
    """Return the noise that all methods start from, drawn on the CPU: the same everywhere."""
    generator = torch.Generator().manual_seed(10_007 * seed + 17)
    return torch.randn(n, *shape, generator=generator).to(device())


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
