"""The time of a prior of images: of its fit, and of its evaluation beside a step of a network.

Images are correlated noise of the size of CIFAR-10, decoded, on the device. Each part of a fit is
compared with a lower bound: the time of the matrix products that it needs, at the rate of one large
product in the same run. Rows have seconds and the ratio to the lower bound.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from oism.basis import IdentityFrame
from oism.estimation import PairMoments, spectrum
from oism.images import (
    PCA,
    Prior,
    add_local_terms,
    fit_mixture,
    image_statistics,
    prior_from_statistics,
)
from oism.nn import DDPMpp

BATCH = 128
FRAMES: list[tuple[str, PCA | IdentityFrame, int]] = [
    ("pixels, order 9", IdentityFrame(), 9),
    ("PCA, order 2", PCA(), 2),
    ("PCA, order 4", PCA(), 4),
    ("PCA, order 9", PCA(), 9),
]


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def seconds(work: Callable[[], object], device: torch.device, repeat: int = 1) -> float:
    found = []
    for _ in range(repeat):
        wait(device)
        start = time.perf_counter()
        work()
        wait(device)
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def images(count: int, device: torch.device, side: int = 32) -> Tensor:
    """Return smooth noise as bytes ``(n, 3, side, side)``."""
    generator = torch.Generator(device).manual_seed(0)
    parts = []
    for start in range(0, count, 5000):
        rows = min(5000, count - start)
        noise = torch.randn(rows, 3, side + 2, side + 2, generator=generator, device=device)
        contrast = torch.rand(rows, 1, 1, 1, generator=generator, device=device)
        wide = nn.functional.avg_pool2d(noise.cumsum(2).cumsum(3), 3, stride=1)
        wide = wide / wide.std() + 0.2 * noise[:, :, 1:-1, 1:-1] * contrast
        parts.append((60 * wide + 128).clamp(0, 255).byte())
    return torch.cat(parts)


def fits(data: Tensor, device: torch.device) -> dict[str, float]:
    """Return the seconds of the parts of a fit."""
    n, dim = len(data), data[0].numel()
    rows = data.flatten(1)
    fold = torch.arange(n, device=device) % 5
    result: dict[str, float] = {}
    a = torch.randn(4096, 4096, device=device)
    rate = 2 * 4096**3 / seconds(lambda: a @ a, device, 5)
    exact = a.double()
    rate64 = 2 * 4096**3 / seconds(lambda: exact @ exact, device, 3)
    pairs = PairMoments(dim, 5, device=device)
    result["pairs, five folds"] = seconds(lambda: pairs.update(rows, fold), device)
    result["lower bound: pairs"] = 2 * n * dim**2 / rate
    found = spectrum(pairs, validate=False)
    result["principal directions"] = seconds(lambda: spectrum(pairs, validate=False), device)
    result["principal directions, cross-validated"] = seconds(lambda: spectrum(pairs), device)
    half = rows[: n // 8].double()
    result["lower bound: projection"] = 2 * n * dim**2 / rate64
    result["projection"] = 8 * seconds(lambda: half @ found.directions.mT, device)
    for name, frame, order in FRAMES:

        def fit(folds: int, frame: PCA | IdentityFrame = frame, order: int = order) -> None:
            found = image_statistics(data, order=order, frame=frame, folds=folds)
            prior_from_statistics(found, ridge=1e-3 if folds == 1 else None)

        result[f"{name}: moments, directions, solves"] = seconds(partial(fit, 1), device)
        result[f"{name}: the same, cross-validated"] = seconds(partial(fit, 5), device)
    result["mixture of 32"] = seconds(lambda: fit_mixture(data), device)
    return result


def step_seconds(device: torch.device, *, compiled: bool) -> tuple[float, int]:
    """Return the seconds of a training step of the network, and its number of parameters."""
    torch.manual_seed(0)
    net = DDPMpp().to(device)
    count = sum(part.numel() for part in net.parameters())
    run = torch.compile(net) if compiled else net
    optimiser = torch.optim.Adam(net.parameters(), 2e-4, fused=device.type == "cuda")
    x = torch.randn(BATCH, 3, 32, 32, device=device).to(memory_format=torch.channels_last)
    tau, noise = torch.rand(BATCH, device=device), torch.randn_like(x)

    def step() -> None:
        with torch.autocast(device.type, torch.bfloat16):
            loss = (run(x, tau) - noise).square().mean()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()

    for _ in range(3):
        step()
    return seconds(step, device, 15), count


def replay(prior: Prior, x: Tensor, tau: Tensor) -> Callable[[], None]:
    """Return the evaluation as a recorded graph, which the host need not launch."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            prior.noise(x, tau)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        prior.noise(x, tau)
    return graph.replay


