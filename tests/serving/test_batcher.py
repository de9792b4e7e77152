import gc
import os
import threading
import time
import weakref

import numpy as np
import pytest

from attention_apps.serving.batcher import Batcher


class Recorder:
    """Doubles numbers once `go` is set, and records the sizes of batches."""

    def __init__(self):
        self.sizes = []
        self.go = threading.Event()
        self.begun = threading.Event()

    def __call__(self, inputs):
        self.begun.set()
        assert self.go.wait(10)
        self.sizes.append(len(inputs["x"]))
        if (inputs["x"] < 0).any():
            raise ValueError("negative")
        return {"y": 2 * inputs["x"]}


def rows(*numbers):
    return {"x": np.array(numbers)}


@pytest.fixture
def recorder():
    return Recorder()


@pytest.fixture
def batcher(recorder):
    batcher = Batcher(recorder, max_batch=4, delay=0.0, max_cost=10)
    yield batcher
    recorder.go.set()
    batcher.close()


def submit_while_busy(batcher, recorder, requests):
    """Requests that wait together behind a first one."""
    first = batcher.submit(rows(0))
    assert recorder.begun.wait(10)
    futures = [batcher.submit(request) for request in requests]
    recorder.go.set()
    assert first.result(10)["y"].tolist() == [0]
    return futures


def test_those_that_wait_are_answered_together_each_with_its_own(batcher, recorder):
    futures = submit_while_busy(batcher, recorder, [rows(1), rows(2, 3), rows(4, 5), rows(6)])
    assert [future.result(10)["y"].tolist() for future in futures] == [[2], [4, 6], [8, 10], [12]]
    assert recorder.sizes == [1, 3, 3]


def test_other_shapes_go_into_another_batch(batcher, recorder):
    wide = {"x": np.array([[1, 2]])}
    futures = submit_while_busy(batcher, recorder, [rows(1), wide, rows(2)])
    assert [future.result(10)["y"].tolist() for future in futures] == [[2], [[2, 4]], [4]]
    assert recorder.sizes == [1, 1, 1, 1]


def test_one_failure_is_one_requests_own(batcher, recorder):
    futures = submit_while_busy(batcher, recorder, [rows(1), rows(-1), rows(3)])
    assert futures[0].result(10)["y"].tolist() == [2]
    assert futures[2].result(10)["y"].tolist() == [6]
    with pytest.raises(ValueError, match="negative"):
        futures[1].result(10)


def test_what_was_given_up_is_not_computed(batcher, recorder):
    first = batcher.submit(rows(0))
    assert recorder.begun.wait(10)
    given_up = batcher.submit(rows(1))
    assert given_up.cancel()
    recorder.go.set()
    first.result(10)
    assert batcher.submit(rows(2)).result(10)["y"].tolist() == [4]
    assert sum(recorder.sizes) == 2


def test_a_batch_has_a_limit_on_its_cost(batcher, recorder):
    first = batcher.submit(rows(0))
    assert recorder.begun.wait(10)
    futures = [batcher.submit(rows(number), cost) for number, cost in enumerate((4, 6, 1, 99, 2))]
    recorder.go.set()
    first.result(10)
    assert [future.result(10)["y"].tolist() for future in futures] == [[0], [2], [4], [6], [8]]
    assert recorder.sizes == [1, 2, 1, 1, 1]


def test_inputs_that_were_given_up_or_answered_are_freed(batcher, recorder):
    gc.disable()
    try:
        batcher.submit(rows(0))
        assert recorder.begun.wait(10)
        waiting, answered = rows(1), rows(2)
        references = [weakref.ref(one["x"]) for one in (waiting, answered)]
        given_up, future = batcher.submit(waiting), batcher.submit(answered)
        del waiting, answered
        given_up.cancel()
        assert references[0]() is None
        recorder.go.set()
        assert future.result(10)["y"].tolist() == [4]
        deadline = time.monotonic() + 10
        while references[1]() is not None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert references[1]() is None
    finally:
        gc.enable()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_fails_at_once(batcher):
    child = os.fork()
    if child == 0:
        try:
            batcher.submit(rows(1))
        except RuntimeError as error:
            os._exit(0 if "before this process was forked" in str(error) else 2)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def test_closing_answers_what_waits(recorder):
    batcher = Batcher(recorder, max_batch=2, delay=0.0)
    futures = [batcher.submit(rows(number)) for number in range(5)]
    recorder.go.set()
    batcher.close()
    assert [future.result(0)["y"].tolist() for future in futures] == [[2 * number] for number in range(5)]
    with pytest.raises(RuntimeError, match="shutting down"):
        batcher.submit(rows(1))
