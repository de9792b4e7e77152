import keras
import numpy as np
import pytest
from keras import ops

from attention_apps.models.efficientnet_lite import efficientnet_lite

PARAMETERS = {"efficientnet_lite0": 4_694_024, "efficientnet_lite1": 5_470_344, "efficientnet_lite2": 6_150_168}


@pytest.fixture(scope="module")
def small():
    keras.utils.set_random_seed(0)
    return efficientnet_lite("efficientnet_lite0", "blocks")


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_as_many_as_in_the_published_networks(name):
    assert efficientnet_lite(name, "classes").count_params() == PARAMETERS[name]


def test_the_grid_is_a_32nd_of_the_image():
    assert efficientnet_lite("efficientnet_lite2", "blocks", image_size=256).output.shape == (None, 8, 8, 352)
    assert efficientnet_lite("efficientnet_lite2", "head", image_size=70).output.shape == (None, 3, 3, 1280)


def test_padding_and_epsilon_are_those_of_tensorflow(small):
    image = np.zeros((1, 32, 32, 3), "float32")
    image[0, 0, 0] = 1.0
    stem = keras.Model(small.input, small.get_layer("stem_conv").output)
    kernel = np.zeros((3, 3, 3, 32), "float32")
    kernel[0, 0, 0, 0] = 1.0  # sees the upper left pixel only if nothing is padded above it
    small.get_layer("stem_conv").set_weights([kernel])
    assert ops.convert_to_numpy(stem(image))[0, 0, 0, 0] == 1.0
    norms = [layer for layer in small.layers if isinstance(layer, keras.layers.BatchNormalization)]
    assert {layer.epsilon for layer in norms} == {1e-3}
    activations = [layer for layer in small.layers if isinstance(layer, keras.layers.ReLU)]
    assert {layer.max_value for layer in activations} == {6.0}


def test_a_block_is_what_the_paper_says(small):
    inputs, outputs = small.get_layer("block2_expand_conv").input, small.get_layer("block2_add").output
    block = keras.Model(inputs, outputs)
    image = np.random.default_rng(1).normal(size=(1, 5, 4, 24)).astype("float32")

    def normalized(name, value):
        gamma, beta, mean, variance = small.get_layer(f"block2_{name}_norm").get_weights()
        return (value - mean) / np.sqrt(variance + 1e-3) * gamma + beta

    def kernel(name):
        return small.get_layer(f"block2_{name}_conv").get_weights()[0]

    expanded = np.clip(normalized("expand", image @ kernel("expand")[0, 0]), 0, 6)
    padded = np.pad(expanded, ((0, 0), (1, 1), (1, 1), (0, 0)))
    depthwise = sum(
        padded[:, i : i + 5, j : j + 4] * kernel("depthwise")[i, j, :, 0] for i in range(3) for j in range(3)
    )
    projected = np.clip(normalized("depthwise", depthwise), 0, 6) @ kernel("project")[0, 0]
    np.testing.assert_allclose(block(image), image + normalized("project", projected), rtol=1e-4, atol=1e-5)


def test_wrong_names_are_refused():
    with pytest.raises(ValueError, match=r"`name` must be one of .*Received: name='efficientnet_lite9'"):
        efficientnet_lite("efficientnet_lite9")
    with pytest.raises(ValueError, match=r"`output` must be one of .*Received: output='pool'"):
        efficientnet_lite("efficientnet_lite0", "pool")
