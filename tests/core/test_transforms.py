from __future__ import annotations

import threading
from collections.abc import Iterator
from contextvars import ContextVar

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import jvp, vmap

from oism._core import progress, transforms
from oism._core.progress import no_bars
from oism._core.transforms import is_differentiated, output_like, per_row


def test_one_number_or_one_per_row() -> None:
    x = torch.ones(2, 3, 4)
    assert (per_row(torch.tensor(2.0), x) * x == 2).all()
    scaled = per_row(torch.tensor([2.0, 5.0]), x) * x
    assert (scaled[0] == 2).all()
    assert (scaled[1] == 5).all()


def test_a_coefficient_takes_the_dtype_of_the_data() -> None:
    x = torch.ones(2, 3)
    for coefficient in (torch.tensor(2.0).double(), torch.ones(2).double()):
        assert (per_row(coefficient, x) * x).dtype == torch.float32


def test_a_wrong_number_of_coefficients_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"tau must be one number or one per row: 2 rows, 3 val"):
        per_row(torch.ones(3), torch.ones(2, 3), "tau")


def test_is_differentiated_detects_all_modes() -> None:
    x = torch.ones(2, 3)
    seen: list[bool] = []

    def look(y: Tensor) -> Tensor:
        seen.append(is_differentiated(y))
        return y

    look(x)
    look(x.clone().requires_grad_())
    with torch.no_grad():
        look(x.clone().requires_grad_())
    vmap(look)(x)
    jvp(look, (x,), (x,))
    with forward_ad.dual_level():
        look(forward_ad.make_dual(x, x))  # type: ignore[no-untyped-call]
    assert seen == [False, True, False, True, True, True]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_output_like_has_the_dtype_of_the_data_or_is_none_under_autograd(
    dtype: torch.dtype,
) -> None:
    x = torch.ones(2, dtype=dtype)
    out = output_like(x, (3, 4))
    assert out is not None
    assert (out.shape, out.dtype, out.device) == ((3, 4), dtype, x.device)
    assert output_like(x.requires_grad_(), (3, 4)) is None


def test_in_parallel_uses_all_threads() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        seen: set[int] = set()
        barrier = threading.Barrier(3, timeout=20)

        def work(item: int) -> int:
            if item < 3:
                barrier.wait()  # broken unless three pieces run at once
            seen.add(torch.get_num_threads())
            return 2 * item

        with transforms.threads_apart():
            assert torch.get_num_threads() == 1
            assert transforms.in_parallel(work, range(7)) == [0, 2, 4, 6, 8, 10, 12]
            with pytest.raises(ZeroDivisionError):
                transforms.in_parallel(lambda item: 1 // item, [1, 0])
        assert seen == {1}
        assert torch.get_num_threads() == 3
        main = threading.get_ident()
        assert transforms.in_parallel(lambda _: threading.get_ident(), range(3)) == [main] * 3
        with pytest.raises(KeyError), transforms.threads_apart():
            raise KeyError
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


MARK: ContextVar[str] = ContextVar("MARK", default="unset")


@pytest.fixture
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    with transforms.threads_apart():
        yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("three_threads")
def test_in_parallel_keeps_the_gradient_mode_of_the_caller() -> None:
    def modes(_: int) -> tuple[bool, bool]:
        return torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    for mode, expected in (
        (torch.enable_grad(), (True, False)),
        (torch.no_grad(), (False, False)),
        (torch.inference_mode(), (False, True)),
    ):
        with mode:
            assert set(transforms.in_parallel(modes, range(6))) == {expected}


@pytest.mark.usefixtures("three_threads")
def test_in_parallel_keeps_the_context_of_the_caller() -> None:
    def work(_: int) -> str:
        found = MARK.get()
        MARK.set("changed by an item")
        return found

    token = MARK.set("set by the caller")
    try:
        assert set(transforms.in_parallel(work, range(9))) == {"set by the caller"}
        assert MARK.get() == "set by the caller"
        with no_bars():
            shown = transforms.in_parallel(lambda _: bar_is_shown(), range(4))
        assert shown == [False] * 4
    finally:
        MARK.reset(token)


def bar_is_shown() -> bool:
    """Return whether a bar that is shown on a terminal would be shown here."""
    return not progress._silent.get()


@pytest.mark.usefixtures("three_threads")
def test_in_parallel_within_in_parallel_does_not_wait_for_its_own_thread() -> None:
    def outer(item: int) -> list[int]:
        return transforms.in_parallel(lambda k: item + k, range(2))

    assert transforms.in_parallel(outer, range(6)) == [[k, k + 1] for k in range(6)]


@given(rows=st.integers(0, 4), dims=st.integers(1, 3))
def test_times_are_one_number_or_one_per_row(rows: int, dims: int) -> None:
    x = torch.zeros(rows, *[2] * dims)
    assert transforms.one_per_row(torch.tensor(0.5), x).tolist() == [0.5] * rows
    tau = torch.rand(rows)
    assert transforms.one_per_row(tau, x) is tau
    for shape in ((rows + 1,), (rows, 1)):
        with pytest.raises(ValueError, match=f"one per row: {rows} rows, got shape"):
            transforms.one_per_row(torch.zeros(shape), x)
