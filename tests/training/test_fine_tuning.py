from dataclasses import replace

import keras
import numpy as np
import pytest

from attention_apps.training.config import SelfCriticalConfig, TrainingConfig, read_config, to_dict
from attention_apps.training.fine_tuning import (
    assign_weights,
    copy_grown_weights,
    count_steps,
    fine_tuning_defaults,
    freeze,
    match_hard_attention,
    named_weights,
    num_held_out,
    scale_to_data,
    weight_paths,
)
from tests.training.tiny_training import TinyAttention, make_batches, make_config, make_examples, make_model


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


# Settings that fit the data

AUTO = {"epochs": "auto", "warmup_steps": "auto", "ema": "auto", "validate_every": "auto"}


@pytest.mark.parametrize(
    ("count", "epochs", "steps"), [(40, 30, 60), (160, 24, 120), (800, 11, 275), (10_000, 3, 939), (100_000, 3, 9375)]
)
def test_more_data_get_fewer_epochs_and_more_steps(count, epochs, steps):
    batches = make_batches(make_examples(1) * count, batch_size=32)
    config = scale_to_data(make_config(**AUTO), batches)
    assert (config.epochs, count_steps(batches, config)) == (epochs, steps)
    assert config.warmup_steps == pytest.approx(steps / 10, abs=0.5)
    assert config.validate_unit == "steps"
    assert 9 <= steps // config.validate_every <= 11
    averaged_steps = 1 / (1 - config.ema)
    assert averaged_steps == pytest.approx(min(steps / 10, 1000))


def test_what_was_set_stays():
    batches = make_batches(batch_size=10)
    config = make_config(**{**AUTO, "epochs": 4, "ema": None, "validate_every": 2})
    scaled = scale_to_data(config, batches)
    assert scaled == replace(config, warmup_steps=1)
    assert scale_to_data(scaled, batches) == scaled
    (one_step,) = [scale_to_data(make_config(**AUTO, max_steps=1), batches)]
    assert (one_step.ema, one_step.warmup_steps, one_step.validate_every) == (0.0, 0, 1)


def test_steps_of_self_critical_training_count_where_there_are_no_others():
    config = make_config(**{**AUTO, "epochs": 0}, self_critical=SelfCriticalConfig(epochs=20))
    assert scale_to_data(config, make_batches(batch_size=10)).validate_every == 6


def test_a_preset_forgets_the_length_of_its_own_training_and_keeps_the_rest():
    trained = make_config(
        batch_size=7,
        learning_rate=0.25,
        fine_tuning_learning_rate=0.125,
        metric="wer",
        max_minutes=3.0,
        patience=4,
        self_critical=SelfCriticalConfig(epochs=2, metric="cer"),
    )
    config = fine_tuning_defaults(trained)
    assert {name: getattr(config, name) for name in AUTO} == AUTO
    assert (config.batch_size, config.learning_rate, config.metric) == (7, 0.125, "wer")
    assert (config.max_minutes, config.patience) == (None, None)
    assert config.self_critical == SelfCriticalConfig(metric="cer")
    assert read_config(TrainingConfig, to_dict(config)) == config
    assert read_config(TrainingConfig, to_dict(config), ["epochs=3"]).epochs == 3


def test_a_fifth_is_held_out_unless_there_is_too_little_or_plenty():
    assert [num_held_out(count) for count in (9, 10, 50, 1000, 100_000)] == [0, 2, 10, 200, 500]


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
