"""The data check: reports every problem of a data set before the first training step."""

import hashlib
import math
import os
from array import array
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from rich.console import Console
from rich.progress import track

from attention_apps.data.caches import ProbeCache
from attention_apps.data.data_report import DataReport, Histogram
from attention_apps.data.manifest import Manifest, Problem, Row

# A source is probed once per check if it appears again within this many files.
_REMEMBERED_FILES = 10_000
_LISTED_TOKENS = 20


@dataclass(frozen=True)
class DataCheck:
    """Finds missing, empty, undecodable, duplicate, leaked, overlong and out-of-vocabulary rows in manifests.

    Args:
        source, target: our names of the two columns.
        probe: takes the path of a source and returns its length (seconds, frames) or `None`. Raises an exception
            with the reason if the source cannot be decoded. Called from several threads.
        probe_name: what `probe` computes and all settings that change its result, as in `"audio seconds, 16000 Hz"`.
            Required for caching its results.
        tokenize: splits a text into tokens, for lengths and for the vocabulary.
        vocabulary: the known tokens. If out-of-vocabulary tokens are listed and there is no vocabulary yet, the
            tokens of the first manifest are the known ones, because the vocabulary will be made from them.
        max_source_length, max_target_length: longer rows are skipped.
        list_unknown: whether a row with an out-of-vocabulary token is a problem, as it is where tokens are letters.
        reject: takes a row and the length of its source and returns why the row cannot be used, or `None`.
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
                    kept = report.keep(manifest, rows)
                    report.used[name] = len(kept)
                else:
                    report.used[name] = sum(1 for _ in rows)
            finally:
                if probes is not None:
                    probes.save()
            report.rows[name] = one.count
            report.lengths[name] = {key: Histogram.of(values) for key, values in one.lengths.items() if values}
            report.unknown_rate[name] = one.unknown_rates()
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


@dataclass
class _Measured:
    """A row, the length of its source, the tokens of a source text, and the problem, if any: kind and message."""

    row: Row
    length: float | None = None
    tokens: Sequence[str] = ()
    trouble: tuple[str, str] | None = None


class _ManifestCheck:
    """The state of the check of one manifest."""

    def __init__(
        self,
        check: DataCheck,
        manifest: Manifest,
        report: DataReport,
        unknown: Counter[str],
        earlier: Mapping[str, Mapping[int, int]],
        vocabulary: Container[str] | None,
        probes: ProbeCache | None,
    ):
        self.check = check
        self.manifest = manifest
        self.report = report
        self.unknown = unknown
        self.earlier = earlier
        self.vocabulary = vocabulary
        self.probes = probes
        self.seen_tokens: set[str] = set()  # filled only if unknown tokens are listed without a vocabulary
        self.count = 0
        self.sources: dict[int, int] = {}  # digest of a source -> the line in which it first appears
        self.pairs: dict[int, int] = {}
        self.lengths = {check.source: array("d"), check.target: array("d")}
        self.tokens = {check.source: [0, 0], check.target: [0, 0]}  # unknown and total

    def good_rows(self) -> Iterator[Row]:
        is_file = self.check.source in self.manifest.paths
        for measured in self._measure_files() if is_file else map(self._measure_text, self._rows()):
            row = measured.row
            target = self.check.tokenize(row[self.check.target])
            trouble = measured.trouble or self._trouble_with(row, measured.length, len(target))
            if trouble:
                self._report(row, *trouble)
                continue
            if measured.length is not None:
                self.lengths[self.check.source].append(measured.length)
            self.lengths[self.check.target].append(len(target))
            self._find_repeats(row)
            self._find_unknown(row, self.check.source, measured.tokens)
            self._find_unknown(row, self.check.target, target)
            yield row

    def unknown_rates(self) -> dict[str, float]:
        if self.vocabulary is None:
            return {}
        return {column: unknown / total for column, (unknown, total) in self.tokens.items() if total}

    def _rows(self) -> Iterator[Row]:
        for row in self.manifest.rows(self.report.add):
            self.count += 1
            yield row

    def _measure_text(self, row: Row) -> _Measured:
        if not row[self.check.source]:
            return _Measured(row, trouble=("empty text", f"`{self.check.source}` is empty"))
        tokens = self.check.tokenize(row[self.check.source])
        return _Measured(row, len(tokens), tokens)

    def _measure_files(self) -> Iterator[_Measured]:
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
                    yield _Measured(row, *future.result())
            for row, future in waiting:
                yield _Measured(row, *future.result())

    def _probe(self, path: str) -> tuple[float | None, Sequence[str], tuple[str, str] | None]:
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

    def _trouble_with(self, row: Row, length: float | None, target_length: int) -> tuple[str, str] | None:
        check = self.check
        if not target_length:
            return "empty text", f"`{check.target}` is empty"
        if check.max_target_length is not None and target_length > check.max_target_length:
            return "too long", f"`{check.target}` has {target_length:,} tokens, more than {check.max_target_length:,}"
        if length is not None and check.max_source_length is not None and length > check.max_source_length:
            return "too long", f"the length of `{check.source}` is {length:,g}, more than {check.max_source_length:,g}"
        reason = check.reject(row, length) if check.reject else None
        return ("unusable", reason) if reason else None

    def _find_repeats(self, row: Row) -> None:
        source, target = row[self.check.source], row[self.check.target]
        line = self.pairs.setdefault(_digest(f"{source}\0{target}"), row.line)
        if line != row.line:
            self._report(row, "duplicate", f"the same source and target as in line {line}")
        digest = _digest(source)
        if digest not in self.sources:
            self.sources[digest] = row.line
            for name, sources in self.earlier.items():
                if digest in sources:
                    self._report(row, "leak", f"the source is also in {name} (line {sources[digest]})")

    def _find_unknown(self, row: Row, column: str, tokens: Sequence[str]) -> None:
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
            self._report(row, "unknown", f"`{column}` has tokens that are not in the vocabulary: {listed}")

    def _report(self, row: Row, kind: str, message: str) -> None:
        self.report.add(Problem(kind, row.file, row.line, message))


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
