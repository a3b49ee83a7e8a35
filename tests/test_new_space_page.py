"""The page "A new space in one file" is executed, and its space is tested further."""

from __future__ import annotations

import importlib.util
import math
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import scipy.stats
import torch

from oism.basis import Basis
from oism.process import DirichletForm, MonteCarlo, Quadrature, Semigroup

PAGE = Path(__file__).parents[1] / "docs" / "new-space.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(scope="module")
def disc(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The file of the page, imported as a module."""
    path = tmp_path_factory.mktemp("page") / "disc.py"
    path.write_text(BLOCKS[0], encoding="utf-8")
    spec = importlib.util.spec_from_file_location("disc", path)
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    sys.modules["disc"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["disc"]


@pytest.fixture(scope="module")
def names(disc: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All names after the code of the page."""
    found = dict(vars(disc))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("run"))
        for block in BLOCKS[1:]:
            exec(compile(block, str(PAGE), "exec"), found)
    return found


def test_the_space_is_short() -> None:
    assert len(BLOCKS) == 4
    assert BLOCKS[0].count("\n") < 160


def test_samples_follow_the_density(names: dict[str, Any]) -> None:
    """|x|⁴ is uniform, and the distribution function of the angle is known."""
    for x in (names["samples"], names["again"]):
        radius = x.double().norm(dim=1)
        assert float(radius.max()) <= 1 + 1e-6
        assert scipy.stats.kstest(radius.numpy() ** 4, "uniform").statistic < 0.045
        angle = torch.atan2(x[:, 1], x[:, 0]).double().numpy()

        def cdf(a: Any) -> Any:
            return (a + math.pi + 0.8 * torch.as_tensor(a).sin().numpy()) / (2 * math.pi)

        assert scipy.stats.kstest(angle, cdf).statistic < 0.045
        assert scipy.stats.kstest(radius.numpy() ** 2, "uniform").statistic > 0.2  # not uniform


def test_densities_integrate_to_one(names: dict[str, Any]) -> None:
    points, weights = names["Disc"]().invariant.quadrature(2, 12)
    log = names["model"].log_density(points, method=names["RungeKutta4"](64))
    assert float(weights @ (log.exp() * math.pi)) == pytest.approx(1, abs=2e-3)


def test_the_semigroup_is_simulated(disc: Any) -> None:
    basis: Basis = disc.Zernike(2)
    x, t = torch.tensor([[0.5, 0.3], [-0.2, 0.9]]).double(), 0.1
    rule = MonteCarlo(4000, torch.Generator().manual_seed(0))
    found = Semigroup(disc.Disc(), t, rule)(basis)(x)
    exact = torch.exp(t * basis.eigenvalues) * basis.values(x)
    assert float((found - exact).abs().max()) < 4 * 1.5 / math.sqrt(4000)


def test_the_dirichlet_form_has_the_eigenvalues(disc: Any) -> None:
    basis: Basis = disc.Zernike(4)
    found = DirichletForm(disc.Disc(), (2,), Quadrature(6))(basis)
    torch.testing.assert_close(found, -basis.eigenvalues)


def test_rows_outside_are_refused(disc: Any, names: dict[str, Any]) -> None:
    x = torch.tensor([[0.0, 0.1], [0.9, 0.9]]).double()
    with pytest.raises(ValueError, match="row 1 is"):
        names["fit"](x, disc.Zernike(2))
