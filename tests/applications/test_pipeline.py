"""The batching of items with a fake model, and the graph with a tiny one."""

import itertools
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from attention_apps.applications.parts import Reading, Source
from attention_apps.applications.pipeline import BATCH_SIZE, Pipeline, _batches, _Piece, answer_items
from attention_apps.constants import END
from attention_apps.decoding import beam_search
from attention_apps.models import Listener
from tests.applications.recognizers import SMALL_DECODER, make_recognizer, say

SIGNATURE = {"numbers": tf.TensorSpec((None, None), tf.float32)}


class FakeCodec:
    """Results are pairs of an item and the sums of its parts, or of an item and its error."""

    def join(self, reading, parts, options):
        if reading.item == "cannot be joined":
            raise RuntimeError
        return reading.item, [None if outputs is None else float(outputs["sum"]) for _, outputs in parts]

    def result(self, error, source):
        return source, error


class FakePipeline:
    """Adds up the numbers of each source. A batch in which there is a 13 fails as a whole."""

    def __init__(self, max_batch_length=160.0):
        self.codec = FakeCodec()
        self.reader = SimpleNamespace(max_batch_length=max_batch_length)
        self.batches = []

    def run(self, source, signature):
        self.batches.append(source["numbers"].shape)
        if (source["numbers"] == 13).any():
            raise tf.errors.InvalidArgumentError(None, None, "13 is unlucky")
        return {"sum": source["numbers"].sum(axis=1)}


def source_of(numbers):
    return Source(None if numbers is None else {"numbers": np.float32(numbers)}, float(len(numbers or "")))


def read(item):
    """An item is a list of sources, each a list of numbers, nothing, or an error."""
    if isinstance(item, Exception):
        raise item
    if isinstance(item, str):
        return Reading([source_of([1])], item)

    def sources():
        for part in item:
            if isinstance(part, Exception):
                raise part
            yield source_of(part)

    return Reading(sources(), item)


def answer(items, pipeline=None, **options):
    return list(answer_items(pipeline or FakePipeline(), items, read, None, SIGNATURE, **options))


def test_items_come_back_in_order_whatever_their_length():
    random = np.random.default_rng(0)
    items = [[[1.0] * int(random.integers(1, 40))] for _ in range(200)]
    assert answer(iter(items)) == [(item, [float(len(item[0]))]) for item in items]


def test_an_item_that_cannot_be_read_harms_no_other():
    items = [[[1, 2]], FileNotFoundError("no such file"), [[3]], TypeError("an int")]
    results = answer(items)
    assert [result for _, result in results] == [[3.0], "no such file", [3.0], "an int"]
    assert results[1][0] is items[1]


def test_an_item_at_which_the_pipeline_fails_harms_no_other():
    pipeline = FakePipeline()
    results = [result for _, result in answer([[[1]], [[13]], [[2]], [[4], [13, 5]], [[6, 7]]], pipeline)]
    assert (results[0], results[2], results[4]) == ([1.0], [2.0], [13.0])
    assert "13 is unlucky" in results[1]
    assert "13 is unlucky" in results[3]
    assert len(pipeline.batches) == 1 + 6  # the whole batch, then each source alone


def test_an_item_that_cannot_be_joined_harms_no_other():
    assert [result for _, result in answer(["a", "cannot be joined", "b"])] == [[1.0], "RuntimeError", [1.0]]


def test_damage_late_in_an_item_is_its_error_and_stays_with_it():
    assert [result for _, result in answer([[[1], [2], ValueError("damaged")], [[5]]])] == ["damaged", [5.0]]


@pytest.mark.parametrize(
    ("item", "error"),
    [
        (FileNotFoundError("gone"), FileNotFoundError),
        ([[1], TypeError("odd")], TypeError),
        ([[13]], tf.errors.InvalidArgumentError),
    ],
)
def test_the_error_of_a_single_item_is_raised_as_it_is(item, error):
    with pytest.raises(error):
        answer([item], raise_errors=True)


def test_a_source_with_nothing_to_answer_has_no_outputs_and_is_in_no_batch():
    pipeline = FakePipeline()
    assert answer([[[1], None, [2, 3]], [None], []], pipeline) == [
        ([[1], None, [2, 3]], [1.0, None, 5.0]),
        ([None], [None]),
        ([], []),
    ]
    assert pipeline.batches == [(2, 2)]


