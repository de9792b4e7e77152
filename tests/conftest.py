"""Several test processes run side by side: one thread each, or they wait for one another."""

import collections
import gc
import os

for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")


def pytest_addoption(parser):
    group = parser.getgroup("fuzz", "tests/fuzz")
    group.addoption("--fuzz-cases", type=int, default=300, help="spoilt inputs over all kinds (default: %(default)s)")
    group.addoption("--fuzz-seed", type=int, default=0, help="another seed makes other cases (default: %(default)s)")
    group.addoption("--fuzz-only", type=int, metavar="NUMBER", help="the batch of this case, of each kind")
    parser.addoption("--tutorials", action="store_true", help="run the notebooks of docs/tutorials")


def pytest_collection_modifyitems(config, items):
    """With several workers, files that take long run first, so that at the end no worker waits for another.

    A test that is marked as slow counts as 50 others.
    """
    if not hasattr(config, "workerinput"):
        return
    seconds = collections.Counter()
    for item in items:
        seconds[item.path] += 50 if item.get_closest_marker("slow") else 1
    items.sort(key=lambda item: -seconds[item.path])


def pytest_collection_finish():
    """What was imported stays: the garbage collector need not look at it again and again."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter):
    """One line for all tests that were skipped: how many of them, and what they need."""
    reasons = collections.Counter(
        report.longrepr[2].removeprefix("Skipped: ") for report in terminalreporter.stats.get("skipped", [])
    )
    if reasons:
        parts = [f"{count} because {reason}" for reason, count in reasons.most_common()]
        terminalreporter.write_line(f"skipped: {'; '.join(parts)}")
