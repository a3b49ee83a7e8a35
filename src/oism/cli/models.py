"""Models from and to files and pipes, and the rows of a table as a model takes them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oism.cli.options import STANDARD

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from oism.data.files import Sheet
    from oism.images import Prior
    from oism.nn import Diffusion
    from oism.tables import OISM


@dataclass(frozen=True)
class Stored:
    """A file with a model of a table, a prior of images or a trained model, or a run's folder.

    What it is called, and where it is.
    """

    path: str
    file: Path

    @property
    def is_prior(self) -> bool:
        """Whether it holds a prior, by its header."""
        from oism.images._storage import is_prior

        return self.file.is_file() and is_prior(self.file)

    @property
    def is_trained(self) -> bool:
        """Whether it holds a model with a network, or is the folder of a run."""
        from oism.nn._storage import is_diffusion

        return self.file.is_dir() or is_diffusion(self.file)

    def model(self) -> OISM:
        """Return the model of a table."""
        from oism.data.files import FileError, called
        from oism.tables import OISM

        if self.is_prior:
            raise FileError(
                f"{called(self.path)}: a prior of images, not a model of a table; `oism evaluate` "
                "evaluates it on images"
            )
        if self.is_trained:
            raise FileError(
                f"{called(self.path)}: a trained model of images, not a model of a table; `oism "
                "evaluate` evaluates it, `oism sample` draws from it"
            )
        with self._told():
            return OISM.load(self.file)

    def prior(self) -> Prior:
        """Return the prior of images."""
        from oism.data.files import FileError, called, format_of
        from oism.images import Prior

        if self.is_trained:
            raise FileError(f"{called(self.path)}: a trained model of images, not a prior of them")
        if not self.is_prior and (format_of(self.file) or "").startswith("oism."):
            raise FileError(
                f"{called(self.path)}: a model of a table, not a prior of images; `oism density` "
                "evaluates models of tables"
            )
        with self._told():
            return Prior.load(self.file)

    def trained(self) -> Diffusion:
        """Return the trained model of a file or a run."""
        from oism.nn import Diffusion
        from oism.training import model_of

        with self._told(advice=""):
            return model_of(self.file) if self.file.is_dir() else Diffusion.load(self.file)

    @contextmanager
    def _told(self, advice: str = "; `oism fit` makes a model") -> Iterator[None]:
        """Say in words what is wrong with a file, by its name."""
        from oism.data.files import FileError, called

        try:
            yield
        except (KeyError, ValueError) as error:
            message = str(error) if isinstance(error, ValueError) else f"it lacks {error}"
            name = called(self.path)
            message = message.replace(str(self.file), name)
            message = message if name in message else f"{name}: {message}"
            raise FileError(f"{message}{advice}") from error


@contextmanager
def opened(path: str) -> Iterator[Stored]:
    """Give a file with a model: itself, or a copy of what a pipe or standard input holds.

    The folder of a run will do as well.
    """
    from oism.data.files import read_bytes

    if path != STANDARD and (Path(path).is_file() or _is_run(path)):
        yield Stored(path, Path(path))
        return
    with _scratch() as scratch:  # a pipe cannot be mapped into memory
        scratch.write_bytes(read_bytes(path))
        yield Stored(path, scratch)


def _is_run(path: str) -> bool:
    from oism.data.files import FileError

    if not Path(path).is_dir():
        return False
    from oism.training._folder import holds_run

    if not holds_run(Path(path)):
        raise FileError(f"{path}: a folder, and it holds no run of `oism train`")
    return True


def load(path: str) -> OISM:
    """Return the model of a table in a file, or on standard input."""
    with opened(path) as stored:
        return stored.model()


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


def own_names(model: OISM) -> list[str] | None:
    """Return the names of a model's columns, if it knows any."""
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def names_of(model: OISM) -> list[str]:
    """Return the names of a model's columns, or their numbers."""
    from oism.data.files import numbering

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
    from oism.data.files import FileError, unknown_column

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
    from oism._core.progress import no_bars

    return no_bars() if quiet else nullcontext()
