from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def _same_weights() -> Iterator[None]:
    """Layers draw their weights from the global generator: the same in every run of a test."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
