"""The Ramachandran study on a small file of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from oism.studies.ramachandran import read, report


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    angles = np.degrees(rng.vonmises([-1.0, 2.5], [4.0, 4.0], size=(300, 2)))
    path = tmp_path / "angles.csv"
    lines = [f"{phi:.3f},{psi:.3f},0" for phi, psi in angles]
    path.write_text("\n".join(["phi,psi,chi1", *lines, ",12.0,0"]) + "\n", encoding="utf-8")
    return path


def test_report(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPLBACKEND", "Agg")
    picture = file.parent / "picture.png"
    report(file, picture=picture)
    printed = capsys.readouterr().out
    assert "300 rows fitted in" in printed
    assert "periodic, period 360" in printed
    assert "no copies" in printed
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_columns_by_name(file: Path) -> None:
    rows = read(file, ("psi", "phi"))
    assert rows.shape == (300, 2), "an incomplete row is dropped"
    np.testing.assert_allclose(read(file, ("phi", "psi")), rows[:, ::-1])
    with pytest.raises(SystemExit, match="has no column 'omega', only phi, psi, chi1"):
        read(file, ("phi", "omega"))
