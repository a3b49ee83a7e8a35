"""Warnings that point to the line of the user's code that led to them.

A number of frames would be wrong: the same warning is reached in several ways, through estimators
and decorators of other libraries.
"""

from __future__ import annotations

import sys
import warnings

LIBRARIES = frozenset(
    {"oism", "sklearn", "torch", "joblib", "contextlib", "functools", "concurrent", "threading"}
)
"""Top-level packages whose frames are not those of a user: they call our code, or it calls them."""


def warn(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn, at the innermost line outside of the `LIBRARIES`."""
    # `skip_file_prefixes` of `warnings.warn` needs Python 3.12.
    frame, level = sys._getframe(1), 2
    while str(frame.f_globals.get("__name__")).partition(".")[0] in LIBRARIES:
        if frame.f_back is None:  # all of the stack is ours, as in a thread
            level = 2
            break
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)
