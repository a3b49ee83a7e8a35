"""The time of a training step: the network alone, with a prior, plain and fast.

The network is DDPM++ for CIFAR-10; images are correlated noise of that size, on the device. Steps
and their timing are those of `studies.training.step_time`. Rows have milliseconds (median), the
ratio to the fast network alone, and the share of the rate of one large product of bfloat16 matrices
in the same run.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from prior import images

from oism.flow import Pixels

sys.path.append(str(Path(__file__).parents[1]))  # for the studies

from studies.images import ImageSets
from studies.training.step_time import step_times

SMALL: dict[str, Any] = {"width": 16, "multipliers": (1, 2), "blocks": 1}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="a small network of small images")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = images(arguments.images, device, 8 if arguments.small else 32)
    found = step_times(
        ImageSets(data, data[:0], Pixels()), SMALL if arguments.small else {},
        batch=arguments.batch, rounds=arguments.rounds, steps=arguments.steps,
    )  # fmt: skip
    rate = found.matrix_rate
    print(f"{found.operations / 1e12:.2f} T operations a step; matrices at {rate / 1e12:.0f} T/s")
    for name in found.rounds:
        print(
            f"{name:<60}{1000 * found.seconds(name):9.2f} ms{found.ratio(name):9.3f}"
            f"{found.share(name):9.1%} of the matrix rate"
        )
    if arguments.json:
        content = {"batch": arguments.batch, "images": arguments.images, **asdict(found)}
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)


if __name__ == "__main__":
    main()
