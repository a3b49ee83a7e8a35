from __future__ import annotations

import sys

import pytest

from oism._core.extras import require


def test_the_error_of_a_missing_package_contains_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    message = r"^reading images needs Pillow: pip install 'oism\[images\]'$"
    with pytest.raises(ModuleNotFoundError, match=message) as caught:
        require("PIL", "images", purpose="reading images", package="Pillow")
    assert caught.value.name == "PIL"
    with pytest.raises(ModuleNotFoundError, match="training needs no_such: pip install"):
        require("no_such.part", "train", purpose="training")


def test_other_errors_are_not_hidden(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("packages")
    (folder / "present_package.py").write_text("import something_else_that_is_missing\n")
    monkeypatch.syspath_prepend(folder)
    with pytest.raises(ModuleNotFoundError, match="something_else_that_is_missing"):
        require("present_package", "images", purpose="reading images")
    assert require("json", "images", purpose="reading JSON") is sys.modules["json"]
