"""Bytes from and to files, pipes and the standard streams."""

from __future__ import annotations

import sys
from pathlib import Path

from oism._core.atomic import replacing

STANDARD = "-"
"""The path of standard input for reading, and of standard output for writing."""


def read_bytes(path: str) -> bytes:
    """Return the content of a file, or of standard input."""
    return sys.stdin.buffer.read() if path == STANDARD else Path(path).read_bytes()


def write_bytes(content: bytes, path: str) -> None:
    """Write a file, atomically, or to standard output."""
    if path == STANDARD:
        rest = memoryview(content)
        while rest:  # `python -u` may write only a part to a pipe
            rest = rest[sys.stdout.buffer.write(rest) :]
        sys.stdout.buffer.flush()
        return
    with replacing(path) as draft:
        draft.write_bytes(content)


def called(path: str) -> str:
    """Return the name of a source in messages."""
    return "standard input" if path == STANDARD else path
