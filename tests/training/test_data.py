"""Rows: what may be trained on, and whether it belongs to a prior, a network and noise levels."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from oism import OrnsteinUhlenbeck, VariancePreserving, fit_prior
from oism.basis import IdentityFrame
from oism.flow import Pixels
from oism.nn import MLP, DDPMpp, OperatorInformed
from oism.objectives import NoiseLevels, UniformLogSNR
from oism.process import Noising
from oism.training import Rows, stacked
from oism.training._compatibility import check_alike
from oism.training._data import rows_of

from .small import NET, PIXELS, SHAPE, config, fitted, images, predictor


def taken(rows: Rows) -> Tensor:
    half = torch.full((len(rows), *rows.shape), 0.5)
    return rows.take(torch.arange(len(rows)), None, half)


def test_bytes_are_pixels() -> None:
    values = torch.tensor([[0, 255], [51, 204]], dtype=torch.uint8)
    rows = Rows(values)
    assert rows.pixels == Pixels()
    assert rows.dequantise
    assert (len(rows), rows.shape) == (2, (2,))
    assert rows.values is values
    torch.testing.assert_close(taken(rows), torch.tensor([[-1.0, 1.0], [-0.6, 0.6]]))


@pytest.mark.parametrize(
    "kind", [torch.uint8, torch.int16, torch.int64, torch.float32, torch.float64, torch.float16]
)
def test_pixels_of_any_kind_are_taken_in_float32(kind: torch.dtype) -> None:
    rows = Rows(torch.tensor([[0, 4], [16, 8]], dtype=kind), PIXELS)
    assert taken(rows).dtype == torch.float32
    assert taken(rows).tolist() == [[-1, -0.5], [1, 0]]


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16])
def test_numbers_are_taken_as_they_are(kind: torch.dtype) -> None:
    rows = Rows(torch.tensor([[0.25, -3.0]], dtype=kind))
    assert rows.pixels is None
    assert not rows.dequantise
    assert taken(rows).dtype == torch.float32
    assert taken(rows).tolist() == [[0.25, -3.0]]


def test_rows_move_with_all_they_know() -> None:
    rows = Rows(images(), PIXELS, dequantise=False)
    moved = rows.to(torch.device("meta"))
    assert moved.device.type == "meta"
    assert (moved.pixels, moved.dequantise, moved.shape) == (PIXELS, False, SHAPE)


BAD: dict[str, tuple[Any, Pixels | None, type[Exception], str]] = {
    "one axis": (torch.zeros(5), None, ValueError, "data must be tensors (n, *shape), got (5,)"),
    "no rows": (
        torch.zeros(0, 3),
        None,
        ValueError,
        "data must be tensors (n, *shape), got (0, 3)",
    ),
    "no entries": (torch.zeros(3, 0), None, ValueError, "data must be tensors (n, *shape)"),
    "integers": (
        torch.ones(3, 2, dtype=torch.int64),
        None,
        TypeError,
        "pixels must be given for integers other than bytes, got torch.int64",
    ),
    "NaN": (
        torch.tensor([[0.0], [torch.nan]]),
        None,
        ValueError,
        "data must be finite, but data[1, 0] = nan",
    ),
    "out of range": (
        torch.tensor([[3], [17]]),
        PIXELS,
        ValueError,
        "data must be in [0, 16], but row 1 holds 17",
    ),
    "between levels": (
        torch.tensor([[3.5]]),
        PIXELS,
        ValueError,
        "data must be whole numbers, but row 0 holds 3.5",
    ),
    "an array": (np.zeros((3, 2)), None, TypeError, "data must be of type Tensor, got ndarray"),
    "a range": (torch.ones(3, 2).byte(), (0, 16), TypeError, "pixels must be of type Pixels"),  # type: ignore[dict-item]
}


@pytest.mark.parametrize("case", BAD)
def test_bad_rows(case: str) -> None:
    values, pixels, error, message = BAD[case]
    with pytest.raises(error, match=re.escape(message)):
        Rows(values, pixels)


def test_batches_in_one_tensor() -> None:
    parts = [np.full((2, 3), 7, dtype=np.uint8), np.zeros((1, 3), dtype=np.uint8)]
    found = stacked(parts)
    assert found.dtype == torch.uint8
    assert found.tolist() == [[7, 7, 7], [7, 7, 7], [0, 0, 0]]


def test_batches_of_tensors_need_not_be_arrays() -> None:
    """Those of a DataLoader may come with labels, in bfloat16, or from another device."""
    values, labels = torch.arange(12.0).reshape(6, 2), torch.arange(6)
    loader: DataLoader[Any] = DataLoader(TensorDataset(values, labels), batch_size=4)
    assert torch.equal(stacked(loader), values)
    assert torch.equal(rows_of(loader, None, dequantise=False).values, values)
    half = values.bfloat16().requires_grad_()
    found = stacked([half[:4], half[4:]])
    assert torch.equal(found, values.bfloat16())
    assert not found.requires_grad
    moved = values.to("meta")
    assert stacked([moved[:4], moved[4:]]).device.type == "meta"


@pytest.mark.filterwarnings("error")
def test_batches_that_cannot_be_written_to() -> None:
    values = np.arange(6.0).reshape(3, 2)
    values.flags.writeable = False
    found = stacked([values, values[::-1], [[7.0, 8.0]]])
    assert found.dtype == torch.float64
    assert found.tolist() == [[0, 1], [2, 3], [4, 5], [4, 5], [2, 3], [0, 1], [7, 8]]
    found.zero_()
    assert values[2, 1] == 5


def test_data_of_other_kinds_become_rows() -> None:
    values = images()
    rows = Rows(values, PIXELS)
    assert rows_of(rows, None, dequantise=False) is rows
    for data in (values, values.numpy(), [values[:50], values[50:].numpy()]):
        found = rows_of(data, PIXELS, dequantise=False)
        assert torch.equal(found.values, values)
        assert (found.pixels, found.dequantise) == (PIXELS, False)
    with pytest.raises(ValueError, match="data must hold at least one batch, got none"):
        rows_of([], None, dequantise=True)
    with pytest.raises(TypeError, match="data must be a tensor, an array, batches of them or Rows"):
        rows_of(None, None, dequantise=True)


def test_what_belongs_together() -> None:
    prior, rows = fitted(), Rows(images(), PIXELS)
    levels = UniformLogSNR(prior.noising)
    for net in (predictor(prior), predictor()):
        check_alike(net, rows, levels, config())
    check_alike(MLP(2), Rows(torch.zeros(3, 2)), levels, config())  # nothing to dequantise


def test_what_does_not() -> None:
    prior, rows = fitted(), Rows(images(), PIXELS)
    levels, net = UniformLogSNR(prior.noising), predictor(prior)
    slow = Noising(OrnsteinUhlenbeck(), VariancePreserving(beta_1=10.0))
    flat = images().flatten(1)

    def refused(message: str, net: nn.Module, rows: Rows, levels: NoiseLevels) -> None:
        settings = config(dequantise=rows.dequantise)
        with pytest.raises(ValueError, match=re.escape(message)):
            check_alike(net, rows, levels, settings)

    refused("prior must have been fitted for the clock", net, rows, UniformLogSNR(slow))
    refused(
        "prior must be for data that are of shape (16,), as these, got one for data that are of "
        "shape (1, 4, 4)",
        net, Rows(flat, PIXELS), levels,
    )  # fmt: skip
    refused(
        "prior must be for data that are pixels from 0 to 255", net, Rows(images()), levels,
    )  # fmt: skip
    refused(
        "prior must be for data that are no pixels, as these, got one for data that are pixels "
        "from 0 to 16",
        net, Rows(images().float()), levels,
    )  # fmt: skip
    refused(
        "prior must be for data that are not dequantised, as these, got one for data that are "
        "dequantised",
        net, Rows(images(), PIXELS, dequantise=False), levels,
    )  # fmt: skip
    refused(
        "net must take tensors of the data's shape (1, 4, 4), got (1, 8, 8)",
        DDPMpp((1, 8, 8), **NET), rows, levels,
    )  # fmt: skip


def test_the_configuration_agrees_with_data_and_levels() -> None:
    """It is written to the folder of a run, and must be what is done."""
    prior = fitted()
    rows, levels = Rows(images(), PIXELS), UniformLogSNR(prior.noising)
    with pytest.raises(ValueError, match=r"levels must begin at first = 0\.001, got 1e-05"):
        check_alike(predictor(), rows, levels, config(first=1e-3))
    with pytest.raises(ValueError, match="data must be those of dequantise = False, got True"):
        check_alike(predictor(), rows, levels, config(dequantise=False))


def test_vectors_are_data_too() -> None:
    x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    prior = fit_prior(x, order=3, frame=IdentityFrame())
    net = OperatorInformed(MLP(3), prior)
    check_alike(net, Rows(x), UniformLogSNR(prior.noising), config())
