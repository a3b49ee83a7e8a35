"""The site: `make docs` builds it in runs/site. See docs/_site for what it has beyond Sphinx."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
# Two notebooks run at once. More threads would wait for each other much longer than they work.
os.environ.setdefault("OMP_NUM_THREADS", "1")

project = "oism"
author = "The oism developers"
copyright = "the oism developers"  # noqa: A001
release = version = re.findall(
    r'__version__ = "(.*)"', (ROOT / "src/oism/__init__.py").read_text(encoding="utf-8")
)[0]

# The source is the repository itself; docs/_site/pages.py says why.
root_doc = "docs/index"
include_patterns = ["docs/**", "studies/README.md", "studies/*/report.md", "benchmarks/README.md",
                    "CHANGELOG.md", "CONTRIBUTING.md"]  # fmt: skip
exclude_patterns = [".*", "runs", "dist", "src", "tests", "**/__pycache__", "docs/README.md",
                    "docs/_site", "docs/_static"]  # fmt: skip
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax",
              "docs._site.reference", "docs._site.pages", "docs._site.tree",
              "docs._site.captions"]  # fmt: skip
nitpicky = False
suppress_warnings = ["misc.highlighting_failure"]

# Markdown. Headings have the anchors of GitHub, so that #links are the same in both.
myst_enable_extensions = ["amsmath", "attrs_block", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
myst_dmath_double_inline = True

# Notebooks are executed once for each state of the library: results of an older one are not shown.
sources = sorted((ROOT / "src").rglob("*.py"))
state = hashlib.sha256(b"".join(one.read_bytes() for one in sources)).hexdigest()[:12]
nb_execution_mode = "cache"
nb_execution_cache_path = str(ROOT / "runs" / "site-notebooks" / state)
nb_execution_timeout = 900  # of a cell, on a machine that does other things too
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_execution_in_temp = True
nb_merge_streams = True

# Docstrings: plain text with `names`, which are links where they are public names of the package.
default_role = "py:obj"
add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_inherit_docstrings = False
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
python_maximum_signature_line_length = 92
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"

# Mathematics without a network.
mathjax_path = "mathjax/tex-chtml.js"
mathjax3_config = {"options": {"enableMenu": False}}

html_theme = "furo"
html_title = "oism"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_favicon = "_static/favicon.svg"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_search_scorer = str(ROOT / "docs/_static/scorer.js")
html_show_search_summary = False  # excerpts are fetched, which files opened in a browser may not
pygments_style = "friendly"
pygments_dark_style = "github-dark"

# The colours of the explorer (src/oism/explorer/app/style.css).
FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, sans-serif'
html_theme_options = {
    "light_css_variables": {
        "font-stack": FONT,
        "color-foreground-primary": "#1b2430",
        "color-foreground-secondary": "#55606e",
        "color-foreground-muted": "#66717f",
        "color-foreground-border": "#8a95a3",
        "color-background-primary": "#ffffff",
        "color-background-secondary": "#f7f8fa",
        "color-background-hover": "#eceff4",
        "color-background-border": "#d5dbe2",
        "color-brand-primary": "#1f4b8f",
        "color-brand-content": "#1f4b8f",
        "color-brand-visited": "#1f4b8f",
        "color-api-name": "#1f4b8f",
        "color-api-pre-name": "#1f4b8f",
    },
    "dark_css_variables": {
        "color-foreground-primary": "#e6ebf1",
        "color-foreground-secondary": "#a3aebb",
        "color-foreground-muted": "#8d99a7",
        "color-foreground-border": "#56616e",
        "color-background-primary": "#0b0f14",
        "color-background-secondary": "#11171e",
        "color-background-hover": "#1b232d",
        "color-background-border": "#333d49",
        "color-brand-primary": "#8cc0f0",
        "color-brand-content": "#8cc0f0",
        "color-brand-visited": "#8cc0f0",
        "color-api-name": "#8cc0f0",
        "color-api-pre-name": "#8cc0f0",
    },
    "navigation_with_keys": True,
}
