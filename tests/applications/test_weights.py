import keras
import numpy as np
import pytest

from attention_apps.applications.weights import assign_weights, match_hard_attention, named_weights


class Decoder(keras.layers.Layer):
    """Uses the encoder's embedding."""

    def __init__(self, embedding):
        super().__init__(name="decoder")
        self.embedding = embedding
        self.head = keras.layers.Dense(3, name="head")

    def call(self, inputs):
        return self.head(self.embedding(inputs))


class Tied(keras.Model):
    def __init__(self):
        super().__init__()
        self.encoder = keras.Sequential([keras.layers.Dense(2, use_bias=False, name="embedding")], name="encoder")
        self.decoder = Decoder(self.encoder.layers[0])

    def call(self, inputs):
        return self.decoder(self.encoder(inputs))


@pytest.fixture
def model():
    model = Tied()
    model(np.zeros((1, 2), np.float32))
    return model


def arrays_of(model):
    return {path: weight.numpy() for path, weight in named_weights(model).items()}


def test_a_weight_used_twice_is_named_once(model):
    assert len(named_weights(model)) == len(model.weights) == 3
    assert len({id(weight) for weight in named_weights(model).values()}) == 3


def test_weights_go_from_one_model_to_another(model):
    other = Tied()
    other(np.zeros((1, 2), np.float32))
    assign_weights(other, {path: array.astype(np.float16) + 1 for path, array in arrays_of(model).items()})
    for path, array in arrays_of(model).items():
        np.testing.assert_allclose(arrays_of(other)[path], array + 1, rtol=1e-3, atol=1e-3)


def test_weights_that_do_not_fit_are_refused_and_none_is_assigned(model):
    before = arrays_of(model)
    path = min(before)
    changed = {name: array + 1 for name, array in before.items()}
    for arrays, message in (
        ({name: array for name, array in changed.items() if name != path}, f"lacks '{path}' and 0 more"),
        ({**changed, "z": np.zeros(1), "y": np.zeros(1)}, "has unknown 'y' and 1 more"),
        ({**changed, path: changed[path][:1]}, rf"'{path}' must be of shape \(.*\). Received: shape=\(1,"),
    ):
        with pytest.raises(ValueError, match=message):
            assign_weights(model, arrays)
    for name, array in before.items():
        np.testing.assert_array_equal(arrays_of(model)[name], array)


class Value:
    def numpy(self):
        return np.float32(7)


SOFT, HARD = "decoder/attention/kernel", "decoder/hard_attention/attention/kernel"
BASELINE = "decoder/hard_attention/baseline"


def test_hard_attention_takes_the_weights_of_soft_attention_and_keeps_its_own_baseline():
    assert match_hard_attention({HARD: Value(), BASELINE: Value()}, {SOFT: 1}) == {HARD: 1, BASELINE: np.float32(7)}
    kept = match_hard_attention({HARD: Value(), BASELINE: Value()}, {HARD: 1, BASELINE: 2})
    assert kept == {HARD: 1, BASELINE: 2}


def test_soft_attention_drops_the_baseline_and_keeps_what_it_does_not_know():
    found = match_hard_attention({SOFT: Value()}, {HARD: 1, BASELINE: 2, "decoder/other": 3})
    assert found == {SOFT: 1, "decoder/other": 3}
