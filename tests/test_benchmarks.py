"""The benchmarks run, on sizes that say nothing about speed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def output(name: str, *arguments: str) -> str:
    command = [sys.executable, str(BENCHMARKS / name), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_hermite() -> None:
    printed = output("hermite.py", "--points", "2000", "--rounds", "1")
    assert "values and gradients, 2,000 points, dim 1, order 12" in printed
    assert "numpy hermevander" in printed


def test_moments() -> None:
    printed = output("moments.py", "--rows", "500", "--columns", "20", "--points", "100")
    assert "Hermite averages to degree 10, 500 × 20 values" in printed
    assert "FINUFFT" in printed


def test_torus() -> None:
    printed = output("torus.py", "--points", "500", "--largest", "30", "--rounds", "1")
    assert "dense/free" in printed
    assert "growth" in printed
