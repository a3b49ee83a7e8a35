"""State dicts of priors: complete, or refused."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from oism import Diffusion, fit_mixture, fit_prior, load
from oism.images import PCA, Prior, add_local_terms
from oism.nn import MLP, Combined
from oism.process import IdentityClock
from oism.storage._module import fill

LABELS = torch.arange(400) % 2
KINDS = ["order 2", "order 4", "mixture", "classes", "rest"]


def rows(kind: int) -> Tensor:
    """Return rows of two kinds: with other means, directions and variances."""
    generator = torch.Generator().manual_seed(kind)
    x = torch.randn(400, 3, generator=generator, dtype=torch.float64)
    x = 20 * torch.linalg.qr(x - x.mean(dim=0)).Q
    scale = torch.tensor([[1.0, 0.5, 0.1], [0.02, 0.5, 1.0]], dtype=torch.float64)[kind]
    found: Tensor = x * scale + 3 * kind
    return found


def prior_of(kind: str, x: Tensor) -> Prior:
    if kind == "mixture":
        return fit_mixture(x, components=2)
    if kind == "classes":
        return fit_prior(x, labels=LABELS)
    if kind == "rest":
        return fit_prior(x, order=2, frame=PCA(2))
    return fit_prior(x, order=int(kind[-1]), ridge=0.01)


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_of_other_data_makes_the_prior_of_those(kind: str) -> None:
    prior, other = prior_of(kind, rows(0)), prior_of(kind, rows(1))
    assert prior.table_clock != other.table_clock
    model = Diffusion(Combined(MLP(3), prior))
    model.load_state_dict(Diffusion(Combined(MLP(3), other)).state_dict())
    assert prior.table_clock == other.table_clock
    z, tau = torch.randn(5, 3), torch.rand(5)
    assert torch.equal(prior.noise(z, tau), other.noise(z, tau))
    assert torch.equal(prior.expected_error(tau), other.expected_error(tau))
    assert torch.equal(prior.log_density(z), other.log_density(z))
    one, two = (part.sample(9, torch.Generator().manual_seed(0)) for part in (prior, other))
    assert torch.equal(one, two)
    torch.testing.assert_close(
        prior.gaussian_part().variances, other.gaussian_part().variances, rtol=0, atol=0
    )


def test_local_terms_get_the_table_of_the_loaded_prior() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 1, 4, 4, generator=generator)
    prior, other = (
        add_local_terms(part, fit_prior(part, order=2), degrees=2) for part in (x, 0.1 * x + 0.3)
    )
    prior.load_state_dict(other.state_dict())
    z, tau = torch.randn(5, 1, 4, 4), torch.rand(5)
    assert torch.equal(prior.noise(z, tau), other.noise(z, tau))


def test_states_of_other_kinds_are_refused_before_a_tensor_is_set() -> None:
    x = rows(0)
    late, framed = (
        fit_prior(x, order=2, clock=IdentityClock(3.0)),
        fit_prior(x, frame=PCA(2), order=2),
    )
    for other, message in (
        (late, r"state_dict must be .* the same noise levels, .* \(oism.load\)"),
        (framed, "a frame of 3 of 3 directions, .* 2, got 3: fit the prior"),
    ):
        prior = fit_prior(x, order=2)
        before = {name: part.clone() for name, part in prior.state_dict().items()}
        for strict in (True, False):
            with pytest.raises(ValueError, match=message):
                prior.load_state_dict(other.state_dict(), strict=strict)
        for name, part in prior.state_dict().items():
            torch.testing.assert_close(part, before[name], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("kind", ["order 4", "rest"])
def test_states_of_earlier_versions_are_loaded(kind: str) -> None:
    prior = prior_of(kind, rows(0))
    for module in (prior, Combined(MLP(3), prior)):
        state = module.state_dict()
        old = {name: part for name, part in state.items() if "_extra_state" not in name}
        assert len(old) < len(state)
        assert copy.deepcopy(module).load_state_dict(old).missing_keys == []


class Holder(nn.Module):
    """A network of one's own that holds a prior."""

    def __init__(self, prior: Prior) -> None:
        super().__init__()
        self.prior, self.inner = prior, nn.Linear(3, 3)

    def forward(self, x: Tensor, tau: Tensor) -> Tensor:
        found: Tensor = self.inner(self.prior.noise(x, tau))
        return found


def test_files_of_earlier_versions_fill_networks_that_hold_a_prior() -> None:
    net, other = (Holder(prior_of("rest", rows(0))) for _ in range(2))
    state = other.state_dict()
    del state["prior._extra_state"]
    fill(net, state)
    x, tau = torch.randn(4, 3), torch.rand(4)
    assert torch.allclose(net(x, tau), other(x, tau), atol=1e-5)


def test_a_prior_within_a_stored_network_round_trips(tmp_path: Path) -> None:
    net = Holder(prior_of("rest", rows(0)))
    Diffusion(net, net.prior.spec).save(tmp_path / "model")
    again = Holder(net.prior)
    found = load(tmp_path / "model", given={"predictor": again})
    assert torch.equal(found.predictor.inner.weight, net.inner.weight)
