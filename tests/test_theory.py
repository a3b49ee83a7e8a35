"""The pages of the theory: what they name exists, and derivations that no other test repeats."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
import sympy

TESTS = Path(__file__).parent
PACKAGES = (
    *("process", "basis", "flow", "score", "estimation", "images", "sampling", "objectives"),
    *("nn", "tables"),
)
PAGES = sorted((TESTS.parent / "docs" / "theory").glob("*.md"))


def named(page: Path) -> set[str]:
    """Return what a page sets in code style, without its blocks of code."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return set(re.findall(r"`([A-Za-z_][\w.]*)`", text))


@pytest.fixture(scope="module")
def public() -> dict[str, object]:
    """The public names of all packages, also with their package: ``Flow``, ``oism.flow.Flow``."""
    found: dict[str, object] = {}
    for module in PACKAGES:
        package = importlib.import_module(f"oism.{module}")
        for name in package.__all__:
            found[name] = found[f"oism.{module}.{name}"] = getattr(package, name)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_name_what_exists(page: Path, public: dict[str, object]) -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py"))
    names = named(page) - {"level", "pytest"}
    tests = {name for name in names if name.startswith("test_")}
    assert {name for name in tests if f"def {name}(" not in text} == set()
    for name in names - tests:
        owner, _, attribute = name.rpartition(".")
        assert name in public or hasattr(public[owner], attribute), name


def test_a_gaussian_does_not_move_in_standardised_coordinates() -> None:
    """du/dκ = wR, from dx/dκ = αD - α²x, by computer algebra."""
    kappa, m, c, residual = sympy.symbols("kappa m c R", positive=True)
    z = sympy.Function("z")(kappa)
    alpha = 1 / sympy.sqrt(1 + sympy.exp(-2 * kappa))
    sigma = alpha * sympy.exp(-kappa)
    assert sympy.simplify(alpha**2 + sigma**2 - 1) == 0
    s = sympy.sqrt(alpha**2 * c + sigma**2)
    u = (z - alpha * m) / s
    denoised = m + alpha * c / s * u + residual
    slope = sympy.diff(u, kappa).subs(z.diff(kappa), alpha * denoised - alpha**2 * z)
    assert sympy.simplify(slope - residual / sympy.sqrt(c + sympy.exp(-2 * kappa))) == 0


def test_the_velocity_of_denoising_is_that_of_the_flow() -> None:
    """dx/dκ = αD - α²x is ẋ = -x - s in the time of the noise level."""
    t = sympy.symbols("t", positive=True)
    x, score = sympy.symbols("x s")
    alpha, sigma = sympy.exp(-t), sympy.sqrt(1 - sympy.exp(-2 * t))
    denoised = (x + sigma**2 * score) / alpha
    rate = sympy.diff(sympy.log(alpha / sigma), t)
    assert sympy.simplify((alpha * denoised - alpha**2 * x) * rate + x + score) == 0


def test_densities_relative_to_the_invariant_one_change_by_the_generator() -> None:
    """-∇·v - v·∇log π = Lf for v = -G∇f, on the line with any π and G."""
    x = sympy.symbols("x")
    g, p, f = (sympy.Function(name)(x) for name in ("g", "p", "f"))
    velocity = -g * f.diff(x)
    change = -velocity.diff(x) - velocity * sympy.log(p).diff(x)
    assert sympy.simplify(change - (p * g * f.diff(x)).diff(x) / p) == 0


def test_the_logarithm_of_the_ratio_and_its_flow() -> None:
    """∂_t u = Lu + Γ(u) if ∂_t r = Lr and u = log r; so along ẋ = -G∇u it changes by Lu."""
    x = sympy.symbols("x")
    b, g, r = (sympy.Function(name)(x) for name in ("b", "g", "r"))

    def generated(h: sympy.Expr) -> sympy.Expr:
        return b * h.diff(x) + g * h.diff(x, 2)

    u = sympy.log(r)
    moved = generated(r) / r
    assert sympy.simplify(moved - generated(u) - g * u.diff(x) ** 2) == 0
