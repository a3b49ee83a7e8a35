"""The benchmarks run, on sizes that say nothing about speed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def test_hermite() -> None:
    command = [sys.executable, str(BENCHMARKS / "hermite.py"), "--points", "2000", "--rounds", "1"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "values and gradients, 2,000 points, dim 1, order 12" in run.stdout
    assert "numpy hermevander" in run.stdout
