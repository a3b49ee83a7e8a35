"""The loop: a step is Adam's on clipped gradients, in either precision, compiled or not."""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.state import AcceleratorState
from torch import Tensor, nn

from oism.nn import DDPMpp, OperatorInformed, compile_blocks, trained_network
from oism.objectives import DenoisingScoreMatching, UniformLogSNR
from oism.training import DivergedError, Loop, Rows, new_accelerator

from .small import PIXELS, config, fitted, images, predictor, short_run, state_of


def loop_of(net: nn.Module | None = None, **changes: Any) -> Loop:
    prior = fitted()
    objective = DenoisingScoreMatching(UniformLogSNR(prior.noising))
    net = predictor(prior) if net is None else net
    rows, accelerator = Rows(images(), PIXELS), new_accelerator(cpu=True)
    return Loop(net, rows, objective, config(**changes), accelerator)


def test_a_step_is_adam_s_on_clipped_gradients() -> None:
    """By hand, with the same draws."""
    steps, clip = 5, 0.05
    loop = loop_of(steps=steps, clip=clip, warmup=3)
    other = predictor(fitted())
    net = trained_network(other)
    first = {name: torch.zeros_like(part) for name, part in net.named_parameters()}
    second = {name: torch.zeros_like(part) for name, part in net.named_parameters()}
    losses, norms = [], []
    for k in range(steps):
        batch = loop.draws.step(k)
        net.zero_grad()
        loss = loop.objective.loss(other, batch.x, batch.tau, batch.noise)
        loss.backward()  # type: ignore[no-untyped-call]
        grads = {n: p.grad for n, p in net.named_parameters() if p.grad is not None}
        norm = math.sqrt(sum(float(g.square().sum()) for g in grads.values()))
        losses.append(float(loss.detach()))
        norms.append(norm)
        with torch.no_grad():
            for name, part in net.named_parameters():
                g = grads[name] * min(1.0, clip / (norm + 1e-6))
                first[name] = 0.9 * first[name] + 0.1 * g
                second[name] = 0.999 * second[name] + 0.001 * g.square()
                m, v = first[name] / (1 - 0.9 ** (k + 1)), second[name] / (1 - 0.999 ** (k + 1))
                part.sub_(1e-2 * min(1, (k + 1) / 3) * m / (v.sqrt() + 1e-8))
    for _ in range(steps):
        loop.step()
    assert min(norms) > clip, "all were clipped"
    for (name, one), two in zip(loop.net.named_parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-4, msg=name)
    report = loop.report()
    assert report.loss == pytest.approx(sum(losses) / steps, rel=1e-4)
    assert report.gradient == pytest.approx(sum(norms) / steps, rel=1e-3)
    assert (report.step, report.rate) == (steps, 1e-2)


def test_reports_begin_anew() -> None:
    loop = loop_of()
    loop.step()
    first = loop.report()
    loop.step()
    second = loop.report()
    assert (first.step, second.step) == (1, 2)
    assert second.loss != first.loss
    other = loop_of()
    other.step()
    other.step()
    assert other.report().loss == pytest.approx((first.loss + second.loss) / 2)


def test_the_first_step_that_is_no_number_is_remembered() -> None:
    loop = loop_of()
    loop.step()
    with torch.no_grad():
        next(loop.net.parameters()).fill_(torch.nan)
    for _ in range(3):
        loop.step()
    with pytest.raises(DivergedError, match=r"not finite in step 2$"):
        loop.report()


def test_the_prior_is_not_trained() -> None:
    loop = loop_of()
    assert isinstance(loop.predictor, OperatorInformed)
    before = {name: part.clone() for name, part in loop.predictor.prior.state_dict().items()}
    for _ in range(3):
        loop.step()
    after = loop.predictor.prior.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_half_precision(tmp_path: Path) -> None:
    """Layers work in bfloat16; weights, averages and the optimiser stay in float32."""
    seen: set[torch.dtype] = set()
    net = predictor(fitted())
    inner = trained_network(net)
    assert isinstance(inner, DDPMpp)
    inner.middle.conv.register_forward_hook(lambda m, x, y: seen.add(y.dtype))
    run = short_run(tmp_path / "half", net, precision="bf16")
    run.run()
    assert seen == {torch.bfloat16}
    assert {value.dtype for value in state_of(tmp_path / "half").values()} == {torch.float32}
    full = short_run(tmp_path / "full")
    full.run()
    moved, kept = state_of(tmp_path / "half"), state_of(tmp_path / "full")
    weights = [name for name in kept if name.startswith("net.")]
    assert not all(torch.equal(moved[name], kept[name]) for name in weights)
    away = max(float((moved[name] - kept[name]).abs().max()) for name in weights)
    assert away < 0.1, "twelve steps of 0.01 at most"
    assert run.model.precision == "bf16"


def test_precision_is_the_run_s_not_the_launcher_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """`accelerate launch` hands on what it was configured to, and would wrap networks by itself."""
    AcceleratorState._reset_state(reset_partial_state=True)
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    try:
        assert new_accelerator(cpu=True).mixed_precision == "no"
    finally:
        AcceleratorState._reset_state(reset_partial_state=True)


class OneBlock(nn.Module):
    """The least that is compiled: one block of a network."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = DDPMpp((1, 4, 4), width=8, multipliers=(1,), blocks=1, attention=(), dropout=0.0)
        self.block = self.net.after
        nn.init.normal_(self.block.second_conv.weight, std=0.1)

    def forward(self, x: Tensor, tau: Tensor) -> Tensor:
        time = x.new_ones(len(x), 32) * tau.to(x)[:, None]
        found: Tensor = self.block(x.expand(-1, 8, -1, -1), time)
        return found.mean(dim=1, keepdim=True)


QUIET = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # the compiler's own


CAN_COMPILE = shutil.which("g++") and Path(sysconfig.get_path("include"), "Python.h").is_file()


@QUIET
@pytest.mark.slow
@pytest.mark.skipif(not CAN_COMPILE, reason="there is no compiler")
def test_compiled_steps_are_the_same_and_nothing_is_recorded_without_a_device() -> None:
    def gradients(compiled: bool) -> dict[str, Tensor]:
        loop = loop_of(OneBlock(), compile=compiled)
        loop.differentiate(loop.draws.step(0))
        assert loop._recorded is None
        return {n: p.grad for n, p in loop.net.named_parameters() if p.grad is not None}

    plain, compiled = gradients(False), gradients(True)
    assert set(plain) == set(compiled)
    assert len(plain) > 5
    for name, value in plain.items():
        torch.testing.assert_close(compiled[name], value, rtol=1e-3, atol=1e-5)


@QUIET
def test_all_blocks_are_compiled() -> None:
    net = predictor(fitted())
    before = torch._dynamo.config.recompile_limit
    try:
        compile_blocks(net)
        inner = trained_network(net)
        assert isinstance(inner, DDPMpp)
        blocks = [*inner.down, inner.middle, inner.after, *inner.up]
        assert all(block._compiled_call_impl is not None for block in blocks)
        assert inner._compiled_call_impl is None
    finally:
        torch._dynamo.config.recompile_limit = before


def test_training_names_the_extra_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "accelerate", None)
    message = r"training needs accelerate: pip install 'oism\[train\]'"
    with pytest.raises(ModuleNotFoundError, match=message):
        new_accelerator()


def test_accelerate_is_imported_by_training_alone() -> None:
    imports = "import sys, oism.training, oism.cli.train_parts, oism.cli.train_progress"
    code = f"{imports}; print('accelerate' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
