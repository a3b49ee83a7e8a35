"""The stored numbers of a case, as the report and the figures need them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from studies.sampling.methods import CONVERGED, OWN
from studies.sampling.networks import BARE
from studies.sampling.peers import PEERS
from studies.sampling.times import ALONE, WITHOUT

FILES = ("train", "rmse", "separation", "frechet", "times", "bits")


@dataclass(frozen=True)
class CaseResults:
    """The contents of the JSON files of a case, by name, and the numbers of evaluations."""

    name: str
    parts: dict[str, Any]
    evaluations: tuple[int, ...]

    @classmethod
    def read(cls, folder: Path, name: str, evaluations: tuple[int, ...]) -> CaseResults:
        """Return the stored results of a case."""
        parts = {part: _read(folder / name / f"{part}.json") for part in FILES}
        return cls(name, parts, evaluations)

    @property
    def is_measured(self) -> bool:
        """Whether there are distances to the reference and Fréchet distances."""
        return bool(self.parts["rmse"] and self.rmse_rows and self.frechet_rows)

    @property
    def step(self) -> int:
        """The number of steps of the network that was sampled."""
        return int(self.parts["rmse"]["step"])

    @property
    def marks(self) -> list[int]:
        """The numbers of steps whose converged samples were measured."""
        rows = self.frechet_rows
        return sorted({row["step"] for row in rows if row["method"] == CONVERGED})

    @property
    def rmse_rows(self) -> list[dict[str, Any]]:
        """The rows of distances to the reference."""
        rows: list[dict[str, Any]] = self.parts["rmse"].get("rows", [])
        return [row for row in rows if row["step"] == self.step]

    @property
    def frechet_rows(self) -> list[dict[str, Any]]:
        """The rows of Fréchet distances."""
        rows: list[dict[str, Any]] = self.parts["frechet"].get("rows", [])
        return rows

    @property
    def separations(self) -> list[dict[str, Any]]:
        """The rows of distances between perturbed paths."""
        rows: list[dict[str, Any]] = self.parts["separation"].get("rows", [])
        return [row for row in rows if row["step"] == self.step]

    @property
    def ours(self) -> list[str]:
        """The names of the library's samplers that were measured."""
        return list(dict.fromkeys(r["method"] for r in self.rmse_rows if r["grid"] == OWN))

    @property
    def forms(self) -> list[str]:
        """The forms of the network of which a scheduler was measured, to compare with."""
        return list(dict.fromkeys(r["form"] for r in self.rmse_rows if r["method"] in PEERS))

    @property
    def half_the_steps(self) -> float | None:
        """The distance of the reference to that of half the steps, None if it was not measured."""
        found: float | None = self.parts["rmse"].get("half_the_steps")
        return found

    def deviation(self, name: str) -> float:
        """Return the standard deviation of bits by one probe, NaN if it was not measured."""
        rows = self.parts["bits"].get("rows", [])
        return next((float(row["deviation"]) for row in rows if row["name"] == name), math.nan)

    def best_row(self, form: str, name: str, evaluations: int) -> dict[str, Any] | None:
        """Return the row of a method with its best grid."""
        rows = [
            row
            for row in self.rmse_rows
            if (row["form"], row["method"], row["evaluations"]) == (form, name, evaluations)
            and row["rmse"] is not None
        ]
        return min(rows, key=lambda row: float(row["rmse"]), default=None)

    def best_key(self, form: str, name: str, evaluations: int) -> str | None:
        """Return the name of the pictures of a method with its best grid."""
        row = self.best_row(form, name, evaluations)
        return None if row is None else f"{form}|{name}|{row['grid']}|{evaluations}"

    def rmse(self, form: str, name: str, evaluations: int) -> float:
        """Return the distance of a method with its best grid, NaN if it was not measured."""
        row = self.best_row(form, name, evaluations)
        return math.nan if row is None else float(row["rmse"])

    def median(self, form: str, names: Sequence[str], evaluations: int) -> float:
        """Return the smallest median distance of some methods, NaN if it was not measured."""
        found = [
            float(row["median"])
            for row in self.rmse_rows
            if (row["form"], row["evaluations"]) == (form, evaluations)
            and row["method"] in names
            and row.get("median") is not None
        ]
        return min(found, default=math.nan)

    def best_peer(self, form: str, evaluations: int) -> tuple[float, str, str]:
        """Return the smallest distance of a peer, its name and its grid."""
        rows = [self.best_row(form, name, evaluations) for name in PEERS]
        found = min(
            (row for row in rows if row is not None),
            key=lambda row: float(row["rmse"]),
            default=None,
        )
        if found is None:
            return math.nan, "", ""
        return float(found["rmse"]), found["method"], found["grid"]

    def frechet(self, form: str, name: str, evaluations: int) -> float:
        """Return the Fréchet distance of a method, NaN if it was not measured."""
        return next(
            (
                float(row["distance"])
                for row in self.frechet_rows
                if (row["step"], row["form"], row["method"], row["evaluations"])
                == (self.step, form, name, evaluations)
            ),
            math.nan,
        )

    def converged(self, step: int, form: str) -> float:
        """Return the Fréchet distance of converged samples, NaN if it was not measured."""
        return next(
            (
                float(row["distance"])
                for row in self.frechet_rows
                if (row["step"], row["form"], row["method"]) == (step, form, CONVERGED)
            ),
            math.nan,
        )

    def overhead(self, name: str) -> float:
        """Return the time of a sampler without a network, relative to that of the network."""
        seconds = self.parts["times"].get("seconds", {})
        own, unit = seconds.get(f"{WITHOUT}, {name}"), seconds.get(f"{BARE}, {ALONE}")
        return math.nan if None in (own, unit) else own / unit

    @property
    def seconds(self) -> float:
        """The time of all stages but the timing of evaluations."""
        rows = [*self.parts["rmse"].get("rows", []), *self.frechet_rows]
        heads = [
            self.parts["train"].get("seconds"),
            (self.parts["frechet"].get("classifier") or {}).get("train_seconds"),
            *(v for k, v in self.parts["rmse"].items() if k.endswith("_reference_seconds")),
        ]
        return sum(float(row["seconds"]) for row in rows) + sum(float(one or 0) for one in heads)

    @property
    def accuracy(self) -> float:
        """The accuracy of the classifier."""
        return float((self.parts["frechet"].get("classifier") or {}).get("accuracy", math.nan))


def pictures(folder: Path, name: str) -> dict[str, NDArray[np.uint8]]:
    """Return the stored samples of a case by method, grid and evaluations."""
    path = folder / name / "samples.npz"
    if not path.exists():
        return {}
    with np.load(path) as found:
        return {key: found[key] for key in found.files}


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found
