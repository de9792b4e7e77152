import keras
import numpy as np
import pytest
from keras import ops

from attention_apps.constants import UNKNOWN
from attention_apps.layers import AdditiveAttention
from attention_apps.models.decoder import Decoder, repeat_for_targets, serialize_unbuilt

B, N, T, S, V = 2, 3, 4, 5, 7


class ScoreDecoder(Decoder):
    """Its logits are the one-hot token times the item's number, so that rows cannot be mixed up."""

    def __init__(self):
        super().__init__()
        self.vocabulary_size = V
        self.embedding = keras.layers.Embedding(V, 6)

    def _teacher_force(self, tokens, memory, num_targets):
        numbers = repeat_for_targets(memory["numbers"], num_targets)
        return {"logits": ops.one_hot(tokens, V) * numbers[:, None, None], "attention": None}, {"steps": T}

    def step_with_attention(self, token, state):
        return {"logits": ops.one_hot(token, V) * state["numbers"][:, None], "attention": None}, state


@pytest.fixture
def memory():
    return {"numbers": ops.convert_to_tensor(np.arange(1, B + 1, dtype="float32"))}


def tokens(*shape):
    return np.random.default_rng(0).integers(0, V, shape)


def test_one_target_gives_logits(memory):
    ids = tokens(B, T)
    logits = ops.convert_to_numpy(ScoreDecoder()(ids, memory))
    np.testing.assert_array_equal(logits, np.eye(V)[ids] * np.array([1, 2])[:, None, None])


def test_several_targets_keep_their_axis_and_their_source(memory):
    ids = tokens(B, N, T)
    logits = ops.convert_to_numpy(ScoreDecoder()(ids, memory))
    np.testing.assert_array_equal(logits, np.eye(V)[ids] * np.array([1, 2])[:, None, None, None])


def test_return_dict_has_logits_attention_and_the_attention_state(memory):
    outputs = ScoreDecoder()(tokens(B, N, T), memory, return_dict=True)
    assert set(outputs) == {"logits", "attention", "attention_state"}
    assert outputs["logits"].shape == (B, N, T, V)
    assert outputs["attention"] is None
    assert outputs["attention_state"] == {"steps": T}


def test_a_step_gives_the_logits_alone(memory):
    logits, state = ScoreDecoder().step(ops.convert_to_tensor([3, 4]), memory)
    np.testing.assert_array_equal(ops.convert_to_numpy(logits), np.eye(V)[[3, 4]] * [[1], [2]])
    assert state is memory


def test_ids_beyond_the_vocabulary_are_unknown():
    known = ScoreDecoder()._known_ids(ops.convert_to_tensor([0, V - 1, V, V + 4]))
    assert ops.convert_to_numpy(known).tolist() == [0, V - 1, UNKNOWN, UNKNOWN]


def test_a_shared_embedding_must_have_the_same_shape():
    decoder, embedding = ScoreDecoder(), keras.layers.Embedding(V, 6)
    decoder.share_embedding(embedding)
    assert decoder.embedding is embedding
    with pytest.raises(ValueError, match=r"must be of shape \(7, 6\). Received: shape=\(7, 5\)"):
        decoder.share_embedding(keras.layers.Embedding(V, 5))


def test_rows_are_repeated_next_to_each_other():
    rows = ops.convert_to_tensor([[1], [2]])
    repeated = repeat_for_targets({"a": [rows]}, 2)
    assert ops.convert_to_numpy(repeated["a"][0]).ravel().tolist() == [1, 1, 2, 2]
    assert repeat_for_targets(rows, None) is rows


def test_a_serialized_child_has_no_shapes():
    layer = AdditiveAttention(3)
    layer.build((None, None, 4), (None, None, 5))
    assert "build_config" not in serialize_unbuilt(layer)
    assert not keras.saving.deserialize_keras_object(serialize_unbuilt(layer)).built
    assert serialize_unbuilt(None) is None
