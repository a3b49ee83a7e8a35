"""The dtypes of stored tensors. A complex tensor is stored as its real and imaginary parts."""

from __future__ import annotations

import torch

from oism.storage._entry import Entry

REALS = {torch.complex64: torch.float32, torch.complex128: torch.float64}
INTEGERS = [f"{kind}int{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64)]
FLOATS = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
DTYPES: dict[str, torch.dtype] = {n: getattr(torch, n) for n in ("bool", *INTEGERS, *FLOATS)}


def dtype_name(dtype: torch.dtype, at: Entry) -> str:
    """Return the name of a dtype; raise if tensors of it are not stored."""
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise TypeError(f"{at}has the dtype {dtype}, which cannot be stored")
    return name
