"""Records of the table benchmark: one JSON line each; paired differences, verdicts, printed tables.

The difference of two methods is that of their negative log-likelihoods on the same rows. With the
differences d_si of row i and seed s, the mean is the average over seeds of their means, m_s. Its
standard error is given in two ways: from rows, √(Σ_s sd_s²/n_s)/S, with the fits given; and from
seeds, the standard deviation of m_s divided by √S. Splits of one table share rows, so neither is
exact; the larger of the two decides: *below* where the mean is below minus one standard error,
*level* within one, *above* otherwise.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

OWN = ("closed", "network")
DECIMALS = 5


@dataclass(frozen=True)
class Record:
    """One method on one table and seed."""

    table: str
    seed: int
    method: str
    limit: float  # seconds of training, 0 for methods that have no limit
    rows: int = 0
    columns: int = 0
    fit_seconds: float = 0.0
    cpu_seconds: float = 0.0
    per_second: float = 0.0  # log-densities
    logs: list[float] = field(default_factory=list)
    truth: list[float] = field(default_factory=list)
    notes: dict[str, object] = field(default_factory=dict)
    error: str = ""

    @property
    def key(self) -> tuple[str, int, str, float]:
        """What is not computed twice."""
        return self.table, self.seed, self.method, self.limit

    @property
    def nll(self) -> float:
        """The mean negative log-likelihood."""
        return -float(np.mean(self.logs))


def append(path: Path, record: Record) -> None:
    """Add a record to a file."""
    values = asdict(record)
    for name in ("logs", "truth"):
        values[name] = [round(value, DECIMALS) for value in values[name]]
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(values) + "\n")


def read(path: Path) -> list[Record]:
    """Return the complete records of a file; the last line may be cut off."""
    if not path.exists():
        return []
    records = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            records.append(Record(**json.loads(line)))
        except json.JSONDecodeError:
            continue  # the run was ended while it wrote this line
    return records


@dataclass(frozen=True)
class Difference:
    """A mean paired difference of negative log-likelihoods."""

    mean: float
    by_rows: float
    by_seeds: float  # NaN for one seed

    @property
    def error(self) -> float:
        """The larger standard error."""
        return float(np.nanmax([self.by_rows, self.by_seeds]))

    @property
    def verdict(self) -> str:
        """Below, level or above."""
        if abs(self.mean) <= self.error:
            return "level"
        return "below" if self.mean < 0 else "above"

    def __str__(self) -> str:
        return f"{self.with_errors(3)} {self.verdict}"

    def with_errors(self, decimals: int) -> str:
        """Return the mean, the error from rows and, in brackets, from seeds."""
        seeds = cell(self.by_seeds, 0, decimals)
        return f"{self.mean:+.{decimals}f} ± {self.by_rows:.{decimals}f} ({seeds})"


def difference(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Difference:
    """Return NLL(first) - NLL(second), from the log-densities of the same rows for every seed."""
    gaps = [np.subtract(second, first) for first, second in pairs]
    means = np.array([gap.mean() for gap in gaps])
    squares = sum(float(gap.var(ddof=1)) / len(gap) for gap in gaps)
    over_seeds = float(means.std(ddof=1)) / math.sqrt(len(means)) if len(means) > 1 else math.nan
    return Difference(float(means.mean()), math.sqrt(squares) / len(means), over_seeds)


class Results:
    """The records of all seeds, by table and method."""

    def __init__(self, records: Iterable[Record], tables: Sequence[str]) -> None:
        self.records: dict[tuple[str, str], dict[int, Record]] = {}
        for record in records:
            if not record.error:
                self.records.setdefault((record.table, record.method), {})[record.seed] = record
        self.tables = [table for table in tables if any(key[0] == table for key in self.records)]
        found = {method for _, method in self.records}
        order = (*OWN, "gmm", "kde", "flow")
        self.methods = [method for method in order if method in found]

    def mean(self, table: str, method: str, name: str) -> float:
        """Return the mean over seeds of an attribute of the records; NaN without records."""
        found = self.records.get((table, method), {}).values()
        return float(np.mean([getattr(record, name) for record in found])) if found else math.nan

    def pairs(self, table: str, first: str, second: str) -> Difference | None:
        """Return the paired difference over the seeds that both methods have."""
        ones, others = (self.records.get((table, method), {}) for method in (first, second))
        common = sorted(set(ones) & set(others))
        if not common:
            return None
        return difference([(ones[seed].logs, others[seed].logs) for seed in common])

    def above_truth(self, table: str, method: str) -> Difference | None:
        """Return the difference from the exact density, an estimate of KL, where it is known."""
        known = [r for r in self.records.get((table, method), {}).values() if r.truth]
        return difference([(r.logs, r.truth) for r in known]) if known else None

    def truth(self, table: str) -> float:
        """Return the exact negative log-likelihood, NaN where it is not known."""
        for method in self.methods:
            found = self.records.get((table, method), {}).values()
            if known := [-np.mean(r.truth) for r in found if r.truth]:
                return float(np.mean(known))
        return math.nan


def cell(value: float, width: int = 11, decimals: int = 3) -> str:
    """Return a number, or a dash where there is none."""
    return f"{'–' if math.isnan(value) else f'{value:,.{decimals}f}':>{width}}"


def title(text: str) -> None:
    print(f"\n{text}")


def print_likelihoods(results: Results) -> None:
    """Print mean negative log-likelihoods."""
    title("negative log-likelihood in nats per row, mean over seeds")
    names = "".join(f"{name:>11}" for name in ["truth", *results.methods])
    print(f"{'table':<16}{'rows':>8}{'columns':>8}{'seeds':>6}{names}")
    for table in results.tables:
        some = [
            r for key, group in results.records.items() if key[0] == table for r in group.items()
        ]
        row = f"{table:<16}{some[0][1].rows:>8,}{some[0][1].columns:>8}{len(dict(some)):>6}"
        row += cell(results.truth(table))
        print(row + "".join(cell(results.mean(table, m, "nll")) for m in results.methods))


def print_differences(results: Results, counted: Sequence[str]) -> None:
    """Print the paired differences of our methods from the others, and count verdicts."""
    for own in [method for method in OWN if method in results.methods]:
        others = [method for method in results.methods if method not in OWN]
        others += ["closed"] if own == "network" and "closed" in results.methods else []
        title(
            f"{own} minus another; ± standard error from rows (from seeds); verdict by the larger"
        )
        print(f"{'table':<16}" + "".join(f"{f'{own} - {other}':>36}" for other in others))
        verdicts: dict[str, list[str]] = {other: [] for other in others}
        for table in results.tables:
            row = f"{table:<16}"
            for other in others:
                gap = results.pairs(table, own, other)
                row += f"{gap if gap is not None else '–'!s:>36}"
                if gap is not None and table in counted:
                    verdicts[other].append(gap.verdict)
            print(row)
        for other, found in verdicts.items():
            counts = ", ".join(
                f"{word} {found.count(word)}" for word in ("below", "level", "above")
            )
            good = len(found) - found.count("above")
            if found:
                print(f"{own} - {other}: {counts}; below or level on {good} of {len(found)}")


def print_truth(results: Results) -> None:
    """Print how far the methods are above the exact density."""
    known = [table for table in results.tables if not math.isnan(results.truth(table))]
    if known:
        title("above the exact density (KL), ± standard error from rows (from seeds)")
    for table in known:
        for method in results.methods:
            gap = results.above_truth(table, method)
            if gap is not None:
                print(f"{table:<16}{method:<10}{gap.with_errors(4)}")


def print_costs(results: Results) -> None:
    """Print seconds and rates, with multiples of the first method, and the worst rows."""
    title("seconds of the fit (multiple of the first method)")
    for name, decimals, words in (
        ("fit_seconds", 1, ""),
        ("per_second", 0, "log-densities per second (multiple of the first method)"),
    ):
        if words:
            title(words)
        print(f"{'table':<16}" + "".join(f"{method:>20}" for method in results.methods))
        for table in results.tables:
            values = [results.mean(table, method, name) for method in results.methods]
            parts = [f"{cell(value, 0, decimals)} ({value / values[0]:.3g}×)" for value in values]
            print(f"{table:<16}" + "".join(f"{part.replace('nan×', '–'):>20}" for part in parts))
    title("log-density of the worst row, the lowest over seeds")
    print(f"{'table':<16}" + "".join(f"{method:>11}" for method in results.methods))
    for table in results.tables:
        row = f"{table:<16}"
        for method in results.methods:
            found = results.records.get((table, method), {}).values()
            row += cell(min((min(r.logs) for r in found), default=math.nan), decimals=1)
        print(row)


def print_notes(results: Results) -> None:
    """Print what else was measured: masses, samples outside of bounds."""
    lines = []
    for (table, method), group in results.records.items():
        for seed, record in sorted(group.items()):
            if record.notes:
                parts = ", ".join(f"{name}: {value}" for name, value in record.notes.items())
                lines.append(f"{table:<16}{method:<10}seed {seed}  {parts}")
    if lines:
        title("choices and checks")
        print("\n".join(lines))


def report(records: Iterable[Record], tables: Sequence[str], counted: Sequence[str]) -> None:
    """Print everything; ``counted`` are the tables that the counts of verdicts cover."""
    results = Results(records, tables)
    if not results.records:
        print("no records")
        return
    print_likelihoods(results)
    print_differences(results, counted)
    print_truth(results)
    print_costs(results)
    print_notes(results)
