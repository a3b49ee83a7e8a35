from __future__ import annotations

import pytest
import torch

from oism.basis import Fourier
from studies import eigenrelations
from studies.eigenrelations import Relation


@pytest.mark.study
def test_every_relation_holds_and_the_table_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert eigenrelations.main() == 0
    printed = capsys.readouterr().out
    assert "none out of bounds" in printed
    assert printed.count("Lφ = λφ") == 6
    assert "← does not hold" not in printed


def test_a_wrong_eigenvalue_is_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Wrong(Fourier):
        @property
        def eigenvalues(self) -> torch.Tensor:
            return 1.001 * super().eigenvalues

    wrong = Wrong(torch.tensor([[1.0], [2.0]]).double())
    monkeypatch.setattr(eigenrelations, "bases", lambda: [("T¹, wrong", wrong)])
    monkeypatch.setattr(eigenrelations, "relations", eigenrelations.eigenfunctions)
    assert eigenrelations.main() == 1
    assert "2 out of bounds" in capsys.readouterr().out


def test_relations_that_must_fail() -> None:
    assert Relation("", "", residual=0.5, allowed=0.1, must_fail=True).holds
    assert not Relation("", "", residual=0.0, allowed=0.1, must_fail=True).holds
    assert not Relation("", "", residual=float("nan"), allowed=0.1).holds
