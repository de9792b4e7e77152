import keras
import numpy as np
import pytest

from attention_apps.layers import AdditiveAttention, HardAttention
from attention_apps.layers.constructor_config import ConstructorConfig


@keras.saving.register_keras_serializable(package="tests")
class Scale(ConstructorConfig, keras.layers.Layer):
    def __init__(self, factor, inner=None, **kwargs):
        super().__init__(**kwargs)
        self.factor = factor
        self.inner = inner

    def call(self, inputs):
        return inputs * self.factor


@keras.saving.register_keras_serializable(package="tests")
class ScaleModel(ConstructorConfig, keras.Model):
    def __init__(self, scale, offset=1.0, **kwargs):
        super().__init__(**kwargs)
        self.scale = scale
        self.offset = offset

    def call(self, inputs):
        return self.scale(inputs) + self.offset


def test_every_argument_is_in_the_config_next_to_those_of_keras():
    config = Scale(3, name="thrice", dtype="float16").get_config()
    assert (config["factor"], config["inner"], config["name"]) == (3, None, "thrice")
    assert set(config) == {"factor", "inner", "name", "dtype", "trainable"}
    assert "kwargs" not in config


def test_the_config_makes_the_same_layer_again():
    layer = Scale(3, inner=Scale(2, inner=Scale(5)), dtype="mixed_float16", trainable=False)
    again = Scale.from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    assert again.inner.inner.factor == 5
    assert again.compute_dtype == "float16"
    assert not again.trainable


def test_a_layer_as_an_argument_comes_back_without_the_shapes_it_was_built_with():
    inner = AdditiveAttention(3)
    inner.build((None, None, 4), (None, None, 5))
    config = HardAttention(inner).get_config()
    assert "build_config" not in config["attention"]
    again = HardAttention.from_config(config)
    assert isinstance(again.attention, AdditiveAttention)
    assert not again.attention.built


def test_a_model_is_saved_with_its_arguments(tmp_path):
    model = ScaleModel(Scale(3), offset=4.0)
    inputs = np.ones((2, 5), "float32")
    expected = model(inputs)
    model.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(keras.models.load_model(tmp_path / "model.keras")(inputs), expected)


def test_an_unknown_argument_in_a_config_is_an_error():
    with pytest.raises(TypeError, match="sides"):
        Scale.from_config({**Scale(3).get_config(), "sides": 4})
