"""Messages of the library in the words of the shell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oism.cli.wording import in_shell_words

Run = Callable[..., Any]


@pytest.mark.parametrize(
    ("library", "shell"),
    [
        (
            "give periodic={'phi': 360}, or bounds={'phi': (-180, 180)} if it is none",
            "give --periodic phi=360, or --bounds phi=-180:180 if it is none",
        ),
        ("periodic={0: 360}", "--periodic 0=360"),
        ("such as bounds={0: (0, None)}", "such as --bounds 0=0:"),
        ("process='joint' serves any columns", "--process joint serves any columns"),
        (
            "OISM(process='mixture') has the scores",
            "`oism fit --process mixture` has the scores",
        ),
        (
            "The 'max_eigenvalue' parameter of OISM must be a str among {'auto'} or a float in the "
            "range [1.0, inf). Got 0.0 instead.",
            "--max-eigenvalue: must be auto or a number from 1.0, got 0.0",
        ),
        ("bounds['a'] must have low < high", "--bounds a: must have low < high"),
        ("t.csv: there is no column 'q', only 'a'", "t.csv: there is no column 'q', only 'a'"),
    ],
)
def test_rules(library: str, shell: str) -> None:
    assert in_shell_words(library) == shell


def test_a_warning_names_options(oism: Run, tmp_path: Path) -> None:
    angles = np.random.default_rng(0).uniform(-180, 180, size=(400, 1))
    np.savetxt(tmp_path / "angles.csv", angles, header="phi", comments="")
    small = "--max-eigenvalue 9 --flow-steps 4 --quiet"
    ended = oism(f"fit {tmp_path}/angles.csv {small} -o {tmp_path}/m.safetensors")
    assert ended.code == 0
    assert "--periodic phi=360, or --bounds phi=-180:180" in ended.err
