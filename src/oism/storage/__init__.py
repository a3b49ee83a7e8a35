"""Objects as files: one safetensors file for each object, and a registry of the classes in them.

The header of a file has one metadata entry, ``oism``, whose text is JSON:

    {"format": "oism", "version": 3, "class": "oism.process.VariancePreserving",
     "config": {"beta_0": 0.1, "beta_1": 20.0}, "sha256": "…"}

``class`` is a registered name and ``config`` holds the arguments that rebuild the object. Tensors
among them lie in the file under their dotted path, as ``system.basis.frequencies``. An array is a
tuple. For values that JSON does not have, an object with one key that starts with ``$`` is written:

    {"$tensor": "complex128"}  the tensor of this path; complex ones are stored as (…, 2) reals
    {"$object": {"class": …, "config": …}}    another registered object
    {"$external": {"class": …, "state": …}}   an object that has to be given again, see `External`
    {"$float": "inf"}, {"$dtype": "float64"}, {"$list": […]}

``sha256`` is the digest of the JSON text of {"class", "config"}, with sorted keys and no spaces;
then, for each tensor in the order of names, of the JSON text of [name, dtype, shape] and its bytes.
So a changed byte or value is an error. Equal objects give equal files; dictionaries come back
sorted. Nothing is pickled, and no file decides which code is run: it can only name classes that are
registered, or that a public module of oism registers when it is imported.

A class takes part by `storable`. Its ``to_config(self) -> dict`` returns the arguments, which go
back to its classmethod ``from_config`` if there is one and to the constructor otherwise; for a
dataclass they are the fields. Names and types are compared with the signature, on saving as well:
what can be saved can be loaded. A `torch.nn.Module` that sets ``stores_state = True`` has its state
dict stored as the entry ``state``, and `build_module` makes it again. A module that is made of
other modules states these and its own tensors instead, so that nothing is stored twice.
"""

import oism._core.forks  # noqa: F401 (every model is used through this package)
from oism.storage._dtypes import DTYPES as DTYPES
from oism.storage._entry import DEPTH as DEPTH
from oism.storage._entry import StorageError, public_name
from oism.storage._file import LONGEST_HEADER as LONGEST_HEADER
from oism.storage._file import MODEL as MODEL
from oism.storage._file import Storable, class_of, config_of, load, save, to_bytes
from oism.storage._header import FORMAT as FORMAT
from oism.storage._header import VERSION as VERSION
from oism.storage._module import build_module
from oism.storage._reader import Given as Given
from oism.storage._reader import restore
from oism.storage._registry import External, storable
from oism.storage._writer import describe

__all__ = [
    "External",
    "Storable",
    "StorageError",
    "build_module",
    "class_of",
    "config_of",
    "describe",
    "load",
    "public_name",
    "restore",
    "save",
    "storable",
    "to_bytes",
]
