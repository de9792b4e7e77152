import keras
import numpy as np
import pytest
from keras import ops

from attention_apps.constants import END, START
from attention_apps.decoding import DecodingOptions, beam_search
from attention_apps.models import Seq2Seq, TextEncoder
from attention_apps.models.tag_decoder import DELETE, KEEP, TagDecoder

B, S, D = 3, 5, 7
LENGTHS = (5, 2, 4)


@pytest.fixture
def decoder():
    keras.utils.set_random_seed(3)
    decoder = TagDecoder(6, tag_dim=4)
    decoder.build((None, None), {"values": (None, None, D), "mask": (None, None)})
    return decoder


@pytest.fixture
def memory():
    values = np.random.default_rng(1).normal(size=(B, S, D)).astype("float32")
    return {
        "values": ops.convert_to_tensor(values),
        "mask": ops.arange(S)[None] < ops.convert_to_tensor(LENGTHS)[:, None],
    }


def tags(row, length):
    return [START, *([DELETE, KEEP, KEEP, DELETE, KEEP][row:] + [KEEP] * row)[:length], END]


def padded_tags():
    rows = [tags(row, length) for row, length in enumerate(LENGTHS)]
    return np.array([row + [0] * (S + 2 - len(row)) for row in rows], "int32")


def test_shapes(decoder, memory):
    outputs = decoder(padded_tags()[:, :-1], memory, return_dict=True)
    assert outputs["logits"].shape == (B, S + 1, 6)
    assert outputs["attention"].shape == (B, S + 1, S)


def test_steps_equal_teacher_forcing(decoder, memory):
    tokens = padded_tags()[:, :-1]
    forced = ops.convert_to_numpy(decoder(tokens, memory))
    state = decoder.init_state(memory)
    for time in range(tokens.shape[1]):
        logits, state = decoder.step(ops.convert_to_tensor(tokens[:, time]), state)
        for row, length in enumerate(LENGTHS):
            if time <= length:
                np.testing.assert_allclose(ops.convert_to_numpy(logits)[row], forced[row, time], atol=1e-5)


def test_what_depends_on_the_source_only_is_handed_back_as_it_is(decoder, memory):
    state = decoder.init_state(memory)
    _, after = decoder.step(ops.full((B,), START, "int32"), state)
    assert after["values"] is state["values"]
    assert after["lengths"] is state["lengths"]


def test_there_is_a_tag_for_each_word_and_then_the_end(decoder, memory):
    options = DecodingOptions(beam_size=3, max_length=S + 1)
    result = beam_search(decoder.step, decoder.init_state(memory), options)
    ids = ops.convert_to_numpy(result.token_ids)[:, 0]
    for row, length in zip(ids.tolist(), LENGTHS, strict=True):
        assert set(row[:length]) <= {DELETE, KEEP}
        assert row[length:] == [END] + [0] * (S - length)


def test_the_beam_finds_the_best_tags(decoder, memory):
    options = DecodingOptions(beam_size=32, max_length=S + 1)
    result = beam_search(decoder.step, decoder.init_state(memory), options)
    found = ops.convert_to_numpy(result.token_ids)[0, 0, :S].tolist()
    every = np.array([[int(bit) + DELETE for bit in f"{number:05b}"] for number in range(2**S)], "int32")
    tokens = np.concatenate([np.full((2**S, 1), START, "int32"), every], axis=1)
    repeated = {name: ops.repeat(tensor[:1], 2**S, axis=0) for name, tensor in memory.items()}
    log_probs = ops.convert_to_numpy(ops.log_softmax(decoder(tokens, repeated)))[:, :S]
    totals = np.take_along_axis(log_probs, every[..., None], axis=2).sum(axis=(1, 2))
    assert found == every[totals.argmax()].tolist()


def test_it_looks_at_one_word_after_the_other(decoder, memory):
    attention = ops.convert_to_numpy(decoder(padded_tags()[:, :-1], memory, return_dict=True)["attention"])
    np.testing.assert_array_equal(attention[0, :S], np.eye(S))
    np.testing.assert_array_equal(attention[1, 2:], 0)


def test_padding_changes_nothing(decoder, memory):
    longer = {
        "values": ops.pad(memory["values"], ((0, 0), (0, 2), (0, 0)), constant_values=9.0),
        "mask": ops.pad(memory["mask"], ((0, 0), (0, 2))),
    }
    tokens = padded_tags()[:, :-1]
    np.testing.assert_allclose(decoder(tokens, memory), decoder(tokens, longer), atol=1e-6)


def test_several_targets_of_a_source_are_as_one_after_the_other(decoder, memory):
    tokens = padded_tags()[:, :-1]
    other = np.where(tokens == KEEP, DELETE, tokens)
    outputs = decoder(np.stack([tokens, other], axis=1), memory, return_dict=True)
    both, weights = outputs["logits"], outputs["attention"]
    np.testing.assert_allclose(both[:, 0], decoder(tokens, memory), atol=1e-6)
    np.testing.assert_allclose(both[:, 1], decoder(other, memory), atol=1e-6)
    assert weights.shape == (B, 2, S + 1, S)


def test_a_model_with_it_is_saved_and_loaded(tmp_path):
    model = Seq2Seq(TextEncoder(20, 4, 5), TagDecoder(6, tag_dim=3, dropout=0.1))
    inputs = {"source": {"token_ids": np.array([[4, 5, 6, 0]], "int32")}, "tokens": np.array([[1, 4, 5, 4]], "int32")}
    before = model(inputs)
    model.save(tmp_path / "model.keras")
    np.testing.assert_allclose(keras.models.load_model(tmp_path / "model.keras")(inputs), before, atol=1e-6)
    assert TagDecoder.from_config(TagDecoder(6, tag_dim=3, dropout=0.1).get_config()).tag_dim == 3
