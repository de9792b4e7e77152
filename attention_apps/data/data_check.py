"""The data check: reports every problem of a data set before the first training step."""

import hashlib
import io
import math
import os
from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from attention_apps.data.caches import ProbeCache
from attention_apps.data.manifest import Manifest, Problem, Row

# A row with one of these problems is used; with any other problem it is skipped.
KEPT_KINDS = frozenset({"duplicate", "leak", "unknown"})
# How many problems of each kind are listed in the report and shown on the terminal; all are counted. Rows with
# unknown tokens are all listed, because nothing else identifies them.
MAX_LISTED, MAX_SHOWN = 20, 5
_BINS, _BAR_WIDTH = 10, 40
# A source is probed once per check if it appears again within this many files.
_REMEMBERED_FILES = 10_000
_LISTED_TOKENS = 20

# The kind of a problem, and the message.
_Trouble = tuple[str, str]


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


@dataclass(frozen=True)
class DataCheck:
    """Finds missing, empty, undecodable, duplicate, leaked, overlong and out-of-vocabulary rows in manifests.

    Args:
        source, target: our names of the two columns.
        probe: takes the path of a source and returns its length (seconds, frames) or `None`. Raises an exception
            with the reason if the source cannot be decoded. Called from several threads.
        probe_name: what `probe` computes and all settings that change its result, as in `"audio seconds, 16000 Hz"`.
            Required for caching its results.
        tokenize: splits a text into tokens, for lengths and for the vocabulary; at spaces by default. The rows of the
            report have the tokens of the target as `tokens`, unless it was split at spaces.
        vocabulary: the known tokens. If out-of-vocabulary tokens are listed and there is no vocabulary yet, the
            tokens of the first manifest are the known ones, because the vocabulary will be made from them.
        max_source_length, max_target_length: longer rows are skipped.
        list_unknown: whether a row with an out-of-vocabulary token is a problem, as it is where tokens are letters.
        reject: takes a row with its tokens and the length of its source and returns why the row cannot be used, or
            `None`.
        threads: how many files are probed at a time.
    """

    source: str
    target: str
    probe: Callable[[str], float | None] | None = None
    tokenize: Callable[[str], Sequence[str]] = str.split
    vocabulary: Container[str] | None = None
    max_source_length: float | None = None
    max_target_length: int | None = None
    list_unknown: bool = False
    reject: Callable[[Row, float | None], str | None] | None = None
    threads: int = 4
    probe_name: str = ""

    def run(
        self,
        manifests: Mapping[str, Manifest],
        strict: bool = False,
        quiet: bool = False,
        cache: str | os.PathLike | None = None,
        keep_rows: bool = False,
    ) -> DataReport:
        """Check manifests, `{"training": ..., "validation": ...}`. A source that is in two of them is a leak.

        Args:
            cache: folder for the results of `probe`. An unchanged file is not probed again by later checks.
            keep_rows: whether the report keeps the good rows in memory, so that `DataReport.good_rows` does not read
                the manifests a second time.

        Raises:
            ValueError: if a manifest has no usable row, or, with `strict`, if there is any problem.
        """
        report = DataReport()
        unknown: Counter[str] = Counter()
        earlier: dict[str, Mapping[int, int]] = {}
        vocabulary = self.vocabulary
        probes = ProbeCache(cache, self.probe_name) if cache is not None and self.probe and self.probe_name else None
        for name, manifest in manifests.items():
            one = _ManifestCheck(self, manifest, report, unknown, earlier, vocabulary, probes)
            console = Console(stderr=True)
            hidden = quiet or not console.is_terminal
            rows = track(one.good_rows(), f"Checking {name}", console=console, transient=True, disable=hidden)
            try:
                if keep_rows:
                    kept = list(rows)
                    report._kept.append((manifest, kept))
                    report.used[name] = len(kept)
                else:
                    report.used[name] = sum(1 for _ in rows)
            finally:
                if probes is not None:
                    probes.save()
            report.rows[name] = one.count
            measured = {key: one.lengths[key] for key in (self.source, self.target) if key in one.lengths}
            report.lengths[name] = {key: Histogram.of(values) for key, values in measured.items()}
            # Without a vocabulary no tokens were counted.
            report.unknown_rate[name] = {key: unknown / total for key, (unknown, total) in one.tokens.items() if total}
            earlier[name] = one.sources
            if vocabulary is None and self.list_unknown:
                vocabulary = one.seen_tokens
        report.unknown_tokens = unknown.most_common(_LISTED_TOKENS)
        _stop_if_bad(report, strict, manifests)
        return report


def _stop_if_bad(report: DataReport, strict: bool, manifests: Mapping[str, Manifest]) -> None:
    if strict and report.counts:
        raise ValueError(
            f"`strict` is on, and the data has {report.counts.total():,} problems:\n{report.first_problems()}"
        )
    for name, used in report.used.items():
        if not used:
            message = f"There is not one usable row of {name} in {manifests[name].path}."
            raise ValueError(f"{message}\n{report.first_problems()}".strip())


# The length of a source, the tokens of a source text, and the problem, if any.
_Measurement = tuple[float | None, Sequence[str], _Trouble | None]


