"""The command as a process: pipes, signals, permissions and exit codes as a shell sees them."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oism.cli.exit_codes import Terminated, delayed_signals, exit_code_of

Run = Callable[..., Any]
SMALL = ["--max-eigenvalue", "25", "--flow-steps", "16"]


@pytest.mark.slow
def test_from_data_to_densities(process: Run, tmp_path: Path) -> None:
    model, samples, scored = (tmp_path / name for name in ("m", "s.parquet", "d.csv"))
    fitted = process(f"fit angles.csv --columns phi psi -o {model} --json {' '.join(SMALL)}")
    assert fitted.code == 0, fitted.err
    assert json.loads(fitted.out)["rows"] == 120
    drawn = process(f"sample {model} -n 20 --seed 0 --density -o {samples}")
    assert drawn.text == f"20 rows written to {samples}\n"
    ended = process(f"density {model} {samples} --name again -o {scored}")
    assert ended.code == 0, ended.err
    table = np.genfromtxt(scored, delimiter=",", names=True)
    assert table.dtype.names == ("phi", "psi", "log_density", "again")
    np.testing.assert_allclose(table["again"], table["log_density"], rtol=1e-9)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d.csv", "m", "s.parquet"]


@pytest.mark.slow
def test_pipes_from_end_to_end(folder: Path) -> None:
    """Data as Parquet, the model, and samples as NPY, all through pipes."""
    stages = [
        ["data", "moons", "-n", "100", "--format", "parquet"],
        ["fit", "-", "--format", "parquet", "-o", "-", "--quiet", *SMALL],
        ["sample", "-", "-n", "7", "--format", "npy"],
    ]
    before: Any = None
    running = []
    for words in stages:
        stage = subprocess.Popen(
            [sys.executable, "-m", "oism", *words], stdin=before, stdout=subprocess.PIPE
        )
        if before is not None:
            before.close()
        before = stage.stdout
        running.append(stage)
    content = before.read()
    before.close()
    assert [stage.wait(timeout=60) for stage in running] == [0, 0, 0]
    assert np.load(io.BytesIO(content)).shape == (7, 2)


def test_a_reader_that_stops_reading_is_no_error() -> None:
    words = [sys.executable, "-m", "oism", "data", "moons", "-n", "100000"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline() == b"x,y\n"
        running.stdout.close()
        assert running.stderr.read() == b""
        assert running.wait(timeout=60) == 141


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_more_than_a_pipe_holds_arrives_whole(process: Run, unbuffered: str) -> None:
    ended = process("data moons -n 5000", env=os.environ | {"PYTHONUNBUFFERED": unbuffered})
    assert len(ended.out) > 2 * 65536
    assert ended.out.count(b"\n") == 5001


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("fit angles.csv -o m", 1, "oism: error: angles.csv: line 2, column 'id': 'r000' is not"),
        ("fit angles.csv --columns fi -o m", 1, "there is no column 'fi'"),
        ("fit nowhere.csv -o m", 1, "oism: error: nowhere.csv: no such file or directory"),
        ("fit - -o m", 1, "oism: error: standard input: the file is empty"),
        ("fit moons.csv -o - --json", 2, "oism: error: --json"),
        ("nonsense", 2, "nonsense"),
        ("info moons.csv", 1, "oism: error: moons.csv: is not a safetensors file"),
    ],
)
def test_exit_codes(process: Run, words: str, code: int, message: str) -> None:
    ended = process(words, stdin=subprocess.DEVNULL)
    assert ended.code == code
    assert ended.out == b""
    assert message in ended.err
    assert "Traceback" not in ended.err


def test_no_permission(unprivileged: Run, tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir()
    kept, secret = tmp_path / "kept.csv", tmp_path / "secret.csv"
    kept.write_text("mine\n")
    secret.write_text("x\n1\n")
    kept.chmod(0o444)
    secret.chmod(0o000)
    locked.chmod(0o555)
    for words, message in (
        (f"data moons -o {kept}", f"{kept}: no permission to write to this file"),
        (f"data moons -o {locked}/new.csv", f"{locked}: no permission to write in this folder"),
        (f"fit {secret} -o {tmp_path}/m", f"{secret}: permission denied"),
    ):
        ended = unprivileged(words)
        assert ended.code == 1
        assert ended.err == f"oism: error: {message}\n"
    assert kept.read_text() == "mine\n"
    assert not list(locked.iterdir())


def test_a_terminal_gets_no_bytes(folder: Path) -> None:
    terminal, end = os.openpty()
    words = [sys.executable, "-m", "oism", "fit", "moons.csv", "-o", "-"]
    done = subprocess.run(
        words, cwd=folder, stdout=end, stderr=subprocess.PIPE, check=False, timeout=60
    )
    os.close(end)
    os.close(terminal)
    assert done.returncode == 2
    assert b"no text for a terminal" in done.stderr


STOP = """
import os, sys, time
def stop(descriptor):  # the draft is whole, and not yet under its name
    print("here", flush=True)
    time.sleep(60)
os.fsync = stop
from oism.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code", "word"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
)
def test_an_interrupted_write_keeps_the_old_file(
    folder: Path, tmp_path: Path, number: signal.Signals, code: int, word: str
) -> None:
    old = tmp_path / "m"
    old.write_bytes(b"the old model")
    words = ["fit", "moons.csv", "-o", str(old), "--quiet", *SMALL]
    with subprocess.Popen(
        [sys.executable, "-c", STOP, *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A shell's background jobs ignore SIGINT, and hand that down.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline() == b"here\n"
        assert len(list(tmp_path.iterdir())) == 2, "there is a draft to be removed"
        os.kill(running.pid, number)
        assert running.wait(timeout=60) == code
        assert running.stderr.read().decode() == f"oism: error: {word}\n"
    assert old.read_bytes() == b"the old model"
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)]
)
def test_signals_wait_for_an_import(number: int, error: type[BaseException]) -> None:
    def raise_terminated(*_: object) -> None:
        raise Terminated

    before = [
        signal.signal(signal.SIGINT, signal.default_int_handler),
        signal.signal(signal.SIGTERM, raise_terminated),
    ]
    steps: list[str] = []

    def interrupted() -> None:
        with delayed_signals():
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), number)
            steps.append("imported")
        steps.append("worked")

    try:
        with pytest.raises(error):
            interrupted()
        assert steps == ["imported"]
        assert signal.getsignal(signal.SIGTERM) is raise_terminated
    finally:
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGTERM, before[1])


class Interrupts:
    """A descriptor during whose creation a signal arrives."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def __set_name__(self, owner: type, name: str) -> None:
        raise self.error


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt, 130), (Terminated, 143)])
def test_a_signal_while_a_class_is_created(
    error: type[BaseException], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """As while a module is imported: Python 3.11 raises a RuntimeError from it."""

    def work() -> None:
        type("Any", (), {"part": Interrupts(error)})

    assert exit_code_of(work) == code
    words = {130: "interrupted", 143: "terminated"}
    assert capsys.readouterr().err.startswith(f"oism: error: {words[code]}")


def test_an_interruption_while_the_command_is_imported() -> None:
    program = (
        "import sys, types; "
        "package = types.ModuleType('oism.cli'); "
        "sys.modules['oism.cli'] = package; "
        "find = lambda name: (_ for _ in ()).throw(error); "
        "package.__getattr__ = find; "
        "error = RuntimeError('while a class is created'); "
        "error.__cause__ = KeyboardInterrupt(); "
        "from oism.__main__ import main; "
        "sys.exit(main())"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, b"oism: error: interrupted\n")
