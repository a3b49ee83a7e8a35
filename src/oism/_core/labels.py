"""Labels of rows: integers from 0, one per row; the number of classes stands for "no class"."""

from __future__ import annotations

import torch
from torch import Tensor

from oism._core import checks


def as_labels(labels: object, name: str = "labels") -> Tensor:
    """Return labels as integers, one number ``()`` or one per row ``(n,)``: int64.

    >>> as_labels([0, 2, 1])
    tensor([0, 2, 1])
    """
    try:
        found = torch.as_tensor(labels)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"{name} must be integers from 0: `np.unique({name}, return_inverse=True)[1]` numbers "
            f"names ({error})"
        ) from error
    if found.is_floating_point() or found.is_complex() or found.dtype == torch.bool:
        raise TypeError(f"{name} must be integers, got {found.dtype}")
    if found.ndim > 1:
        raise ValueError(
            f"{name} must be one number, or one per row, got shape {tuple(found.shape)}"
        )
    return found.long()


def check_range(
    labels: Tensor, classes: int, name: str = "labels", *, required: bool = False
) -> None:
    """Raise unless labels are those of classes, or ``classes`` itself for none if not required.

    On a device values are not read: reading would wait for it.
    """
    last = classes - 1 if required else classes
    if labels.device.type == "cpu" and not checks.holds((labels >= 0) & (labels <= last)):
        wrong = labels[(labels < 0) | (labels > last)].flatten()
        other = "" if required else f", or {classes} for no class"
        raise ValueError(f"{name} must be from 0 to {classes - 1}{other}, got {int(wrong[0])}")


def labels_of_rows(
    labels: object,
    count: int,
    classes: int,
    device: torch.device,
    name: str = "labels",
    *,
    required: bool = False,
) -> Tensor:
    """Return a label for each of ``count`` rows, on a device: ``(count,)``."""
    found = as_labels(labels, name)
    check_range(found, classes, name, required=required)
    if found.ndim and len(found) != count:
        raise ValueError(
            f"{name} must be one number or one per row: {count} rows, {len(found)} labels"
        )
    return found.to(device).expand(count)


def training_labels(labels: object, count: int | None = None) -> Tensor:
    """Return the labels of rows of data, of all classes from 0 on: ``(n,)``, int64, on the CPU."""
    found = as_labels(labels).cpu()
    if found.ndim != 1 or count not in (None, len(found)) or not len(found):
        wanted = "(n,)" if count is None else f"({count},)"
        raise ValueError(f"labels must be one per row, {wanted}, got shape {tuple(found.shape)}")
    if bool((found < 0).any()):
        raise ValueError(f"labels must be at least 0, got {int(found.min())}")
    seen = torch.unique(found)  # sorted; the largest may be any number
    gaps = (seen != torch.arange(len(seen))).nonzero()
    if len(gaps):
        raise ValueError(
            "labels must be numbers of classes from 0 on, each with some rows: the largest is "
            f"{int(seen[-1])}, and no row has {int(gaps[0])}"
        )
    return found
