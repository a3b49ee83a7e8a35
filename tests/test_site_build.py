"""The site, built as `make docs` does, and read in a browser: it asks for its own files only.

Notebooks are executed, which takes minutes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.explorer.conftest import REQUIRED, chromium, missing

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).parents[1]
THEMES = ("light", "dark")

pytestmark = [pytest.mark.slow]


class Quiet(SimpleHTTPRequestHandler):
    """A server without a log."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    words = [
        "-c",
        "docs",
        "-W",
        "--keep-going",
        "-d",
        str(out / "doctrees"),
        ".",
        str(out / "html"),
    ]
    ran = subprocess.run(
        [sys.executable, "-m", "sphinx", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    return out / "html"


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    why = missing()
    if why is not None and REQUIRED:
        pytest.fail(f"browser tests are required, but {why}", pytrace=False)
    if why is not None:
        pytest.skip(f"the site was not read in a browser: {why}")
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox"] if os.getuid() == 0 else []
        )
        yield started
        started.close()


@pytest.fixture
def tab(browser: Browser, address: str, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A page of the browser; the test fails on any other host, missing file or error."""
    context = browser.new_context(color_scheme=getattr(request, "param", "light"))
    page = context.new_page()
    wrong: list[str] = []
    own = (address, "data:", "blob:", f"blob:{address}")
    page.on("request", lambda one: None if one.url.startswith(own) else wrong.append(one.url))
    page.on("response", lambda one: wrong.append(one.url) if one.status >= 400 else None)
    page.on("console", lambda one: wrong.append(one.text) if one.type == "error" else None)
    page.on("pageerror", lambda one: wrong.append(str(one)))
    yield page
    page.wait_for_load_state("networkidle")
    context.close()
    assert wrong == []


def test_pages_have_no_script_of_another_host(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert 'src="http' not in text, page
        assert 'rel="stylesheet" type="text/css" href="http' not in text, page


@pytest.mark.parametrize("tab", THEMES, indirect=True)
@pytest.mark.parametrize(
    "path", ["index", "learn/angles", "theory/scores", "reference/process", "results"]
)
def test_pages_are_complete(tab: Page, address: str, path: str) -> None:
    tab.goto(f"{address}/{path}.html")
    assert tab.evaluate("[...document.images].every((one) => one.complete)")
    for width in (1440, 390):
        tab.set_viewport_size({"width": width, "height": 900})
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_search_finds_the_sphere(tab: Page, address: str) -> None:
    tab.goto(f"{address}/index.html")
    tab.fill("input[name=q]", "sphere")
    tab.press("input[name=q]", "Enter")
    tab.wait_for_selector("#search-results li a")
    found = tab.eval_on_selector_all("#search-results li a", "all => all.map((a) => a.href)")
    assert f"{address}/sphere.html" in {one.partition("#")[0].partition("?")[0] for one in found}
    tab.goto(found[0])
    assert "not found" not in tab.title().lower()


def test_mathematics_is_drawn(tab: Page, address: str) -> None:
    tab.goto(f"{address}/theory/scores.html")
    tab.wait_for_selector("mjx-container")
    assert tab.locator("mjx-merror").count() == 0


def test_the_explorer_has_the_theme_of_the_page(tab: Page, address: str) -> None:
    tab.goto(f"{address}/index.html")
    for theme in THEMES:
        tab.evaluate(f"document.body.dataset.theme = '{theme}'")
        tab.locator("#explorer").scroll_into_view_if_needed()
        frame = tab.frame_locator("#explorer")
        frame.locator(f":root[data-theme={theme}]").wait_for(state="attached")
        frame.locator("#canvas").wait_for()
