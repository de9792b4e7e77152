"""Run the parts of a batch on the workers of a Ray cluster, or of Ray on this machine."""

import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from attention_apps.batch.plan import Part
from attention_apps.batch.worker import Job, PartReport, Worker

# Each block of Ray Data is a task. More blocks than this would only slow down its scheduler.
_MAX_BLOCKS = 10_000
_EXECUTION_LOGS = ("ray.data", "ray.data._internal")


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
