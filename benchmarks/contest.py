"""Contenders side by side: parity with this library first, then times that are taken in turns."""

import dataclasses
import os
import platform
from collections.abc import Callable
from importlib import metadata
from typing import Any

from parity import check, compare_losses
from timing import interleave
from workers import ContenderError, Worker

OURS, PYTORCH = "attention_apps", "PyTorch"
PACKAGES = ("attention_apps", "tensorflow", "keras", "torch")


@dataclasses.dataclass(frozen=True)
class Entry:
    """A contender.

    Args:
        contender: `"module.Class"`, what is made in its process.
        arguments: what it is made with, besides the weights, which come next.
        compiled: whether it is made with one more argument, so that it compiles; not every machine can.
    """

    contender: str
    arguments: tuple
    compiled: bool = False


def hold_contest(title: str, entries: dict[str, Entry], repeats: int, show: Callable[[str], None]) -> dict[str, dict]:
    """Figures of each contender, this library's first, which the others get their weights from.

    One that cannot be compiled here has an `error` in their place; one that computes something else ends everything.
    """
    workers, figures, reference, weights = {}, {}, None, ()
    try:
        for name, entry in entries.items():
            show(f"{title}: {name} starts")
            try:
                worker = Worker(entry.contender, *entry.arguments, *weights, *([True] if entry.compiled else []))
            except ContenderError as error:
                if not entry.compiled:
                    raise
                figures[name] = {"error": str(error).strip().splitlines()[-1]}
                continue
            workers[name], figures[name] = worker, dict(worker.beginning)
            if reference is None:
                weights, reference = (worker.call("weights"),), worker.call("outputs")
            else:
                figures[name]["differences"] = differences_from(reference, figures, name, worker)
                check(f"{title}, {name}", figures[name]["differences"])
        show(f"{title}: taking turns")
        _add_times(figures, workers, repeats)
    finally:
        for worker in workers.values():
            worker.close()
    return {name: {key: value for key, value in each.items() if key != "results"} for name, each in figures.items()}


def differences_from(reference: dict, figures: dict[str, dict], name: str, worker: Worker) -> dict[str, float]:
    """Of outputs, and of the losses of the first steps where there are any."""
    differences = worker.call("compare", reference)
    losses, ours = figures[name]["results"], figures[OURS]["results"]
    return differences if losses[0] is None else {**differences, "losses": compare_losses(ours, losses)}


def _add_times(figures: dict[str, dict], workers: dict[str, Worker], repeats: int) -> None:
    runs = {name: worker.time_run for name, worker in workers.items()}
    timings = interleave(runs, repeats, warmup=1, time_one=lambda run: run())
    for name, timing in timings.items():
        figures[name] |= timing.to_dict()
        if PYTORCH in timings:
            peer = timings[PYTORCH]
            figures[name]["speed_of_pytorch"] = peer.median / timing.median
            figures[name]["speed_of_pytorch_by_cpu"] = peer.cpu_seconds_per_run / timing.cpu_seconds_per_run


def describe_machine() -> dict[str, Any]:
    """What the figures depend on besides the code."""
    return {
        "processor": _processor(),
        "cpus": os.cpu_count(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in PACKAGES},
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
