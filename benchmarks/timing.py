"""Times several ways of doing one thing, taking turns, so that a busy machine slows all of them alike."""

import dataclasses
import statistics
import time
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class Timing:
    """Wall-clock seconds of each run, and the CPU seconds of all threads over all runs."""

    seconds: tuple[float, ...]
    cpu_seconds: float

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """The distance between the first and the third quartile."""
        if len(self.seconds) < 2:
            return 0.0
        first, _, third = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return third - first

    @property
    def cpu_seconds_per_run(self) -> float:
        return self.cpu_seconds / len(self.seconds)

    def to_dict(self) -> dict[str, float]:
        return {
            "median_seconds": self.median,
            "spread_seconds": self.spread,
            "cpu_seconds_per_run": self.cpu_seconds_per_run,
            "runs": len(self.seconds),
        }


def time_once(function: Callable[[], object]) -> tuple[float, float]:
    """Wall-clock seconds of one call, and the CPU seconds of all threads of this process meanwhile."""
    wall, cpu = time.perf_counter(), time.process_time()
    function()
    return time.perf_counter() - wall, time.process_time() - cpu


def interleave(
    callables: dict[str, Callable[[], object]],
    repeats: int,
    warmup: int = 2,
    time_one: Callable[[Callable], tuple[float, float]] = time_once,
) -> dict[str, Timing]:
    """Runs each callable in turn, round after round, each round beginning with another one.

    Args:
        callables: by name; each must have finished its work when it returns.
        repeats: rounds that count.
        warmup: rounds before them, for tracing, compilation and caches.
        time_one: calls a callable and says how long it took; not the default where the work is done in another process.
    """
    if repeats < 1:
        raise ValueError(f"`repeats` must be at least 1. Received: repeats={repeats}")
    names = list(callables)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    cpu_seconds = dict.fromkeys(names, 0.0)
    for name in names * warmup:
        callables[name]()
    for round_number in range(repeats):
        start = round_number % len(names)
        for name in names[start:] + names[:start]:
            wall, cpu = time_one(callables[name])
            seconds[name].append(wall)
            cpu_seconds[name] += cpu
    return {name: Timing(tuple(seconds[name]), cpu_seconds[name]) for name in names}
