"""Columns of integers, and of True and False, keep their types in the shell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from oism import load

Run = Callable[..., Any]

TYPES = {"key": pa.int64(), "flag": pa.bool_(), "size": pa.float64()}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    r = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("types") / "t.parquet"
    columns = [r.integers(0, 10**6, 60), r.random(60) < 0.5, r.normal(size=60)]
    pq.write_table(pa.table(dict(zip(TYPES, columns, strict=True))), path)
    return path


@pytest.mark.parametrize("batch", ["", " --batch 25"])
def test_samples_have_the_types_of_the_table(table: Path, command: Run, batch: str) -> None:
    model, out = table.with_name("m"), table.with_name("z.parquet")
    assert command(f"fit {table} -o {model}{batch}").code == 0
    assert load(model).columns_.kinds == ("free", "categorical", "free")
    assert command(f"sample {model} -n 5 --given flag=True -o {out}").code == 0
    found = pq.read_table(out)
    assert dict(zip(found.column_names, found.schema.types, strict=True)) == TYPES
    assert all(found.column("flag").to_pylist())


def test_densities_leave_the_types_of_the_table(table: Path, command: Run) -> None:
    model, out = table.with_name("m2"), table.with_name("d.parquet")
    assert command(f"fit {table} --columns key size -o {model}").code == 0
    assert command(f"density {model} {table} -o {out}").code == 0
    assert pq.read_table(out).drop_columns(["log_density"]).equals(pq.read_table(table))


@pytest.mark.parametrize("words", [("True", "False"), ("true", "FALSE")])
def test_true_and_false_in_a_text_are_levels(
    tmp_path: Path, command: Run, words: tuple[str, str]
) -> None:
    size = np.random.default_rng(0).normal(size=60)
    lines = [f"{words[k % 2]},{x}" for k, x in enumerate(size)]
    (tmp_path / "t.csv").write_text("\n".join(["g,x", *lines, ",0.1"]) + "\n")
    ended = command(f"fit {tmp_path}/t.csv --missing use -o {tmp_path}/m")
    assert ended.code == 0, ended.err
    assert load(tmp_path / "m").columns_.levels(0) == (False, True)
    ended = command(f"sample {tmp_path}/m -n 3 --given g=True -o -")
    assert ended.code == 0, ended.err
    assert [line.split(",")[0].lower() for line in ended.text.splitlines()] == ["g", *["true"] * 3]
    assert (
        command(f"density {tmp_path}/m {tmp_path}/t.csv --missing use -o {tmp_path}/d.csv").code
        == 0
    )
    copied = [line.rpartition(",")[0] for line in (tmp_path / "d.csv").read_text().splitlines()]
    assert copied == ["g,x", *lines, ",0.1"]


def test_imputed_columns_keep_their_type(tmp_path: Path, command: Run) -> None:
    r = np.random.default_rng(0)
    keys = [2**53 + (10**13 + 1) * k for k in range(60)]
    whole = pa.table({"key": pa.array(keys), "x": r.normal(size=60)})
    pq.write_table(whole, tmp_path / "t.parquet")
    gaps = pa.array([None if k == 3 else key for k, key in enumerate(keys)])
    pq.write_table(whole.set_column(0, "key", gaps), tmp_path / "g.parquet")
    assert command(f"fit {tmp_path}/t.parquet --process joint -o {tmp_path}/m").code == 0
    assert command(f"impute {tmp_path}/m {tmp_path}/g.parquet -o {tmp_path}/f.parquet").code == 0
    found = pq.read_table(tmp_path / "f.parquet").column("key")
    assert found.type == pa.int64()
    assert found.null_count == 0
    assert all(
        a == b for k, (a, b) in enumerate(zip(found.to_pylist(), keys, strict=True)) if k != 3
    )
    fitted = command(f"fit {tmp_path}/g.parquet --missing use --process joint -o {tmp_path}/m")
    assert fitted.code == 0, fitted.err


def test_a_folder_of_tables_is_no_folder_of_images(tmp_path: Path, command: Run) -> None:
    (tmp_path / "some" / "deeper").mkdir(parents=True)
    (tmp_path / "some" / "deeper" / "t.csv").write_text("x\n1\n2\n")
    ended = command(f"fit {tmp_path}/some -o {tmp_path}/m")
    assert ended.code == 1
    assert f"a folder, not a table: name one of its files, as {tmp_path}/some/deeper" in ended.err
    (tmp_path / "some" / "0.png").write_bytes(b"")
    assert "holds images, not a table" in command(f"fit {tmp_path}/some -o {tmp_path}/m").err


def test_more_rows_than_the_memory_holds(table: Path, command: Run) -> None:
    model = table.with_name("m3")
    assert command(f"fit {table} --columns size -o {model}").code == 0
    ended = command(f"sample {model} -n 99999999999999")
    assert ended.code == 1
    assert "GiB are needed at once: ask for fewer rows" in ended.err
    assert "alloc_cpu" not in ended.err
    ended = command(f"sample {model} -n {10**26}")
    assert ended.code == 2
    assert "-n: expected at most 1000000000000000, got 1" in ended.err
