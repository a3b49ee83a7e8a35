"""The page is one file that needs nothing else, and the command that writes or serves it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.request
import zipfile
from pathlib import Path
from urllib.error import HTTPError

import pytest

from oism.cli import main
from oism.explorer import page
from oism.explorer._page import APP, NUMERICS

PROJECT = Path(__file__).resolve().parents[2]
SOURCES = PROJECT / "src" / "oism" / "explorer"


def test_the_page_is_self_contained() -> None:
    text = page()
    assert "{{" not in re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert re.findall(r"""(?:src|href)=["']([^"']*)""", text) == ["data:,"]
    assert not re.search(r"https?://|@import|url\(|fetch\(|XMLHttpRequest|WebSocket", text)
    assert text.count("</script>") == 2
    assert "default-src 'none'" in text, "the browser refuses every request"


def test_every_source_is_in_the_page() -> None:
    for folder, names in (("numerics", NUMERICS), ("app", APP)):
        assert {path.stem for path in (SOURCES / folder).glob("*.js")} == set(names)
        for name in names:
            assert (SOURCES / folder / f"{name}.js").read_text() in page()
    assert (SOURCES / "app" / "style.css").read_text() in page()


def test_every_source_begins_with_what_it_holds() -> None:
    for path in SOURCES.rglob("*.js"):
        assert path.read_text().startswith("/* "), path.name
        assert max(map(len, path.read_text().splitlines())) <= 120, path.name


@pytest.mark.slow
def test_the_wheel_holds_the_sources(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(words, cwd=PROJECT, check=True, capture_output=True)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        held = {name for name in wheel.namelist() if name.startswith("oism/explorer/")}
    sources = [path for path in SOURCES.rglob("*") if path.suffix in (".js", ".css", ".html")]
    assert {path.relative_to(SOURCES.parents[1]).as_posix() for path in sources} <= held


def test_the_command_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "explorer.html"
    assert main(["explore", "-o", str(path)]) == 0
    assert path.read_text(encoding="utf-8") == page()
    assert str(path) in capsys.readouterr().out
    assert main(["explore", "-o", "-"]) == 0
    assert capsys.readouterr().out == page()


def test_the_command_serves_the_page_until_it_is_interrupted() -> None:
    words = [sys.executable, "-m", "oism", "explore", "--no-browser"]
    with subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        text=True,
        # A shell's background jobs ignore SIGINT, and hand that down.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    ) as process:
        assert process.stdout is not None
        try:
            found = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())
            assert found is not None
            with urllib.request.urlopen(found[0]) as answer:
                assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
                assert answer.read().decode() == page()
            with pytest.raises(HTTPError, match="404") as refused:
                urllib.request.urlopen(found[0] + "other")
            refused.value.close()
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=20) == 0
        finally:
            process.kill()  # or the end of the block would wait for ever
