"""A folder with small data and models, and two ways to run the command: here, and for real."""

from __future__ import annotations

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

from oism.cli import main

SMALL = ["--max-eigenvalue", "25", "--n-times", "16"]


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
