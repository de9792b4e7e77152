"""Contenders in processes of their own, which take turns because they run only when they are told to."""

import importlib
import os
import resource
import subprocess
import sys
import traceback
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

from timing import time_once

# Before anything else: tracing and compiling, and the losses of as many steps.
FIRST_RUNS = 3


class Worker:
    """A contender in a child process, which begins to import what it needs at once.

    Args:
        contender: `"module.Class"`, imported in the child only.
        python: the interpreter to run it with; by default the one that runs this.
    """

    def __init__(self, contender: str, python: Path | str = sys.executable):
        self._connection, other = Pipe()
        command = [str(python), __file__, str(other.fileno()), contender]
        # What a library prints must not get into the report.
        self._process = subprocess.Popen(command, pass_fds=[other.fileno()], stdout=sys.stderr)
        other.close()

    def wait(self) -> None:
        """Until all is imported."""
        self._answer()

    def make(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        """Makes the contender and lets it run a few times: results, seconds of the first run, peak memory."""
        self._connection.send((arguments, options))
        return self._answer()

    def call(self, method: str, *arguments: Any) -> Any:
        """What a method of the contender returns."""
        self._connection.send((method, arguments))
        return self._answer()

    def time_run(self) -> tuple[float, float]:
        """Wall-clock and CPU seconds of one run."""
        return self.call("")

    def close(self) -> None:
        self._connection.close()
        self._process.wait()

    def _answer(self):
        try:
            failed, answer = self._connection.recv()
        except EOFError:
            failed, answer = True, f"The process ended with exit code {self._process.wait()}"
        if failed:
            raise ContenderError(answer)
        return answer


class ContenderError(RuntimeError):
    """A contender could not be made or run here."""


def set_threads(threads: int) -> None:
    """For all processes started from now on."""
    for name in ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(threads)
    os.environ["TF_NUM_INTEROP_THREADS"] = "1"
    os.environ["TF_ENABLE_ONEDNN_OPTS"] = "1"  # for plain Keras too, where it is not on by default on every CPU
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def peak_memory() -> int:
    """The most bytes of memory that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _serve(connection, contender):
    try:
        module, name = contender.rsplit(".", 1)
        make = getattr(importlib.import_module(module), name)
        connection.send((False, None))
        arguments, options = connection.recv()
        made, beginning = _begin(make, arguments, options)
        connection.send((False, beginning))
        while True:
            method, values = connection.recv()
            answer = getattr(made, method)(*values) if method else time_once(made.run)
            connection.send((False, answer))
    except EOFError:
        pass
    except Exception:
        connection.send((True, traceback.format_exc()))


def _begin(make, arguments, options):
    after_imports = peak_memory()
    made = make(*arguments, **options)
    results = []
    wall, cpu = time_once(lambda: results.append(made.run()))
    results += [made.run() for _ in range(FIRST_RUNS - 1)]
    return made, {
        "results": results,
        "first_run_seconds": wall,
        "first_run_cpu_seconds": cpu,
        "peak_memory_bytes": peak_memory(),
        "peak_memory_above_imports_bytes": peak_memory() - after_imports,
    }


if __name__ == "__main__":
    _serve(Connection(int(sys.argv[1])), sys.argv[2])
