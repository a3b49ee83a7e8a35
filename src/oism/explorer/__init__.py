"""The explorer: one self-contained HTML page that fits diffusion models of drawn points.

The page repeats the closed form on the torus in JavaScript: charts, averages, equations,
cross-validation and flow, with the numbers of `oism.OISM`. Its sources are the files of
``numerics``, the mathematics, and ``app``, the page; `page` puts them together.
"""

from __future__ import annotations

from oism.explorer._page import page
from oism.explorer._server import local_server

__all__ = ["local_server", "page"]
