"""Images in folders, Parquet files, NPY and NPZ arrays, and datasets of the Hub.

Images are read in batches, so that a set may be larger than memory; every iteration reads them
again. All images of a set have one size and 8 bits per channel, and are all grey or all colour.

>>> import numpy as np
>>> from oism.data.files import write_images
>>> write_images("digits", np.zeros((5, 1, 8, 8), dtype=np.uint8))
>>> images = open_images("digits", batch=2)
>>> len(images), images.shape, [len(batch) for batch in images]
(5, (1, 8, 8), [2, 2, 1])
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from oism.data.files import _decoding as decoding
from oism.data.files._columns import FileError
from oism.data.files._decoding import BrokenImageError, Mode, Picture
from oism.data.files._labels import Labels, labels_of
from oism.data.files._sources import Source, entries
from oism.data.files._splits import TRAINING, Split


class Images:
    """Images of one size, in batches ``(n, channels, height, width)`` of uint8.

    Parameters
    ----------
    entries
        Where they come from.
    mode
        The mode that images are converted to: grey, ``L``, or colour, ``RGB``; None for neither.
    skip_broken
        Whether damaged images are left out.
    batch
        The number of images in a batch; the last may have fewer.

    Attributes
    ----------
    source
        The name of the source in messages.
    shape
        Channels, height and width of the first readable image.
    split
        The split of the dataset, where files or folders are named by splits.
    skipped
        The places of the damaged images among those that have been read.
    """

    def __init__(
        self, entries: Source, *, mode: Mode | None, skip_broken: bool, batch: int
    ) -> None:
        if mode not in (None, *decoding.MODES):
            raise ValueError(f"mode must be 'L', 'RGB' or None, got {mode!r}")
        if batch < 1:
            raise ValueError(f"batch must be at least 1, got {batch}")
        if not len(entries):
            raise FileError(f"{entries.source}: there are no images")
        self.source, self.split = entries.source, entries.split
        self.skipped = list[str]()
        self._entries, self._mode, self._batch, self._skip = entries, mode, batch, skip_broken
        self._broken = list[int]()
        self._example: tuple[int, ...] | None = None  # the shape of the first readable image
        self._first, picture = next(self._readable([]), (-1, None))
        if picture is None:
            raise FileError(f"{self.source}: none of the {len(entries)} images can be read")
        self._example = picture.shape
        self.shape = (1 if picture.ndim == 2 else 3, *picture.shape[:2])

    def __len__(self) -> int:
        """Return the number of images, damaged ones included."""
        return len(self._entries)

    def place(self, index: int) -> str:
        """Return the place of an image: its path, or its file and row, counted from 1."""
        return self._entries.place(index)

    def labels(self, column: str | None = None) -> Labels:
        """Return the classes of the images, without those that the last pass skipped.

        They are the names of the folders that hold the images, a column of a Parquet file or an
        array of an NPZ file: ``column``, or one with a usual name.
        """
        found = labels_of(self._entries, column)
        kept = np.setdiff1d(np.arange(len(self)), self._broken)
        return Labels(found.numbers[kept], found.names)

    def __iter__(self) -> Iterator[Picture]:
        broken: list[int] = []
        size = min(self._batch, len(self))
        batch, count = np.empty((size, *self.shape), np.uint8), 0
        for index, picture in self._readable(broken):
            if picture.shape != self._example:
                self._refuse(index, picture)
            batch[count] = picture if picture.ndim == 2 else picture.transpose(2, 0, 1)
            count += 1
            if count == size:
                self._skipping(broken)
                yield batch
                batch, count = np.empty((size, *self.shape), np.uint8), 0
        self._skipping(broken)
        if count:
            yield batch[:count]

    def _skipping(self, broken: list[int]) -> None:
        self._broken[:] = broken
        self.skipped[:] = map(self.place, broken)

    def _readable(self, broken: list[int]) -> Iterator[tuple[int, Picture]]:
        """Yield the images that can be read, with their indices; add the others to ``broken``."""
        for index, entry in enumerate(self._entries):
            try:
                picture = self._picture(index, entry)
            except BrokenImageError:
                if not self._skip:
                    raise
                broken.append(index)
            else:
                yield index, picture

    def _picture(self, index: int, entry: bytes | Picture | None) -> Picture:
        if isinstance(entry, np.ndarray):
            return entry if self._mode is None else decoding.converted(entry, self._mode)
        check = None if self._example is None else partial(self._check_size, index)
        return decoding.decoded(entry, self.place(index), self._mode, check)

    def _refuse(self, index: int, picture: Picture) -> None:
        """Raise for an image whose size or mode is not that of the first."""
        here, first = self.place(index), self.place(self._first)
        if picture.ndim != len(self._example or ()):
            grey, colour = decoding.MODES.values()
            kinds = (grey, colour) if picture.ndim == 2 else (colour, grey)
            raise FileError(
                f"{here}: the image is {kinds[0]}, but {first} is {kinds[1]}; --mode L or --mode "
                "RGB converts all"
            )
        self._check_size(index, *picture.shape[:2])

    def _check_size(self, index: int, height: int, width: int) -> None:
        """Raise for an image whose size is not that of the first."""
        assert self._example is not None
        high, wide = self._example[:2]
        if (height, width) != (high, wide):
            raise FileError(
                f"{self.place(index)}: the image is {width} × {height} pixels, but "
                f"{self.place(self._first)} is {wide} × {high}; all must have one size"
            )


def open_images(
    path: str | Sequence[str],
    *,
    column: str | None = None,
    mode: Mode | None = None,
    skip_broken: bool = False,
    batch: int = 1024,
    split: Split = TRAINING,
) -> Images:
    """Return the images in a folder or a file, or in several Parquet files; see `Images`.

    Encoded images need Pillow, datasets of the Hub need huggingface-hub: the extra ``images``.

    Parameters
    ----------
    path
        A folder, a file, several Parquet files, or a dataset of the Hub: ``hf://uoft-cs/cifar10``,
        or ``uoft-cs/cifar10`` where no such path exists. The files of a dataset are downloaded, or
        taken from the cache.
    column
        The column of a Parquet file, or the array of an NPZ file, where there is a choice.
    mode, skip_broken, batch
        See `Images`.
    split
        The split of a dataset: a folder of Parquet files, one of the Hub, or a folder of images
        whose folders are named by splits. Of several names the first that exists is taken, or the
        only split there is. Where nothing is named by a split, all images are read.
    """
    paths = [path] if isinstance(path, str) else list(path)
    source = entries(paths, column, split)
    return Images(source, mode=mode, skip_broken=skip_broken, batch=batch)
