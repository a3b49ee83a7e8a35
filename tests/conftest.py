from __future__ import annotations

import pytest
import torch
from hypothesis import settings

# One profile for everyone: derandomised, so a failure here is a failure anywhere.
settings.register_profile("oism", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("oism")


@pytest.fixture
def generator() -> torch.Generator:
    """The only source of randomness of a test."""
    return torch.Generator().manual_seed(0)
