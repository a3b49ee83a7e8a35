from __future__ import annotations

import pytest
import torch

from studies.polynomials.study import LINES


def test_noised_distributions() -> None:
    for line in LINES[1:]:
        x, weights, score = line.noised(0.8, 0.6)
        assert float(weights.sum()) == pytest.approx(1)
        log = weights.log()
        slope = torch.gradient(log, spacing=(x[:, 0],))[0]
        seen = weights > 1e-5
        assert float((slope - score[:, 0])[seen].abs().max()) < 1e-2
    draws = LINES[1].sample(20_000, 0)
    assert float(draws.var()) == pytest.approx(2, rel=0.05)
