from __future__ import annotations

import pytest
import torch
from hypothesis import settings

# One profile for everyone: derandomised, so a failure here is a failure anywhere.
settings.register_profile("oism", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("oism")

# The problems are small, and threads that wait for each other on a busy machine take far longer.
torch.set_num_threads(1)


@pytest.fixture
def generator() -> torch.Generator:
    """The only source of randomness of a test."""
    return torch.Generator().manual_seed(0)