def test_an_endless_stream_of_items_is_answered_as_it_comes():
    items = ([[2 * number]] for number in itertools.count())
    results = answer_items(FakePipeline(), items, read, None, SIGNATURE)
    assert [next(results)[1] for _ in range(150)] == [[2.0 * number] for number in range(150)]


def test_of_a_long_item_few_sources_are_in_memory_at_a_time():
    alive, most = set(), []

    def sources():
        for number in range(500):
            array = np.ones(10, np.float32)
            alive.add(number)
            weakref.finalize(array, alive.discard, number)
            yield Source({"numbers": array}, 10.0)
            del array
            most.append(len(alive))

    pipeline = FakePipeline(max_batch_length=50.0)
    results = answer_items(pipeline, ["long"], lambda item: Reading(sources(), item), None, SIGNATURE)
    assert next(results) == ("long", [10.0] * 500)
    assert len(most) == 500
    assert max(most) < 20


def test_every_source_is_reported_and_the_last_of_an_item_is_known():
    seen = []
    answer([[[1], [2], [3]], [[4]]], on_source=lambda reading, source, is_last: seen.append((source.length, is_last)))
    assert seen == [(1.0, False), (1.0, False), (1.0, True), (1.0, True)]


def test_a_long_item_is_answered_batch_by_batch():
    pipeline, events = FakePipeline(max_batch_length=2.0), []
    run = pipeline.run
    pipeline.run = lambda *given: events.append("batch") or run(*given)
    answer([[[1]] * 6], pipeline, on_source=lambda *_: events.append("source"))
    assert events == ["batch", "source", "source"] * 3


def test_batches_hold_sources_of_similar_length_and_are_bounded():
    lengths = [12.0, 0.5, 30.0, 1.0, *[20.0] * 9, *[0.1] * 40]
    pieces = [_Piece(None, True, Source({}, length)) for length in lengths]
    batches = [[piece.source.length for piece in batch] for batch in _batches(pieces, 160.0)]
    assert [length for batch in batches for length in batch] == sorted(lengths)
    assert len(batches[0]) == BATCH_SIZE
    assert all(len(batch) * max(batch) <= 160 for batch in batches)
    assert [len(batch) for batch in _batches(pieces[:1], 1.0)] == [1]  # longer than a batch may be


# The graph, with a tiny recognizer


@pytest.fixture(scope="module")
def recognizer():
    return make_recognizer(decoder=SMALL_DECODER)


def source(texts):
    waveforms = [say(text, letter_seconds=0.1) for text in texts]
    size = max(map(len, waveforms))
    return {
        "waveform": np.stack([np.pad(waveform, (0, size - len(waveform))) for waveform in waveforms]),
        "length": np.int32([len(waveform) for waveform in waveforms]),
    }


@pytest.fixture(scope="module")
def pipeline(recognizer):
    """One that takes notes of what it searches with."""

    def search(step, state, options, scorers=(), normalized=False):
        pipeline.searches.append((options, len(scorers)))
        return beam_search(step, state, options, scorers=scorers)

    pipeline = Pipeline(recognizer.model, recognizer.reader, recognizer.codec, recognizer.config.decoding, search)
    pipeline.searches = []
    return pipeline


def test_the_encoder_runs_once_and_one_graph_serves_any_batch(pipeline, monkeypatch):
    calls, call = [], Listener.call
    monkeypatch.setattr(Listener, "call", lambda *given, **named: calls.append(1) or call(*given, **named))
    for texts in (["AB", "C"], ["A"], ["C", "B", "ABC"]):
        outputs = pipeline.run(source(texts), pipeline.reader.signature)
        assert {len(array) for array in outputs.values()} == {len(texts)}
        assert len(calls) == 1  # traced once, with one encoder in the graph
    assert pipeline.searches == [(pipeline.options, 1)]


def test_the_best_tokens_are_explained(pipeline):
    outputs = pipeline.run(source(["AB", "C"]), pipeline.reader.signature)
    assert outputs["token_ids"].shape == outputs["attention"].shape[:2]
    assert outputs["text"].shape == outputs["score"].shape == (2, pipeline.options.num_best)
    written = outputs["token_ids"] > END
    np.testing.assert_allclose(outputs["attention"].sum(axis=2)[written], 1, atol=1e-5)
    assert not outputs["attention"][~written].any()
