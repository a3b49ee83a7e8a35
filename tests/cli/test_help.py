"""Help texts: each shows examples, and the examples run."""

from __future__ import annotations

import inspect
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import oism as package
from oism.cli import ABOUT, COMMANDS, parse

Run = Callable[..., Any]


def examples(text: str) -> list[str]:
    return re.findall(r"^\s+(oism .*)$", text, flags=re.MULTILINE)


EXAMPLES = {name: examples(command.__doc__ or "") for name, command in COMMANDS.items()}


def test_the_list_of_commands(oism: Run) -> None:
    ended = oism("--help")
    assert ended.code == 0
    for line in ABOUT.splitlines():
        assert line in ended.text
    for name, command in COMMANDS.items():
        first, *rest = inspect.cleandoc(command.__doc__ or "").splitlines()
        assert f"• {name} " in ended.text
        assert first[:40] in ended.text
        assert rest[-1].strip() not in ended.text, "the list has a line for each command"


def test_no_words_print_the_help(oism: Run) -> None:
    ended = oism("")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == oism("--help").out
    lines = [line.strip() for line in ended.text.splitlines()]
    start = lines.index("First commands:")
    assert [line.split()[1] for line in lines[start + 1 : start + 4]] == ["data", "fit", "sample"]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_examples_line_by_line(name: str, oism: Run) -> None:
    ended = oism(f"{name} --help")
    assert ended.code == 0
    lines = [line.strip() for line in ended.text.splitlines()]
    assert len(EXAMPLES[name]) >= 2
    for example in EXAMPLES[name]:
        assert example in lines


def run_line(line: str, oism: Run) -> None:
    """Run a line as a shell would: stages joined by pipes, the last one into a file."""
    line, _, target = line.partition(" > ")
    content = b""
    for stage in line.split(" | "):
        program, _, words = stage.partition(" ")
        assert program == "oism"
        ended = oism(words, content)
        assert ended.code == 0, ended.err
        content = ended.out
    if target:
        Path(target).write_bytes(content)


LONG = ("demo", "explore")  # test_demo.py runs the one with fewer rows, the other has no end
CASES = [line for lines in [examples(ABOUT), *EXAMPLES.values()] for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize("line", dict.fromkeys(CASES))
def test_examples_run(
    line: str,
    oism: Run,
    folder: Path,
    images: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("moons.csv", "moons.safetensors", "angles.csv"):
        shutil.copy(folder / name, tmp_path / name)
    shutil.copy(folder / "moons.csv", tmp_path / "test.csv")
    shutil.copy(images / "prior.safetensors", tmp_path)
    for name in ("images", "digits"):
        shutil.copytree(images / name, tmp_path / name)
    if "-o by-class" not in line:
        shutil.copytree(images / "by-class", tmp_path / "by-class")
    if "-o run" not in line:
        shutil.copytree(images / "run", tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    words = line.split()[1:]
    if words[0] in LONG:
        assert isinstance(parse(words), COMMANDS[words[0]])
        return
    run_line(line, oism)
    for output in re.findall(r"(?:-o|>) ([^-\s]\S*)", line):
        assert Path(output).stat().st_size > 0


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_fits_on_a_screen(name: str, oism: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    text = oism(f"{name} --help").text
    assert len(text.splitlines()) <= 46
    for unwanted in ("{None", "None|", "default: False", "default: None", "random-state"):
        assert unwanted not in text


def test_all_options_of_train(oism: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The help has the frequent ones; all of them are accepted and listed by --help-all."""
    monkeypatch.setenv("COLUMNS", "100")
    brief, whole = (oism(f"train {option}").text for option in ("--help", "--help-all"))
    found = [set(re.findall(r"│ (?:-\w \w+, )?(--[\w-]+)", text)) for text in (brief, whole)]
    assert {"--resume", "--prior", "--steps"} <= found[0] < found[1]
    assert {"--width", "--ema", "--save-every", "--image-column"} <= found[1] - found[0]
    for unwanted in ("{None", "default: False", "default: None"):
        assert unwanted not in whole


def test_options_have_the_same_name_everywhere(oism: Run) -> None:
    """One meaning for each name: the same metavar in every command, apart from what is written."""
    seen: dict[str, set[str]] = {}
    for name in COMMANDS:
        text = oism(f"{name} --help-all").text
        for option, metavar in re.findall(
            r"│ (?:-\w [\w.]+, )?(--[a-z-]+)((?: [A-Z][\w.|]*)?)", text
        ):
            seen.setdefault(option, set()).add(metavar.strip())
    several = {option for option, metavars in seen.items() if len(metavars) > 1}
    assert several <= {"--output", "--network"}, "seconds of training for rows, a folder for images"


def test_version(oism: Run) -> None:
    assert oism("--version").text == f"oism {package.__version__}\n"
