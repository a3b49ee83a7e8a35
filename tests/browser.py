"""A real browser for tests: Debian's Chromium, driven by Playwright.

Without one these tests are skipped or not collected, and tests/explorer/test_browser.py reports why
in one line; with OISM_BROWSER=required in the environment they fail instead. OISM_CHROMIUM is the
path of the browser if it is not on the PATH.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome")
REQUIRED = os.environ.get("OISM_BROWSER") == "required"


def missing() -> str | None:
    """Return why there is no browser, or None."""
    if importlib.util.find_spec("playwright") is None:
        return "the package playwright is not installed"
    if chromium() is None:
        return "no Chromium was found (apt-get install chromium, or set OISM_CHROMIUM)"
    return None


def chromium() -> str | None:
    """Return the path of the browser, or None."""
    found = [os.environ.get("OISM_CHROMIUM"), *map(shutil.which, NAMES)]
    return next(filter(None, found), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One browser for all tests of the session; each opens windows of its own."""
    why = missing()
    if why is not None and REQUIRED:
        pytest.fail(f"browser tests are required, but {why}", pytrace=False)
    if why is not None:
        pytest.skip(f"browser tests were not run: {why}")
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox"] if os.getuid() == 0 else []
        )
        yield started
        started.close()
