"""Whether the browser tests run: one line of the summary reports it if they do not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.explorer.conftest import collect_ignore

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def test_a_browser_runs(browser: Browser) -> None:
    assert browser.is_connected()
    assert collect_ignore == []


def test_all_tests_of_the_page_are_known() -> None:
    """Each file needs a browser and is named in conftest.py, or is one of these."""
    text = (Path(__file__).parent / "conftest.py").read_text()
    found = {path.name for path in Path(__file__).parent.glob("test_*.py")}
    assert {name for name in found if name not in text} <= {"test_page.py", "test_browser.py"}
