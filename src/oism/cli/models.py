"""Models from and to files and pipes, and the columns of a table that a model uses."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from oism.cli.options import STANDARD

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from oism.data.files import Sheet
    from oism.images import Prior
    from oism.nn import Diffusion
    from oism.tables import OISM, Column

Kind = Literal["table", "prior", "trained"]

PACKAGES: dict[str, Kind] = {"tables": "table", "images": "prior", "nn": "trained"}
"""The kind of a model by the package of its class, which the header of a file names."""

PIPELINE = "model_index.json"
"""The file that marks the folder of a pipeline of diffusers."""

WORDS: dict[Kind, str] = {
    "table": "a model of a table",
    "prior": "a prior of images",
    "trained": "a trained model of images",
}
ADVICE: dict[Kind, str] = {
    "table": "`oism evaluate` and `oism density` evaluate it on rows",
    "prior": "`oism evaluate` evaluates it on images",
    "trained": "`oism evaluate` evaluates it, `oism sample` draws from it",
}


@dataclass(frozen=True)
class Stored:
    """A file with a model, or the folder of a run or of a pipeline of diffusers.

    ``path`` is the name that was given, ``file`` where it is.
    """

    path: str
    file: Path

    @property
    def is_pipeline(self) -> bool:
        """Whether it is a folder that a pipeline of diffusers was saved to."""
        return (self.file / PIPELINE).is_file()

    @property
    def kind(self) -> Kind | None:
        """The kind of the model, from the header of its file; None if that cannot be read."""
        from oism import storage

        if self.is_pipeline:
            return "trained"
        name = storage.class_of(self.file)
        return None if name is None else PACKAGES.get(name.split(".")[1])

    def table(self) -> OISM:
        """Return the model of a table, which returns arrays even if it was fitted to a frame.

        The library of that frame need not be installed here.
        """
        found: OISM = self.load("table")
        if hasattr(found, "columns_"):
            found.columns_ = replace(found.columns_, frame=None)
        return found

    def prior(self) -> Prior:
        """Return the prior of images."""
        found: Prior = self.load("prior")
        return found

    def trained(self) -> Diffusion:
        """Return the trained model of a file or a run."""
        found: Diffusion = self.load("trained")
        return found

    def load(self, wanted: Kind) -> Any:  # noqa: ANN401 (one of three)
        """Return a model of the kind that is wanted, or raise an error that names the file."""
        from oism import storage
        from oism.data.files import FileError, called

        kind = self.kind
        if kind not in (None, wanted):
            assert kind is not None
            raise FileError(
                f"{called(self.path)}: {WORDS[kind]}, not {WORDS[wanted]}; {ADVICE[kind]}"
            )
        try:
            return self._pipeline() if self.is_pipeline else storage.load(self.file)
        except storage.StorageError as error:
            raise FileError(str(error).replace(str(self.file), called(self.path))) from error

    def _pipeline(self) -> Diffusion:
        from oism.diffusers import read_model

        return read_model(self.file)


@contextmanager
def opened(path: str) -> Iterator[Stored]:
    """Yield a stored model: a file, the folder of a run, or a copy of what a pipe holds."""
    from oism.data.files import read_bytes

    if path != STANDARD and (Path(path).is_file() or Path(path).is_dir()):
        yield Stored(path, Path(path))
        return
    with _scratch() as scratch:  # a pipe cannot be mapped into memory
        scratch.write_bytes(read_bytes(path))
        yield Stored(path, scratch)


def load_table_model(path: str) -> OISM:
    """Return the model of a table in a file, or from standard input."""
    with opened(path) as stored:
        return stored.table()


def save(model: OISM | Prior, path: str) -> None:
    """Write a model to a file, or to standard output."""
    from oism.data.files import write_bytes

    if path != STANDARD:
        model.save(path)
        return
    with _scratch() as scratch:
        model.save(scratch)
        write_bytes(scratch.read_bytes(), path)


@contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "model.safetensors"


def column_names(model: OISM) -> list[str] | None:
    """Return the names of a model's columns, or None if it has none."""
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def column_labels(model: OISM) -> list[str]:
    """Return the names of a model's columns, or their numbers."""
    from oism.data.files import numbering

    return column_names(model) or numbering(model.n_features_in_)


def frame(rows: NDArray[np.float64], names: list[str] | None) -> Any:  # noqa: ANN401
    """Return rows as scikit-learn accepts them: a table if the columns have names."""
    import pyarrow as pa

    return rows if names is None else pa.table(dict(zip(names, rows.T.copy(), strict=True)))


def table_of(rows: NDArray[Any], model: OISM) -> pa.Table:
    """Return rows of a model, an array of numbers or objects, as a table with its columns.

    Columns of integers hold integers, and levels have the type that they had in the fit.
    """
    import pyarrow as pa

    names = column_labels(model)
    parts = [_cells(rows[:, j], model.columns_[j]) for j in range(len(names))]
    return pa.table(parts, names)


def _cells(values: NDArray[Any], column: Column) -> pa.Array:
    import numpy as np
    import pyarrow as pa

    if column.categorical:
        levels = pa.array(column.levels if _one_type(column) else map(str, column.levels))
        return pa.array(values if _one_type(column) else map(str, values), levels.type)
    numbers = values.astype(np.float64)
    if not column.is_integer:
        return pa.array(numbers)
    whole = column.whole(numbers)
    return pa.array(whole if whole.dtype == np.uint64 else whole.astype(np.int64))


def _one_type(column: Column) -> bool:
    return len({type(level) for level in column.levels}) == 1


def level_of(text: str, levels: tuple[Any, ...]) -> Any:  # noqa: ANN401 (levels are of any type)
    """Return the level that a text stands for, or None; flags are read in any case.

    >>> level_of("true", (False, True)), level_of("2", (1.0, 2.0)), level_of("Rome", ("Oslo",))
    (True, 2.0, None)
    """
    from oism.cli.options import is_number

    for level in levels:
        if str(level) == text or (isinstance(level, bool) and str(level).lower() == text.lower()):
            return level
    if not is_number(text):
        return None
    numbers = [level for level in levels if isinstance(level, int | float)]
    return next((level for level in numbers if float(level) == float(text)), None)


def matching(sheet: Sheet, model: OISM, chosen: tuple[str, ...] = ()) -> list[str]:
    """Return the columns of a table that are a model's, in the model's order.

    They are found by name, in any order; by position if the model or the table has no names and
    their numbers of columns agree.
    """
    from oism.data.files import FileError, unknown_column

    count, names = model.n_features_in_, column_names(model)
    if chosen:
        if len(chosen) != count:
            raise FileError(f"--columns names {len(chosen)} columns, but the model has {count}")
        return sheet.choose(chosen)
    if names is not None and (sheet.named or set(names) <= set(sheet.names)):
        for name in names:
            if name not in sheet.names:
                raise unknown_column(name, sheet.names, sheet.source)
        return names
    if len(sheet.names) == count:
        return sheet.choose(())
    raise FileError(
        f"{sheet.source}: the table has {len(sheet.names)} columns ({', '.join(sheet.names)}), "
        f"the model {count} ({', '.join(column_labels(model))}), and they cannot be matched by "
        "name: choose with --columns"
    )
