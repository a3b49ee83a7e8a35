"""Cases that pass, fail, raise, crash and do not end, for the tests of the runner."""

from __future__ import annotations

import os
import time
from typing import Any


def judged(seed: int) -> dict[str, Any]:
    if seed == 1:
        raise RuntimeError("no")
    if seed == 2:
        os._exit(7)
    if seed == 3:
        time.sleep(600)
    return {"failed": ["odd"] if seed % 2 else []}
