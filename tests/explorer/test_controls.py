"""Every control of the page, used as a person would, from a file and without a network."""

from __future__ import annotations

import io
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from PIL import Image

from oism.data.toys import PLANE
from oism.explorer import local_server
from tests.explorer.conftest import QUICK, Explorer, Open

CSV = "name,phi,psi\n" + "".join(
    f"r{i},{(37 * i) % 340 - 170},{(91 * i) % 350 - 175}\n" for i in range(150)
)


def picture(explorer: Explorer) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the pixels of the canvas."""
    explorer.wait("!explorer.waiting")
    content = explorer.page.locator("#canvas").screenshot()
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB"), dtype=np.int64)


def points(explorer: Explorer) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array(
        explorer("[Array.from(explorer.fitting.points.x), explorer.fitting.points.y]")
    ).T


def test_opens_from_a_file_and_asks_no_host(explorer: Explorer) -> None:
    assert explorer.count == 200
    assert explorer("explorer.fitting.paths !== null")
    assert {url.split(":")[0] for url in explorer.requests} <= {"file", "blob", "data"}


def test_opens_from_the_local_server(open_page: Open) -> None:
    with local_server() as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        host = f"http://127.0.0.1:{server.server_address[1]}"
        explorer = open_page(f"{host}/{QUICK}")
        explorer.settle()
        server.shutdown()
        thread.join()
    asked = [url for url in explorer.requests if not url.startswith("blob:")]
    assert [url.partition("#")[0] for url in asked] == [f"{host}/"]


@pytest.mark.parametrize("tool", ["draw", "spray"])
def test_drawing_with_the_mouse(tool: str, explorer: Explorer) -> None:
    explorer.page.click("#clear")
    assert explorer.count == 0
    explorer.check("tool", tool)
    explorer.stroke((0.25, 0.5), (0.75, 0.5))
    explorer.settle()
    drawn = points(explorer)
    assert len(drawn) > 30
    assert np.abs(drawn[:, 1]).max() < (0.2 if tool == "draw" else 1.5)
    assert drawn[:, 0].min() < -1.5
    assert drawn[:, 0].max() > 1.5
    assert explorer.page.input_value("#toy") == ""
    before = explorer.count
    explorer.stroke((0.5, 0.2), (0.5, 0.8))
    assert explorer.count > before
    explorer.page.click("#undo")
    assert explorer.count == before


def test_the_fit_follows_the_hand(explorer: Explorer) -> None:
    """Where points were added the density rises, and samples arrive."""
    explorer.page.click("#clear")
    explorer.stroke((0.3, 0.3), (0.35, 0.3), (0.3, 0.35), (0.35, 0.35))
    explorer.stroke((0.7, 0.7), (0.75, 0.7), (0.7, 0.75), (0.75, 0.75))
    explorer.settle()
    samples = np.array(explorer("Array.from(explorer.fitting.particles(0))")).reshape(-1, 2)
    near = np.minimum(*(np.linalg.norm(samples - c, axis=1) for c in ([-1.5, -1.5], [2.0, 2.0])))
    assert (near < 1.5).mean() > 0.8


def test_erasing(explorer: Explorer) -> None:
    before = explorer.count
    explorer.check("tool", "erase")
    explorer.page.locator("#brush").fill("80")
    explorer.stroke((0.1, 0.5), (0.45, 0.5))
    explorer.settle()
    assert 0 < explorer.count < before


def test_drawing_with_a_finger(open_page: Open, address: str) -> None:
    explorer = open_page(
        address + QUICK, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True
    )
    explorer.page.click("#clear")
    for share in np.linspace(0.2, 0.8, 8):
        explorer.page.touchscreen.tap(*explorer.place(float(share), 0.5))
    assert explorer.count > 50
    assert explorer("document.documentElement.scrollWidth <= innerWidth"), "nothing is cut off"


def test_drawing_with_the_keyboard(explorer: Explorer) -> None:
    explorer.page.click("#clear")
    explorer.page.focus("#canvas")
    for key in ("d", "ArrowRight", "ArrowUp", "Space", "Shift+ArrowLeft", "Enter"):
        explorer.page.keyboard.press(key)
    assert explorer.count == 10
    assert explorer.page.is_checked("input[value=draw]")
    explorer.page.keyboard.press("e")
    explorer.page.keyboard.press("Space")
    assert explorer.count < 10


def test_toy_distributions(explorer: Explorer) -> None:
    for name in PLANE:
        explorer.page.select_option("#toy", name)
        explorer.wait("!explorer.fitting.frame && explorer.fitting.curve")
        assert explorer.count == 200
        assert np.abs(points(explorer)).max() <= 4
    explorer.page.select_option("#count", "500")
    assert explorer.count == 500


def test_the_address_sets_the_first_state(open_page: Open, address: str) -> None:
    explorer = open_page(f"{address}#toy=rings&points=500&functions=60&space=torus&theme=dark")
    assert explorer.count == 500
    assert explorer.page.input_value("#toy") == "rings"
    assert explorer.page.inner_text("#functions-value") == "48"
    assert explorer("explorer.fitting.settings.space") == "torus"
    assert explorer("document.documentElement.dataset.theme") == "dark"
    other = open_page(f"{address}#toy=nonsense&points=7&functions=x&space=moon&theme=blue")
    assert other.count == 1000
    assert other("explorer.fitting.settings.space") == "plane"


def test_a_file_is_opened(explorer: Explorer, tmp_path: Path) -> None:
    path = tmp_path / "angles.csv"
    path.write_text(CSV)
    explorer.page.set_input_files("#file", path)
    explorer.wait("explorer.fitting.points.x.length === 150")
    explorer.check("space", "torus")
    explorer.settle()
    assert "periodic, from −180 to 180" in explorer.page.inner_text("#space-note")
    assert "periodic=360.0" in explorer.page.inner_text("#python")
    assert "150 points" in explorer.page.inner_text("#status")


def test_the_turn_of_one_angle_counts_for_the_other(explorer: Explorer, tmp_path: Path) -> None:
    path = tmp_path / "angles.csv"
    lines = [f"{(37 * i) % 120 - 160},{(91 * i) % 350 - 175}" for i in range(100)]
    path.write_text("\n".join(["phi,psi", *lines]))
    explorer.page.set_input_files("#file", path)
    explorer.wait("explorer.fitting.points.x.length === 100")
    explorer.check("space", "torus")
    explorer.settle()
    assert "periodic=360.0" in explorer.page.inner_text("#python")


def test_a_file_is_dropped(explorer: Explorer) -> None:
    drop = """(text) => {
      const data = new DataTransfer();
      data.items.add(new File([text], "angles.csv", { type: "text/csv" }));
      document.body.dispatchEvent(new DragEvent("dragover", { dataTransfer: data, bubbles: true }));
      document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true }));
    }"""
    explorer(drop, CSV)
    explorer.wait("explorer.fitting.points.x.length === 150")
    assert explorer("explorer.names.join()") == "phi,psi"
    explorer(drop, "one\ntwo\n")
    explorer.wait("document.getElementById('status').textContent.includes('two columns')")
    assert explorer.count == 150


@pytest.mark.parametrize("space", ["plane", "torus", "interval"])
def test_spaces(space: str, explorer: Explorer) -> None:
    explorer.page.select_option("#toy", "checkerboard")
    explorer.check("space", space)
    explorer.settle()
    assert explorer("explorer.fitting.model.chart.axes[0].kind") == space
    assert explorer.page.inner_text("#own-likelihood").startswith("−")
    low, high = explorer(
        "[0, 1].map((k) => Math[k ? 'max' : 'min'](...explorer.fitting.particles(0)))"
    )
    assert space == "plane" or (low >= -4 and high <= 4)


def test_noise(explorer: Explorer) -> None:
    """Much noise: the picture is nearly even, and the samples are uniform."""
    explorer.page.uncheck("#show-data")
    explorer.page.uncheck("#show-samples")
    explorer.page.uncheck("#show-score")
    contrast = []
    for value in ("0", "600", "1000"):
        explorer.page.locator("#noise").fill(value)
        middle = picture(explorer)[250:-250, 150:-150].mean(axis=2)
        contrast.append(float(middle.std()))
    assert contrast[0] > contrast[1] > 5 * contrast[2]
    assert explorer.page.inner_text("#noise-value").startswith("σ = ")


def test_layers(explorer: Explorer) -> None:
    shown = picture(explorer)
    for layer in ("density", "score", "data", "samples"):
        explorer.page.uncheck(f"#show-{layer}")
        assert np.abs(picture(explorer) - shown).max() > 30
        explorer.page.check(f"#show-{layer}")
        assert np.abs(picture(explorer) - shown).max() <= 2, "as before, up to rounding"


@pytest.mark.parametrize("button", ["backward", "forward"])
def test_the_flow_runs(button: str, explorer: Explorer) -> None:
    sign = -1 if button == "backward" else 1
    explorer("explorer.setTau(0.5)")
    explorer.page.click(f"#{button}")
    assert explorer.page.inner_text(f"#{button}") == "Pause"
    explorer.wait(f"{sign} * (explorer.tau - 0.5) > 0.1")
    explorer.page.click(f"#{button}")
    here = explorer("explorer.tau")
    explorer.page.wait_for_timeout(100)
    assert explorer("explorer.tau") == here, "paused"
    explorer.page.click(f"#{button}")
    explorer.wait(f"explorer.tau === {0 if sign < 0 else 1}")
    assert explorer.page.inner_text(f"#{button}").endswith("data" if sign < 0 else "noise")
    assert float(explorer.page.input_value("#noise")) == (0 if sign < 0 else 1000)


def test_new_samples(explorer: Explorer) -> None:
    before = explorer("Array.from(explorer.fitting.particles(0)).slice(0, 10)")
    explorer.page.click("#resample")
    explorer.settle()
    assert explorer("Array.from(explorer.fitting.particles(0)).slice(0, 10)") != before


def test_the_number_of_functions(explorer: Explorer) -> None:
    shown = []
    for value in ("0", "5"):
        explorer.page.locator("#functions").fill(value)
        explorer.settle()
        assert explorer("explorer.alpha.length") == explorer(
            "basisOf(explorer.fitting.settings.bound).size"
        )
        shown.append(int(explorer.page.inner_text("#functions-value")))
    assert shown == [12, 148]
    assert "max_eigenvalue=49" in explorer.page.inner_text("#python")


def test_the_automatic_number_of_functions(explorer: Explorer) -> None:
    """It grows with the points, as the library's; the slider turns it off, the box on again."""
    assert not explorer.page.is_checked("#automatic")
    explorer("explorer.fitting.most = 320")
    explorer.page.check("#automatic")
    for count, expected in (("200", 128), ("500", 200), ("1000", 250), ("2000", 320)):
        explorer.page.select_option("#count", count)
        explorer.wait("!explorer.fitting.frame")
        assert explorer("explorer.fitting.settings.bound") == expected
        assert expected >= 0.99 * 600 * (int(count) / 10_000) ** 0.4
    explorer.page.locator("#functions").fill("3")
    assert not explorer.page.is_checked("#automatic")
    explorer.wait("!explorer.fitting.frame")
    assert explorer("explorer.fitting.settings.bound") == 25


