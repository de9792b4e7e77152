import math
import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from attention_apps.decoding.beam_search import beam_search
from attention_apps.decoding.options import DecodingOptions
from tests.decoding.fake_models import (
    END,
    START,
    FakeModel,
    assert_found,
    enumerate_all,
    greedy_search,
    narrow_search,
)

MODEL = FakeModel.random(11)
ITEMS = 3
SPACE = 3**3 * 4  # with 4 tokens and a maximum length of 4, no step has more continuations
SEARCHES = [(1, greedy_search), (2, narrow_search), (3, narrow_search), (SPACE, enumerate_all)]

OPTIONS = [
    {},
    {"min_length": 3},
    {"length_penalty": 1.0},
    {"length_penalty": -2.0, "min_length": 2},
    {"length_penalty": 1.5, "length_penalty_kind": "average"},
    {"length_penalty": -0.5, "length_penalty_kind": "average"},
    {"coverage_penalty": 0.7},
    {"temperature": 0.4},
    {"repetition_penalty": 1.7},
    {"repetition_penalty": 0.5},
    {"no_repeat_ngram_size": 1},
    {"no_repeat_ngram_size": 2},
    {"forced_prefix": (3, 3)},
    {"forced_prefix": (3, 1), "banned_tokens": (1,), "no_repeat_ngram_size": 1},
    {"banned_tokens": (0, 3)},
    {"banned_tokens": (END,)},
]


def search(model, options, items=ITEMS, **arguments):
    return beam_search(model.step, model.init_state(range(items)), options, **arguments)


def is_equal(one, other, **tolerance):
    for mine, yours in zip(one, other):
        np.testing.assert_allclose(np.array(mine), np.array(yours), **tolerance)


def chain(token, state):
    """P(end) = .6 or P(a) = .4 at the start; P(b | a) = .9; P(end | b) = .9; the rest goes to c."""
    probabilities = np.full((6, 6), 1e-9, "float32")
    probabilities[START, [END, 3]] = 0.6, 0.4
    probabilities[3, [4, 5]] = 0.9, 0.1
    probabilities[4, [END, 5]] = 0.9, 0.1
    probabilities[5, 5] = 1.0
    return ops.log(ops.take(ops.convert_to_tensor(probabilities), token, axis=0)), state


def test_a_finished_hypothesis_is_frozen():
    options = DecodingOptions(beam_size=2, max_length=6)
    result = beam_search(chain, {"item": np.zeros((1, 1))}, options)
    assert np.array(result.token_ids).tolist() == [[[END, 0, 0, 0, 0, 0]]]
    np.testing.assert_allclose(result.scores, [[math.log(0.6)]], rtol=1e-5)
    np.testing.assert_allclose(result.log_probs, [[math.log(0.6)]], rtol=1e-5)
    assert (int(result.lengths[0, 0]), bool(result.finished[0, 0])) == (1, True)


@pytest.mark.slow
def test_keras_hub_goes_on_scoring_after_the_end():
    """Why this search exists: on the same chain KerasHub's beam finds a sequence of probability .324, not .6."""
    samplers = pytest.importorskip("keras_hub").samplers

    def next(prompt, cache, index):
        return chain(prompt[:, index - 1], None)[0], None, cache

    sampler = samplers.BeamSampler(num_beams=2, return_all_beams=True)
    prompt = ops.convert_to_tensor([[START, 0, 0, 0, 0, 0]], "int32")
    tokens, scores = sampler(next, prompt, index=1, stop_token_ids=[END])
    assert np.array(tokens)[0, 0, 1:4].tolist() == [3, 4, END]
    assert float(scores[0, 0]) < math.log(0.324) - 1  # what came after the end was added to it


@pytest.mark.parametrize(("beam_size", "reference"), [SEARCHES[0], SEARCHES[1], SEARCHES[-1]])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_each_option_is_searched_as_the_definition_says(options, beam_size, reference):
    options = DecodingOptions(beam_size=beam_size, max_length=4, num_best=min(beam_size, 3), **options)
    assert_found(search(MODEL, options), [reference(MODEL, item, options) for item in range(ITEMS)])


