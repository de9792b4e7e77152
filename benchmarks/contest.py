"""Contenders side by side: parity with this library first, then times that are taken in turns."""

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from parity import check, compare_losses
from timing import interleave
from workers import ContenderError, Worker

OURS, PYTORCH = "attention_apps", "PyTorch"


@dataclasses.dataclass(frozen=True)
class Entry:
    """A contender.

    Args:
        contender: `"module.Class"`, what is made in its process.
        arguments: what it is made with; all but the first contender get that one's weights next.
        compiled: whether it is made with `compiled=True`; not every machine can.
        python: the interpreter of its environment.
        may_fail: whether the others are timed without it if it does not run.
    """

    contender: str
    arguments: tuple
    compiled: bool = False
    python: Path | str = sys.executable
    may_fail: bool = False

    @property
    def needs_torch(self) -> bool:
        return self.contender.startswith("torch_")


@dataclasses.dataclass(frozen=True)
class Contest:
    """Contenders by name, this library first.

    Args:
        units_per_run: the steps or tokens of one run.
        sizes: of the workload, for the report.
    """

    entries: dict[str, Entry]
    units_per_run: int
    sizes: dict[str, Any]

    def choose(self, kept: Callable[[Entry], bool]) -> "Contest":
        """The contest without some of its contenders."""
        return dataclasses.replace(self, entries={name: entry for name, entry in self.entries.items() if kept(entry)})


def hold_contest(title: str, contest: Contest, repeats: int, show: Callable[[str], None]) -> dict[str, dict]:
    """Figures of each contender.

    One that cannot be compiled here or `may_fail` has an `error` in their place; one that computes something else ends
    everything.
    """
    workers = {name: Worker(entry.contender, entry.python) for name, entry in contest.entries.items()}
    try:
        figures = _begin(title, contest.entries, workers, show)
        show(f"{title}: taking turns")
        _add_times(figures, workers, repeats, contest.units_per_run)
    finally:
        for worker in workers.values():
            worker.close()
    return figures


def _begin(title, entries, workers, show) -> dict[str, dict]:
    """What the first runs of each contender tell, in turn, and how far it is from the first one."""
    figures, first = {}, workers[OURS]
    for name, entry in entries.items():
        try:
            workers[name].wait()  # for the imports of all, which would disturb the first runs
        except ContenderError as error:
            figures[name] = _failure(f"{title}: {name}", entry, error, show)
    for name, entry in entries.items():
        if name in figures:
            continue
        show(f"{title}: {name} begins")
        worker, weights = workers[name], () if name == OURS else (first.call("weights"),)
        try:
            begun = worker.make(*entry.arguments, *weights, **({"compiled": True} if entry.compiled else {}))
        except ContenderError as error:
            figures[name] = _failure(f"{title}: {name}", entry, error, show)
            continue
        results = begun.pop("results")
        if name == OURS:
            reference, our_results = first.call("outputs"), results
        else:
            begun["differences"] = worker.call("compare", reference)
            if results[0] is not None:
                begun["differences"]["losses"] = compare_losses(our_results, results)
            check(f"{title}, {name}", begun["differences"])
        figures[name] = begun
    return figures


def _failure(title, entry, error, show) -> dict[str, str]:
    """The last line of an error that the contest goes on after."""
    if not (entry.compiled or entry.may_fail):
        raise error
    reason = str(error).strip().splitlines()[-1]
    show(f"{title} does not run here: {reason}")
    return {"error": reason}


def _add_times(figures, workers, repeats, units_per_run) -> None:
    runs = {name: workers[name].time_run for name, each in figures.items() if "error" not in each}
    timings = interleave(runs, repeats, warmup=1, time_one=lambda run: run())
    peer = timings.get(PYTORCH)
    for name, timing in timings.items():
        figures[name] |= {**timing.to_dict(), "per_second": units_per_run / timing.median}
        if peer is not None:
            figures[name]["speed_of_pytorch"] = peer.median / timing.median
            figures[name]["speed_of_pytorch_by_cpu"] = peer.cpu_seconds_per_run / timing.cpu_seconds_per_run
