from __future__ import annotations

import numpy as np
import pytest
import torch

from oism.studies import closed_form
from oism.studies.closed_form import LINES, TIMES, exact_moments, line_losses


def test_exact_moments_reach_what_25_frequencies_can() -> None:
    losses = [exact_moments(25, t) for t in TIMES]
    assert losses == pytest.approx([0.0101, 0.0016, 7.7e-8], rel=0.01)


def test_the_noised_laws_of_the_line() -> None:
    for line in LINES[1:]:
        x, weights, score = line.noised(0.8, 0.6)
        assert float(weights.sum()) == pytest.approx(1)
        log = weights.log()
        slope = torch.gradient(log, spacing=(x[:, 0],))[0]
        seen = weights > 1e-5
        assert float((slope - score[:, 0])[seen].abs().max()) < 1e-2
    draws = LINES[1].sample(20_000, 0)
    assert float(draws.var()) == pytest.approx(2, rel=0.05)


def test_cross_validation_beats_the_paper_and_the_bound_does_not_matter() -> None:
    losses = {name: np.median(many, axis=0) for name, many in closed_form.bart_simpson(3).items()}
    default = losses["cross-validated, 25"]
    for name in ("sample means", "paper's rule", "rule and projection"):
        assert (default < losses[name]).all(), name
    assert (losses["cross-validated, 100"] < 1.25 * default).all()


def test_a_higher_order_does_not_hurt() -> None:
    for line in LINES:
        low, high = (many.mean(axis=0) for many in line_losses(line, 2, (3, 9)))
        assert (high < 1.05 * low).all(), line.name


def test_the_report_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closed_form, "LINES", LINES[:1])
    closed_form.report(repetitions=2)
    printed = capsys.readouterr().out
    assert "exact moments" in printed
    assert "medians, 100 over 25" in printed
