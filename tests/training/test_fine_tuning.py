import keras
import numpy as np
import pytest

from attention_apps.training.fine_tuning import copy_grown_weights, freeze, weight_paths
from tests.training.tiny_training import TinyAttention, make_model


def test_paths_begin_with_the_part_and_not_with_names_that_keras_counts_up():
    make_model()
    paths = [path for path, _ in weight_paths(make_model())]
    assert paths[0] == "encoder/embedding/embeddings"
    assert "decoder/attention/query/kernel" in paths
    assert len(paths) == len(set(paths)) == len(make_model().weights)


class Unnamed(TinyAttention):
    """Has two weights without names."""

    def build(self, query_shape, value_shape):
        super().build(query_shape, value_shape)
        self.scale, self.shift = self.add_weight(shape=(2,)), self.add_weight(shape=(3,))


def test_weights_without_names_are_found_by_their_places():
    for _ in range(2):
        keras.Variable(np.zeros(1))
        paths = weight_paths(make_model(attention=Unnamed(name="attention")))
        unnamed = {path: tuple(weight.shape) for path, weight in paths if "variable" in path}
        assert unnamed == {"decoder/attention/variable_0": (2,), "decoder/attention/variable_1": (3,)}


def test_a_part_a_layer_and_a_weight_can_be_frozen():
    model = make_model()
    freeze(model, ["encoder", "decoder/att*", "decoder/output/bias"])
    learning = [path for path, weight in weight_paths(model) if weight.trainable]
    assert learning == ["decoder/embedding/embeddings", "decoder/output/kernel"]
    assert not model.encoder.normalize.trainable


def test_new_words_begin_as_the_unknown_word_and_old_ones_stay():
    old, new = make_model(seed=1), make_model(seed=2, vocabulary=12)
    copy_grown_weights(old, new)
    before, after = dict(weight_paths(old)), dict(weight_paths(new))
    for path, axis in [("encoder/embedding/embeddings", 0), ("decoder/output/kernel", 1), ("decoder/output/bias", 0)]:
        kept, grown = before[path].numpy(), after[path].numpy()
        unknown = np.take(kept, [3], axis)
        np.testing.assert_array_equal(np.take(grown, range(9), axis), kept)
        np.testing.assert_array_equal(np.take(grown, range(9, 12), axis), np.repeat(unknown, 3, axis))
    np.testing.assert_array_equal(*(weights["decoder/attention/query/kernel"] for weights in (before, after)))


def test_a_smaller_vocabulary_or_another_model_is_refused():
    with pytest.raises(
        ValueError, match=r"A vocabulary can only grow\. Received: encoder/embedding/embeddings of shape"
    ):
        copy_grown_weights(make_model(vocabulary=12), make_model())
    other = make_model(attention=TinyAttention(name="another"))
    with pytest.raises(ValueError, match="In one of them only: decoder/another/query/bias, "):
        copy_grown_weights(make_model(), other)
