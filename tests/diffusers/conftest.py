"""No test of this folder reaches the network."""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"
