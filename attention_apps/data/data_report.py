"""The findings of the data check, for people and for programs."""

import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from attention_apps.data.manifest import Manifest, Problem, Row

# A row with one of these problems is used; with any other problem it is skipped.
KEPT_KINDS = frozenset({"duplicate", "leak", "unknown"})
# How many problems of each kind are listed in the report and shown on the terminal; all are counted. Rows with
# unknown tokens are all listed, because nothing else identifies them.
MAX_LISTED, MAX_SHOWN = 20, 5
_BINS, _BAR_WIDTH = 10, 40


@dataclass(frozen=True)
class Histogram:
    """How many lengths lie between each edge and the next one, which is excluded."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    median: float
    mean: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Histogram":
        values = np.asarray(values, np.float64)
        low, high = values.min(), values.max()
        if (values == values.round()).all():
            # Each bin spans a whole number of integers, or every other bin would look too full.
            step = np.ceil((high - low + 1) / _BINS)
        else:
            step = max((high - low) / _BINS * (1 + 1e-9), np.spacing(high))
        bins = int((high - low) // step) + 1
        counts, edges = np.histogram(values, low + step * np.arange(bins + 1))
        return cls(tuple(edges.tolist()), tuple(counts.tolist()), float(np.median(values)), float(values.mean()))

    def to_text(self) -> str:
        last = 1 if all(edge == round(edge) for edge in self.edges) else 0
        lines = []
        for low, high, count in zip(self.edges, self.edges[1:], self.counts):
            bar = "█" * round(_BAR_WIDTH * count / max(self.counts))
            lines.append(f"{low:>9,.4g} to {high - last:<9,.4g} {count:>9,} {bar}".rstrip())
        return "\n".join(lines)


@dataclass
class DataReport:
    """The findings of a data check. All dicts have the names of the data sets as keys, such as `training`.

    Attributes:
        rows: how many rows could be parsed.
        used: how many of them are used for training.
        problems: the first problems of each kind and all rows with unknown tokens, with file and line.
        counts: the number of all problems by kind.
        lengths: a histogram for each of the two columns.
        unknown_rate: the fraction of out-of-vocabulary tokens in each text column.
        unknown_tokens: the most frequent out-of-vocabulary tokens.
    """

    rows: dict[str, int] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    lengths: dict[str, dict[str, Histogram]] = field(default_factory=dict)
    unknown_rate: dict[str, dict[str, float]] = field(default_factory=dict)
    unknown_tokens: list[tuple[str, int]] = field(default_factory=list)
    _skipped: dict[Path, set[int]] = field(default_factory=dict, repr=False)
    _kept: list[tuple[Manifest, list[Row]]] = field(default_factory=list, repr=False)

    def add(self, problem: Problem) -> None:
        """Count a problem and list it if there are not too many of its kind."""
        self.counts[problem.kind] += 1
        if self.counts[problem.kind] <= MAX_LISTED or problem.kind == "unknown":
            self.problems.append(problem)
        if problem.kind not in KEPT_KINDS:
            self._skipped.setdefault(problem.file, set()).add(problem.line)

    @property
    def skipped(self) -> int:
        """How many rows are not used because of a problem."""
        return sum(map(len, self._skipped.values()))

    def good_rows(self, manifest: Manifest) -> Iterator[Row]:
        """Yield the usable rows of a checked manifest, from memory if they were kept."""
        for checked, rows in self._kept:
            if checked == manifest:
                yield from rows
                return
        for row in manifest.rows(on_problem=lambda problem: None):
            if row.line not in self._skipped.get(row.file, ()):
                yield row

    def keep(self, manifest: Manifest, rows: Iterable[Row]) -> list[Row]:
        """Keep the usable rows of a manifest for `good_rows`."""
        self._kept.append((manifest, list(rows)))
        return self._kept[-1][1]

    def first_problems(self, most: int = 10) -> str:
        """Format the first problems, one per line."""
        lines = [str(problem) for problem in self.problems[:most]]
        more = self.counts.total() - len(lines)
        return "\n".join([*lines, f"… and {more:,} more"] if more else lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as values that JSON can hold."""
        return {
            "rows": dict(self.rows),
            "used": dict(self.used),
            "counts": dict(self.counts),
            "problems": [vars(problem) | {"file": str(problem.file)} for problem in self.problems],
            "lengths": {name: {key: vars(h) for key, h in sets.items()} for name, sets in self.lengths.items()},
            "unknown_rate": self.unknown_rate,
            "unknown_tokens": self.unknown_tokens,
        }

    def to_text(self) -> str:
        """Format the report as tables and histograms for the terminal."""
        text = io.StringIO()
        console = Console(file=text, width=110, markup=False, highlight=False, emoji=False)
        overview = Table("data", "rows", "used", "unknown tokens", title="Data check", title_justify="left")
        for name, rows in self.rows.items():
            rates = [f"{column} {rate:.2%}" for column, rate in self.unknown_rate.get(name, {}).items()]
            overview.add_row(name, f"{rows:,}", f"{self.used[name]:,}", ", ".join(rates) or "-")
        console.print(overview)
        if self.counts:
            problems, examples = Table("problem", "rows", "the row is"), []
            for kind, count in self.counts.most_common():
                problems.add_row(kind, f"{count:,}", "used" if kind in KEPT_KINDS else "skipped")
                shown = [problem for problem in self.problems if problem.kind == kind][:MAX_SHOWN]
                examples += [f"{kind}: {problem}" for problem in shown]
                if count > len(shown):
                    examples.append(f"{kind}: … and {count - len(shown):,} more")
            console.print(problems)
            console.print("\n".join(examples), soft_wrap=True)
        for name, columns in self.lengths.items():
            for column, histogram in columns.items():
                summary = f"median {histogram.median:,.4g}, mean {histogram.mean:,.4g}"
                console.print(f"\n{name}: length of `{column}`, {summary}\n{histogram.to_text()}", soft_wrap=True)
        return text.getvalue()
