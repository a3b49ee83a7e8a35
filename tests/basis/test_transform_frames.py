from __future__ import annotations

import math

import pytest
import scipy.fft
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oism.basis import CosineFrame, Frame, IdentityFrame, TransformFrame


def draw(n: int, shape: tuple[int, ...], seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, math.prod(shape), generator=generator, dtype=torch.float64)


def haar(x: Tensor) -> Tensor:
    """Return sums and differences of neighbours along the last axis, all levels: ``(n, c, w)``."""
    details = []
    while x.shape[-1] > 1:
        left, right = x[..., ::2], x[..., 1::2]
        x = (left + right) / math.sqrt(2)
        details.append((left - right) / math.sqrt(2))
    return torch.cat([x, *details[::-1]], dim=-1)


def unhaar(z: Tensor) -> Tensor:
    x, rest = z[..., :1], z[..., 1:]
    while rest.shape[-1]:
        detail, rest = rest[..., : x.shape[-1]], rest[..., x.shape[-1] :]
        pairs = torch.stack((x + detail, x - detail), dim=-1) / math.sqrt(2)
        x = pairs.flatten(-2)
    return x


HAAR = TransformFrame((2, 8), haar, unhaar)
FRAMES: list[tuple[Frame, tuple[int, ...]]] = [
    (CosineFrame((7,)), (7,)),
    (CosineFrame((3, 4, 5)), (3, 4, 5)),
    (HAAR, (2, 8)),
]
frames = pytest.mark.parametrize(("frame", "shape"), FRAMES, ids=["line", "image", "haar"])


@given(shape=st.lists(st.integers(1, 6), min_size=1, max_size=3).map(tuple), n=st.integers(0, 3))
def test_cosines_agree_with_scipy(shape: tuple[int, ...], n: int) -> None:
    frame, x = CosineFrame(shape), draw(n, shape)
    assert frame.dim == x.shape[1]
    if n:
        axes = tuple(range(1, len(shape) + 1))
        expected = scipy.fft.dctn(x.reshape(n, *shape).numpy(), axes=axes, norm="ortho")
        found = frame.analyse(x).numpy()
        assert found == pytest.approx(expected.reshape(n, -1), abs=1e-13)
    torch.testing.assert_close(frame.synthesise(frame.analyse(x)), x, rtol=0, atol=1e-13)


@frames
def test_directions_are_orthonormal(frame: Frame, shape: tuple[int, ...]) -> None:
    dim = math.prod(shape)
    matrix = frame.directions(dim)
    eye = torch.eye(dim, dtype=torch.float64)
    torch.testing.assert_close(matrix @ matrix.mT, eye, rtol=0, atol=1e-13)
    x = draw(4, shape)
    torch.testing.assert_close(frame.analyse(x), x @ matrix.mT, rtol=0, atol=1e-13)
    torch.testing.assert_close(frame.synthesise(x), x @ matrix, rtol=0, atol=1e-13)


@frames
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_and_leading_axes(frame: Frame, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = draw(6, shape).to(dtype)
    z = frame.analyse(x.reshape(2, 3, -1))
    assert z.dtype == dtype
    assert z.shape == (2, 3, x.shape[1])
    torch.testing.assert_close(z.reshape(6, -1), frame.analyse(x))
    torch.testing.assert_close(frame.synthesise(z).reshape(6, -1), x)


@frames
def test_frames_can_be_differentiated(frame: Frame, shape: tuple[int, ...]) -> None:
    x = draw(1, shape)
    jacobian = torch.func.jacrev(frame.analyse)(x)[0, :, 0]
    torch.testing.assert_close(jacobian, frame.directions(x.shape[1]), rtol=0, atol=1e-13)


def test_the_first_cosine_is_the_mean_and_channels_are_mixed() -> None:
    colour = CosineFrame((3,)).directions(3)
    torch.testing.assert_close(colour[0], torch.full((3,), 3**-0.5, dtype=torch.float64))
    assert colour[1].tolist() == pytest.approx([0.5**0.5, 0, -(0.5**0.5)])


def test_a_wavelet_is_a_frame() -> None:
    x = torch.arange(16, dtype=torch.float64)[None]
    z = HAAR.analyse(x).reshape(2, 8)
    assert z[:, 0].tolist() == pytest.approx([28 / 8**0.5, 92 / 8**0.5])
    assert z[:, 4:].flatten().tolist() == pytest.approx([-(0.5**0.5)] * 8)


def scaled(factor: float) -> TransformFrame:
    return TransformFrame((4,), lambda x: factor * x, lambda z: z / factor)


def test_transforms_that_are_not_orthogonal_are_rejected() -> None:
    demand = "analysis and synthesis must be inverse and adjoint to each other"
    with pytest.raises(ValueError, match=demand):
        scaled(1.01)  # inverse, not adjoint
    with pytest.raises(ValueError, match=demand):
        TransformFrame((4,), lambda x: x.flip(1), lambda z: z)  # not inverse
    with pytest.raises(ValueError, match=demand):
        TransformFrame((4,), lambda x: 2 * x, lambda z: 2 * z)  # adjoint, not inverse
    with pytest.raises(ValueError, match=demand):
        TransformFrame((4,), lambda x: x * math.nan, lambda z: z)
    assert scaled(-1.0).dim == 4


@pytest.mark.parametrize("kind", [CosineFrame, lambda shape: TransformFrame(shape, abs, abs)])
def test_invalid_shapes_are_rejected(kind: type[CosineFrame]) -> None:
    with pytest.raises(ValueError, match="shape must have at least one axis"):
        kind(())
    with pytest.raises(ValueError, match=r"shape\[1\] must be an integer >= 1, got 0"):
        kind((2, 0))
    with pytest.raises(TypeError, match="shape must be a sequence of integers, got int"):
        kind(3)  # type: ignore[arg-type]


@frames
def test_vectors_of_another_size_are_rejected(frame: Frame, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=rf"x must have shape \(\.\.\., {math.prod(shape)}\), got"):
        frame.analyse(torch.zeros(2, 3))
    with pytest.raises(ValueError, match=rf"z must have shape \(\.\.\., {math.prod(shape)}\), got"):
        frame.synthesise(torch.zeros(2, 3))


def test_the_matrices_of_cosines_are_copied_once_for_a_dtype() -> None:
    frame, x = CosineFrame((2, 3)), draw(4, (2, 3))
    frame.analyse(x.float())
    kept = frame._matrices_like(x.float())
    frame.synthesise(x.float())
    assert all(a is b for a, b in zip(frame._matrices_like(x.float()), kept, strict=True))
    assert frame._matrices_like(x)[0].dtype == torch.float64
    torch.testing.assert_close(frame.analyse(x).float(), frame.analyse(x.float()))


def test_equal_cosine_frames_compare_equal() -> None:
    assert CosineFrame((2, 3)) == CosineFrame((2, 3))
    assert CosineFrame((2, 3)) != CosineFrame((3, 2))


@frames
def test_power_sums_are_those_of_the_directions(
    frame: Frame, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    dim = math.prod(shape)
    monkeypatch.setattr("oism.basis._frame.ENTRIES", 3 * dim)  # blocks of three directions
    found = frame.power_sums(dim, 6)
    size = frame.directions(dim).abs()
    expected = torch.stack([size.pow(n).sum(dim=1) for n in range(7)])
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)
    ones = IdentityFrame().power_sums(4, 2)
    assert ones.tolist() == [[4.0] * 4, [1.0] * 4, [1.0] * 4]
