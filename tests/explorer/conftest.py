"""The page of the explorer in a browser; without one its tests are not collected."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from oism.explorer import page
from tests.browser import REQUIRED, missing

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

collect_ignore = []
if missing() is not None and not REQUIRED:
    collect_ignore = [
        "test_accessibility.py", "test_controls.py", "test_numbers.py", "test_speed.py"
    ]  # fmt: skip


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page as a file."""
    path: Path = tmp_path_factory.mktemp("explorer") / "explorer.html"
    path.write_text(page(), encoding="utf-8")
    return path.as_uri()


class Explorer:
    """An open page; its scripts may use the functions of the page's sources."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda line: self.errors.append(line.text))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

    def __call__(self, script: str, argument: object = None) -> Any:
        """Return the value of an expression, or of a function of the argument."""
        return self.page.evaluate(script, argument)

    def wait(self, condition: str, seconds: float = 60) -> None:
        """Wait until an expression is true; Playwright's own way needs eval, which is banned."""
        end = time.monotonic() + seconds
        while not self(f"Boolean({condition})"):
            assert time.monotonic() < end, f"waited {seconds} s for {condition}"
            self.page.wait_for_timeout(30)

    def settle(self) -> None:
        """Wait until all fits and choices are done and drawn."""
        self.wait("explorer.fitting.idle && !explorer.waiting")

    @property
    def count(self) -> int:
        """The number of points."""
        return int(self("explorer.fitting.points.x.length"))

    def check(self, name: str, value: str) -> None:
        """Choose one of several radio buttons, by the keyboard's way."""
        self.page.locator(f"input[name={name}][value={value}]").check(force=True)

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Return the position on the screen of shares of the canvas, from the lower left."""
        box = self.page.locator("#canvas").bounding_box()
        assert box is not None
        return box["x"] + x * box["width"], box["y"] + (1 - y) * box["height"]

    def stroke(self, *places: tuple[float, float]) -> None:
        """Draw from place to place with the mouse."""
        mouse = self.page.mouse
        mouse.move(*self.place(*places[0]))
        mouse.down()
        for one in places[1:]:
            mouse.move(*self.place(*one), steps=6)
        mouse.up()


Open = Callable[..., Explorer]


QUICK = "#toy=moons&points=200&functions=48"
"""The first state of most tests: few points and functions."""


@contextmanager
def opening(browser: Browser, address: str) -> Iterator[Open]:
    """Yield a function that opens the page; fail at the end on any message of its console."""
    opened = []

    def make(url: str = address, **options: Any) -> Explorer:
        settings: dict[str, Any] = {"viewport": {"width": 1200, "height": 900}, **options}
        context = browser.new_context(accept_downloads=True, **settings)
        explorer = Explorer(context.new_page())
        explorer.page.goto(url)
        opened.append((context, explorer))
        return explorer

    yield make
    for context, explorer in opened:
        context.close()
        assert explorer.errors == []


@pytest.fixture
def open_page(browser: Browser, address: str) -> Iterator[Open]:
    """A function that opens the page in a new window."""
    with opening(browser, address) as make:
        yield make


@pytest.fixture(scope="module")
def blank(browser: Browser, address: str) -> Iterator[Explorer]:
    """One page for all tests of a module, without points, so that its workers rest."""
    with opening(browser, address) as make:
        explorer = make(address + QUICK)
        explorer.page.click("#clear")
        yield explorer


@pytest.fixture
def explorer(open_page: Open, address: str) -> Explorer:
    """The page with few points and functions, so that all is quick."""
    found = open_page(address + QUICK)
    found.settle()
    return found
