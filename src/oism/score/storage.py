"""A fitted score as one safetensors file: tensors, and settings as JSON in its header; no pickle.

Writing is atomic: the file appears under its name only once it is whole, and an older one stays
until then. Reading checks the format and its version before anything else.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path

import safetensors
import torch
from safetensors.torch import save as serialised
from torch import Tensor

from oism.atomic import replacing
from oism.basis import (
    Fourier,
    Functions,
    Hermite,
    IdentityFrame,
    OrthogonalFrame,
    Polynomials,
    TensorHermite,
)
from oism.basis.hermite import HermiteFamily
from oism.clock import (
    Clock,
    IdentityClock,
    Logarithmic,
    VarianceExploding,
    VariancePreserving,
)
from oism.equations.linear import LinearLaw
from oism.moments import Averages, Standardised
from oism.process import CriticallyDamped, Linear, OrnsteinUhlenbeck
from oism.score.base import Diagnostics, OperatorScore
from oism.score.fourier import FourierScore
from oism.score.hermite import HermiteFamilyScore, HermiteScore, TensorHermiteScore
from oism.score.interpolation import Curve
from oism.score.linear import LinearScore
from oism.solve import Schedule

FORMAT = "oism.OperatorScore"
VERSION = 2

CLOCKS: dict[str, type[Clock]] = {
    kind.__name__: kind
    for kind in (IdentityClock, Logarithmic, VarianceExploding, VariancePreserving)
}
FAMILIES = {kind.__name__: kind for kind in (Hermite, TensorHermite)}


def describe_clock(clock: Clock) -> dict[str, object]:
    """Return the kind and the settings of a clock."""
    if type(clock) is not CLOCKS.get(type(clock).__name__) or not dataclasses.is_dataclass(clock):
        raise TypeError(f"clock must be one of {sorted(CLOCKS)} to be saved, got {clock!r}")
    return {"kind": type(clock).__name__, **dataclasses.asdict(clock)}


def clock_of(settings: Mapping[str, object]) -> Clock:
    """Return the clock that was described."""
    arguments = {name: value for name, value in settings.items() if name != "kind"}
    return CLOCKS[str(settings["kind"])](**arguments)


def _describe_basis(basis: Functions) -> tuple[dict[str, object], dict[str, Tensor]]:
    """Return settings and tensors of a basis."""
    if type(basis) is Fourier:
        return {"kind": "Fourier"}, {"basis.frequencies": basis.frequencies}
    if type(basis) is Polynomials:
        return _describe_polynomials(basis)
    if isinstance(basis, HermiteFamily) and type(basis) is FAMILIES.get(type(basis).__name__):
        process, frame = basis.process, basis.frame
        if type(frame) not in (IdentityFrame, OrthogonalFrame):
            raise TypeError(
                f"frame must be IdentityFrame or OrthogonalFrame to be saved, got {frame!r}"
            )
        settings: dict[str, object] = {
            "kind": type(basis).__name__,
            "dim": basis.dim,
            "order": basis.order,
            "theta": process.theta,
            "sigma": process.sigma,
        }
        matrix = {"basis.frame": frame.matrix} if isinstance(frame, OrthogonalFrame) else {}
        return settings, matrix
    raise TypeError(
        f"basis must be Fourier, Hermite, TensorHermite or Polynomials to be saved, got {basis!r}"
    )


def _describe_polynomials(basis: Polynomials) -> tuple[dict[str, object], dict[str, Tensor]]:
    process = basis.process
    settings: dict[str, object] = {"kind": "Polynomials", "order": basis.order}
    if type(process) is CriticallyDamped:
        return settings | {"dim": process.dim, "c": process.c}, {}
    matrices = {"basis.drift": process.drift_matrix, "basis.noise": process.noise_matrix}
    return settings | {"copies": process.copies}, matrices


def _restore_polynomials(settings: dict[str, object], tensors: dict[str, Tensor]) -> Polynomials:
    order = int(str(settings["order"]))
    if "c" in settings:
        damped = CriticallyDamped(int(str(settings["dim"])), float(str(settings["c"])))
        return Polynomials(damped, order)
    matrices = tensors["basis.drift"], tensors["basis.noise"]
    return Polynomials(Linear(*matrices, int(str(settings["copies"]))), order)


def _restore_basis(settings: dict[str, object], tensors: dict[str, Tensor]) -> Functions:
    if settings["kind"] == "Fourier":
        return Fourier(tensors["basis.frequencies"])
    if settings["kind"] == "Polynomials":
        return _restore_polynomials(settings, tensors)
    frame = OrthogonalFrame(tensors["basis.frame"]) if "basis.frame" in tensors else IdentityFrame()
    process = OrnsteinUhlenbeck(float(str(settings["theta"])), float(str(settings["sigma"])))
    kind = FAMILIES[str(settings["kind"])]
    return kind(int(str(settings["dim"])), int(str(settings["order"])), process, frame)


def save(
    score: OperatorScore,
    path: str | os.PathLike[str],
    *,
    more_settings: Mapping[str, object] | None = None,
    more_tensors: Mapping[str, Tensor] | None = None,
) -> None:
    """Write a score to one file, atomically, with settings and tensors of what is built on it."""
    settings, tensors = describe(score)
    write(path, {**settings, **(more_settings or {})}, {**tensors, **(more_tensors or {})})


def describe(score: OperatorScore) -> tuple[dict[str, object], dict[str, Tensor]]:
    """Return settings and tensors of a score, from which `restore` makes it again."""
    basis, tensors = _describe_basis(score.basis)
    settings = {
        "basis": basis,
        "clock": describe_clock(score.clock),
        "order": score.curve.order,
    }
    tensors |= {f"state.{name}": part for name, part in score.state_dict().items()}
    for name, part in vars(score.diagnostics).items():
        tensors[f"diagnostics.{name}"] = part
    return settings, tensors


def write(
    path: str | os.PathLike[str],
    settings: Mapping[str, object],
    tensors: Mapping[str, Tensor],
    kind: str = FORMAT,
) -> None:
    """Write settings and tensors to one file, atomically."""
    contiguous = {name: part.detach().cpu().contiguous().clone() for name, part in tensors.items()}
    # One entry: safetensors writes several in any order, and equal models are to be equal files.
    about = {"format": kind, "version": VERSION, "settings": settings}
    header = {"oism": json.dumps(about)}
    # Not safetensors' `save_file`: it renames a draft of its own, over pipes and devices as well.
    content = serialised(contiguous, metadata=header)
    with replacing(path) as draft:
        draft.write_bytes(content)


def read(path: Path, kind: str = FORMAT) -> tuple[dict[str, object], dict[str, Tensor]]:
    """Return settings and tensors of a file, or say what is wrong with it."""
    about = read_about(path, kind)
    with safetensors.safe_open(path, framework="pt") as file:
        # Copied: a tensor in a file need not be aligned as complex arithmetic expects.
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    settings = about["settings"]
    assert isinstance(settings, dict)
    return settings, tensors


def format_of(path: Path) -> str | None:
    """Return the format that a file says it has, whatever its version, or None where it cannot."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            found = _header(file.metadata() or {}).get("format")
    except (OSError, ValueError, safetensors.SafetensorError):
        return None
    return found if isinstance(found, str) else None


