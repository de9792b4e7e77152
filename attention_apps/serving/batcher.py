"""Answers requests that arrive at about the same time as one batch."""

import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class _Request:
    """The inputs of a request, and the future that gets its outputs."""

    inputs: dict[str, np.ndarray]
    rows: int
    cost: int
    # Requests are batched together only if these are equal.
    shapes: tuple
    future: Future = field(default_factory=Future)


class Batcher:
    """Runs a function on batches of several requests, in its own thread.

    It has no limit on waiting requests; the caller decides how many it admits. A process forked after the batcher was
    created does not have that thread: `submit` raises an error there instead of waiting forever.

    Args:
        run: maps inputs to outputs, batch axis first.
        max_batch: maximum number of rows in a batch.
        delay: seconds that the first request of a batch waits for others.
        max_cost: maximum total cost of a batch. A single request that costs more is run alone.
    """

    def __init__(
        self,
        run: Callable[[Arrays], Arrays],
        max_batch: int = 32,
        delay: float = 0.005,
        max_cost: int | None = None,
    ):
        self.run = run
        self.max_batch = max_batch
        self.delay = delay
        self.max_cost = max_cost
        self._queue: queue.Queue[_Request | None] = queue.Queue()
        self._held: list[_Request | None] = []
        self._is_closed = False
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def submit(self, inputs: Arrays, cost: int = 0) -> Future:
        """Return the future of the outputs. Canceling it frees the inputs at once."""
        require_process(self._process, "This server")
        if self._is_closed:
            raise RuntimeError("The server is shutting down")
        inputs = dict(inputs)
        shapes = tuple((name, array.shape[1:]) for name, array in sorted(inputs.items()))
        request = _Request(inputs, len(next(iter(inputs.values()))), cost, shapes)
        request.future.add_done_callback(lambda _: inputs.clear())
        self._queue.put(request)
        return request.future

    def close(self) -> None:
        """Answer all waiting requests, then stop the thread."""
        self._is_closed = True
        self._queue.put(None)
        self._thread.join()

    def _work(self):
        while (first := self._take()) is not None:
            self._answer(self._collect(first))
            del first  # frees the inputs and outputs while we wait for the next request

    def _take(self, timeout=None):
        """Return the next request that was not canceled, or `None` when the batcher was closed."""
        if self._held:
            return self._held.pop()
        while True:
            request = self._queue.get(timeout=timeout)
            if request is None or request.future.set_running_or_notify_cancel():
                return request

    def _collect(self, first):
        """Return the first request and those that fit into its batch. The next one is held for the next batch."""
        batch, rows, cost, deadline = [first], first.rows, first.cost, time.monotonic() + self.delay
        while rows < self.max_batch:
            try:
                request = self._take(max(deadline - time.monotonic(), 0))
            except queue.Empty:
                break
            if (
                request is None
                or request.shapes != first.shapes
                or rows + request.rows > self.max_batch
                or (self.max_cost is not None and cost + request.cost > self.max_cost)
            ):
                self._held.append(request)
                break
            batch.append(request)
            rows, cost = rows + request.rows, cost + request.cost
        return batch

    def _answer(self, batch):
        try:
            names = batch[0].inputs
            outputs = self.run({name: np.concatenate([one.inputs[name] for one in batch]) for name in names})
        except Exception as error:
            if len(batch) == 1:
                batch[0].future.set_exception(error)
            else:
                for request in batch:  # one by one, so that only the bad one fails
                    self._answer([request])
            return
        start = 0
        for request in batch:
            request.future.set_result({name: array[start : start + request.rows] for name, array in outputs.items()})
            start += request.rows


def require_process(process: int, what: str) -> None:
    """Raise an error in a forked child, where TensorFlow and its threads hang."""
    if os.getpid() != process:
        raise RuntimeError(
            f"{what} was created before this process was forked and cannot be used in it. Load the model in the child "
            'process, or start children with `multiprocessing.get_context("spawn")`'
        )
