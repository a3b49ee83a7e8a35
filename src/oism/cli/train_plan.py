"""Plans of training runs: from the options of ``oism train``, or from the folder of a run.

A new run stores its options as notes in settings.json. A resumed run takes all of them from there;
options that are given again must agree, except for those that may change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from oism._core.plain import plain
from oism.cli.options import ImageFiles, given, naming_options, option_of
from oism.cli.train_form import BEFORE, FORM, SIZES, check_form, complete_form, with_absolute_paths
from oism.training import (
    CHANGEABLE,
    CheckpointError,
    TrainingConfig,
    check_folder,
    check_not_running,
    holds_run,
    read_settings,
)

CONFIG = {
    "steps": "steps", "batch": "batch", "rate": "rate", "warmup": "warmup", "clip": "clip",
    "ema": "decay", "first": "first", "seed": "seed", "precision": "precision",
    "dropped_labels": "dropped_labels",
    "compile": "compile", "log_every": "log_every", "save_every": "save_every",
    "sample_every": "sample_every", "keep": "keep", "no_flip": "flip",
    "no_dequantise": "dequantise",
}  # fmt: skip
"""The options of the configuration, and their names in `TrainingConfig`."""


@dataclass(frozen=True)
class Plan:
    """A run that is to be started or resumed."""

    folder: Path
    data: str
    files: ImageFiles
    form: Mapping[str, Any]
    sizes: Mapping[str, Any]
    config: TrainingConfig
    resumes: bool


def new_plan(folder: Path, data: str, found: Mapping[str, Any], files: ImageFiles) -> Plan:
    """Return the plan of a new run from the options that were given."""
    form = complete_form({**FORM, **{name: found[name] for name in FORM if name in found}})
    check_form(form, found)
    sizes = {name: found[name] for name in SIZES if name in found}
    config = config_of(found, {})
    check_folder(folder, resume=False)
    check_not_running(folder)
    return Plan(folder, data, files, form, sizes, config, resumes=False)


def can_resume(folder: Path, data: str | None) -> bool:
    """Return whether a folder holds a run; without one, data to start a new run are needed."""
    if not holds_run(folder) and data is None:
        raise CheckpointError(f"{folder}: holds no run to resume; `oism train DATA -o` starts one")
    return holds_run(folder)


def resumed_plan(
    folder: Path, data: str | None, found: Mapping[str, Any], files: ImageFiles
) -> Plan:
    """Return the plan of a run in a folder; options that were given again must agree with it."""
    settings = read_settings(folder)
    notes = settings.get("notes")
    if not isinstance(notes, dict) or "form" not in notes:
        raise CheckpointError(f"{folder}: the run was not started by `oism train`")
    check_folder(folder, resume=True)
    check_not_running(folder)
    form = {**FORM, **BEFORE, **notes["form"]}  # a run may be older than an option
    before = {**form, **notes["sizes"]}
    before |= {name: settings["config"][own] for name, own in CONFIG.items()}
    before |= {name: not before[name] for name in ("no_flip", "no_dequantise")}
    again = {name: plain(value) for name, value in found.items() if name in before}
    old, new = with_absolute_paths(before), with_absolute_paths({**before, **again})
    changes = {name: value for name, value in again.items() if new[name] != old[name]}
    fixed = [name for name in changes if CONFIG.get(name) not in CHANGEABLE]
    if fixed:
        words = ", ".join(
            f"{option_of(name)} {_text(before[name])} (not {_text(changes[name])})"
            for name in fixed
        )
        raise CheckpointError(
            f"{folder}: the run has {words}, and cannot continue with other values"
        )
    names = {field.name for field in fields(ImageFiles)}
    stored = ImageFiles(**{name: notes["files"][name] for name in names})
    return Plan(
        folder,
        notes["data"] if data is None else data,
        files if given(files) else stored,
        form,
        notes["sizes"],
        config_of(changes, settings["config"]),
        resumes=True,
    )


def _text(value: object) -> str:
    """Return the value of an option as it is typed."""
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def config_of(found: Mapping[str, Any], before: Mapping[str, Any]) -> TrainingConfig:
    """Return the configuration: options that were given, then settings of before, then defaults."""
    values = {own: found[name] for name, own in CONFIG.items() if name in found}
    values |= {CONFIG[name]: False for name in ("no_flip", "no_dequantise") if found.get(name)}
    with naming_options({own: name.replace("_", "-") for name, own in CONFIG.items()}):
        return TrainingConfig(**{**before, **values})