def test_a_slow_machine_gets_fewer_functions(explorer: Explorer) -> None:
    """The number grows only after a quick choice, and falls back after a slow one."""
    grows = """(milliseconds) => {
      const { fitting } = explorer;
      Object.assign(fitting, { resolution: null });
      fitting.timers.choice = milliseconds;
      fitting.points.x.length = fitting.points.y.length = 150;
      return [fitting._changesMost(), fitting.bounded];
    }"""
    assert explorer(grows, 3000) == [False, 100]
    assert explorer(grows, 500) == [True, 128]
    assert explorer(grows, 20_000) == [True, 100]
    assert explorer(grows, 500) == [False, 100]


def test_own_points_have_no_number_to_choose(explorer: Explorer) -> None:
    assert explorer.page.is_enabled("#count")
    explorer.stroke((0.4, 0.4), (0.6, 0.6))
    explorer.settle()
    assert explorer.page.is_disabled("#count")


@pytest.mark.parametrize("size", [(700, 520), (990, 700), (340, 600)])
def test_in_a_frame(size: tuple[int, int], open_page: Open, address: str, tmp_path: Path) -> None:
    """A page that embeds this one: no title, the picture and its controls in view."""
    width, height = size
    outer = tmp_path / "outer.html"
    outer.write_text(f'<iframe src="{address}{QUICK}" width={width} height={height}></iframe>')
    explorer = open_page(outer.as_uri(), viewport={"width": 1200, "height": 900})
    frame = explorer.page.frames[1]
    frame.wait_for_selector("#canvas")
    assert not frame.is_visible("header")
    for name in ("canvas", "backward", "noise", "show-samples"):
        box = frame.evaluate(f"document.getElementById('{name}').getBoundingClientRect().toJSON()")
        assert box["left"] >= 0
        assert box["right"] <= width
        assert box["bottom"] <= height
    assert frame.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert frame.evaluate("document.documentElement.dataset.theme") == "light"
    frame.evaluate("location.hash += '&theme=dark'")
    frame.wait_for_selector("html[data-theme=dark]")