@dataclass
class _ManifestCheck:
    """The state of the check of one manifest."""

    check: DataCheck
    manifest: Manifest
    report: DataReport
    unknown: Counter[str]
    earlier: Mapping[str, Mapping[int, int]]
    vocabulary: Container[str] | None
    probes: ProbeCache | None
    seen_tokens: set[str] = field(default_factory=set)  # filled only if unknown tokens are listed without a vocabulary
    count: int = 0
    sources: dict[int, int] = field(default_factory=dict)  # digest of a source -> the line in which it first appears
    pairs: dict[int, int] = field(default_factory=dict)
    # For each of the two columns: the lengths, and how many tokens are unknown and how many there are.
    lengths: dict[str, array] = field(default_factory=lambda: defaultdict(partial(array, "d")))
    tokens: dict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))

    def good_rows(self) -> Iterator[Row]:
        check = self.check
        is_file = check.source in self.manifest.paths
        for row, (length, tokens, trouble) in self._measure_files() if is_file else self._measure_texts():
            target = check.tokenize(row[check.target])
            if check.tokenize is not str.split:
                row = replace(row, tokens=target)  # examples need not split it again
            trouble = trouble or self._trouble_with(row, length, len(target))
            if trouble:
                found = [trouble]
            else:
                found = [*self._find_repeats(row), *self._find_unknown(check.source, tokens)]
                found += self._find_unknown(check.target, target)
            for kind, message in found:
                self.report.add(Problem(kind, row.file, row.line, message))
            if not trouble:
                if length is not None:
                    self.lengths[check.source].append(length)
                self.lengths[check.target].append(len(target))
                yield row

    def _rows(self) -> Iterator[Row]:
        for row in self.manifest.rows(self.report.add):
            self.count += 1
            yield row

    def _measure_texts(self) -> Iterator[tuple[Row, _Measurement]]:
        for row in self._rows():
            if row[self.check.source]:
                tokens = self.check.tokenize(row[self.check.source])
                yield row, (len(tokens), tokens, None)
            else:
                yield row, (None, (), ("empty text", f"`{self.check.source}` is empty"))

    def _measure_files(self) -> Iterator[tuple[Row, _Measurement]]:
        """Probe some files ahead in threads and yield the rows in order."""
        known: OrderedDict[str, Future] = OrderedDict()
        waiting: deque[tuple[Row, Future]] = deque()
        with ThreadPoolExecutor(self.check.threads) as pool:
            for row in self._rows():
                path = row[self.check.source]
                if path not in known:
                    known[path] = pool.submit(self._probe, path)
                    if len(known) > _REMEMBERED_FILES:
                        known.popitem(last=False)
                waiting.append((row, known[path]))
                if len(waiting) > 8 * self.check.threads:
                    row, future = waiting.popleft()
                    yield row, future.result()
            for row, future in waiting:
                yield row, future.result()

    def _probe(self, path: str) -> _Measurement:
        if not path:
            return None, (), ("missing file", f"`{self.check.source}` is empty")
        if not os.path.isfile(path):
            return None, (), ("missing file", f"there is no file {path}")
        try:
            if self.probes is not None and self.check.probe is not None:
                return self.probes.probe(path, self.check.probe), (), None
            length = self.check.probe(path) if self.check.probe else None
            if length is not None and not math.isfinite(length):
                raise ValueError(f"its length is {length}")
            return length, (), None
        except Exception as error:
            return None, (), ("undecodable", f"{path}: {str(error) or type(error).__name__}")

    def _trouble_with(self, row: Row, length: float | None, target_length: int) -> _Trouble | None:
        check = self.check
        if not target_length:
            return "empty text", f"`{check.target}` is empty"
        if check.max_target_length is not None and target_length > check.max_target_length:
            return "too long", f"`{check.target}` has {target_length:,} tokens, more than {check.max_target_length:,}"
        if length is not None and check.max_source_length is not None and length > check.max_source_length:
            return "too long", f"the length of `{check.source}` is {length:,g}, more than {check.max_source_length:,g}"
        reason = check.reject(row, length) if check.reject else None
        return ("unusable", reason) if reason else None

    def _find_repeats(self, row: Row) -> Iterator[_Trouble]:
        source, target = row[self.check.source], row[self.check.target]
        # Digests need less memory than texts.
        pair, digest = (
            int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
            for text in (f"{source}\0{target}", source)
        )
        line = self.pairs.setdefault(pair, row.line)
        if line != row.line:
            yield "duplicate", f"the same source and target as in line {line}"
        if digest not in self.sources:
            self.sources[digest] = row.line
            for name, sources in self.earlier.items():
                if digest in sources:
                    yield "leak", f"the source is also in {name} (line {sources[digest]})"

    def _find_unknown(self, column: str, tokens: Sequence[str]) -> Iterator[_Trouble]:
        if self.vocabulary is None:
            if self.check.list_unknown:
                self.seen_tokens.update(tokens)
            return
        unknown = [token for token in tokens if token not in self.vocabulary]
        self.tokens[column][0] += len(unknown)
        self.tokens[column][1] += len(tokens)
        self.unknown.update(unknown)
        if unknown and self.check.list_unknown:
            listed = " ".join(dict.fromkeys(unknown))[:80]
            yield "unknown", f"`{column}` has tokens that are not in the vocabulary: {listed}"
