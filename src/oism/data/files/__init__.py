"""Tables and images in files.

`read` returns the table in a CSV, TSV, Parquet, NPY or NPZ file as a `Sheet`, and `write` writes
one. The format follows from the suffix, or is given. ``-`` is standard input or output, CSV unless
a format is given. Text formats may be compressed, ``.csv.gz``. `open_images` returns the images in
a folder, in files that hold arrays or encoded images, or in a dataset of the Hugging Face Hub.
`open_table` returns a `TableFile`, which is read in batches.

Messages count lines where the file is text, as an editor does, the header being line 1; in other
files they count rows, the first being row 1.

>>> import pyarrow as pa
>>> write(pa.table({"id": ["a", "b"], "x": [0.5, 1.5]}), "table.csv")
>>> sheet = read("table.csv")
>>> sheet.names, sheet.numbers(["x"])
(['id', 'x'], array([[0.5],
       [1.5]]))
"""

from oism.data.files._batches import BATCH, Shard, TableFile, open_table
from oism.data.files._columns import FileError, find_column, numbering, unknown_column
from oism.data.files._decoding import MODES, Mode
from oism.data.files._formats import FORMATS, TEXT_FORMATS, format_of, read, write, write_array
from oism.data.files._hub import HUB_PREFIX, is_dataset_id
from oism.data.files._image_folder import IMAGE_SUFFIXES
from oism.data.files._image_writing import check_images, write_images
from oism.data.files._images import Images, open_images
from oism.data.files._labels import Labels
from oism.data.files._sheet import Sheet
from oism.data.files._sources import is_images
from oism.data.files._splits import TESTING, TRAINING, Split
from oism.data.files._streams import STANDARD, called, read_bytes, write_bytes

__all__ = [
    "BATCH",
    "FORMATS",
    "HUB_PREFIX",
    "IMAGE_SUFFIXES",
    "MODES",
    "STANDARD",
    "TESTING",
    "TEXT_FORMATS",
    "TRAINING",
    "FileError",
    "Images",
    "Labels",
    "Mode",
    "Shard",
    "Sheet",
    "Split",
    "TableFile",
    "called",
    "check_images",
    "find_column",
    "format_of",
    "is_dataset_id",
    "is_images",
    "numbering",
    "open_images",
    "open_table",
    "read",
    "read_bytes",
    "unknown_column",
    "write",
    "write_array",
    "write_bytes",
    "write_images",
]
