"""The demonstration: a folder with a model that loads, numbers, and one page that opens offline."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch

from oism import load
from oism.cli import main
from oism.cli.demo_report import Report, run
from oism.cli.models import frame
from oism.data.toys import PLANE
from oism.plot import limits_of

pytestmark = pytest.mark.slow

PNG = b"\x89PNG\r\n\x1a\n"
FILES = ["model.safetensors", "numbers.json", "picture.png", "report.html"]


class Page(HTMLParser):
    """What a page is made of: headings, addresses, text, and tags that were not closed."""

    EMPTY = ("meta", "img", "br", "link")

    def __init__(self, content: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.text: list[tuple[str, str]] = []
        self.feed(content)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [v or "" for k, v in attrs if k in ("src", "href", "srcset", "data")]
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.text.append((self.open[-1], data))

    def within(self, tag: str) -> list[str]:
        return [data for own, data in self.text if own == tag]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, Path]:
    folder = tmp_path_factory.mktemp("demo") / "new"
    return run("pinwheel", 400, 200, 0, folder), folder


def test_the_folder(demo: tuple[Report, Path]) -> None:
    folder = demo[1]
    assert sorted(path.name for path in folder.iterdir()) == FILES
    assert (folder / "picture.png").read_bytes().startswith(PNG)


def held_out() -> tuple[np.ndarray, np.ndarray]:
    """Return the rows that were held out, drawn again, and their exact log-density."""
    generator = torch.Generator().manual_seed(0)
    _, test = (PLANE["pinwheel"].sample(n, generator) for n in (400, 200))
    return test.numpy(), PLANE["pinwheel"].log_density(test).numpy()


def test_the_model_loads_and_scores_as_it_was_measured(demo: tuple[Report, Path]) -> None:
    report, folder = demo
    model, (test, truth) = load(folder), held_out()
    assert model.feature_names_in_.tolist() == ["x", "y"]  # as in the tables of `oism data`
    rows = frame(test, ["x", "y"])
    log = model.score_samples(rows)
    np.testing.assert_array_equal(log, report.model.score_samples(rows))
    assert report.fit.nll == pytest.approx(-log.mean())
    assert report.exact == pytest.approx(-truth.mean())
    assert limits_of(model) == limits_of(report.model)
    assert report.fit.integral == pytest.approx(1, abs=5e-3)


def test_the_numbers(demo: tuple[Report, Path]) -> None:
    report, folder = demo
    content = (folder / "numbers.json").read_text()
    numbers = json.loads(content, parse_constant=pytest.fail)
    assert numbers["settings"] == {"name": "pinwheel", "rows": 400, "test_rows": 200, "seed": 0}
    assert numbers["oism"]["nll"] == pytest.approx(report.fit.nll, rel=1e-5)
    assert numbers["kde"]["nll"] == pytest.approx(report.kde.nll, rel=1e-5)
    assert numbers["exact"] == pytest.approx(report.exact, rel=1e-5)
    assert numbers["oism"]["sample_seconds"] > 0
    assert numbers["versions"]["torch"] == torch.__version__
    assert numbers["oism"]["nll"] - numbers["exact"] < 0.6  # a fit, of so few points


def test_the_table(demo: tuple[Report, Path]) -> None:
    report = demo[0]
    head, *rows = report.table().splitlines()
    assert head.split("  ")[-1] == "integral"
    assert [row.split()[0] for row in rows] == ["oism", "KDE", "exact"]
    assert float(rows[0].split()[1]) == pytest.approx(report.fit.nll, abs=1e-4)
    assert float(rows[1].split()[4]) == pytest.approx(report.kde.integral, abs=1e-4)
    assert float(rows[2].split()[1]) == pytest.approx(report.exact, abs=1e-4)
    # Numbers stand under each other.
    end = head.index("held-out NLL [nats]") + len("held-out NLL [nats]")
    assert all(row[:end].split()[-1] == row.split()[1] for row in rows)


def test_the_page_opens_offline(demo: tuple[Report, Path]) -> None:
    report, folder = demo
    content = (folder / "report.html").read_text(encoding="utf-8")
    page = Page(content)
    assert not page.open
    assert len(page.addresses) >= 3
    assert all(address.startswith("data:image/png;base64,") for address in page.addresses)
    for forbidden in ("http:", "https:", "url(", "@import", "<script", "<link", "<iframe"):
        assert forbidden not in content
    pictures = [base64.b64decode(a.partition(",")[2], validate=True) for a in page.addresses]
    assert all(picture.startswith(PNG) and len(picture) > 10_000 for picture in pictures)
    assert len(set(pictures)) == len(pictures)
    assert page.within("h1") == ["A diffusion model without training"]
    assert len(page.within("h2")) == 5
    assert page.tags.count("img") == len(pictures)
    assert content.count("<img alt=") == len(pictures)
    assert "prefers-color-scheme: dark" in content
    cells = page.within("td")
    assert f"{report.fit.nll:.4f}" in cells
    assert f"{report.exact:.4f}" in cells
    assert any("oism sample model.safetensors" in block for block in page.within("pre"))
    assert report.model.summary() in page.within("pre")


def test_as_a_process(tmp_path: Path) -> None:
    words = ["demo", "--rows", "300", "--test-rows", "100", "-o", "out/here"]
    done = subprocess.run(
        [sys.executable, "-m", "oism", *words],
        cwd=tmp_path,
        capture_output=True,
        check=False,
        timeout=300,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "2spirals: 300 rows, 100 held out"
    assert [line.split()[0] for line in lines[3:6]] == ["oism", "KDE", "exact"]
    assert lines[-2:] == ["report: out/here/report.html", "picture: out/here/picture.png"]
    assert sorted(path.name for path in (tmp_path / "out" / "here").iterdir()) == FILES


@pytest.mark.parametrize("call", ["OISM.save", "overview", "Report.page", "Report.numbers"])
def test_an_interruption_leaves_all_files_or_none(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are written one after another, and each takes time."""

    def interrupted(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"oism.cli.demo_report.{call}", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run("moons", 50, 20, 0, tmp_path)
    assert not list(tmp_path.iterdir())


def test_numbers_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The work is the same; only the output differs."""

    class Fake:
        def numbers(self) -> dict[str, float]:
            return {"a": float("nan"), "b": 1.0}

    monkeypatch.setattr("oism.cli.demo_report.run", lambda *arguments: Fake())
    assert main(["demo", "--json", "-o", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": 1.0}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--rows 3", "--rows: expected at least 20, got 3"),
        ("--test-rows 1", "--test-rows: expected at least 2, got 1"),
        ("--rows many", "--rows"),
        ("--name square", "--name"),
    ],
)
def test_bad_numbers(
    words: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", *words.split(), "-o", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_folder_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work: Callable[..., None] = pytest.fail
    monkeypatch.setattr("oism.cli.demo_report.measure", work)
    monkeypatch.setattr("oism._core.atomic.os.access", lambda place, mode: Path(place) != tmp_path)
    with pytest.raises(PermissionError, match="no permission"):
        run("moons", 50, 20, 0, tmp_path)
