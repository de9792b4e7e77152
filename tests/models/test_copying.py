import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from attention_apps.constants import END, START
from attention_apps.decoding import DecodingOptions, beam_search
from attention_apps.models import PointerGenerator, Seq2Seq, TextEncoder
from attention_apps.models.copying import DELETE, KEEP, TagDecoder
from attention_apps.training.losses import token_losses
from tests.models.decoders import B, D, N, S, T, V, make_memory, make_recurrent, make_tokens, make_transformer, stepwise

DECODERS = {
    "before": lambda: make_recurrent(),
    "after": lambda: make_recurrent(attend="after"),
    "coverage": lambda: make_recurrent("coverage"),
    "transformer": lambda: make_transformer(),
}


@pytest.fixture(params=DECODERS)
def pointer(request):
    pointer = PointerGenerator(DECODERS[request.param]())
    pointer(make_tokens(B, T), make_memory())
    rng = np.random.default_rng(4)
    for weight in pointer.trainable_variables:
        weight.assign(rng.normal(size=weight.shape) * 0.5)
    return pointer


def test_it_is_a_distribution_over_the_vocabulary_and_the_source(pointer):
    log_probs = ops.convert_to_numpy(pointer(make_tokens(B, T), make_memory()))
    assert log_probs.shape == (B, T, V + S)
    np.testing.assert_allclose(np.exp(log_probs).sum(-1), 1, atol=1e-5)


def test_it_equals_the_formula_of_the_paper(pointer):
    memory, tokens = make_memory(), make_tokens(B, T)
    outputs = pointer(tokens, memory, return_dict=True)
    generate = 1 / (1 + np.exp(-ops.convert_to_numpy(outputs["switch"])))[..., None]
    words = np.exp(ops.convert_to_numpy(tf.nn.log_softmax(outputs["logits"])))
    expected = np.concatenate([generate * words, np.zeros((B, T, S))], axis=-1)
    ids, attention = ops.convert_to_numpy(memory["source_ids"]), ops.convert_to_numpy(outputs["attention"])
    for row in range(B):
        for time in range(T):
            for place in range(S):
                expected[row, time, ids[row, place]] += (1 - generate[row, time, 0]) * attention[row, time, place]
    np.testing.assert_allclose(np.exp(pointer(tokens, memory)), expected, atol=1e-5)


def test_stepwise_equals_teacher_forced(pointer):
    memory, tokens = make_memory(), make_tokens(B, T, largest=V + S)
    steps, _ = stepwise(pointer, tokens, memory)
    np.testing.assert_allclose(np.exp(steps), np.exp(pointer(tokens, memory)), atol=1e-5)


def test_several_targets_of_one_source_equal_each_on_its_own(pointer):
    memory, tokens = make_memory(), make_tokens(B, N, T)
    together = pointer(tokens, memory)
    for index in range(N):
        np.testing.assert_allclose(np.exp(together[:, index]), np.exp(pointer(tokens[:, index], memory)), atol=1e-5)


def test_a_word_that_is_nowhere_in_the_source_cannot_be_copied(pointer):
    probabilities = np.exp(pointer(make_tokens(B, T), make_memory()))
    assert (probabilities[0, :, [V + 0, V + 2, V + 4]] < 1e-20).all()  # only V + 1 and V + 3 stand for words there
    assert (probabilities[0, :, [V + 1, V + 3]] > 0).all()


def test_the_loss_from_the_parts_equals_that_of_the_whole_distribution(pointer):
    memory, tokens, targets = make_memory(), make_tokens(B, T), np.array([[4, V + 1, 6, 2], [V, 5, 2, 0]], "int32")
    losses = token_losses(pointer(tokens, memory, return_dict=True), tf.constant(targets)).numpy()
    whole = -np.take_along_axis(ops.convert_to_numpy(pointer(tokens, memory)), targets[..., None], -1)[..., 0]
    np.testing.assert_allclose(losses, np.where(targets == 0, 0, whole), atol=1e-4)


def test_a_graph_with_unknown_sizes_gives_the_same(pointer):
    memory, tokens = make_memory(), make_tokens(B, T)
    graph = tf.function(
        lambda tokens, values, mask, ids: pointer(tokens, {"values": values, "mask": mask, "source_ids": ids}),
        input_signature=[
            tf.TensorSpec((None, None), tf.int32),
            tf.TensorSpec((None, None, D)),
            tf.TensorSpec((None, None), tf.bool),
            tf.TensorSpec((None, None), tf.int32),
        ],
    )
    found = graph(tokens, memory["values"], memory["mask"], memory["source_ids"])
    np.testing.assert_allclose(np.exp(found), np.exp(pointer(tokens, memory)), atol=1e-5)


def test_a_decoder_without_attention_is_refused():
    with pytest.raises(
        ValueError, match=r"`decoder` must have an attention layer to copy by. Received: attention=None"
    ):
        PointerGenerator(make_recurrent("none"))


ROWS, WORDS, DIM = 3, 5, 7
LENGTHS = (5, 2, 4)


@pytest.fixture
def tagger():
    keras.utils.set_random_seed(3)
    tagger = TagDecoder(6, tag_dim=4)
    tagger.build((None, None), {"values": (None, None, DIM), "mask": (None, None)})
    return tagger