combinations = st.fixed_dictionaries(
    {
        "min_length": st.integers(0, 4),
        "length_penalty": st.sampled_from([-1.0, 0.0, 0.6, 1.0, 3.0]),
        "length_penalty_kind": st.sampled_from(["gnmt", "average"]),
        "coverage_penalty": st.sampled_from([0.0, 0.4]),
        "temperature": st.sampled_from([0.5, 1.0, 2.0]),
        "repetition_penalty": st.sampled_from([1.0, 1.4]),
        "no_repeat_ngram_size": st.integers(0, 3),
        "forced_prefix": st.sampled_from([(), (3,), (1, 3), (3, END)]),
        "banned_tokens": st.sampled_from([(), (0,), (1, 3)]),
    }
)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    searching=st.sampled_from(SEARCHES),
    num_best=st.integers(1, 4),
    options=combinations,
)
def test_all_options_together_on_random_models(seed, searching, num_best, options):
    beam_size, reference = searching
    model = FakeModel.random(seed)
    options = DecodingOptions(beam_size=beam_size, max_length=4, num_best=min(beam_size, num_best), **options)
    assert_found(search(model, options), [reference(model, item, options) for item in range(ITEMS)])


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_batch_is_searched_as_its_items_one_by_one(beam_size):
    options = DecodingOptions(beam_size=beam_size, max_length=7, num_best=beam_size, length_penalty=0.7)
    together = search(MODEL, options, items=5)
    for item in range(5):
        alone = beam_search(MODEL.step, MODEL.init_state([item]), options)
        is_equal([part[item] for part in together], [part[0] for part in alone], rtol=1e-6)


@pytest.mark.parametrize("beam_size", [1, 2, 4])
def test_what_does_not_end_is_returned_and_marked(beam_size):
    options = DecodingOptions(beam_size=beam_size, max_length=3, num_best=beam_size, banned_tokens=(END,))
    result = search(MODEL, options)
    assert not np.array(result.finished).any()
    assert (np.array(result.lengths) == 3).all()
    assert (np.diff(np.array(result.scores)) <= 0).all()


def test_an_unfinished_hypothesis_ranks_after_a_finished_one():
    logits = np.log([[1e-6, 1e-6, 0.01, 0.99]]).astype("float32")

    def step(token, state):
        return state["item"] * 0 + logits, state

    options = DecodingOptions(beam_size=4, num_best=4, max_length=2)
    result = beam_search(step, {"item": np.zeros((1, 1), "float32")}, options)
    assert np.array(result.finished)[0].tolist() == [True, True, False, False]
    assert np.array(result.token_ids)[0].tolist()[:3] == [[END, 0], [3, END], [3, 3]]
    assert float(result.scores[0, 2]) > float(result.scores[0, 0])


@pytest.mark.parametrize("beam_size", [1, 3])
def test_where_nothing_can_be_written_the_result_is_empty(beam_size):
    options = DecodingOptions(beam_size=beam_size, max_length=3, banned_tokens=(0, 1, 2, 3))
    result = search(MODEL, options)
    assert not np.array(result.token_ids).any()
    assert not np.array(result.lengths).any()
    assert not np.array(result.finished).any()
    assert np.isneginf(np.array(result.scores)).all()


@pytest.mark.parametrize("beam_size", [1, 2])
def test_each_item_may_have_a_prefix_of_its_own(beam_size):
    prefixes = [(3, 1, 3), (0,), (1,)]
    padded = np.zeros((3, 3), "int32")
    for row, prefix in zip(padded, prefixes):
        row[: len(prefix)] = prefix
    options = DecodingOptions(beam_size=beam_size, max_length=5, length_penalty=1.0)
    reference = greedy_search if beam_size == 1 else narrow_search
    forced = [(3, 1, 3), (), (1,)]
    expected = [reference(MODEL, item, options, prefix=prefix) for item, prefix in enumerate(forced)]
    assert_found(search(MODEL, options, prefix=padded), expected)