def evaluations(data: Tensor, device: torch.device) -> dict[str, dict[str, float]]:
    """Return the seconds of a batch and the bytes beyond the frame, for each prior."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(BATCH, *data.shape[1:], generator=generator).to(device)
    tau = torch.rand(BATCH, generator=generator).to(device)
    found = image_statistics(data, order=9, folds=1)
    mixture = fit_mixture(data)
    priors: dict[str, Prior] = {
        f"PCA, order {n}": prior_from_statistics(found, order=n, ridge=1e-3) for n in (2, 4, 9)
    }
    priors["pixels, order 9"] = prior_from_statistics(
        image_statistics(data, order=9, frame=IdentityFrame(), folds=1), ridge=1e-3
    )
    priors["mixture of 32"] = mixture
    priors["mixture, local terms"] = add_local_terms(data, mixture, limit=1024)
    result = {}
    for name, prior in priors.items():
        prior.to(device)
        frame = sum(
            b.numel() * b.element_size() for n, b in prior.named_buffers() if "directions" in n
        )
        total = sum(b.numel() * b.element_size() for b in prior.buffers())
        with torch.no_grad():
            prior.noise(x, tau)
            one = {"eager": seconds(partial(prior.noise, x, tau), device, 30)}
            if device.type == "cuda":
                compiled = torch.compile(prior.noise)
                compiled(x, tau)
                one["compiled"] = seconds(partial(compiled, x, tau), device, 30)
                one["device"] = seconds(replay(prior, x, tau), device, 30)
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
                prior.noise(x, tau)
                wait(device)
                one["peak_bytes"] = float(torch.cuda.max_memory_allocated() - before)
        result[name] = {**one, "frame_bytes": frame, "other_bytes": total - frame}
        prior.cpu()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--no-network", action="store_true", help="the side must be 32 for it")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    data = images(arguments.images, device, arguments.side)
    image_statistics(data[:1000], order=3, folds=2)  # libraries are loaded when they are first used
    found: dict[str, object] = {"device": str(device), "images": arguments.images}
    parts = fits(data, device)
    found["fit"] = parts
    for name, spent in parts.items():
        floor = parts.get(f"lower bound: {name.split(',')[0]}")
        ratio = (
            f"{spent / floor:7.1f} x bound" if floor and not name.startswith("lower bound") else ""
        )
        print(f"{name:<48}{spent:9.3f} s {ratio}")
    priors = evaluations(data, device)
    found["batch"] = priors
    steps: dict[str, float] = {}
    if not arguments.no_network:
        steps["eager"], count = step_seconds(device, compiled=False)
        found["parameters"] = count
        print(f"network of {count / 1e6:.1f} M parameters, batch of {BATCH}, bf16, channels last")
        if device.type == "cuda":
            steps["compiled"], _ = step_seconds(device, compiled=True)
        for name, spent in steps.items():
            print(f"training step, {name:<33}{1000 * spent:9.2f} ms")
    found["step"] = steps
    for name, one in priors.items():
        extra = f"{one['other_bytes'] / 2**20:6.1f} MiB beyond the frame"
        print(f"noise of a batch, {name}: {extra}")
        for way in ("eager", "compiled", "device"):
            if way in one:
                own = steps.get("eager" if way == "eager" else "compiled")
                share = f"{one[way] / own:9.2%} of the step" if own else ""
                print(f"    {way:<44}{1000 * one[way]:9.2f} ms{share}")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    found["peak_gib"] = memory
    print(f"peak memory of the process {memory:.2f} GiB")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