def test_the_papers_rule_explodes(explorer: Explorer) -> None:
    explorer.page.locator("#functions").fill("6")
    explorer.settle()
    size = "explorer.alpha.reduce((a, b) => a + b * b, 0) ** 0.5"
    chosen, likelihood = explorer(size), explorer("explorer.fitting.heldout.model")
    explorer.check("rule", "paper")
    explorer.settle()
    assert explorer(size) > 10 * chosen
    assert explorer("explorer.fitting.heldout.model") < likelihood - 0.1
    assert "ridge=0.0" in explorer.page.inner_text("#python")
    explorer.check("rule", "cv")
    explorer.settle()
    assert explorer(size) == pytest.approx(chosen, rel=1e-6)


def test_unresolved_flows_have_no_likelihood(blank: Explorer) -> None:
    """Without a ridge, steps that are too long gave densities that looked better than any other."""
    found = blank("""() => {
      const box = { low: [-4, -4], width: [8, 8] }, points = drawToy("pinwheel", 300, 100, box);
      const part = (start, end) =>
        [0, 1].map((j) => Float64Array.from(points.slice(start, end), (one) => one[j]));
      const model = new Model(...part(0, 240), { space: "plane", bound: 100, box });
      for (const step of model.fitting(Schedule.constant(0))) if (step.curve) break;
      const held = part(240, 300), logs = model.logDensity(...held, 32);
      return [Math.max(...resolved(model, ...held, 32)), logs.every(Number.isFinite)];
    }""")
    assert found == [-np.inf, True]