def read_about(path: Path, kind: str = FORMAT) -> dict[str, object]:
    """Return what a file says of itself: its format, its version, its settings."""
    if not path.is_file():
        raise FileNotFoundError(
            f"path must be a file written by {kind.removeprefix('oism.')}.save, got {path}"
        )
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            return _about(file.metadata() or {}, path, kind)
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path} is damaged or not a safetensors file: {error}") from error


def _about(header: Mapping[str, str], path: Path, kind: str) -> dict[str, object]:
    """Return what a file says of itself, or raise if it is none that can be read."""
    about = _header(header)
    found = about.get("format")
    if found != kind:
        raise ValueError(
            f"{path} is no file of oism's {kind.removeprefix('oism.')}: its format is {found!r}"
        )
    if about.get("version") != VERSION:
        found = about.get("version")
        raise ValueError(
            f"{path} has version {found} of the format; this oism reads version {VERSION}: upgrade "
            "the one, or fit the other again"
        )
    return about


def _header(header: Mapping[str, str]) -> dict[str, object]:
    about: dict[str, object] = json.loads(header["oism"]) if "oism" in header else dict(header)
    return about


def load(path: str | os.PathLike[str]) -> OperatorScore:
    """Return the score that was saved to a file, on the CPU."""
    return restore(*read(Path(path)))


def restore(settings: dict[str, object], tensors: dict[str, Tensor]) -> OperatorScore:
    """Return the score of what was read from a file."""
    basis_settings, clock_settings = settings["basis"], settings["clock"]
    assert isinstance(basis_settings, dict)
    assert isinstance(clock_settings, dict)
    basis = _restore_basis(basis_settings, tensors)
    clock = clock_of(clock_settings)
    state = {
        name.removeprefix("state."): part
        for name, part in tensors.items()
        if name.startswith("state.")
    }
    order = int(str(settings["order"]))
    curve = Curve(state["curve.knots"], state["curve.values"], order=order)
    schedule = Schedule(*(state[f"schedule_{name}"] for name in ("tau", "log_ridge", "level")))
    names = [field.name for field in dataclasses.fields(Diagnostics)]
    diagnostics = Diagnostics(**{name: tensors[f"diagnostics.{name}"] for name in names})
    common = (basis, clock, curve, schedule, diagnostics)
    if isinstance(basis, Fourier):
        means = torch.view_as_complex(state["means"])
        score: OperatorScore = FourierScore(*common, means)  # type: ignore[arg-type]
    elif isinstance(basis, Polynomials):
        parts = (state[name] for name in ("shift", "factor", "noise", "low", "high"))
        law = LinearLaw(basis.process, *parts)
        score = LinearScore(*common, law, state["metric"], state["means"])  # type: ignore[arg-type]
    else:
        kind: type[HermiteFamilyScore] = HermiteScore
        if isinstance(basis, TensorHermite):
            kind = TensorHermiteScore
        nothing = state["means"].new_zeros(0)
        standard = Standardised(
            shift=state["shift"],
            scale=state["scale"],
            low=state["low"],
            high=state["high"],
            averages=Averages(state["means"], nothing, nothing, nothing, nothing),
            rotation=state.get("rotation"),
        )
        score = kind(*common, standard)  # type: ignore[arg-type]
    score.load_state_dict(state)
    return score
