"""The site, built as `make docs` does, and read in a browser: it asks for its own files only.

Notebooks are executed, which takes minutes.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

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


def test_pictures_of_notebooks_are_described(site: Path) -> None:
    """By the captions below them."""
    texts = [
        text
        for page in (site / "learn").glob("*.html")
        for text in re.findall(r'<img alt="([^"]*)"', page.read_text(encoding="utf-8"))
    ]
    assert len(texts) > 10
    assert min(map(len, texts)) > 20
    assert not any("_images/" in text for text in texts)


def test_pages_have_no_script_of_another_host(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert 'src="http' not in text, page
        assert 'rel="stylesheet" type="text/css" href="http' not in text, page


@pytest.mark.parametrize("tab", THEMES, indirect=True)
@pytest.mark.parametrize(
    "path",
    ["index", "learn/angles", "parameters", "theory/scores", "reference/process", "results"],
)
def test_pages_are_complete(tab: Page, address: str, path: str) -> None:
    tab.goto(f"{address}/{path}.html")
    assert tab.evaluate("[...document.images].every((one) => one.complete)")
    for width in (1440, 390):
        tab.set_viewport_size({"width": width, "height": 900})
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
    tab.wait_for_timeout(300)  # sizes are observed once a frame
    # On a phone what is wider than the page scrolls by itself, and shows that there is more.
    boxes = tab.evaluate(
        "[...document.querySelectorAll('article .scrolls')].filter((one) => one.checkVisibility())"
        ".map((one) => [one.scrollWidth, one.clientWidth, one.classList.contains('more')])"
    )
    assert all(more == (whole > shown + 4) for whole, shown, more in boxes)
    assert any(more for *_, more in boxes)


def found_by(tab: Page, address: str, words: str) -> list[str]:
    """Return the pages that a search lists, with their anchors, in its order."""
    tab.goto(f"{address}/index.html")
    tab.fill("input[name=q]", words)
    tab.press("input[name=q]", "Enter")
    tab.wait_for_selector("#search-results li a")
    tab.wait_for_timeout(500)  # results appear one after the other
    links = tab.eval_on_selector_all("#search-results li a", "all => all.map((a) => a.href)")
    return [re.sub(r"\?[^#]*", "", link).removeprefix(f"{address}/") for link in links]


def test_search_finds_the_sphere(tab: Page, address: str) -> None:
    found = found_by(tab, address, "sphere")
    assert "sphere.html" in {one.partition("#")[0] for one in found}
    tab.goto(f"{address}/{found[0]}")
    assert "not found" not in tab.title().lower()


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("angles", "learn/angles.html"),
        ("missing", "learn/tables.html"),
        ("likelihood", "learn/images.html"),
        ("train", "learn/training.html"),
        ("sample", "learn/angles.html"),
        ("OISM", "reference/tables.html#oism.tables.OISM"),
        ("gpu", "howto/gpu.html"),
        ("impute", "reference/tables.html#oism.tables.OISM.impute"),
    ],
)
def test_search_lists_tutorials_and_public_names_first(
    tab: Page, address: str, words: str, first: str
) -> None:
    found = found_by(tab, address, words)
    assert found[0] == first
    members = [k for k, one in enumerate(found) if "#oism." in one and one.count(".") > 4]
    pages = [k for k, one in enumerate(found) if re.match("(learn|howto)/(?!index)[^#]*$", one)]
    inner = [
        k for k in members if not re.search(r"\.(OISM|Flow|FittedModel|Diffusion)\.", found[k])
    ]
    assert not inner or min(inner) > max(pages), "members of other classes come after the pages"


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