def test_likelihoods_are_those_of_held_out_points(explorer: Explorer) -> None:
    found = explorer("explorer.fitting.heldout")
    assert found["rows"] == 200
    assert explorer.page.inner_text("#own-likelihood") == f"−{-found['model']:.3f}"
    assert explorer.page.inner_text("#kde-likelihood") == f"−{-found['kde']:.3f}"
    best = "own" if found["model"] >= found["kde"] else "kde"
    assert (
        explorer(f"document.getElementById('{best}-likelihood').parentElement.className") == "best"
    )


def test_themes(open_page: Open, address: str) -> None:
    explorer = open_page(address + QUICK, color_scheme="dark")
    explorer.settle()
    dark = picture(explorer).mean()
    explorer.page.click("#theme")
    assert picture(explorer).mean() > dark + 50


def test_take_away(explorer: Explorer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The picture, the points, and the Python that gives the densities of the page."""
    for button, name in (("save-picture", "oism.png"), ("save-points", "points.csv")):
        with explorer.page.expect_download() as started:
            explorer.page.click(f"#{button}")
        assert started.value.suggested_filename == name
        started.value.save_as(tmp_path / name)
    with Image.open(tmp_path / "oism.png") as image:
        assert image.size[0] > 300
    table = np.loadtxt(tmp_path / "points.csv", delimiter=",", skiprows=1)
    assert np.array_equal(table, points(explorer))

    explorer.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    explorer.page.click("#copy-python")
    explorer.wait("document.getElementById('status').textContent === 'Python copied'")
    code = explorer("navigator.clipboard.readText()")
    assert code == explorer.page.inner_text("#python")
    assert len(code.splitlines()) == 5
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["samples"].shape == (1000, 2)
    density = """() => {
      const { model, schedule } = explorer.fitting, own = model.fit(schedule);
      return Array.from(own.logDensity(own.x, own.y, 64));
    }"""
    assert np.abs(np.array(explorer(density)) - names["log_densities"]).max() < 1e-3
