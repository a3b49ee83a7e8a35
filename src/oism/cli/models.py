"""Models from and to files and pipes, and the rows of a table as a model takes them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oism.cli.options import STANDARD

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from oism.estimator import OISM
    from oism.files import Sheet


def load(path: str) -> OISM:
    """Return the model in a file, or on standard input."""
    from oism.estimator import OISM
    from oism.files import FileError, called, read_bytes

    try:
        if path != STANDARD and Path(path).is_file():
            return OISM.load(path)
        with _scratch() as scratch:  # a pipe cannot be mapped into memory
            scratch.write_bytes(read_bytes(path))
            try:
                return OISM.load(scratch)
            except ValueError as error:
                raise ValueError(str(error).replace(str(scratch), called(path))) from error
    except (KeyError, ValueError) as error:
        message = str(error) if isinstance(error, ValueError) else f"it lacks {error}"
        name = called(path)
        message = message if name in message else f"{name}: {message}"
        raise FileError(f"{message}; `oism fit` makes a model") from error


def save(model: OISM, path: str) -> None:
    """Write a model to a file, or to standard output."""
    from oism.files import write_bytes

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


def own_names(model: OISM) -> list[str] | None:
    """Return the names of a model's columns, if it knows any."""
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def names_of(model: OISM) -> list[str]:
    """Return the names of a model's columns, or their numbers."""
    from oism.files import numbering

    return own_names(model) or numbering(model.n_features_in_)


def frame(rows: NDArray[np.float64], names: list[str] | None) -> Any:  # noqa: ANN401
    """Return rows as scikit-learn takes them: a frame where the columns have names."""
    import pyarrow as pa

    return rows if names is None else pa.table(dict(zip(names, rows.T.copy(), strict=True)))


def matching(sheet: Sheet, model: OISM, said: tuple[str, ...] = ()) -> list[str]:
    """Return the columns of a table that are a model's, in its order.

    By name, in whatever order they stand; by position where either side has no names and there are
    as many.
    """
    from oism.files import FileError, unknown_column

    count, names = model.n_features_in_, own_names(model)
    if said:
        if len(said) != count:
            raise FileError(f"--columns names {len(said)} columns, but the model has {count}")
        return sheet.choose(said)
    if names is not None and (sheet.named or set(names) <= set(sheet.names)):
        for name in names:
            if name not in sheet.names:
                raise unknown_column(name, sheet.names, sheet.source)
        return names
    if len(sheet.names) == count:
        return sheet.choose(())
    raise FileError(
        f"{sheet.source}: the table has {len(sheet.names)} columns ({', '.join(sheet.names)}), "
        f"the model {count} ({', '.join(names_of(model))}), and they cannot be matched by name: "
        "choose with --columns"
    )


def bars(*, quiet: bool) -> Any:  # noqa: ANN401
    """Return a context without progress bars, or one with."""
    from oism.progress import no_bars

    return no_bars() if quiet else nullcontext()
