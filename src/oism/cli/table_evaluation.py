"""Log-likelihoods of models of tables, alone or beside baselines, for ``oism evaluate``."""

from __future__ import annotations

import numpy as np

from oism.cli.options import naming_options
from oism.cli.rows import Rows
from oism.tables import OISM, Comparison


def compared(
    model: OISM,
    test: Rows,
    train: Rows | None,
    *,
    baselines: tuple[str, ...],
    seconds: float,
    seed: int,
) -> Comparison:
    """Return the log-likelihood of test rows, beside those of baselines if there is a train set."""
    if train is None:
        log_densities = np.asarray(model.score_samples(test.values), dtype=np.float64)
        return Comparison({"model": log_densities}, skipped=test.skipped)
    with naming_options({"baselines": "baselines", "seconds": "seconds"}):
        found = model.compare(
            test.values,
            train.values,
            baselines=baselines or None,
            seconds=seconds,
            random_state=seed,
        )
    return Comparison(found.log_densities, found.notes, test.skipped)


def table_text(found: Comparison) -> str:
    """Return the comparison as text."""
    if len(found.methods) > 1:
        return str(found)
    mean = found.mean(found.methods[0])
    lowest = float(found.log_densities[found.methods[0]].min())
    left_out = f", {found.skipped} left out" if found.skipped else ""
    return (
        f"log-likelihood {mean.mean:.4f} ± {mean.error:.4f} nats per row, the lowest {lowest:.4g}, "
        f"{found.rows} rows{left_out}; --train FILE compares it with other methods"
    )
