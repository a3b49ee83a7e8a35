from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from oism import OISM

X = np.random.default_rng(0).uniform(0.05, 0.95, size=(99, 5))
SMALL: dict[str, Any] = {"max_eigenvalue": 9, "flow_steps": 7}


def lines(model: OISM) -> list[str]:
    return model.summary().splitlines()


def test_columns_of_a_box() -> None:
    model = OISM(periodic={0: 360.0}, bounds={1: (-2.0, 3.0)}, **SMALL).fit(X[:, :3])
    found = lines(model)
    assert found[0].split(maxsplit=1) == ["columns", "0: periodic, period 360"]
    assert found[1].strip() == "1: bounded, -2 to 3, reflected"
    low, high = X[:, 2].min(), X[:, 2].max()
    centre, half = 0.5 * (low + high), 0.5 * (high - low) * (1.1 + 1 / math.sqrt(99))
    expected = f"2: free, box from {centre - half:.4g} to {centre + half:.4g}"
    assert found[2].strip() == expected
    text = model.summary()
    assert f"{model.model_.operator_score.basis.size} waves, frequencies up to 3" in text
    assert "Torus, VarianceExploding clock" in text
    assert "7 steps" in text
    assert "a component of twice the spread, weight 0.01" in text


def test_many_columns() -> None:
    text = OISM(process="ou", order=3, flow_steps=7).fit(X).summary()
    assert "columns     5, whitened" in text
    assert "OrnsteinUhlenbeck, VariancePreserving clock" in text
    assert "polynomials up to degree 3" in text
    assert "for each direction and noise level" in text


def test_choices_and_their_absence() -> None:
    chosen = OISM(bounds={0: (0, 1)}, **SMALL).fit(X[:, :1])
    assert "chosen at   t         ridge     cutoff" in chosen.summary()
    assert "background" not in chosen.summary()
    first = lines(chosen)[4].split()
    diagnostics = chosen.model_.operator_score.diagnostics
    assert float(first[0]) == float(f"{float(diagnostics.t[0]):.2g}")
    assert float(first[1]) == float(f"{float(diagnostics.ridge[0]):.1e}")
    fixed = OISM(ridge=0.25, **SMALL).fit(X[:, :1])
    assert "2.5e-01" in fixed.summary()


def test_facts_are_plain() -> None:
    """The summary as JSON values."""
    model = OISM(periodic={0: 360.0}, bounds={1: (-2.0, 3.0)}, **SMALL).fit(X[:, :3])
    found = json.loads(json.dumps(model.facts(), allow_nan=False))
    kinds = [(column["name"], column["kind"]) for column in found["columns"]]
    assert kinds == [("0", "periodic"), ("1", "bounded"), ("2", "free")]
    assert found["columns"][1]["high"] == pytest.approx(3.0)
    assert found["process"] == {"kind": "Torus"}
    assert found["clock"]["kind"] == "VarianceExploding"
    assert found["times"] == list(model.model_.operator_score.times)
    assert found["functions"] == {
        "kind": "waves", "count": model.model_.operator_score.basis.size, "finest": 3.0
    }  # fmt: skip
    diagnostics = model.model_.operator_score.diagnostics
    assert [choice["ridge"] for choice in found["choices"]] == diagnostics.ridge.tolist()
    assert found["steps"] == 7
    assert found["background"] == pytest.approx(0.01)
    wide = json.loads(
        json.dumps(OISM(process="ou", order=3, flow_steps=7).fit(X).facts(), allow_nan=False)
    )
    assert wide["columns"][4] == {"name": "4", "kind": "whitened"}
    assert wide["process"]["kind"] == "OrnsteinUhlenbeck"
    assert wide["process"]["theta"] == 1.0
    assert wide["functions"]["degree"] == 3
    assert wide["choices"] == []
    assert wide["ridge"][0] <= wide["ridge"][1]


def test_names_of_columns() -> None:
    class Frame:
        """A minimal frame."""

        columns = np.array(["wind", "rain"], dtype=object)
        shape = (99, 2)

        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            return np.array(X[:, :2], dtype=dtype)

        def __len__(self) -> int:
            return 99

        def __dataframe__(self) -> None:
            raise NotImplementedError

    model = OISM(**SMALL).fit(Frame())
    names = getattr(model, "feature_names_in_", None)
    assert names is None or lines(model)[0].startswith("columns     wind: free")


def test_the_cutoff_is_the_frequency_up_to_which_waves_are_used() -> None:
    x = np.random.default_rng(0).normal(size=(200, 1))
    model = OISM(max_eigenvalue=100, flow_steps=4).fit(x)
    level = float(model.model_.operator_score.diagnostics.level[0])
    assert level > 0
    cutoff = 10 * 2 ** (-level / 2)  # each level halves ‖ξ‖²
    assert float(lines(model)[4].split()[2]) == float(f"{cutoff:.3g}")


def test_a_pool_of_mixtures() -> None:
    model = OISM(bounds={1: (0, None)}, periodic={0: 1.0}).fit(X[:, :4])
    text = model.summary()
    assert "0: periodic, period 1" in text
    assert "1: bounded, from 0" in text
    assert f"mixtures of {model.model_.components} Gaussians in closed form" in text
    assert "log-likelihood" in text
    found = json.loads(json.dumps(model.facts(), allow_nan=False))
    assert found["rows"] == 99
    assert sum(part["weight"] for part in found["parts"]) == pytest.approx(1)
    assert sum(member["weight"] for member in found["members"]) == pytest.approx(1)
