"""Where results go, looked at before the work begins."""

from __future__ import annotations

import os
import sys

from oism.cli.ending import UsageError
from oism.cli.options import STANDARD


def demand_file(output: str, *, binary: bool = True) -> None:
    """Raise unless a file can be written there."""
    from oism._core.atomic import demand_writable

    if output != STANDARD:
        demand_writable(output)
    elif binary and sys.stdout.isatty():
        raise UsageError("-o: this is no text for a terminal: name a file, or redirect the output")


def demand_table(output: str, format: str | None) -> str:  # noqa: A002
    """Return the format of a table that can be written there."""
    from oism.data.files import TEXT_FORMATS, format_of

    kind = format_of(output, format)
    demand_file(output, binary=kind not in TEXT_FORMATS)
    return kind


def demand_other(output: str, source: str) -> None:
    """Raise where a result would replace what it was made from."""
    there = STANDARD not in (output, source) and os.path.exists(output) and os.path.exists(source)
    if there and os.path.samefile(output, source):
        raise UsageError(f"-o: {output} is the input, and would be overwritten")