@pytest.mark.parametrize("options", [{"beam_size": 1}, {"beam_size": 2, "repetition_penalty": 1.3, "temperature": 0.7}])
@pytest.mark.parametrize("is_said", [False, True])
def test_logits_and_log_probabilities_are_alike(is_said, options):
    def step(token, state):
        logits, state = MODEL.step(token, state)
        return ops.log_softmax(logits), state

    options = DecodingOptions(max_length=4, num_best=1, **options)
    found = beam_search(step, MODEL.init_state(range(ITEMS)), options, normalized=is_said)
    is_equal(search(MODEL, options), found, rtol=1e-5)


def test_what_is_normalized_already_is_not_normalized_again():
    def step(token, state):  # says that it is normalized, and is not
        logits, state = MODEL.step(token, state)
        return logits - 1.0, state

    options = DecodingOptions(beam_size=1, max_length=1)
    logits, _ = step(np.full(ITEMS, START), MODEL.init_state(range(ITEMS)))
    found = beam_search(step, MODEL.init_state(range(ITEMS)), options, normalized=True)
    np.testing.assert_allclose(found.log_probs[:, 0], np.max(logits, axis=-1), rtol=1e-5)


def counting(taken, first=3, then=END):
    """A step that notes its calls, and is almost sure of one token at first and of another one later."""

    def step(token, state):
        taken.append(state)
        wanted = ops.where(state["age"] == 0, first, then)
        logits = ops.where(ops.arange(5) == wanted, 6.0, 0.0)
        return logits, {"age": state["age"] + 1, "keys": state["keys"]}

    return step, {"age": np.zeros((2, 1), "int32"), "keys": np.ones((2, 7), "float32")}


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({"beam_size": 1}, 2),
        ({"beam_size": 3}, 2),
        ({"beam_size": 3, "length_penalty": -1.0}, 2),
        ({"beam_size": 3, "num_best": 2}, 3),
        ({"beam_size": 1, "length_penalty": 5.0}, 2),
        ({"beam_size": 3, "length_penalty": 20.0}, 30),
    ],
)
def test_the_search_stops_as_soon_as_no_live_hypothesis_can_win(options, steps):
    taken = []
    step, state = counting(taken)
    beam_search(step, state, DecodingOptions(max_length=30, **options))
    assert len(taken) == steps


@pytest.mark.usefixtures("eager")
def test_what_depends_on_the_source_only_is_never_reordered():
    taken = []
    step, state = counting(taken, then=4)
    beam_search(step, state, DecodingOptions(beam_size=3, max_length=5))
    assert [tuple(state["keys"].shape) for state in taken] == [(2, 7)] + [(6, 7)] * 4
    assert len({id(state["keys"]) for state in taken[1:]}) == 1
    assert len({id(state["age"]) for state in taken[1:]}) == 4


def test_a_step_that_changes_its_state_is_an_error():
    def step(token, state):
        return state["item"], {"items": state["item"]}

    with pytest.raises(ValueError, match="`step` must return a state with the structure of the one it was given"):
        beam_search(step, {"item": np.zeros((2, 4))}, DecodingOptions())


needs_tensorflow = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="tf.function")


def compiled(options, jit, sizes):
    """A compiled search in which every source position is a further token, as with copying: V + S of them."""
    import tensorflow as tf

    def step(token, state):
        logits, inner = MODEL.step(ops.minimum(token, 3), {key: state[key] for key in ("item", "memory", "coverage")})
        copying = state["coverage"] - ops.cast(state["item"], "float32")[:, None]
        return ops.concatenate([logits, copying], axis=-1), {**inner, "keys": state["keys"]}

    def run(items, keys, prefix):
        batch = ops.shape(keys)[0]
        coverage = ops.zeros((batch, MODEL.attention.shape[1]))
        state = {"item": items, "memory": {"code": items * 0}, "coverage": coverage, "keys": keys}
        return beam_search(step, state, options, prefix=prefix)

    batch, source, length = sizes
    signature = [
        tf.TensorSpec((batch,), tf.int32),
        tf.TensorSpec((batch, source), tf.float32),
        tf.TensorSpec((batch, length), tf.int32),
    ]
    return run, tf.function(run, input_signature=signature, jit_compile=jit)


EVERYTHING = {
    "max_length": 5,
    "min_length": 2,
    "length_penalty": 0.6,
    "coverage_penalty": 0.2,
    "repetition_penalty": 1.2,
    "no_repeat_ngram_size": 2,
    "banned_tokens": (0,),
    "temperature": 0.9,
}


