"""A Langevin diffusion whose invariant distribution is a smoothed density of the data.

The density is a kernel density estimate with normal kernels, one width for each axis in proportion
to its standard deviation, and a uniform background on the box, which bounds the potential:

    π = (1 - w) (1/n) Σ_i N(x; x_i, h² diag(s²)) + w/|box|.

Kernels are reflected at the faces of the box. h maximises the leave-one-out likelihood. So π is
close to the distribution of the data, log(ρ_t/π) is small at all noise levels, and the
eigenfunctions vary along the data: fast where the density is high, slowly where there are no data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from oism._core import checks
from oism.estimation._moments.rows import check_finite, rows
from oism.process import Langevin

ROWS = 2000
"""The largest number of rows for the choice of the width; others are scaled by n^{-1/(d+4)}."""

CENTRES = 20_000
"""The largest number of kernels: of more rows a part is used, evenly spread."""

WIDTHS = torch.logspace(-2.5, 0.2, 25, dtype=torch.float64)
"""The candidates for h."""

MARGIN = 3.0
"""The distance of the box from the data, in kernel widths."""

BLOCK = 2**24
"""The number of kernel values per batch."""


def langevin_of(  # noqa: PLR0913
    data: object,
    *,
    width: float | None = None,
    smoothing: float = 1.0,
    background: float = 0.01,
    box: Tensor | Sequence[tuple[float, float]] | None = None,
    cells: int | Sequence[int] | None = None,
    degree: int = 5,
) -> Langevin:
    """Return the Langevin diffusion of a smoothed density of data ``(n, d)``, d = 1 or 2.

    Parameters
    ----------
    data
        Rows of one or two columns.
    width
        The width of the kernels in standard deviations of each column; by default that with the
        largest leave-one-out likelihood.
    smoothing
        A factor of the width: above 1 the invariant distribution is smoother than the data, and the
        coefficients of the functions have more to describe.
    background
        The weight w of the uniform distribution on the box, between 0 and 1.
    box
        The ends of each axis; by default those of the data and three kernel widths more. Rows
        outside of a given box are an error.
    cells, degree
        Those of the splines: see `Langevin.of`.

    Examples
    --------
    >>> from oism.basis import Eigenfunctions
    >>> x = torch.randn(500, 1, generator=torch.Generator().manual_seed(0)).double()
    >>> basis = Eigenfunctions.of(langevin_of(x), count=25)
    >>> basis.eigenvalues[0]  # -1 without background, where paths spend a long time
    tensor(-0.5..., dtype=torch.float64)
    """
    dim = len(box) if box is not None else _columns(data)
    x = rows(data, dim).cpu().double()
    check_finite(x, 0)
    share = checks.number(background, "background")
    if not 0 < share < 1:
        raise ValueError(f"background must be between 0 and 1, got {background!r}")
    if len(x) < 2:
        raise ValueError(f"data must have at least two rows, got {len(x)}")
    scale = x.std(dim=0)
    if not bool((scale > 0).all()):
        column = int((scale <= 0).nonzero()[0])
        raise ValueError(f"data must vary, but column {column} is constant")
    h = chosen_width(x / scale) if width is None else checks.positive(width, "width")
    h *= checks.positive(smoothing, "smoothing")
    ends = _box(x, h * scale) if box is None else torch.as_tensor(box, dtype=torch.float64)
    outside = ((x < ends[:, 0]) | (x > ends[:, 1])).any(dim=1)
    if bool(outside.any()):
        row = int(outside.nonzero()[0])
        raise ValueError(f"data must lie in the box, but row {row} is {x[row].tolist()}")
    centres = x[_spread(len(x), CENTRES)]
    level = math.log(share) - float((ends[:, 1] - ends[:, 0]).log().sum())

    def potential(points: Tensor) -> Tensor:
        kernels = math.log1p(-share) + log_kernels(points, centres, h * scale, ends)
        return -torch.logaddexp(kernels, torch.full_like(kernels, level))

    return Langevin.of(potential, ends, cells=cells, degree=degree)


def _columns(data: object) -> int:
    shape = tuple(getattr(data, "shape", ()))
    if len(shape) != 2 or not 1 <= shape[1] <= 2:
        raise ValueError(f"data must have shape (n, 1) or (n, 2), got {shape}")
    return int(shape[1])


def _box(x: Tensor, width: Tensor) -> Tensor:
    low, high = x.amin(dim=0) - MARGIN * width, x.amax(dim=0) + MARGIN * width
    return torch.stack((low, high), dim=1)


def _spread(n: int, most: int) -> Tensor:
    """Return at most ``most`` of n indices, evenly spread."""
    return torch.linspace(0, n - 1, min(n, most), dtype=torch.float64).round().long()


def log_kernels(points: Tensor, centres: Tensor, width: Tensor, box: Tensor) -> Tensor:
    """Return the logarithm of the mean of kernels, with one reflection at each face: ``(m,)``.

    A kernel that reaches beyond a face is reflected there, so that no mass is lost.
    """
    images = [centres]
    for axis in range(box.shape[0]):
        for end in box[axis]:
            near = (centres[:, axis] - end).abs() < 8 * width[axis]
            image = centres[near].clone()
            image[:, axis] = 2 * end - image[:, axis]
            images.append(image)
    whole = torch.cat(images) / width
    step = max(1, BLOCK // len(whole))
    parts = [_log_sum(part / width, whole) for part in torch.split(points, step)]
    norm = math.log(len(centres)) + 0.5 * len(width) * math.log(2 * math.pi)
    return torch.cat(parts) - norm - float(width.log().sum())


def _log_sum(points: Tensor, centres: Tensor) -> Tensor:
    return torch.logsumexp(-0.5 * torch.cdist(points, centres).square(), dim=1)


def chosen_width(z: Tensor) -> float:
    """Return the kernel width with the largest leave-one-out likelihood of scaled rows.

    Equal rows count once: kernels of width 0 would be best for rows that occur twice.
    """
    distinct: Tensor = torch.unique(z, dim=0)
    if len(distinct) < 2:
        raise ValueError("data must have at least two distinct rows")
    part = distinct[_spread(len(distinct), ROWS)]
    n, dim = len(part), part.shape[1]
    squares: Tensor = torch.cdist(part, part).square()
    squares.fill_diagonal_(torch.inf)

    def likelihood(h: float) -> float:
        sums = torch.exp(squares * (-0.5 / h**2)).sum(dim=1)
        return float(sums.clamp(min=1e-300).log().mean()) - dim * math.log(h)

    # Every fourth candidate, then those around the best of them.
    some = range(0, len(WIDTHS), 4)
    middle = max(some, key=lambda k: likelihood(float(WIDTHS[k])))
    near = range(max(0, middle - 3), min(len(WIDTHS), middle + 4))
    best = max((float(WIDTHS[k]) for k in near), key=likelihood)
    return float(best * (len(distinct) / n) ** (-1 / (dim + 4)))
