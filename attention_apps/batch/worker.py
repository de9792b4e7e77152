"""What a worker does: it answers the inputs of a part and writes their rows."""

import json
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from attention_apps.batch.inputs import Item, Selection
from attention_apps.batch.plan import PLAN, Part
from attention_apps.batch.storage import Storage

# Ray gives a part to another worker as often as workers die, but an input that makes them die must not stop the run.
_MAX_ATTEMPTS = 4


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
            raise FileNotFoundError(f"There is no {self.job.storage.url(PLAN)}. {_SHARED}")


_SHARED = "Every machine must see the same files: use a shared file system or URLs."
