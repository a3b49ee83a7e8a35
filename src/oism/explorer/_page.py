"""The page from its sources: scripts and style are written into the HTML, one file in all."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

NUMERICS = (
    "lattice", "linear", "fft", "operator", "equations", "table", "choice", "flow", "chart",
    "folds", "random", "model", "toys", "kde", "heldout", "density", "worker",
)  # fmt: skip
"""The mathematics, which the workers run too, in the order of definition."""

APP = ("csv", "view", "fitting", "texts", "app")
"""The page, on the main thread."""


@cache
def page() -> str:
    """Return the explorer as one HTML document.

    >>> "<canvas" in page(), "http:" in page()
    (True, False)
    """
    numerics = '"use strict";\n' + "\n".join(_source("numerics", f"{name}.js") for name in NUMERICS)
    app = "\n".join(_source("app", f"{name}.js") for name in APP)
    parts = {
        "style": _source("app", "style.css"),
        "numerics": numerics,
        "app": f'"use strict";\n(() => {{\n{app}\n}})();',
    }
    text = _source("app", "page.html")
    for name, content in parts.items():
        text = text.replace(f"{{{{{name}}}}}", content, 1)
    return text


def _source(folder: str, name: str) -> str:
    return (files("oism.explorer") / folder / name).read_text(encoding="utf-8")
