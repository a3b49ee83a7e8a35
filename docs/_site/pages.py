"""Pages of the repository as pages of the site.

The source folder of Sphinx is the whole repository, so that relative links between Markdown files
are those of the site, and no file is copied or rewritten. The addresses leave out ``docs/``:
``docs/learn/angles.md`` is ``learn/angles.html``. The explorer and MathJax are added as files.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.builders.html import StandaloneHTMLBuilder

from oism.explorer import page

PREFIX = "docs/"
MATHJAX = ("tex-chtml.js", "input/tex/extensions", "output/chtml/fonts/woff-v2")


class Pages(StandaloneHTMLBuilder):
    """HTML pages without ``docs/`` in their addresses."""

    def get_target_uri(self, docname: str, typ: str | None = None) -> str:
        """Return the address of a page."""
        return super().get_target_uri(docname.removeprefix(PREFIX), typ)

    def get_output_path(self, page_name: str, /) -> Path:
        """Return the file of a page."""
        return super().get_output_path(page_name.removeprefix(PREFIX))

    def dump_search_index(self) -> None:
        """Write the index of the search, with the addresses of the site."""
        super().dump_search_index()
        file = Path(self.outdir) / self.searchindex_filename
        head, _, rest = file.read_text(encoding="utf-8").partition("(")
        index = json.loads(rest.rstrip().removesuffix(")"))
        index["docnames"] = [name.removeprefix(PREFIX) for name in index["docnames"]]
        file.write_text(f"{head}({json.dumps(index, separators=(',', ':'))})", encoding="utf-8")


def add_files(app: Sphinx, error: Exception | None) -> None:
    """Write the explorer, and the part of MathJax that pages use."""
    if error is not None:
        return
    out = Path(app.outdir)
    (out / "explore.html").write_text(page(), encoding="utf-8")
    spec = importlib.util.find_spec("sphinx-mathjax-offline")
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).parent / "static" / "mathjax"
    for part in MATHJAX:
        target = out / "_static" / "mathjax" / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if (source / part).is_dir():
            shutil.copytree(source / part, target, dirs_exist_ok=True)
        else:
            shutil.copyfile(source / part, target)


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the builder and the files."""
    app.add_builder(Pages, override=True)
    app.connect("build-finished", add_files)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
