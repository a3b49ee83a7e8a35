"""The command ``oism``, also as ``python -m oism``.

An interruption while the command is imported is answered as one of the command itself.
"""

import sys


def main() -> int:
    """Run the command and return its exit code."""
    try:
        from oism.cli import main as command  # noqa: PLC0415 (half a second)
    except (KeyboardInterrupt, RuntimeError) as error:
        # Python 3.11 raises a RuntimeError from an interruption while a class is created.
        if not isinstance(error.__cause__ or error, KeyboardInterrupt):
            raise
        sys.stderr.write("oism: error: interrupted\n")
        return 130
    return command()


if __name__ == "__main__":
    sys.exit(main())
