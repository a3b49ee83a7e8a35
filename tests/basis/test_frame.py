from __future__ import annotations

import math

import pytest
import torch

from oism.basis import CosineFrame, Frame, IdentityFrame, OrthogonalFrame


def random_frame(dim: int, generator: torch.Generator) -> OrthogonalFrame:
    matrix = torch.randn(dim, dim, generator=generator, dtype=torch.float64)
    return OrthogonalFrame(torch.linalg.qr(matrix)[0])


def test_synthesis_is_inverse_and_adjoint_of_analysis(generator: torch.Generator) -> None:
    frames: list[Frame] = [IdentityFrame(), random_frame(4, generator)]
    x, z = (torch.randn(6, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    for frame in frames:
        torch.testing.assert_close(frame.synthesise(frame.analyse(x)), x)
        torch.testing.assert_close((frame.analyse(x) * z).sum(), (x * frame.synthesise(z)).sum())
        torch.testing.assert_close(frame.analyse(x), x @ frame.directions(4).T)


def test_the_rows_are_the_directions() -> None:
    quarter = OrthogonalFrame(torch.tensor([[0.0, 1.0], [-1.0, 0.0]]))
    assert quarter.analyse(torch.tensor([[3.0, 4.0]])).tolist() == [[4.0, -3.0]]
    assert torch.equal(quarter.directions(2), quarter.matrix.double())


def test_data_keep_their_dtype(generator: torch.Generator) -> None:
    frame = random_frame(3, generator)
    assert frame.analyse(torch.ones(2, 3)).dtype == torch.float32
    assert frame.synthesise(torch.ones(2, 3)).dtype == torch.float32


def test_frames_move_to_a_device(generator: torch.Generator) -> None:
    """The device "meta" has no values, so nothing may check the matrix there."""
    frame = random_frame(3, generator)
    moved = frame.to("meta")
    assert moved.matrix.device.type == "meta"
    assert frame.matrix.device.type == "cpu"
    assert frame.to("cpu") is frame
    assert frame.to("mps") is frame, "a device without float64"
    for free in (IdentityFrame(), CosineFrame((3,))):
        assert free.to("meta") is free


def test_matrices_that_are_not_orthogonal_are_rejected() -> None:
    shear = torch.tensor([[1.0, 1e-3], [0.0, 1.0]], dtype=torch.float64)
    with pytest.raises(ValueError, match=r"matrix must be orthogonal: max\|VVᵀ - I\| = 0.001"):
        OrthogonalFrame(shear)
    with pytest.raises(ValueError, match="matrix must be a square matrix"):
        OrthogonalFrame(torch.eye(3)[:2])
    with pytest.raises(ValueError, match=r"matrix must be finite, but matrix\[0, 0\] = nan"):
        OrthogonalFrame(torch.tensor([[math.nan]]))
    with pytest.raises(TypeError, match="matrix must have a floating-point dtype"):
        OrthogonalFrame(torch.eye(2, dtype=torch.int64))
    with pytest.raises(TypeError, match="matrix must have dtype float32 or float64, got"):
        OrthogonalFrame(torch.zeros(64, 64, dtype=torch.bfloat16))


def test_every_numerically_orthogonal_matrix_is_accepted(generator: torch.Generator) -> None:
    a = torch.randn(300, 300, generator=generator, dtype=torch.float64)
    for matrix in (torch.linalg.matrix_exp(a - a.T), torch.linalg.qr(a.float())[0]):
        assert OrthogonalFrame(matrix).dim == 300


def test_invalid_vectors_are_rejected(generator: torch.Generator) -> None:
    frame = random_frame(3, generator)
    for method, name in ((frame.analyse, "x"), (frame.synthesise, "z")):
        with pytest.raises(TypeError, match=f"{name} must have a floating-point dtype"):
            method(torch.tensor([[10, 20, 30]]))
        with pytest.raises(ValueError, match=rf"{name} must have shape \(..., 3\), got \(2, 2\)"):
            method(torch.zeros(2, 2))
    with pytest.raises(TypeError, match=r"x must be a torch.Tensor, got str"):
        IdentityFrame().analyse("a")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="dim must be 3, the size of the matrix, got 2"):
        frame.directions(2)


def test_the_frame_copies_its_matrix() -> None:
    matrix = torch.eye(2)
    frame = OrthogonalFrame(matrix.requires_grad_())
    with torch.no_grad():
        matrix.zero_()
    assert torch.equal(frame.matrix, torch.eye(2))
