"""Times of the explorer in headless Chromium, by the page's own timers.

2,000 points and 196 functions by default; a tap adds 14 points, a stroke 180. Printed are the times
until the fit is renewed at the shown noise level, at 17 levels and at all of them, of the choice of
ridge and cutoff in workers, and the frames per second while 1,000 particles move. Medians, and the
best in brackets: other programs on the machine make single times longer.

With ``--draws`` it prints held-out log-likelihoods instead: those of the page minus those of a
kernel density estimate, for all toy distributions, with 316 functions and the automatic number.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro
from playwright.sync_api import Page, sync_playwright

from oism.explorer import page


@dataclass(frozen=True)
class Sizes:
    """The sizes of the benchmark."""

    toy: str = "2spirals"
    points: int = 2000
    functions: int = 200
    taps: int = 12
    choices: int = 3
    draws: int = 0
    """The number of draws of each toy distribution whose likelihoods are compared."""
    chromium: str | None = None
    """The path of the browser; by default the one on the PATH."""


def wait(tab: Page, condition: str) -> None:
    while not tab.evaluate(f"Boolean({condition})"):
        tab.wait_for_timeout(5)


def timer(tab: Page, name: str) -> float:
    found: float = tab.evaluate(f"explorer.fitting.timers.{name}")
    return found


def tap(tab: Page, share: float) -> None:
    box: Any = tab.locator("#canvas").bounding_box()
    tab.mouse.click(box["x"] + share * box["width"], box["y"] + 0.1 * box["height"])


def stroke(tab: Page, height: float) -> None:
    box: Any = tab.locator("#canvas").bounding_box()
    y = box["y"] + height * box["height"]
    tab.mouse.move(box["x"] + 0.3 * box["width"], y)
    tab.mouse.down()
    tab.mouse.move(box["x"] + 0.6 * box["width"], y, steps=12)
    tab.mouse.up()


def measured(tab: Page, sizes: Sizes) -> dict[str, list[float]]:
    idle = "explorer.fitting.idle"
    shown = "!explorer.fitting.frame && explorer.fitting.seen.densities === explorer.fitting.stamp"
    wait(tab, idle)
    times: dict[str, list[float]] = {"averages": [], "live": [], "refit": [], "table": []}
    for k in range(sizes.taps):
        tap(tab, 0.2 + 0.6 * k / sizes.taps)
        wait(tab, shown)
        for name, found in times.items():
            found.append(timer(tab, name))
    times["stroke"] = []
    for k in range(sizes.taps):
        stroke(tab, 0.1 + 0.8 * k / sizes.taps)
        wait(tab, "!explorer.fitting.frame && explorer.fitting.curve")
        times["stroke"].append(timer(tab, "refit"))
        tab.click("#undo")
        wait(tab, shown)
    times["choice"] = []
    for k in range(sizes.choices):
        tap(tab, 0.25 + 0.5 * k / sizes.choices)
        wait(tab, f"!explorer.fitting.choosing && {idle}")
        times["choice"].append(timer(tab, "choice"))
    times["rate"] = []
    for button, end in (("forward", 1), ("backward", 0)):
        tab.click(f"#{button}")
        wait(tab, f"explorer.tau === {end} && !explorer.playing")
        times["rate"].append(timer(tab, "frameRate"))
    return times


HELD_OUT = """([toy, n, seed, bound]) => {
  const box = { low: [-4, -4], width: [8, 8] }, points = drawToy(toy, n, seed, box);
  const [x, y] = [0, 1].map((j) => Float64Array.from(points, (one) => one[j]));
  const model = new Model(x, y, { space: "plane", bound, box }), schedule = model.choose();
  const { curve } = model.fit(schedule);
  let found;
  for (const one of heldOut(x, y, model.settings, schedule, model.fold, { curve }))
    found = one ?? found;
  return found.model - found.kde;
}"""


def compare(tab: Page, sizes: Sizes) -> None:
    """Print the mean difference of each toy distribution, for the two numbers of functions."""
    automatic = tab.evaluate(f"explorer.automaticBound({sizes.points})")
    for toy in tab.evaluate("Object.keys(TOYS)"):
        means = []
        for bound in (100, automatic):
            seeds = range(100, 100 + sizes.draws)
            found = [tab.evaluate(HELD_OUT, [toy, sizes.points, seed, bound]) for seed in seeds]
            means.append(statistics.fmean(found))
        print(f"{toy:14s} {means[0]:+.3f} {means[1]:+.3f}", flush=True)


TITLES: dict[str, tuple[str, str, Callable[[list[float]], float]]] = {
    "averages": ("averages of the points", "ms", min),
    "live": ("solution at the shown noise", "ms", min),
    "refit": ("tap to fit at 17 noise levels", "ms", min),
    "stroke": ("end of a stroke to the same", "ms", min),
    "table": ("tap to fit at all noise levels", "ms", min),
    "choice": ("choice of ridge and cutoff", "ms", min),
    "rate": ("frames while particles move", "per second", max),
}


def main(sizes: Sizes) -> None:
    browser = sizes.chromium or shutil.which("chromium") or shutil.which("google-chrome")
    path = Path(tempfile.mkdtemp()) / "explorer.html"
    path.write_text(page(), encoding="utf-8")
    with sync_playwright() as playwright:
        sandbox = ["--no-sandbox"] if os.getuid() == 0 else []
        window = playwright.chromium.launch(executable_path=browser, args=sandbox)
        tab = window.new_page(viewport={"width": 1200, "height": 900})
        state = f"toy={sizes.toy}&points={sizes.points}&functions={sizes.functions}"
        tab.goto(f"{path.as_uri()}#{state}")
        if sizes.draws:
            tab.click("#clear")
            compare(tab, sizes)
            window.close()
            return
        times = measured(tab, sizes)
        count = tab.evaluate("explorer.fitting.functions")
        print(f"{sizes.toy}, {sizes.points:,} points, {count} functions, Chromium {window.version}")
        window.close()
    for name, (title, unit, best) in TITLES.items():
        found = times[name]
        print(f"{title:32s} {statistics.median(found):7.0f} {unit} ({best(found):.0f})")
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main(tyro.cli(Sizes, description=__doc__))
