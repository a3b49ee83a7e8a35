from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.special
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from oism import Fourier, Hermite, OrnsteinUhlenbeck, TensorHermite
from oism.basis import OrthogonalFrame, Standardised
from oism.basis._hermite import affine, tabulate
from oism.estimation import (
    GaussianMoments,
    HermiteFamilyMoments,
    HermiteMoments,
    Moments,
    TensorHermiteMoments,
    fold_of,
    moments_of,
)
from oism.estimation._moments import tensor_hermite

OU = OrnsteinUhlenbeck(theta=0.7, sigma=1.3)
EXACT = 1e-12  # relative to max(1, |value|)


def normal(n: int, dim: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(100 * dim + seed)
    return torch.randn(n, dim, generator=generator, dtype=torch.float64)


def skewed(n: int, dim: int, seed: int = 0) -> Tensor:
    z = normal(n, dim, seed)
    return (1 + 0.5 * torch.arange(dim)) * (z + 0.2 * z.square()) - 0.4


def positive(n: int) -> Tensor:
    return 0.1 + torch.rand(n, generator=torch.Generator().manual_seed(n), dtype=torch.float64)


def rotated(dim: int) -> OrthogonalFrame:
    return OrthogonalFrame(torch.linalg.qr(normal(dim, dim))[0])


UNIVARIATE = {
    "order one": Hermite(2, 1),
    "order two": Hermite(2, 2),
    "line, order nine": Hermite(1, 9),
    "process": Hermite(2, 4, OU),
    "rotated": Hermite(3, 5, OU, rotated(3)),
}
univariate = pytest.mark.parametrize("basis", UNIVARIATE.values(), ids=UNIVARIATE.keys())
TENSOR = {
    "order two": TensorHermite(2, 2),
    "line": TensorHermite(1, 4),
    "plane": TensorHermite(2, 4, OU, rotated(2)),
    "space": TensorHermite(3, 3, OU, rotated(3)),
}
tensor = pytest.mark.parametrize("basis", TENSOR.values(), ids=TENSOR.keys())


def error(left: Tensor, right: Tensor) -> float:
    assert left.shape == right.shape
    return float(((left - right).abs() / right.abs().clamp(min=1)).max())


def coordinates(x: Tensor, basis: Hermite | TensorHermite) -> Tensor:
    """Return z: the coordinates along the frame in units of the invariant deviation √(σ²/2θ)."""
    along = torch.from_numpy(x.numpy() @ basis.frame.directions(basis.dim).numpy().T)
    return along / math.sqrt(basis.process.sigma**2 / (2 * basis.process.theta))


def phi(u: Tensor, degree: int) -> Tensor:
    """Return Heₙ(u)/√n! for n = 0, …, degree by SciPy: ``(n, degree + 1, *shape)``."""
    n = np.arange(degree + 1).reshape(-1, *[1] * (u.ndim - 1))
    values = scipy.special.eval_hermitenorm(n, u.numpy()[:, None])
    return torch.from_numpy(values / np.sqrt(scipy.special.factorial(n)))


def weighted(values: Tensor, w: Tensor) -> Tensor:
    return torch.einsum("n,n...->...", w, values) / w.sum()


def two_pass(x: Tensor, basis: Hermite, degree: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean, deviation and the averages of φ₀, …, φ_degree from all rows at once."""
    z = coordinates(x, basis)
    shift, scale = z.mean(dim=0), z.std(dim=0, correction=0)
    return shift, scale, tabulate((z - shift) / scale, degree).mean(dim=0)


def agrees(moments: Moments, x: Tensor) -> float:
    assert isinstance(moments, HermiteMoments)
    standard = moments.standardised()
    shift, scale, averages = two_pass(x, moments.basis, moments.degree)
    return max(
        error(standard.shift, shift),
        error(standard.scale / scale, torch.ones_like(scale)),
        error(standard.averages.total, averages),
    )


# --- polynomials of each direction -----------------------------------------------------------


@univariate
@pytest.mark.parametrize("squares", [False, True])
def test_averages_are_those_of_standardised_rows(basis: Hermite, squares: bool) -> None:
    x, w = skewed(400, basis.dim), positive(400)
    moments = HermiteMoments(basis, 3, squares=squares).update(x, w)
    standard, z, fold = moments.standardised(), coordinates(x, basis), fold_of(x, 3)
    shift = weighted(z, w)
    scale = weighted((z - shift).square(), w).sqrt()
    scale = torch.ones_like(scale) if basis.order == 1 else scale
    assert error(standard.shift, shift) < EXACT
    assert error(standard.scale, scale) < EXACT
    assert torch.equal(standard.low, coordinates_range(moments, x)[0])
    assert torch.equal(standard.high, coordinates_range(moments, x)[1])
    assert standard.rotation is None
    values = phi((z - shift) / scale, moments.degree)
    averages = standard.averages
    assert error(averages.total, weighted(values, w)) < EXACT
    for k in range(3):
        inside = fold == k
        assert error(averages.heldout[k], weighted(values[inside], w[inside])) < EXACT
        assert error(averages.training[k], weighted(values[~inside], w[~inside])) < EXACT


def coordinates_range(moments: HermiteFamilyMoments, x: Tensor) -> tuple[Tensor, Tensor]:
    z = moments.basis.scale * moments.basis.frame.analyse(x)
    return z.amin(dim=0), z.amax(dim=0)


@univariate
def test_standardised_averages_have_mean_zero_and_variance_one(basis: Hermite) -> None:
    total = HermiteMoments(basis).update(skewed(300, basis.dim)).standardised().averages.total
    assert error(total[0], torch.ones(basis.dim).double()) < 1e-15
    assert error(total[1], torch.zeros(basis.dim).double()) < EXACT
    if basis.order > 1:
        assert error(total[2], torch.zeros(basis.dim).double()) < EXACT


@pytest.mark.parametrize(("order", "degree"), [(1, 1), (2, 2), (3, 4), (9, 16)])
def test_degrees_are_those_of_products_of_gradients(order: int, degree: int) -> None:
    for family in (Hermite(2, order), TensorHermite(2, order)):
        for squares in (False, True):
            moments = moments_of(family, squares=squares)
            assert isinstance(moments, HermiteFamilyMoments)
            assert moments.degree == degree * (1 + squares)


def test_squares_only_add_averages_of_higher_degree() -> None:
    x = skewed(200, 2)
    few, many = (
        HermiteMoments(Hermite(2, 4), squares=squares).update(x).standardised().averages
        for squares in (False, True)
    )
    assert error(many.total[:7], few.total) < EXACT
    assert error(many.heldout[:, :7], few.heldout) < EXACT


@pytest.mark.parametrize(("gamma", "delta"), [(0.6, 0.3), (1.0, -1.5), (1.8, 0.0), (-0.5, 1.0)])
def test_affine_changes_the_coordinates_of_polynomials(gamma: float, delta: float) -> None:
    u = torch.linspace(-3, 3, 41, dtype=torch.float64)
    scale, shift = torch.tensor([gamma, delta], dtype=torch.float64)
    matrix = affine(scale, shift, 8)
    moved = phi(gamma * u + delta, 8)
    assert error(phi(u, 8) @ matrix.mT, moved) < EXACT
    assert bool((matrix.triu(1) == 0).all())


@pytest.mark.parametrize(
    "moments",
    [
        HermiteMoments(Hermite(2, 4, OU)),
        TensorHermiteMoments(TensorHermite(2, 3, OU)),
        GaussianMoments(TensorHermite(2, 2, OU)),
    ],
    ids=["hermite", "tensor hermite", "gaussian"],
)
def test_averages_do_not_depend_on_the_provisional_coordinates(
    moments: HermiteFamilyMoments,
) -> None:
    moments.update(skewed(300, 2))
    before = moments.standardised()
    scale = moments.scale * torch.tensor([0.6, 1.9])
    moments._rebase(moments.shift + torch.tensor([0.4, -1.0]), scale)
    after = moments.standardised()
    assert error(after.shift, before.shift) < EXACT
    assert error(after.scale, before.scale) < EXACT
    if before.averages.total.numel():
        assert error(after.averages.total, before.averages.total) < EXACT


# --- rows in an unfavourable order -----------------------------------------------------------
# An accumulator takes coordinates from the first rows and changes them with later ones; its
# averages must agree with those of two passes, to the accuracy of merging.


@pytest.mark.parametrize("order", [2, 4])
def test_sorted_rows(order: int) -> None:
    basis, x = Hermite(2, order), skewed(2000, 2).sort(dim=0).values
    assert agrees(HermiteMoments(basis).update(x), x) < EXACT
    moments = HermiteMoments(basis)
    for batch in x.chunk(8):
        moments.update(batch)
    assert agrees(moments, x) < EXACT


@pytest.mark.parametrize(("order", "step"), [(3, 64.0), (4, 16.0), (9, 8.0)])
def test_batches_that_drift_by_many_deviations(order: int, step: float) -> None:
    basis = Hermite(1, order)
    batches = [normal(300, 1, k) + step * k for k in range(7)]
    moments, merged = HermiteMoments(basis), HermiteMoments(basis)
    for batch in batches:
        moments.update(batch)
        merged = merged.merge(HermiteMoments(basis).update(batch))
    assert agrees(moments, torch.cat(batches)) < EXACT
    assert agrees(merged, torch.cat(batches)) < EXACT


@pytest.mark.parametrize("order", [3, 4])
def test_products_of_drifting_and_sorted_rows(order: int) -> None:
    basis = TensorHermite(2, order)
    batches = [skewed(150, 2, k) + 4.0 * k * torch.tensor([1.0, -0.5]) for k in range(7)]
    moments = TensorHermiteMoments(basis)
    for batch in batches:
        moments.update(batch)
    x = torch.cat(batches)
    assert products_agree(moments.standardised(), x, basis, order) < 1e-11
    x = x[x[:, 0].argsort()]
    standard = TensorHermiteMoments(basis).update(x).standardised()
    assert products_agree(standard, x, basis, order) < 1e-11


def test_covariances_of_drifting_rows() -> None:
    batches = [skewed(100, 3, k) + 1e3 * k for k in range(7)]
    moments, merged = GaussianMoments(TensorHermite(3, 2)), GaussianMoments(TensorHermite(3, 2))
    for batch in batches:
        moments.update(batch)
        merged = merged.merge(GaussianMoments(TensorHermite(3, 2)).update(batch))
    covariance = torch.cov(torch.cat(batches).mT, correction=0)
    for one in (moments, merged):
        assert float((covariance_of(one) - covariance).abs().max() / covariance.max()) < 1e-13


@pytest.mark.parametrize("offset", [1e6, -1e6])
def test_a_large_offset(offset: float) -> None:
    # Rows near 1e6 have a rounding error of 1e6 ε = 2e-10: no more is lost, at any degree.
    x = offset + skewed(500, 2)
    rounding = 10 * abs(offset) * 2.2e-16
    for basis in (Hermite(2, 4), TensorHermite(2, 3), TensorHermite(2, 2)):
        near, far, merged = (moments_of(basis) for _ in range(3))
        for batch in x.chunk(7):
            near.update(batch - offset)
            far.update(batch)
            merged = merged.merge(moments_of(basis).update(batch))
        assert isinstance(near, HermiteFamilyMoments)
        exact = near.standardised()
        for one in (far, merged):
            assert isinstance(one, HermiteFamilyMoments)
            standard = one.standardised()
            shift = standard.shift - offset * turned(standard, torch.ones(2))
            assert error(shift, exact.shift) < rounding
            assert error(standard.scale, exact.scale) < EXACT
            if exact.averages.total.numel():
                assert error(standard.averages.total, exact.averages.total) < rounding


def turned(standard: Standardised, z: Tensor) -> Tensor:
    return z.double() if standard.rotation is None else standard.rotation @ z.double()


# --- products --------------------------------------------------------------------------------


def multi_indices(dim: int, degree: int) -> list[tuple[int, ...]]:
    """Return all m with |m| ≤ degree: by total degree, the first coordinates first."""
    every = itertools.product(range(degree + 1), repeat=dim)
    return sorted((m for m in every if sum(m) <= degree), key=lambda m: (sum(m), [-k for k in m]))


def evaluated(standard: Standardised, x: Tensor, basis: TensorHermite, degree: int) -> Tensor:
    """Return Π φ_{mᵢ}(uᵢ) at each row in the principal coordinates u = (Vz - m)/s."""
    assert standard.rotation is not None
    u = (coordinates(x, basis) @ standard.rotation.mT - standard.shift) / standard.scale
    table = phi(u, degree)
    columns = [
        torch.stack([table[:, k, i] for i, k in enumerate(m)]).prod(dim=0)
        for m in multi_indices(basis.dim, degree)
    ]
    return torch.stack(columns, dim=1)


def products_agree(standard: Standardised, x: Tensor, basis: TensorHermite, order: int) -> float:
    exact = evaluated(standard, x, basis, max(order, 2 * order - 2)).mean(dim=0)
    return error(standard.averages.total, exact)


@tensor
@pytest.mark.parametrize("squares", [False, True])
def test_products_are_averaged_in_principal_coordinates(
    basis: TensorHermite, squares: bool
) -> None:
    x, w = skewed(300, basis.dim), positive(300)
    moments = TensorHermiteMoments(basis, 3, squares=squares).update(x, w)
    standard, fold = moments.standardised(), fold_of(x, 3)
    values = evaluated(standard, x, basis, moments.degree)
    averages, bound = standard.averages, 10 * EXACT
    assert error(averages.total, weighted(values, w)) < bound
    for k in range(3):
        inside = fold == k
        assert error(averages.heldout[k], weighted(values[inside], w[inside])) < bound
        assert error(averages.training[k], weighted(values[~inside], w[~inside])) < bound
    low = sum(sum(m) <= 2 for m in multi_indices(basis.dim, 2))
    zero = torch.zeros(low - 1).double()
    assert error(averages.total[1:low], zero) < EXACT  # the Gaussian part is all of order two


@pytest.mark.parametrize("kind", [GaussianMoments, TensorHermiteMoments])
@pytest.mark.parametrize("dim", [1, 2, 4])
def test_principal_coordinates_are_those_of_the_covariance(
    kind: type[GaussianMoments] | type[TensorHermiteMoments], dim: int
) -> None:
    basis, x, w = TensorHermite(dim, 2, OU, rotated(dim)), skewed(300, dim), positive(300)
    standard, z = kind(basis).update(x, w).standardised(), coordinates(x, basis)
    covariance = torch.cov(z.mT, correction=0, aweights=w).reshape(dim, dim)
    rotation = standard.rotation
    assert rotation is not None
    identity = torch.eye(dim, dtype=torch.float64)
    assert error(rotation @ rotation.mT, identity) < EXACT
    assert error(rotation @ covariance @ rotation.mT, standard.scale.square().diag()) < EXACT
    assert error(standard.shift, rotation @ weighted(z, w)) < EXACT
    assert bool((standard.scale.diff() <= 0).all())
    largest = rotation.gather(1, rotation.abs().argmax(dim=1, keepdim=True))
    assert bool((largest > 0).all())
    assert torch.equal(standard.low, coordinates_range(kind(basis), x)[0])
    assert torch.equal(standard.high, coordinates_range(kind(basis), x)[1])


def covariance_of(moments: GaussianMoments) -> Tensor:
    """Return the covariance of the rows, from principal coordinates."""
    standard, basis = moments.standardised(), moments.basis
    assert standard.rotation is not None
    directions = standard.rotation @ basis.frame.directions(basis.dim)
    variances = standard.scale.square() * basis.process.stationary_variance
    return (directions.mT * variances) @ directions


@pytest.mark.parametrize("dim", [1, 3, 20])
def test_gaussian_moments_are_mean_and_covariance(dim: int) -> None:
    basis, x, w = TensorHermite(dim, 2, OU, rotated(dim)), skewed(200, dim), positive(200)
    moments = GaussianMoments(basis, 4)
    for batch, weights in zip(x.chunk(3), w.chunk(3), strict=True):
        moments.update(batch, weights)
    covariance = torch.cov(x.mT, correction=0, aweights=w).reshape(dim, dim)
    assert error(covariance_of(moments), covariance) < 1e-11
    standard = moments.standardised()
    assert standard.rotation is not None
    deviation = math.sqrt(basis.process.stationary_variance)
    mean = deviation * basis.frame.synthesise((standard.shift @ standard.rotation)[None])[0]
    assert error(mean, weighted(x, w)) < EXACT
    assert standard.averages.total.shape == (0,)
    assert standard.averages.shares.shape == (4,)


def test_products_on_the_line_are_polynomials() -> None:
    x = skewed(300, 1)
    single = HermiteMoments(Hermite(1, 5)).update(x).standardised()
    product = TensorHermiteMoments(TensorHermite(1, 5)).update(x).standardised()
    assert error(product.shift, single.shift) < EXACT
    assert error(product.scale, single.scale) < EXACT
    assert error(product.averages.total, single.averages.total[:, 0]) < 1e-11
    assert error(product.averages.heldout, single.averages.heldout[..., 0]) < 1e-11


def test_principal_coordinates_do_not_depend_on_the_frame() -> None:
    x, frame = skewed(400, 2), rotated(2)
    plain, turned = (
        TensorHermiteMoments(basis).update(x).standardised()
        for basis in (TensorHermite(2, 4), TensorHermite(2, 4, frame=frame))
    )
    assert plain.rotation is not None
    assert turned.rotation is not None
    signs = (turned.rotation @ frame.matrix * plain.rotation).sum(dim=1)  # ±1 a direction
    assert error(signs.abs(), torch.ones(2).double()) < EXACT
    parity = torch.stack([(signs.sign() ** torch.tensor(m)).prod() for m in multi_indices(2, 6)])
    assert error(turned.scale, plain.scale) < EXACT
    assert error(turned.averages.total, parity * plain.averages.total) < 1e-11


# --- constant columns ------------------------------------------------------------------------


def check_flat(standard: Standardised, flat: list[bool]) -> None:
    """Check the averages of each direction with degenerate directions."""
    assert (standard.scale == 0).tolist() == flat
    for part in (standard.averages.total, standard.averages.training, standard.averages.heldout):
        assert bool(part.isfinite().all())
        columns = part[..., torch.tensor(flat)]
        assert bool((columns[..., 1:, :] == 0).all())
        torch.testing.assert_close(columns[..., 0, :], torch.ones_like(columns[..., 0, :]))


@pytest.mark.parametrize("value", [0.0, 0.1, -7.25, 1e6])
@pytest.mark.parametrize("squares", [False, True])
def test_a_constant_column(value: float, squares: bool) -> None:
    x = skewed(200, 3)
    x[:, 1] = value
    moments = HermiteMoments(Hermite(3, 4, OU), squares=squares)
    for batch in x.chunk(3):
        moments.update(batch)
    standard = moments.standardised()
    check_flat(standard, [False, True, False])
    assert float(standard.shift[1]) == pytest.approx(value * Hermite(1, 1, OU).scale, rel=1e-14)
    others = HermiteMoments(Hermite(2, 4, OU), squares=squares).update(x[:, [0, 2]]).standardised()
    # folds depend on the whole row, the total does not
    assert error(standard.averages.total[:, [0, 2]], others.averages.total) < EXACT


@pytest.mark.parametrize("value", [0.0, 0.1, -7.25])
def test_a_constant_column_among_products(value: float) -> None:
    x = skewed(200, 3)
    x[:, 1] = value
    standard = TensorHermiteMoments(TensorHermite(3, 3)).update(x).standardised()
    assert (standard.scale > 0).tolist() == [True, True, False]
    assert standard.rotation is not None
    assert torch.equal(standard.rotation[2], torch.tensor([0.0, 1.0, 0.0]).double())
    assert float(standard.shift[2]) == pytest.approx(value, abs=1e-14)
    flat = torch.tensor([m[2] > 0 for m in multi_indices(3, 4)])
    assert bool((standard.averages.fitting()[:, flat] == 0).all())
    basis = TensorHermite(2, 3)
    alone = TensorHermiteMoments(basis).update(x[:, [0, 2]]).standardised()
    assert error(standard.averages.total[~flat], alone.averages.total) < 1e-11
    gaussian = GaussianMoments(TensorHermite(3, 2)).update(x).standardised()
    assert (gaussian.scale > 0).tolist() == [True, True, False]
    assert error(gaussian.scale, standard.scale) < EXACT


def test_fewer_rows_than_directions_give_directions_with_scale_zero() -> None:
    x = skewed(4, 10)
    standard = GaussianMoments(TensorHermite(10, 2)).update(x).standardised()
    singular = torch.linalg.svdvals(x - x.mean(dim=0)) / 2
    assert error(standard.scale[:3], singular[:3]) < EXACT
    assert torch.equal(standard.scale[3:], torch.zeros(7).double())  # not rounding errors


def test_a_constant_column_next_to_a_narrow_one() -> None:
    # Its variance is 1e-16 of its own scale by rounding, which is large for the other column.
    x, w = torch.cat((1e-6 * normal(3, 1), torch.ones(3, 1)), dim=1), positive(3)
    for basis in (TensorHermite(2, 3), TensorHermite(2, 2)):
        moments = moments_of(basis).update(x, w)
        assert isinstance(moments, HermiteFamilyMoments)
        scale = moments.standardised().scale
        variance = weighted((x[:, 0] - weighted(x[:, 0], w)).square(), w)
        assert float(scale[0]) == pytest.approx(float(variance.sqrt()), rel=1e-10)
        assert float(scale[1]) == 0


@pytest.mark.parametrize("order", [2, 4])
def test_a_column_that_is_constant_only_at_first_or_at_last(order: int) -> None:
    flat, spread = torch.full((40, 1), 0.25).double(), skewed(300, 1)
    for batches in ([flat, spread], [spread, flat], [flat, spread, flat], [flat[:1], spread]):
        moments, merged = HermiteMoments(Hermite(1, order)), HermiteMoments(Hermite(1, order))
        for batch in batches:
            moments.update(batch)
            merged = merged.merge(HermiteMoments(Hermite(1, order)).update(batch))
        assert agrees(moments, torch.cat(batches)) < EXACT
        assert agrees(merged, torch.cat(batches)) < EXACT
    moments = HermiteMoments(Hermite(1, order)).update(flat).update(flat + 1)
    assert agrees(moments, torch.cat((flat, flat + 1))) < EXACT  # two batches, each constant


@pytest.mark.parametrize("weights", [None, [0.3]])
@pytest.mark.parametrize("order", [1, 2, 3, 9])
def test_one_row(order: int, weights: list[float] | None) -> None:
    x = torch.tensor([[0.1, -3.7]], dtype=torch.float64)
    standard = HermiteMoments(Hermite(2, order, OU)).update(x, weights).standardised()
    assert error(standard.shift, coordinates(x, Hermite(2, order, OU))[0]) < EXACT
    expected = torch.full((2,), 1.0 if order == 1 else 0.0, dtype=torch.float64)
    assert torch.equal(standard.scale, expected)
    assert error(standard.averages.total[0], torch.ones(2).double()) < EXACT
    assert error(standard.averages.total[1:], torch.zeros(len(standard.averages.total) - 1, 2)) == 0
    for kind in (GaussianMoments, TensorHermiteMoments):
        other = kind(TensorHermite(2, 2, OU)).update(x, weights).standardised()
        assert torch.equal(other.scale, torch.zeros(2).double())
        assert other.rotation is not None
        assert error(other.shift @ other.rotation, standard.shift) < EXACT


def test_many_equal_rows_give_the_averages_of_one() -> None:
    x = torch.tensor([[0.1, -3.7]], dtype=torch.float64).expand(2500, -1)
    moments = HermiteMoments(Hermite(2, 4)).update(x).update(x)
    check_flat(moments.standardised(), [True, True])


# --- any shape -------------------------------------------------------------------------------


@settings(max_examples=25)
@given(
    dim=st.integers(1, 4),
    order=st.integers(1, 5),
    n=st.integers(2, 12),
    folds=st.integers(1, 3),
    squares=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_shapes_and_values(
    dim: int, order: int, n: int, folds: int, squares: bool, dtype: torch.dtype
) -> None:
    basis, x = Hermite(dim, order, OU), normal(n, dim, n).to(dtype)
    moments = HermiteMoments(basis, folds, squares=squares).update(x)
    standard = moments.standardised()
    f = len(standard.averages.shares)
    shape = (moments.degree + 1, dim)
    assert standard.averages.fitting().shape == (1 + f, *shape)
    assert standard.averages.heldout.shape == (f, *shape)
    assert {standard.shift.dtype, standard.averages.total.dtype} == {torch.float64}
    z = coordinates(x.double(), basis)
    u = (z - z.mean(dim=0)) / (1 if order == 1 else z.std(dim=0, correction=0))
    assert error(standard.averages.total, phi(u, moments.degree).mean(dim=0)) < 1e-11


@settings(max_examples=10)
@given(dim=st.integers(1, 3), order=st.integers(2, 4), n=st.integers(10, 30))
def test_shapes_and_values_of_products(dim: int, order: int, n: int) -> None:
    basis, x = TensorHermite(dim, order, OU), skewed(n, dim, n)
    moments = TensorHermiteMoments(basis).update(x)
    standard = moments.standardised()
    size = math.comb(dim + moments.degree, dim)
    assert standard.averages.fitting().shape == (1 + len(standard.averages.shares), size)
    assert products_agree(standard, x, basis, order) < 1e-10


def test_the_change_of_coordinates_is_the_same_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = TensorHermiteMoments(TensorHermite(3, 3, OU)).update(skewed(50, 3))
    expected = moments.standardised().averages.total
    entries = 7 * len(moments.indices)  # seven nodes at a time
    monkeypatch.setattr(tensor_hermite, "NODE_ENTRIES", entries)
    found = moments.standardised().averages.total
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_orders_whose_products_do_not_fit_are_refused_before_rows_are_read() -> None:
    remedy = r"order must be smaller in 7 dimensions, got 4: .* \(order 2 is possible"
    with pytest.raises(ValueError, match=remedy):
        TensorHermiteMoments(TensorHermite(7, 4))
    assert isinstance(moments_of(TensorHermite(30, 2)), GaussianMoments)
    # Variances need products of twice the degree.
    TensorHermiteMoments(TensorHermite(5, 4))
    with pytest.raises(ValueError, match="of degree 12 with the variances that this shrinkage"):
        TensorHermiteMoments(TensorHermite(5, 4), squares=True)


def test_invalid_bases_are_rejected() -> None:
    with pytest.raises(TypeError, match="basis must be of type Hermite, got TensorHermite"):
        HermiteMoments(TensorHermite(2, 3))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="basis must be of type Hermite, got Fourier"):
        HermiteMoments(Fourier.lattice(1, 1))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="basis must be of type TensorHermite, got Hermite"):
        TensorHermiteMoments(Hermite(2, 3))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="basis must be of type TensorHermite, got NoneType"):
        GaussianMoments(None)  # type: ignore[arg-type]
