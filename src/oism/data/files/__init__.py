"""Tables in files: CSV, TSV, Parquet, NPY and NPZ, read into a `Sheet` and written from a table.

The format follows from the suffix, or is given. ``-`` is standard input or output, CSV unless a
format is given. Text formats may be compressed, ``.csv.gz``. Images are read by `open_images`, from
folders, from those of the formats that hold arrays or bytes, and from datasets of the Hub.

Messages count lines where the file is text, as an editor does, the header being line 1; in other
files they count rows, the first being row 1.

>>> import pyarrow as pa
>>> write(pa.table({"id": ["a", "b"], "x": [0.5, 1.5]}), "table.csv")
>>> sheet = read("table.csv")
>>> sheet.names, sheet.numbers(["x"])
(['id', 'x'], array([[0.5],
       [1.5]]))
"""

from oism.data.files._columns import FileError, find_column, numbering, unknown_column
from oism.data.files._formats import FORMATS, TEXT_FORMATS, format_of, read, write, write_array
from oism.data.files._image_grid import demand_images, write_images
from oism.data.files._images import Images, open_images
from oism.data.files._sheet import Sheet
from oism.data.files._sources import is_images
from oism.data.files._streams import STANDARD, called, read_bytes, write_bytes

__all__ = [
    "FORMATS",
    "STANDARD",
    "TEXT_FORMATS",
    "FileError",
    "Images",
    "Sheet",
    "called",
    "demand_images",
    "find_column",
    "format_of",
    "is_images",
    "numbering",
    "open_images",
    "read",
    "read_bytes",
    "unknown_column",
    "write",
    "write_array",
    "write_bytes",
    "write_images",
]
