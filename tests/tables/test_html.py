"""Fitted models as HTML: what it shows, that it is well formed, and when it is shown."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context

from oism import OISM
from oism.tables._html import model_html

VOID = {"br", "hr", "img", "meta", "input"}


class Page(HTMLParser):
    """The texts of a page by element, and the elements that are open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert not self.open, "every element is closed"

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.found.setdefault(self.open[-1], []).append(data)


@pytest.fixture(scope="module")
def model() -> OISM:
    r = np.random.default_rng(0)
    rows = pd.DataFrame({"<phi>": r.uniform(0, 360, 200), "size & age": r.beta(2, 3, 200)})
    bounds = {"size & age": (0.0, 1.0)}
    made: OISM = OISM(
        periodic={"<phi>": 360}, bounds=bounds, max_eigenvalue=9, flow_steps=16, cv=3
    ).fit(rows)
    return made


def test_the_page_of_a_fitted_model(model: OISM) -> None:
    page = Page(model._repr_html_())
    assert page.found["b"] == ["OISM"]
    assert page.found["div"] == ["200 rows · 2 columns"]
    cells = page.found["td"]
    assert cells == ["<phi>", "periodic", "modulo 360", "size & age", "bounded", "0 to 1"]
    choices = dict(zip(page.found["dt"], page.found["dd"], strict=True))
    assert choices["process"] == "Torus"
    assert choices["flow"] == "16 steps"
    assert choices["cv"] == "3"
    assert "periodic" not in choices, "the table of the columns shows it"
    assert page.found["pre"] == [model.summary()]
    assert model._repr_mimebundle_()["text/html"] == model._repr_html_()


def test_other_models_have_the_diagram_of_scikit_learn(model: OISM) -> None:
    unsolved = OISM().partial_fit(np.random.default_rng(0).normal(size=(30, 1)))
    for other in (OISM(), unsolved):
        assert "sk-" in other._repr_html_()
        assert "oism-model" not in other._repr_html_()
    assert unsolved._model is None, "to show a model solves no equations"
    with config_context(display="text"):
        assert "text/html" not in model._repr_mimebundle_()
        assert not hasattr(model, "_repr_html_")


def columns(*more: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": "x", "kind": "free"}, *more]


def test_what_is_shown_of_every_kind_of_column() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"kind": "free", "low": -1.0, "high": 2.5}, "box −1 to 2.5"),
        ({"kind": "half-bounded", "low": 0.0, "high": 9.0, "bound": 0.0}, "from 0"),
        ({"kind": "half-bounded", "low": 0.0, "high": 9.0, "bound": 9.0}, "up to 9"),
        ({"kind": "bounded", "low": 0.0, "high": None}, "from 0"),
        ({"kind": "bounded", "low": None, "high": 3.0}, "up to 3"),
        ({"kind": "discrete", "levels": 10, "low": 0, "high": 9}, "10 levels, 0 to 9"),
        ({"kind": "categorical", "levels": ["a", "b"]}, "a, b"),
        ({"kind": "categorical", "levels": list("abcdefg")}, "a, b, c, d, e, … (7 levels)"),
        ({"kind": "whitened"}, ""),
    ]
    found = [{"name": str(k), **case} for k, (case, _) in enumerate(cases)]
    page = page_of({"columns": found})
    for case, text in cases:
        assert f"<td>{case['kind']}</td><td>{text}</td>" in page


def page_of(facts: dict[str, Any]) -> str:
    return model_html("OISM", facts, rows=1234, parameters={}, summary="")


def test_the_choices_of_a_pool() -> None:
    members = [{"name": "KDE", "weight": 0.1}, {"name": "mixture", "weight": 0.9}]
    facts = {"kind": "columnwise", "held_out": -6.25, "components": 1200, "members": members}
    page = Page(page_of({**facts, "columns": columns()}))
    assert page.found["div"] == [
        "1,234 rows · 1 column · held-out log-likelihood −6.250 nats per row"
    ]
    assert page.found["dd"] == ["columnwise", "90% mixture; 10% KDE", "1,200"]


def test_many_columns_are_folded() -> None:
    many = [{"name": f"c{k}", "kind": "free"} for k in range(13)]
    assert Page(page_of({"columns": many})).found["summary"] == ["13 columns", "all choices"]
    assert Page(page_of({"columns": many[:12]})).found["summary"] == ["all choices"]
