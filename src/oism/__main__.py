"""``python -m oism`` is the command ``oism``."""

import sys

from oism.cli import main

if __name__ == "__main__":
    sys.exit(main())
