"""Training with labels: what the network gets, files, resumption, and what it learns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from oism import Combined, fit_prior, load, train
from oism.nn import DDPMpp, Diffusion
from oism.objectives import UniformLogSNR
from oism.process import Noising, OrnsteinUhlenbeck, VariancePreserving
from oism.training import CheckpointError, Rows, Run, TrainingConfig, new_accelerator
from oism.training._draws import Draws

from .small import NET, PIXELS, SHAPE, assert_same, config, images

CLASSES = 3
LEVELS = UniformLogSNR(Noising(OrnsteinUhlenbeck(), VariancePreserving()))


def labels(n: int = 90) -> Tensor:
    return torch.arange(n) % CLASSES


def labelled() -> Rows:
    return Rows(images(), PIXELS, labels=labels())


def combined() -> Combined:
    prior = fit_prior(images(), labels=labels(), pixels=PIXELS)
    torch.manual_seed(0)
    return Combined(DDPMpp(SHAPE, **NET, classes=CLASSES), prior)


def short_run(folder: Path, net: nn.Module, rows: Rows, **changes: Any) -> Run:
    resume = bool(changes.pop("resume", False))
    return Run(
        folder, net, rows, config(**changes), resume=resume, accelerator=new_accelerator(cpu=True)
    )


def test_batches_carry_the_labels_of_their_rows() -> None:
    values = torch.arange(90.0).reshape(90, 1)
    rows = Rows(values, labels=values[:, 0].long() % CLASSES)
    draws = Draws(rows, LEVELS, size=30, seed=0, flip=False)
    for k in range(3):
        batch = draws.step(k)
        assert batch.labels is not None
        assert torch.equal(batch.labels, batch.x[:, 0].long() % CLASSES)
    assert Draws(Rows(values), LEVELS, size=30, seed=0, flip=False).step(0).labels is None


def test_a_share_of_labels_is_dropped_and_nothing_else_changes() -> None:
    plain, rows = Rows(images(), PIXELS), labelled()
    whole = Draws(rows, LEVELS, size=60, seed=0, flip=True)
    dropping = Draws(rows, LEVELS, size=60, seed=0, flip=True, dropped=0.1)
    halves = [
        Draws(rows, LEVELS, size=60, seed=0, flip=True, dropped=0.1, rank=r, world=2)
        for r in range(2)
    ]
    without = Draws(plain, LEVELS, size=60, seed=0, flip=True)
    gone = 0
    for k in range(50):
        a, b, c = whole.step(k), dropping.step(k), without.step(k)
        for name in ("x", "tau", "noise"):
            assert torch.equal(getattr(a, name), getattr(b, name))
            assert torch.equal(getattr(a, name), getattr(c, name))
        assert a.labels is not None
        assert b.labels is not None
        kept = b.labels < CLASSES
        assert torch.equal(b.labels[kept], a.labels[kept])
        gone += int((~kept).sum())
        parts = [half.step(k).labels for half in halves]
        assert torch.equal(torch.cat([p for p in parts if p is not None]), b.labels)
    assert 0.08 < gone / 3000 < 0.12


def test_a_resumed_run_continues_bit_for_bit(tmp_path: Path) -> None:
    short_run(tmp_path / "whole", combined(), labelled()).run()
    short_run(tmp_path / "parts", combined(), labelled(), steps=8).run()
    short_run(tmp_path / "parts", combined(), labelled(), resume=True).run()
    assert_same(tmp_path / "whole", tmp_path / "parts")
    model = load(tmp_path / "whole")
    assert isinstance(model, Diffusion)
    assert model.classes == CLASSES
    drawn = [model.sample(6, torch.Generator().manual_seed(0), labels=k) for k in range(CLASSES)]
    assert not torch.equal(drawn[0], drawn[1])


def test_other_labels_are_another_run(tmp_path: Path) -> None:
    short_run(tmp_path, combined(), labelled(), steps=4).run()
    other = Rows(images(), PIXELS, labels=labels().flip(0))
    with pytest.raises(CheckpointError, match="checksum"):
        short_run(tmp_path, combined(), other, resume=True)
    with pytest.raises(CheckpointError, match="dropped_labels"):
        short_run(tmp_path, combined(), labelled(), resume=True, dropped_labels=0.2)


def test_networks_and_data_must_agree(tmp_path: Path) -> None:
    net = DDPMpp(SHAPE, **NET)
    with pytest.raises(ValueError, match=r"net must have classes = 3, .* got none"):
        short_run(tmp_path / "a", net, labelled())
    with pytest.raises(ValueError, match="data must have labels for a network with 3 classes"):
        short_run(tmp_path / "b", combined(), Rows(images(), PIXELS))
    with pytest.raises(ValueError, match=r"net must have classes = 3, .* got 5"):
        short_run(tmp_path / "c", DDPMpp(SHAPE, **NET, classes=5), labelled())
    with pytest.raises(ValueError, match=r"labels must be one per row, \(90,\), got shape \(80,\)"):
        Rows(images(), PIXELS, labels=labels(80))


class Net(nn.Module):
    """A small network of points with labels."""

    def __init__(self) -> None:
        super().__init__()
        self.classes = 2
        self.label = nn.Embedding(3, 16)
        self.first, self.last = nn.Linear(19, 64), nn.Linear(64, 2)
        self.inner = nn.Linear(64, 64)

    def forward(self, x: Tensor, tau: Tensor, labels: Tensor | None = None) -> Tensor:
        labels = torch.full((len(x),), 2) if labels is None else labels
        h = torch.cat((x, tau[:, None].to(x), self.label(labels)), dim=1)
        h = nn.functional.silu(self.first(h))
        found: Tensor = self.last(h + nn.functional.silu(self.inner(h)))
        return found


def test_an_own_network_learns_classes_and_their_mixture(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    own = torch.randint(0, 2, (2000,), generator=generator)
    centres = torch.tensor([[-0.8, 0.5], [0.8, -0.5]])
    x = centres[own] + 0.15 * torch.randn(2000, 2, generator=generator)
    torch.manual_seed(0)
    settings = TrainingConfig(
        steps=600, batch=256, rate=5e-3, warmup=20, decay=0.98, flip=False, sample_every=0,
        save_every=0,
    )  # fmt: skip
    model = train(
        Net(), Rows(x, labels=own), tmp_path, settings, accelerator=new_accelerator(cpu=True)
    )
    model.chunk = 1000
    for k in range(2):
        found = model.sample(300, generator, labels=k, evaluations=24)
        torch.testing.assert_close(found.mean(dim=0), centres[k], atol=0.1, rtol=0)
        assert float(found.std(dim=0).max()) < 0.35
    free = model.sample(500, generator, evaluations=24)
    assert 0.35 < float((free[:, 0] > 0).float().mean()) < 0.65
    assert float(free[:, 0].abs().mean()) > 0.6
