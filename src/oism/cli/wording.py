"""The library's messages in the words of the shell.

The library names arguments as Python writes them, and a person at a shell types options. What a
command can check itself, it checks before it calls the library. The rules here rewrite the rest:
arguments in remedies, and scikit-learn's messages about parameters.

>>> in_shell_words("give periodic={'phi': 360}, or bounds={'phi': (-180, 180)} if it is none")
'give --periodic phi=360, or --bounds phi=-180:180 if it is none'
>>> in_shell_words("The 'ridge' parameter of OISM must be a float. Got -1 instead.")
'--ridge: must be a float, got -1'
"""

from __future__ import annotations

import re

KEY = r"'?([^'{}:]+?)'?"

PARAMETER = r"^The '(\w+)' parameter of \w+ must be (.*)\. Got (.*) instead\.$"

INCOMPLETE = r"^Input X contains NaN: column (.*), row \d+\. Leave out rows with missing values"

RULES: tuple[tuple[str, str], ...] = (
    (
        INCOMPLETE,
        r"--missing use: column \1 has missing values, and this model needs complete rows: "
        r"--missing skip leaves out those with missing values",
    ),
    (r", or fit with process='joint', which uses", r", --process joint uses"),
    (PARAMETER, r"--\1: must be \2, got \3"),
    (r"a str among \{'(\w+)'\}", r"\1"),
    (r"an? (int|float) in the range \[([^,]+), inf\)", r"a number from \2"),
    (rf"\bperiodic=\{{{KEY}: ([^{{}}]+)\}}", r"--periodic \1=\2"),
    (rf"\bbounds=\{{{KEY}: \(([^,]+), None\)\}}", r"--bounds \1=\2:"),
    (rf"\bbounds=\{{{KEY}: \(([^,]+), ([^)]+)\)\}}", r"--bounds \1=\2:\3"),
    (r"\bOISM\(process='(\w+)'\)", r"`oism fit --process \1`"),
    (r"\bprocess='(\w+)'", r"--process \1"),
    (r"\bmethod must be '(\w+)'", r"--method: must be \1"),
    (r"\b(bounds|given|periodic)\['?([^'\]]+)'?\] must", r"--\1 \2: must"),
)
"""Patterns and what replaces them, in this order."""


def in_shell_words(text: str) -> str:
    """Return a message of the library with options instead of arguments."""
    for pattern, words in RULES:
        text = re.sub(pattern, words, text)
    return re.sub(r"--\w+(?=:| )", lambda one: one[0].replace("_", "-"), text)
