"""Make the parts of a batch on the workers of a Ray cluster, or of Ray on this machine."""

import json
import logging
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from attention_apps.batch.inputs import Item, Selection
from attention_apps.batch.results import PLAN, Part, Storage

# Ray gives a part to another worker as often as workers die, but an input that makes them die must not stop the run.
_MAX_ATTEMPTS = 4
_SHARED = "Every machine must see the same files: use a shared file system or URLs."
# Each block of Ray Data is a task. More blocks than this would only slow down its scheduler.
_MAX_BLOCKS = 10_000
_EXECUTION_LOGS = ("ray.data", "ray.data._internal")


@dataclass(frozen=True)
class Job:
    """What the workers need to know besides their parts. It is pickled.

    Args:
        answer: takes the inputs of a part and yields a row for each, in order. It loads the application when it is
            first called.
        columns: the keys of a row that only this task has; see `Storage.write_part`.
        folder: the working directory, for relative paths; `None` if there are none.
        required: local files and folders that every machine must have.
    """

    storage: Storage
    selection: Selection
    answer: Callable[[Iterable[Item]], Iterator[Mapping[str, Any]]]
    columns: tuple[str, ...]
    folder: str | None = None
    required: tuple[str, ...] = ()


@dataclass(frozen=True)
class PartReport:
    """A part that is finished, or why it cannot be.

    Args:
        part: the name of the part.
        count: the number of its inputs.
        errors: how many of them have no answer.
        seconds: how long it took.
        machine: the name of the machine.
        failure: why nothing was written. No other worker would do better.
        is_given_up: whether nothing was written because too many workers died while they made this part.
    """

    part: str
    count: int = 0
    errors: int = 0
    seconds: float = 0.0
    machine: str = ""
    failure: str | None = None
    is_given_up: bool = False


class Worker:
    """Make parts, one after the other, with one application.

    It runs on one thread: workers side by side are faster than threads of one worker.
    """

    def __init__(self, job: Job):
        self.job = job
        for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
            os.environ[name] = "1"  # before TensorFlow is imported

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[str]]:
        """Make the parts of a batch of Ray Data; parts and reports are JSON."""
        parts = [Part.from_json(json.loads(str(text))) for text in batch["part"]]
        return {"report": [json.dumps(asdict(self.run(part))) for part in parts]}

    def run(self, part: Part) -> PartReport:
        """Make a part. One that was finished before its worker died is left as it is."""
        start, storage, machine = time.monotonic(), self.job.storage, socket.gethostname()
        try:
            self._check_machine()
            if storage.exists(storage.part_file(part.name)):
                errors = storage.count_errors(part.name)
            elif storage.count_attempt(part.name) > _MAX_ATTEMPTS:
                return PartReport(part.name, machine=machine, is_given_up=True)
            else:
                rows = self.job.answer(part.items(self.job.selection))
                errors = storage.write_part(part.name, rows, self.job.columns)
        except Exception as error:
            return PartReport(part.name, machine=machine, failure=str(error) or type(error).__name__)
        return PartReport(part.name, part.count, errors, time.monotonic() - start, machine)

    def _check_machine(self) -> None:
        """Refuse to work where files are missing: every input would fail."""
        if self.job.folder is not None:
            if not os.path.isdir(self.job.folder):
                raise FileNotFoundError(f"There is no folder {self.job.folder}. {_SHARED}")
            os.chdir(self.job.folder)
        for path in self.job.required:
            if not os.path.exists(path):
                raise FileNotFoundError(f"There is no {path}. {_SHARED}")
        if not self.job.storage.exists(PLAN):
            raise FileNotFoundError(f"There is no {self.job.storage.folder}/{PLAN}. {_SHARED}")


def run_parts(job: Job, parts: Sequence[Part], workers: int | None, address: str | None) -> Iterator[PartReport]:
    """Make parts and yields a report for each, in the order in which they are finished.

    A part is lost with its worker. Ray starts the worker again, if need be on another machine, and gives it the part
    again. If Ray loses a part, another round makes it.

    Args:
        workers: how many; by default one for each CPU.
        address: the address of a cluster, `host:port`. Without one, Ray is started on this machine, and stopped.

    Raises:
        ValueError: a worker cannot do its work.
        ChildProcessError: some parts could not be made, because their workers died again and again.
    """
    missing, given_up = {part.name: part for part in parts}, []
    with _connected(workers, address) as ray:
        while missing:
            before = len(missing)
            size = workers or int(ray.cluster_resources().get("CPU", 1))
            for report in _run_round(ray, job, list(missing.values()), size):
                if report.failure is not None:
                    raise ValueError(f"{report.machine}: {report.failure}")
                if missing.pop(report.part, None) is None:
                    continue
                if report.is_given_up:
                    given_up.append(report.part)
                else:
                    yield report
            if len(missing) == before:
                given_up += missing
                break
    if given_up:
        names = ", ".join(sorted(given_up)[:10])
        raise ChildProcessError(
            f"{len(given_up)} parts could not be made, because their workers died again and again: {names}. "
            "Too little memory is the usual reason. The same command tries again."
        )


def _run_round(ray: Any, job: Job, parts: Sequence[Part], workers: int) -> Iterator[PartReport]:
    """Yield the reports of the parts that were finished."""
    items = [{"part": json.dumps(part.to_json())} for part in parts]
    reports = ray.data.from_items(items, override_num_blocks=min(len(items), _MAX_BLOCKS)).map_batches(
        Worker,
        fn_constructor_args=[job],
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(size=min(workers, len(parts)), max_tasks_in_flight_per_actor=1),
        num_cpus=1,
    )
    is_started = False
    try:
        for row in reports.iter_rows():
            is_started = True
            yield PartReport(**json.loads(row["report"]))
    except ray.exceptions.RayError as error:
        if not is_started:
            reason = str(error).strip().splitlines()[-1].strip()
            raise ChildProcessError(
                f"No worker could begin: {reason}. Is `attention_apps[ray]` installed on every machine?"
            ) from None
        # Otherwise a machine died, and the next round makes what was lost.


@contextmanager
def _connected(workers: int | None, address: str | None) -> Iterator[Any]:
    ray = import_ray()
    options = {"address": address} if address else {"address": "local", "num_cpus": workers, "include_dashboard": False}
    ray.init(**options, log_to_driver=False, logging_level=logging.ERROR)
    try:
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = context.print_on_execution_start = False
        context.max_errored_blocks = -1
        for name in _EXECUTION_LOGS:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        yield ray
    finally:
        ray.shutdown()


def import_ray() -> Any:
    """Import Ray, which then sends no statistics home.

    Raises:
        ValueError: Ray is not installed.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    try:
        import ray
        import ray.data
    except ImportError:
        raise ValueError("Batches need Ray: `pip install 'attention_apps[ray]'`") from None
    return ray
