"""No test needs a display, and none leaves figures; examples of the documentation may write files.

Each of those runs in a folder of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
import pytest

mpl.use("Agg")


@pytest.fixture(autouse=True)
def _own_folder(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(request.node, pytest.DoctestItem):
        monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def _no_figures_left() -> Iterator[None]:
    yield
    drawn = sys.modules.get("matplotlib.pyplot")  # most tests never import it
    if drawn is not None:
        drawn.close("all")