@pytest.fixture
def word_memory():
    values = np.random.default_rng(1).normal(size=(ROWS, WORDS, DIM)).astype("float32")
    return {
        "values": ops.convert_to_tensor(values),
        "mask": ops.arange(WORDS)[None] < ops.convert_to_tensor(LENGTHS)[:, None],
    }


def tags(row, length):
    return [START, *([DELETE, KEEP, KEEP, DELETE, KEEP][row:] + [KEEP] * row)[:length], END]


def padded_tags():
    rows = [tags(row, length) for row, length in enumerate(LENGTHS)]
    return np.array([row + [0] * (WORDS + 2 - len(row)) for row in rows], "int32")


def test_shapes(tagger, word_memory):
    outputs = tagger(padded_tags()[:, :-1], word_memory, return_dict=True)
    assert outputs["logits"].shape == (ROWS, WORDS + 1, 6)
    assert outputs["attention"].shape == (ROWS, WORDS + 1, WORDS)


def test_steps_equal_teacher_forcing(tagger, word_memory):
    tokens = padded_tags()[:, :-1]
    forced = ops.convert_to_numpy(tagger(tokens, word_memory))
    state = tagger.init_state(word_memory)
    for time in range(tokens.shape[1]):
        logits, state = tagger.step(ops.convert_to_tensor(tokens[:, time]), state)
        for row, length in enumerate(LENGTHS):
            if time <= length:
                np.testing.assert_allclose(ops.convert_to_numpy(logits)[row], forced[row, time], atol=1e-5)


def test_what_depends_on_the_source_only_is_handed_back_as_it_is(tagger, word_memory):
    state = tagger.init_state(word_memory)
    _, after = tagger.step(ops.full((ROWS,), START, "int32"), state)
    assert after["values"] is state["values"]
    assert after["lengths"] is state["lengths"]


def test_there_is_a_tag_for_each_word_and_then_the_end(tagger, word_memory):
    options = DecodingOptions(beam_size=3, max_length=WORDS + 1)
    result = beam_search(tagger.step, tagger.init_state(word_memory), options)
    ids = ops.convert_to_numpy(result.token_ids)[:, 0]
    for row, length in zip(ids.tolist(), LENGTHS, strict=True):
        assert set(row[:length]) <= {DELETE, KEEP}
        assert row[length:] == [END] + [0] * (WORDS - length)


def test_the_beam_finds_the_best_tags(tagger, word_memory):
    options = DecodingOptions(beam_size=32, max_length=WORDS + 1)
    result = beam_search(tagger.step, tagger.init_state(word_memory), options)
    found = ops.convert_to_numpy(result.token_ids)[0, 0, :WORDS].tolist()
    every = np.array([[int(bit) + DELETE for bit in f"{number:05b}"] for number in range(2**WORDS)], "int32")
    tokens = np.concatenate([np.full((2**WORDS, 1), START, "int32"), every], axis=1)
    repeated = {name: ops.repeat(tensor[:1], 2**WORDS, axis=0) for name, tensor in word_memory.items()}
    log_probs = ops.convert_to_numpy(ops.log_softmax(tagger(tokens, repeated)))[:, :WORDS]
    totals = np.take_along_axis(log_probs, every[..., None], axis=2).sum(axis=(1, 2))
    assert found == every[totals.argmax()].tolist()


def test_it_looks_at_one_word_after_the_other(tagger, word_memory):
    attention = ops.convert_to_numpy(tagger(padded_tags()[:, :-1], word_memory, return_dict=True)["attention"])
    np.testing.assert_array_equal(attention[0, :WORDS], np.eye(WORDS))
    np.testing.assert_array_equal(attention[1, 2:], 0)


def test_padding_changes_nothing(tagger, word_memory):
    longer = {
        "values": ops.pad(word_memory["values"], ((0, 0), (0, 2), (0, 0)), constant_values=9.0),
        "mask": ops.pad(word_memory["mask"], ((0, 0), (0, 2))),
    }
    tokens = padded_tags()[:, :-1]
    np.testing.assert_allclose(tagger(tokens, word_memory), tagger(tokens, longer), atol=1e-6)


def test_several_targets_of_a_source_are_as_one_after_the_other(tagger, word_memory):
    tokens = padded_tags()[:, :-1]
    other = np.where(tokens == KEEP, DELETE, tokens)
    outputs = tagger(np.stack([tokens, other], axis=1), word_memory, return_dict=True)
    both, weights = outputs["logits"], outputs["attention"]
    np.testing.assert_allclose(both[:, 0], tagger(tokens, word_memory), atol=1e-6)
    np.testing.assert_allclose(both[:, 1], tagger(other, word_memory), atol=1e-6)
    assert weights.shape == (ROWS, 2, WORDS + 1, WORDS)


def test_a_model_with_it_is_saved_and_loaded(tmp_path):
    model = Seq2Seq(TextEncoder(20, 4, 5), TagDecoder(6, tag_dim=3, dropout=0.1))
    inputs = {"source": {"token_ids": np.array([[4, 5, 6, 0]], "int32")}, "tokens": np.array([[1, 4, 5, 4]], "int32")}
    before = model(inputs)
    model.save(tmp_path / "model.keras")
    np.testing.assert_allclose(keras.models.load_model(tmp_path / "model.keras")(inputs), before, atol=1e-6)
    assert TagDecoder.from_config(TagDecoder(6, tag_dim=3, dropout=0.1).get_config()).tag_dim == 3
