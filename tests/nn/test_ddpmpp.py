"""DDPM++: its parts against naive versions, its size against a count by hand, and how it starts."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from oism import DDPMpp, fit_prior
from oism.nn import Combined, OperatorInformed, Parametrised, Velocity
from oism.nn._ddpmpp import Attention, Block, Norm

SMALL: dict[str, Any] = {"width": 8, "multipliers": (1, 2), "blocks": 1, "attention": (4,)}


def small(**more: Any) -> DDPMpp:
    return DDPMpp((1, 8, 8), **{**SMALL, **more})


def stirred(module: nn.Module, size: float = 1.0) -> Any:
    """Return a module that is not zero anywhere, as if it had been trained."""
    for part in module.parameters():
        fan = part[0].numel() if part.ndim > 1 else 10
        nn.init.normal_(part, mean=0.0, std=size / math.sqrt(fan))
    return module


# --- the parts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("channels", [4, 6, 12, 96, 130])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_norm_by_sums_is_group_normalisation(channels: int, layout: torch.memory_format) -> None:
    norm = stirred(Norm(channels))
    x = 3 * torch.randn(5, channels, 4, 6) + 2
    x = x.contiguous(memory_format=layout).requires_grad_()
    pull = torch.randn_like(x)
    values, gradients = [], []
    for way in (norm.by_sums, norm):
        found = way(x)
        assert found.is_contiguous(memory_format=layout)
        values.append(found)
        gradients.append(torch.autograd.grad((found * pull).sum(), (x, norm.weight, norm.bias)))
    expected = functional.group_norm(x, norm.num_groups, norm.weight, norm.bias, eps=1e-6)
    for found in values:
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)


@given(channels=st.integers(1, 300))
def test_groups_are_of_four_channels_and_at_most_32(channels: int) -> None:
    norm = Norm(channels)
    assert 1 <= norm.num_groups <= 32
    assert channels % norm.num_groups == 0
    if channels % 4 == 0 and channels <= 128:
        assert norm.num_groups == channels // 4
    if channels in (128, 256, 384, 512):  # those of the reference
        assert norm.num_groups == 32


def test_norm_by_sums_survives_features_far_from_zero() -> None:
    """The sums cancel, but not below the resolution of float32; and a constant is no failure."""
    norm = Norm(8)
    x = torch.randn(2, 8, 16, 16)
    torch.testing.assert_close(norm.by_sums(x + 30), norm(x), rtol=0, atol=2e-3)
    assert bool((norm.by_sums(torch.full_like(x, 1e3)).abs() < 100).all())


def test_attention_is_a_softmax_over_positions() -> None:
    module = stirred(Attention(8))
    x = torch.randn(2, 8, 3, 5)
    found = module(x)
    part = {name: value.detach().double().numpy() for name, value in module.state_dict().items()}
    grouped = x.double().numpy().reshape(2, 2, -1)
    centred = grouped - grouped.mean(axis=2, keepdims=True)
    normed = centred / np.sqrt((centred**2).mean(axis=2, keepdims=True) + 1e-6)
    normed = normed.reshape(2, 8, 15) * part["norm.weight"][:, None] + part["norm.bias"][:, None]
    inner = part["inner.weight"].reshape(24, 8)
    for n in range(2):
        q, k, v = np.split(inner @ normed[n] + part["inner.bias"][:, None], 3)
        seen = np.empty((8, 15))
        for i in range(15):
            weights = np.exp([q[:, i] @ k[:, j] / math.sqrt(8) for j in range(15)])
            seen[:, i] = v @ (weights / weights.sum())
        out = part["outer.weight"].reshape(8, 8) @ seen + part["outer.bias"][:, None]
        expected = (x[n].double().numpy().reshape(8, 15) + out) / math.sqrt(2)
        np.testing.assert_allclose(found[n].detach().reshape(8, 15), expected, rtol=1e-4, atol=1e-5)


def resized(x: Tensor, resize: float) -> Tensor:
    """Means of squares of four, or four copies, by reshaping."""
    n, c, height, width = x.shape
    if resize == 0.5:
        return x.reshape(n, c, height // 2, 2, width // 2, 2).mean(dim=(3, 5))
    return x.repeat_interleave(int(resize), 2).repeat_interleave(int(resize), 3)


def bent(norm: nn.GroupNorm, x: Tensor) -> Tensor:
    normed = functional.group_norm(x, norm.num_groups, norm.weight, norm.bias, norm.eps)
    return normed * torch.sigmoid(normed)


@pytest.mark.parametrize("resize", [0.5, 1, 2])
@pytest.mark.parametrize("outer", [8, 12])
def test_a_block_is_its_formula_and_resizes_both_branches(resize: float, outer: int) -> None:
    block = stirred(Block(8, outer, 6, dropout=0.5, resize=resize)).eval()
    x, time = torch.randn(3, 8, 4, 6), torch.randn(3, 6)
    h = resized(bent(block.norm, x), resize)
    h = functional.conv2d(h, block.conv.weight, block.conv.bias, padding=1)
    h = h + (time @ block.time.weight.T + block.time.bias)[:, :, None, None]
    h = bent(block.second_norm, h)
    h = functional.conv2d(h, block.second_conv.weight, block.second_conv.bias, padding=1)
    around = resized(x, resize)
    if outer != 8 or resize != 1:
        around = functional.conv2d(around, block.around.weight, block.around.bias)
    torch.testing.assert_close(block(x, time), (around + h) / math.sqrt(2), rtol=1e-4, atol=1e-5)


def test_blocks_keep_the_size_of_features() -> None:
    """A branch of the size of its input, independent of it: hence the division by √2."""
    x = torch.randn(64, 32, 8, 8)
    for _ in range(6):
        block = Block(32, 32, 4, dropout=0.0)
        # What silu makes of normal features has a second moment of 0.355.
        nn.init.normal_(block.second_conv.weight, std=1 / math.sqrt(0.355 * 32 * 9))
        after = block(x, torch.zeros(64, 4)).detach()
        ratio = float(after.var() / x.var())
        # At the edges a filter sees two thirds of its place; without the division it would be two.
        assert 0.8 < ratio < 1.1
        x = after / after.std()


# --- the first convolution -----------------------------------------------------------------------


def test_the_first_convolution_resolves_small_noise_in_half_precision() -> None:
    """Filters that ignore constants, a constant image, and noise of a thousandth of it.

    A plain convolution in bfloat16 rounds the noise away before it is filtered.
    """
    net = small(width=16)
    weight = torch.randn(16, 1, 3, 3)
    net.enter.weight.data = weight - weight.mean(dim=(2, 3), keepdim=True)
    assert net.enter.bias is not None
    net.enter.bias.data.zero_()
    level = torch.rand(4, 1, 1, 1) + 0.5
    x = level + 1e-3 * torch.randn(4, 1, 8, 8)
    exact = functional.conv2d(x.double() - level, net.enter.weight.double())

    def error(y: Tensor) -> float:
        assert y.dtype == torch.bfloat16
        inside = y[:, :, 1:-1, 1:-1].double()
        return float((inside - exact).square().mean() / exact.square().mean())

    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert error(net._entered(x)) < 1e-4
        assert error(net.enter(x)) > 0.3


def test_in_full_precision_it_is_a_convolution() -> None:
    net = small(extra=2, width=16)
    x = torch.randn(3, 3, 8, 8)
    torch.testing.assert_close(net._entered(x), net.enter(x), rtol=1e-5, atol=1e-6)


# --- the whole -----------------------------------------------------------------------------------


def count(
    *,
    channels: int,
    side: int,
    width: int,
    multipliers: tuple[int, ...],
    blocks: int,
    attended: tuple[int, ...],
    extra: int = 0,
) -> int:
    """The number of parameters, by the description of the architecture."""

    def conv(i: int, o: int, k: int = 3) -> int:
        return o * (i * k * k + 1)

    def block(i: int, o: int, moved: bool = False) -> int:
        around = conv(i, o, 1) if i != o or moved else 0
        return 2 * i + conv(i, o) + o * (4 * width + 1) + 2 * o + conv(o, o) + around

    def attention(c: int) -> int:
        return 2 * c + conv(c, 3 * c, 1) + conv(c, c, 1)

    widths = [width * m for m in multipliers]
    levels = len(widths)
    total = 4 * width * (width + 1) + 4 * width * (4 * width + 1)
    total += conv(channels + extra, width)
    before = [width, *widths[:-1]]
    for level in range(levels):
        inner, wide = before[level], widths[level]
        # What the way down leaves for the way up, last first; one comes from the level above.
        left = [wide] * blocks + [inner]
        total += block(inner, wide) + (blocks - 1) * block(wide, wide)
        below = widths[level + 1] if level + 1 < levels else wide
        total += block(below + left[0], wide)
        total += sum(block(wide + one, wide) for one in left[1:])
        if level + 1 < levels:
            total += block(wide, wide, moved=True)
            total += block(below, below, moved=True)
        if side >> level in attended:
            total += (blocks + 1) * attention(wide)
    deep = widths[-1]
    total += 2 * block(deep, deep) + attention(deep)
    return total + 2 * widths[0] + conv(widths[0], channels)


def parameters(net: nn.Module) -> int:
    return sum(part.numel() for part in net.parameters())


def test_the_default_is_the_reference_for_cifar() -> None:
    with torch.device("meta"):
        net = DDPMpp()
    assert parameters(net) == count(
        channels=3, side=32, width=128, multipliers=(1, 2, 2, 2), blocks=4, attended=(16,)
    )
    assert parameters(net) == pytest.approx(62e6, rel=0.01)
    with torch.device("meta"):
        assert parameters(DDPMpp(extra=3)) == parameters(net) + 128 * 3 * 9


@settings(max_examples=25)
@given(
    channels=st.integers(1, 3),
    extra=st.integers(0, 3),
    width=st.integers(2, 6),
    multipliers=st.lists(st.integers(1, 2), min_size=1, max_size=3),
    blocks=st.integers(1, 2),
    attention=st.sets(st.sampled_from([1, 2, 4, 8])),
    sides=st.tuples(st.integers(1, 2), st.integers(1, 3)),
    rows=st.integers(1, 2),
)
def test_any_size(
    *,
    channels: int,
    extra: int,
    width: int,
    multipliers: list[int],
    blocks: int,
    attention: set[int],
    sides: tuple[int, int],
    rows: int,
) -> None:
    factor = 2 ** (len(multipliers) - 1)
    shape = (channels, sides[0] * factor, sides[1] * factor)
    net = DDPMpp(
        shape, extra=extra, width=2 * width, multipliers=multipliers, blocks=blocks,
        attention=sorted(attention), dropout=0.0,
    )  # fmt: skip
    expected = count(
        channels=channels, side=shape[1], width=2 * width, multipliers=tuple(multipliers),
        blocks=blocks, attended=tuple(attention), extra=extra,
    )  # fmt: skip
    assert parameters(net) == expected
    x = torch.randn(rows, channels + extra, *shape[1:])
    found = net(x, torch.rand(rows))
    assert found.shape == (rows, *shape)
    assert not found.any(), "it begins by predicting no noise"
    again = DDPMpp(**json.loads(json.dumps(net.to_config())))
    assert again.to_config() == net.to_config()
    again.load_state_dict(stirred(net).state_dict())
    tau = torch.rand(rows)
    assert torch.equal(again(x, tau), net(x, tau))


def test_every_parameter_is_trained() -> None:
    """What starts at zero hides what is behind it, for three steps."""
    net = small(multipliers=(1, 2, 2), attention=(4, 2), dropout=0.0)
    optimiser = torch.optim.Adam(net.parameters(), 1e-2)
    x, noise, tau = torch.randn(4, 1, 8, 8), torch.randn(4, 1, 8, 8), torch.rand(4)
    for _ in range(4):
        optimiser.zero_grad()
        (net(x, tau) - noise).square().mean().backward()
        still = {
            name
            for name, part in net.named_parameters()
            if part.grad is None or not bool(part.grad.any())
        }
        optimiser.step()
    assert not still


def test_it_learns() -> None:
    net = small(dropout=0.0)
    optimiser = torch.optim.Adam(net.parameters(), 1e-2)
    x = torch.randn(16, 1, 8, 8)
    tau, target = torch.rand(16), 0.5 * x
    losses = []
    for _ in range(60):
        loss = (net(x, tau) - target).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.05 * losses[0]


def test_time_and_layout_and_dropout() -> None:
    net = stirred(small(dropout=0.5))
    x, tau = torch.randn(3, 1, 8, 8), torch.tensor([0.1, 0.5, 0.9])
    assert not torch.equal(net(x, tau), net(x, tau)), "dropout is on in training"
    net.eval()
    found = net(x, tau)
    turned = net(x.contiguous(memory_format=torch.channels_last), tau)
    torch.testing.assert_close(turned, found, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(net(x, tau.flip(0)), found)
    torch.testing.assert_close(net(x, torch.tensor(0.5))[1], found[1])
    for i in range(3):
        torch.testing.assert_close(net(x[i : i + 1], tau[i : i + 1])[0], found[i])
    torch.testing.assert_close(net(x.double(), tau.double()), found.double())


def test_the_kept_features_come_back_at_their_place() -> None:
    """Without them all of the image would pass through the coarsest level."""
    net = stirred(small(attention=())).eval()
    for part in (net.middle, net.after):
        part.register_forward_hook(lambda _, __, found: torch.zeros_like(found))
    x = torch.randn(1, 1, 8, 8)
    other = x.clone()
    other[0, 0, 0, 0] += 1
    with torch.no_grad():
        gap = (net(x, torch.tensor(0.5)) - net(other, torch.tensor(0.5))).abs()[0, 0]
    near, far = (part.max().item() for part in (gap[:3, :3], gap[5:, 5:]))
    assert near > 3 * far > 0


def test_half_precision_is_nearly_the_same() -> None:
    net = stirred(small()).eval().requires_grad_(False)
    x, tau = torch.randn(3, 1, 8, 8), torch.rand(3)
    with torch.autocast("cpu", torch.bfloat16):
        found = net(x, tau)
    assert found.dtype == torch.float32
    exact = net(x, tau)
    assert float((found - exact).square().mean()) < 0.01 * float(exact.square().mean())


DTYPES = {torch.float64: 1e-9, torch.float32: 1e-9, torch.float16: 2e-5, torch.bfloat16: 1e-3}
"""Mean squared differences from the network in float64, as shares of the mean square; the weights
are rounded before both."""


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("own", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("classes", [None, 3])
def test_weights_of_any_dtype(kind: torch.dtype, own: torch.dtype, classes: int | None) -> None:
    net = stirred(small(classes=classes)).eval().requires_grad_(False).to(kind)
    exact = copy.deepcopy(net).double()
    x, tau = torch.randn(3, 1, 8, 8).to(own), torch.rand(3)
    found = net(x, tau)
    assert found.dtype == own
    wanted = exact(x.double(), tau)
    share = max(DTYPES[kind], DTYPES[own])
    assert float((found - wanted).square().mean()) < share * float(wanted.square().mean())


@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("form", [Combined, OperatorInformed, None])
def test_predictors_with_weights_of_any_dtype(
    kind: torch.dtype, form: type[Combined | OperatorInformed] | None
) -> None:
    prior = fit_prior(torch.randn(80, 1, 8, 8), order=2)
    net = stirred(small()).eval().requires_grad_(False).to(kind)
    whole = Parametrised(net, Velocity(), prior.clock) if form is None else form(net, prior)
    if isinstance(whole, Combined):
        whole.share.fill_(0.5)
    exact = copy.deepcopy(whole)
    exact.net.double()
    x, tau = torch.randn(3, 1, 8, 8), torch.rand(3)
    wanted = exact(x.double(), tau)
    for own in (torch.float32, torch.float64):
        found = whole(x.to(own), tau)
        assert found.dtype == own
        assert float((found - wanted).square().mean()) < 1e-3 * float(wanted.square().mean())


def test_norm_by_sums_has_the_dtype_of_its_weights() -> None:
    for kind, gap in ((torch.float64, 1e-10), (torch.bfloat16, 0.05)):
        norm, x = stirred(Norm(8)).to(kind), torch.randn(2, 8, 4, 4).to(kind)
        assert norm.by_sums(x).dtype == kind
        torch.testing.assert_close(norm.by_sums(x), norm(x), rtol=gap, atol=gap)


def test_nothing_is_compiled_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(torch, "compile", refuse)
    monkeypatch.setattr(Norm, "by_sums", refuse)
    assert small()(torch.zeros(1, 1, 8, 8), torch.zeros(1)).shape == (1, 1, 8, 8)


def test_weights_stay_channels_last_when_they_are_loaded() -> None:
    net, state = small(), small().state_dict()
    net.load_state_dict({name: part.contiguous() for name, part in state.items()})
    weight = net.get_parameter("down.0.conv.weight")
    assert weight.is_contiguous(memory_format=torch.channels_last)


# --- mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(2, 1, 8), (2, 2, 8, 8), (2, 1, 8, 4), (1, 8, 8), (8,)])
def test_images_of_another_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"x must be images \(n, 1, 8, 8\) for this network, got"):
        small()(torch.zeros(shape), torch.zeros(2))


def test_times_of_another_number() -> None:
    with pytest.raises(ValueError, match="tau must be one number or one per row: 2 rows, got"):
        small()(torch.zeros(2, 1, 8, 8), torch.zeros(1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shape": (8, 8)}, r"shape must be channels, height and width, got \(8, 8\)"),
        ({"shape": (1, 6, 8), "multipliers": (1, 1, 1)}, "multiples of 4 for 3 levels, got 6 × 8"),
        ({"shape": (1, 0, 8)}, r"shape\[1\] must be an integer >= 1, got 0"),
        ({"multipliers": ()}, r"multipliers must have at least one axis, got \(\)"),
        ({"multipliers": (1, 0)}, r"multipliers\[1\] must be an integer >= 1, got 0"),
        ({"width": 7}, "width must be even, got 7"),
        ({"width": 2}, "width must be an integer >= 4, got 2"),
        ({"blocks": 0}, "blocks must be an integer >= 1, got 0"),
        ({"extra": -1}, "extra must be an integer >= 0, got -1"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\), got 1.0"),
        ({"dropout": -0.1}, r"dropout must be in \[0, 1\), got -0.1"),
        ({"dropout": math.nan}, "dropout must be a finite number, got nan"),
        ({"attention": (0,)}, "attention must be an integer >= 1, got 0"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DDPMpp(**{"shape": (1, 8, 8), **SMALL, **arguments})
    with pytest.raises(TypeError, match="dropout must be a finite number, got str"):
        small(dropout="much")
