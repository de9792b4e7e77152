"""Requests that come at about the same time, answered together."""

import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class _Waiting:
    """A request's inputs, and where its outputs are put."""

    inputs: Arrays
    future: Future = field(default_factory=Future)

    @property
    def size(self) -> int:
        return len(next(iter(self.inputs.values())))

    @property
    def kind(self) -> tuple:
        """What must be the same for two requests to be of one batch."""
        return tuple((name, array.shape[1:]) for name, array in sorted(self.inputs.items()))


class Batcher:
    """Runs a function on batches made of several requests, in a thread of its own.

    Args:
        run: from inputs to outputs, the batch axis first.
        max_batch: the most rows of a batch.
        delay: seconds that the first request of a batch waits for others.
        max_waiting: the most requests that wait; further ones are refused.
    """

    def __init__(
        self,
        run: Callable[[Arrays], Arrays],
        max_batch: int = 32,
        delay: float = 0.005,
        max_waiting: int = 256,
    ):
        self.run = run
        self.max_batch = max_batch
        self.delay = delay
        self._queue: queue.Queue[_Waiting | None] = queue.Queue(max_waiting)
        self._held: list[_Waiting | None] = []
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def submit(self, inputs: Arrays) -> Future:
        """The future of the outputs; raises `queue.Full` where too many wait."""
        waiting = _Waiting(inputs)
        if self._is_closed:
            raise queue.Full
        self._queue.put_nowait(waiting)
        return waiting.future

    def close(self) -> None:
        """Answers what waits, and ends."""
        self._is_closed = True
        self._queue.put(None)
        self._thread.join()

    def _work(self):
        while (first := self._take()) is not None:
            batch = [waiting for waiting in self._collect(first) if waiting.future.set_running_or_notify_cancel()]
            if batch:
                self._answer(batch)

    def _take(self, timeout=None):
        """The next request, or `None` at the end of all."""
        return self._held.pop() if self._held else self._queue.get(timeout=timeout)

    def _collect(self, first):
        """The first request and those that can be answered with it; the one after them is held for the next batch."""
        batch, size, deadline = [first], first.size, time.monotonic() + self.delay
        while size < self.max_batch:
            try:
                waiting = self._take(max(deadline - time.monotonic(), 0))
            except queue.Empty:
                break
            if waiting is None or waiting.kind != first.kind or size + waiting.size > self.max_batch:
                self._held.append(waiting)
                break
            batch.append(waiting)
            size += waiting.size
        return batch

    def _answer(self, batch):
        try:
            names = batch[0].inputs
            outputs = self.run({name: np.concatenate([one.inputs[name] for one in batch]) for name in names})
        except Exception as error:
            self._answer_alone(batch, error)
            return
        start = 0
        for waiting in batch:
            waiting.future.set_result({name: array[start : start + waiting.size] for name, array in outputs.items()})
            start += waiting.size

    def _answer_alone(self, batch, error):
        """One by one, so that the request which cannot be answered fails alone."""
        if len(batch) == 1:
            batch[0].future.set_exception(error)
            return
        for waiting in batch:
            self._answer([waiting])
