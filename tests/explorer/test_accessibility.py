"""Reading order, labels and contrast, by axe-core's rules and by the keyboard.

axe-core comes from npm when the tests run; without npm or a network its test is skipped.
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.browser import REQUIRED
from tests.explorer.conftest import QUICK, Explorer, Open

AXE = "axe-core@4.14.0"
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The source of axe-core."""
    folder: Path = tmp_path_factory.mktemp("axe")
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("axe-core was not run: npm is not installed")
    words = [npm, "pack", "--silent", AXE]
    done = subprocess.run(words, check=False, cwd=folder, capture_output=True, text=True)
    if done.returncode and REQUIRED:
        pytest.fail(f"npm pack {AXE}: {done.stderr}", pytrace=False)
    if done.returncode:
        pytest.skip(f"axe-core was not run: npm pack {AXE} failed")
    with tarfile.open(next(folder.glob("*.tgz"))) as package:
        source = package.extractfile("package/axe.min.js")
        assert source is not None
        return source.read().decode()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_serious_violation(theme: str, axe: str, open_page: Open, address: str) -> None:
    for viewport in ({"width": 1200, "height": 900}, PHONE):
        explorer = open_page(f"{address}{QUICK}&theme={theme}", viewport=viewport)
        explorer.settle()
        explorer(axe)
        found = explorer("async () => (await axe.run()).violations")
        serious = [
            (one["id"], [node["html"] for node in one["nodes"]])
            for one in found
            if one["impact"] in ("serious", "critical")
        ]
        assert serious == []


def test_axe_finds_what_is_wrong(axe: str, explorer: Explorer) -> None:
    explorer("document.querySelector('label[for=noise]').remove()")
    explorer(axe)
    found = explorer("async () => (await axe.run()).violations.map((one) => one.id)")
    assert "label" in found


def test_the_tab_key_follows_the_reading_order(explorer: Explorer) -> None:
    """Theme, tools, canvas, flow, noise, layers, data, fit, take away: as they are on the page."""
    seen: list[str] = []
    explorer("document.body.focus()")
    for _ in range(40):
        explorer.page.keyboard.press("Tab")
        found = explorer("document.activeElement.id || document.activeElement.name || ''")
        if not found:
            break
        seen.append(found)
    expected = [
        "theme", "tool", "brush", "clear", "canvas", "backward", "forward", "resample", "noise",
        "show-density", "show-score", "show-data", "show-samples", "toy", "count", "file", "space",
        "functions", "automatic", "rule", "save-picture", "save-points", "copy-python", "python",
    ]  # fmt: skip
    assert seen == expected


def test_every_control_has_a_name(explorer: Explorer) -> None:
    unnamed = """() => [...document.querySelectorAll("button, input, select, canvas, pre, svg")]
      .filter((one) => !(one.labels?.length || one.ariaLabel || one.textContent.trim()))
      .map((one) => one.outerHTML)"""
    assert explorer(unnamed) == []


def test_results_are_announced(explorer: Explorer) -> None:
    explorer.page.click("#clear")
    assert explorer.page.locator("[role=status]").inner_text() == "All points removed: draw some"
    # The label follows with the next picture.
    label = '#canvas[aria-label="Drawing area with 0 points"]'
    explorer.page.wait_for_selector(label, state="attached", timeout=10_000)
