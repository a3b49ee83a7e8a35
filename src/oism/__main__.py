"""The command ``oism``, also as ``python -m oism``.

An interruption while the command is imported is answered as one of the command itself.
"""

import sys


def main() -> int:
    """Run the command and return its exit code."""
    try:
        from oism.cli import main as command  # noqa: PLC0415 (half a second)
    except KeyboardInterrupt:
        sys.stderr.write("oism: error: interrupted\n")
        return 130
    return command()


if __name__ == "__main__":
    sys.exit(main())