@needs_tensorflow
@pytest.mark.parametrize("beam_size", [1, 3])
def test_one_graph_serves_any_batch_and_source_size(beam_size):
    options = DecodingOptions(beam_size=beam_size, num_best=beam_size, **EVERYTHING)
    eager, graph = compiled(options, jit=False, sizes=(None, None, None))
    for batch, source, length in ((3, 5, 1), (2, 4, 0)):
        arguments = np.arange(batch, dtype="int32"), np.ones((batch, source), "float32"), np.full((batch, length), 3)
        is_equal(graph(*arguments[:2], arguments[2].astype("int32")), eager(*arguments), rtol=1e-5)
    empty = graph(np.zeros(0, "int32"), np.zeros((0, 5), "float32"), np.zeros((0, 1), "int32"))
    assert tuple(empty.token_ids.shape) == (0, beam_size, 5)


@needs_tensorflow
@pytest.mark.parametrize("beam_size", [1, 3])
def test_xla_finds_the_same(beam_size):
    options = DecodingOptions(beam_size=beam_size, num_best=beam_size, **EVERYTHING)
    eager, graph = compiled(options, jit=True, sizes=(3, 5, 1))
    arguments = np.arange(3, dtype="int32"), np.ones((3, 5), "float32"), np.full((3, 1), 3, "int32")
    is_equal(graph(*arguments), eager(*arguments), rtol=1e-4)


@needs_tensorflow
def test_the_vocabulary_may_depend_on_the_source():
    """The size of the logits is known only when the graph runs."""
    import tensorflow as tf

    options = DecodingOptions(beam_size=2, max_length=3, banned_tokens=(END,))

    @tf.function(input_signature=[tf.TensorSpec((None, None), tf.float32)])
    def run(copying):
        def step(token, state):
            fixed = tf.tile([[0.0, 0.0, 1.0, 0.5]], [tf.shape(token)[0], 1])
            return tf.concat([fixed, state["copying"]], axis=1), state

        return beam_search(step, {"copying": copying}, options)

    assert np.array(run(np.array([[0.0, 0.1, 9.0]], "float32")).token_ids)[0, 0].tolist() == [6, 6, 6]
    assert np.array(run(np.array([[0.0], [9.0]], "float32")).token_ids)[:, 0].tolist() == [[3, 3, 3], [4, 4, 4]]
    large = np.zeros((1, 3000), "float32")
    large[0, 2500] = 20.0
    assert np.array(run(large).token_ids)[0, 0].tolist() == [2504] * 3


# The same search compiled by another backend of Keras, which needs a process of its own.
JAX_PROGRAM = """
import jax
import numpy as np
from attention_apps.decoding.beam_search import beam_search
from attention_apps.decoding.options import DecodingOptions
from attention_apps.decoding.sampling import sample
from tests.decoding.fake_models import FakeModel, assert_found, greedy_search, narrow_search

model, state = FakeModel.random(11), FakeModel.random(11).init_state(range(3))
everything = dict(max_length=5, min_length=2, length_penalty=0.6, coverage_penalty=0.2, repetition_penalty=1.2)
everything.update(no_repeat_ngram_size=2, banned_tokens=(0,), forced_prefix=(3,), temperature=0.9)
for beam_size, reference in ((1, greedy_search), (3, narrow_search)):
    options = DecodingOptions(beam_size=beam_size, num_best=beam_size, **everything)
    result = jax.jit(lambda state: beam_search(model.step, state, options))(state)
    assert_found(result, [reference(model, item, options) for item in range(3)])
samples = jax.jit(lambda state: sample(model.step, state, DecodingOptions(max_length=4), 5, top_k=2, seed=1))(state)
assert samples.token_ids.shape == (3, 5, 4)
assert np.isfinite(np.array(samples.log_probs)).all()
"""


@pytest.mark.slow
def test_jax_finds_the_same():
    pytest.importorskip("jax")
    environment, root = {**os.environ, "KERAS_BACKEND": "jax"}, Path(__file__).parents[2]
    run = subprocess.run([sys.executable, "-c", JAX_PROGRAM], env=environment, cwd=root, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
