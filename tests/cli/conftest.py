"""A folder with small data and models, and two ways to run the command: here, and for real."""

from __future__ import annotations

import ctypes
import io
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from oism.cli import main
from oism.data.files import write_images

SMALL = ["--max-eigenvalue", "25", "--flow-steps", "16"]
TINY = ["--batch", "20", "--width", "4", "--sample-every", "0"]


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()


def run_here(words: list[str], stdin: bytes = b"") -> Ended:
    """Run the command in this process, which has imported torch, with streams of its own."""
    before = sys.stdin, sys.stdout, sys.stderr
    streams = [io.TextIOWrapper(io.BytesIO(part), "utf-8") for part in (stdin, b"", b"")]
    sys.stdin, sys.stdout, sys.stderr = streams
    try:
        code = main(words)
    finally:
        for stream in streams[1:]:
            stream.flush()
        sys.stdin, sys.stdout, sys.stderr = before
    _, out, err = (stream.buffer for stream in streams)
    assert isinstance(out, io.BytesIO)
    assert isinstance(err, io.BytesIO)
    return Ended(code, out.getvalue(), err.getvalue().decode())


@pytest.fixture(scope="session")
def command() -> Callable[..., Ended]:
    """Run ``oism words``, one string, wherever this process is."""
    return lambda words: run_here(words.split())


def without_the_rights_of_root() -> None:
    """Let permissions count for root as well, from the next exec on."""
    libc = ctypes.CDLL(None, use_errno=True)
    for right in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        libc.prctl(24, right, 0, 0, 0)  # PR_CAPBSET_DROP; refused to others, who have none


@pytest.fixture(scope="session")
def unprivileged(process: Callable[..., Ended]) -> Callable[..., Ended]:
    """Run ``oism words`` in a process to which permissions apply."""
    return lambda words: process(words, preexec_fn=without_the_rights_of_root)


@pytest.fixture
def oism(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ended]:
    """Run ``oism words``, one string, in the folder with the data."""
    monkeypatch.chdir(folder)

    def run(words: str, stdin: bytes = b"") -> Ended:
        return run_here(words.split(), stdin)

    return run


@pytest.fixture(scope="session")
def process(folder: Path) -> Callable[..., Ended]:
    """Run ``oism words`` in a process of its own, in the folder with the data."""

    def run(words: str, **more: Any) -> Ended:
        command = [sys.executable, "-m", "oism", *words.split()]
        done = subprocess.run(
            command, cwd=folder, capture_output=True, check=False, timeout=120, **more
        )
        return Ended(done.returncode, done.stdout, done.stderr.decode())

    return run


@pytest.fixture
def gallery(images: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ended]:
    """Run ``oism words``, one string, in the folder with images and priors."""
    monkeypatch.chdir(images)
    return lambda words, stdin=b"": run_here(words.split(), stdin)


def discs(n: int, seed: int, channels: int = 1, side: int = 6) -> NDArray[np.uint8]:
    """Soft discs of random place, size, contrast and colour."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:side, :side]
    row, column = rng.uniform(1, side - 2, (2, n, 1, 1))
    size, high = rng.uniform(1, 5, (n, 1, 1)), rng.uniform(80, 220, (n, 1, 1))
    disc = 20 + high * np.exp(-((y - row) ** 2 + (x - column) ** 2) / size)
    tinted = disc[:, None] * rng.uniform(0.6, 1, (n, channels, 1, 1))
    noisy = tinted + rng.normal(0, 3, (n, channels, side, side))
    found: NDArray[np.uint8] = noisy.round().clip(0, 255).astype(np.uint8)
    return found


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of images: 100 to fit, 40 to test, 60 in colour; priors of them, a run, moons.

    ``digits`` are in folders by class, and there is a run of them.
    """
    place = tmp_path_factory.mktemp("images")
    write_images(str(place / "images"), discs(100, 0))
    write_images(str(place / "test"), discs(40, 1))
    write_images(str(place / "colour"), discs(60, 2, channels=3))
    (place / "digits").mkdir()
    for k in range(4):
        write_images(str(place / "digits" / f"{k}"), discs(20, 3 + k))
    before = Path.cwd()
    os.chdir(place)
    try:
        for words in (
            "fit-images images -o prior.safetensors",
            "fit-images colour --components 2 -o colour.safetensors",
            f"train images -o run --steps 4 {' '.join(TINY)}",
            f"train digits -o by-class --labels --steps 2 {' '.join(TINY)}",
            "data moons -n 60 -o moons.csv",
            f"fit moons.csv -o moons.safetensors {' '.join(SMALL)}",
        ):
            ended = run_here(words.split())
            assert ended.code == 0, ended.err
    finally:
        os.chdir(before)
    return place


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """moons.csv, angles.csv with words and gaps, and a small model of each."""
    place = tmp_path_factory.mktemp("cli")
    rng = np.random.default_rng(0)
    angles = rng.normal(100, 30, size=(120, 2))
    lines = ["id,phi,weight,psi"]
    lines += [
        f"r{i:03d},{phi!r},{1 + i % 2},{psi!r}" for i, (phi, psi) in enumerate(angles.tolist())
    ]
    (place / "angles.csv").write_text("\n".join(lines) + "\n")
    (place / "gaps.csv").write_text("\n".join([*lines[:3], "gap,NA,1,5", *lines[3:]]) + "\n")
    small = " ".join(SMALL)
    before = Path.cwd()
    os.chdir(place)
    try:
        for words in (
            "data moons -n 150 -o moons.csv",
            f"fit moons.csv -o moons.safetensors {small}",
            f"fit angles.csv --columns phi psi --periodic 360 -o angles.safetensors {small}",
        ):
            ended = run_here(words.split())
            assert ended.code == 0, ended.err
    finally:
        os.chdir(before)
    return place
