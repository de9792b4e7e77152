import keras
import numpy as np
import pytest
from keras import ops

from attention_apps.models.efficientnet_lite import normalize_pixels
from attention_apps.models.image_encoder import ImageEncoder

B, SIZE, UNITS = 2, 70, 11  # a grid of 3 x 3
REGIONS, CHANNELS = 9, 320


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).integers(0, 256, (B, SIZE, SIZE, 3), np.uint8)


@pytest.fixture(scope="module")
def encoder():
    keras.utils.set_random_seed(1)
    encoder = ImageEncoder("efficientnet_lite0", SIZE, include_head=False, trainable_from="block14", units=UNITS)
    encoder.build({"image": (None, SIZE, SIZE, 3)})
    return encoder


def test_an_image_becomes_a_memory_of_its_regions(encoder, images):
    memory = encoder({"image": images})
    assert memory["values"].shape == (B, REGIONS, UNITS)
    assert memory["mask"].shape == (B, REGIONS)
    assert ops.convert_to_numpy(memory["mask"]).all()
    assert encoder.grid_shape == (3, 3)
    assert encoder.channels == CHANNELS


def test_the_grid_is_read_row_by_row(images):
    encoder = ImageEncoder("efficientnet_lite0", SIZE, include_head=False)
    grid = ops.convert_to_numpy(encoder.network(normalize_pixels(images.astype("float32")), training=False))
    features = ops.convert_to_numpy(encoder.extract(images))
    assert features.shape[1:] == encoder.feature_shape == (REGIONS, CHANNELS)
    np.testing.assert_allclose(features[:, 5], grid[:, 1, 2], rtol=1e-5)


@pytest.mark.parametrize(("first", "shape"), [("stem", (SIZE * SIZE, 3)), ("block14", (9, 192)), ("head", (9, 320))])
def test_where_the_backbone_is_cut_changes_nothing(first, shape, images):
    whole = ImageEncoder("efficientnet_lite0", SIZE)
    cut = ImageEncoder("efficientnet_lite0", SIZE, trainable_from=first)
    cut.network.set_weights(whole.network.get_weights())
    assert cut.feature_shape == shape
    expected = ops.convert_to_numpy(whole({"image": images})["values"])
    np.testing.assert_allclose(cut({"features": cut.extract(images)})["values"], expected, rtol=1e-4, atol=1e-5)
    assert len(cut.weights) == len(whole.weights)


def test_kept_features_give_the_same_memory(encoder, images):
    expected = ops.convert_to_numpy(encoder({"image": images})["values"])
    features = encoder.extract(images.astype("float32"))
    np.testing.assert_allclose(encoder({"features": features})["values"], expected, rtol=1e-5, atol=1e-6)


def test_without_a_projection_the_features_are_the_memory(images):
    encoder = ImageEncoder("efficientnet_lite0", SIZE, dropout=0.5)
    features = np.ones((B, REGIONS, 1280), "float16")
    np.testing.assert_array_equal(encoder({"features": features}, training=False)["values"], features)
    dropped = ops.convert_to_numpy(encoder({"features": features}, training=True)["values"])
    assert set(np.unique(dropped)) == {0.0, 2.0}
    assert dropped.dtype == np.float32
    assert not encoder.trainable_weights


def test_training_hides_some_regions_from_attention():
    encoder = ImageEncoder("efficientnet_lite0", SIZE, region_dropout=0.3)
    features = np.ones((400, REGIONS, 1280), "float16")
    assert ops.convert_to_numpy(encoder({"features": features}, training=False)["mask"]).all()
    memory = encoder({"features": features}, training=True)
    seen = ops.convert_to_numpy(memory["mask"])
    assert seen.dtype == bool
    np.testing.assert_allclose(seen.mean(), 0.7, atol=0.04)
    assert (seen != seen[:1]).any()
    np.testing.assert_array_equal(memory["values"], features)


def test_only_the_top_is_trained_and_never_batch_normalization(encoder, images):
    names = {weight.path for weight in encoder.trainable_weights}
    assert {name.rpartition("/")[2] for name in names} == {"kernel", "bias"}
    assert any("block14_expand_conv" in name for name in names)
    assert any("block15_project_conv" in name for name in names)
    assert not any("block13" in name for name in names)
    before = [ops.convert_to_numpy(weight) for weight in encoder.network.non_trainable_weights]
    quiet = ops.convert_to_numpy(encoder({"image": images}, training=False)["values"])
    np.testing.assert_allclose(encoder({"image": images}, training=True)["values"], quiet, rtol=1e-5, atol=1e-6)
    for weight, value in zip(encoder.network.non_trainable_weights, before, strict=True):
        np.testing.assert_array_equal(weight, value)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="takes gradients with TensorFlow")
def test_gradients_reach_the_top_of_the_backbone(encoder, images):
    import tensorflow as tf

    with tf.GradientTape() as tape:
        loss = ops.sum(ops.square(encoder({"image": images}, training=True)["values"]))
    gradients = tape.gradient(loss, [weight.value for weight in encoder.trainable_weights])
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    assert sum(np.abs(gradient).sum() > 0 for gradient in gradients) >= len(gradients) - 1


def test_the_configuration_is_complete_and_a_saved_model_answers_alike(encoder, images, tmp_path):
    arguments = {"backbone", "image_size", "include_head", "trainable_from", "units", "dropout", "region_dropout"}
    assert arguments <= set(encoder.get_config())
    inputs = {"image": keras.Input((SIZE, SIZE, 3), name="image")}
    model = keras.Model(inputs, encoder(inputs)["values"])
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    restored = next(layer for layer in loaded.layers if isinstance(layer, ImageEncoder))
    assert restored.get_config() == encoder.get_config()
    assert len(restored.trainable_weights) == len(encoder.trainable_weights)
    floats = {"image": images.astype("float32")}
    np.testing.assert_allclose(loaded(floats), model(floats), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("backbone", ["efficientnet_lite0", "MobileNet"])
def test_mixed_precision_reaches_the_backbone(backbone, images):
    encoder = ImageEncoder(backbone, SIZE, units=UNITS, dtype="mixed_bfloat16")
    memory = encoder({"image": images})
    assert keras.backend.standardize_dtype(memory["values"].dtype) == "bfloat16"
    convolutions = [layer for layer in encoder.network.layers if isinstance(layer, keras.layers.Conv2D)]
    assert all(layer.compute_dtype == "bfloat16" for layer in convolutions)
    assert keras.config.dtype_policy().name == "float32"


def test_a_keras_application_gets_its_own_pixels_and_weights(images, tmp_path):
    encoder = ImageEncoder("MobileNet", SIZE, trainable_from="conv_dw_13")
    trained = keras.applications.MobileNet(weights=None, include_top=False, input_shape=(SIZE, SIZE, 3))
    trained.save_weights(tmp_path / "mobile.weights.h5")
    encoder.load_pretrained(tmp_path / "mobile.weights.h5")
    expected = trained(images.astype("float32") / 127.5 - 1.0, training=False)
    values = encoder({"image": images})["values"]
    assert values.shape == (B, 4, 1024)
    np.testing.assert_allclose(values, ops.reshape(expected, values.shape), rtol=1e-4, atol=1e-5)
    assert {weight.path.split("/")[0] for weight in encoder.trainable_weights} == {"conv_dw_13", "conv_pw_13"}


def test_there_are_no_weights_of_keras_for_efficientnet_lite(encoder):
    with pytest.raises(ValueError, match=r"Keras has no ImageNet weights.*Received: .*efficientnet_lite"):
        encoder.load_pretrained()


@pytest.mark.parametrize("backbone", ["EfficientNetB0", "Xception", "MobileNetV2", "MobileNetV3Small"])
def test_layers_of_a_keras_application_are_called_the_same_whatever_was_made_before(backbone):
    networks = [ImageEncoder(backbone, size).network for size in (71, 96)]
    first, second = ([layer.name for layer in network.layers] for network in networks)
    assert first == second
    assert len(set(first)) == len(first)
    assert {network.name for network in networks} == {backbone.lower()}


def test_layers_without_names_of_their_own_are_counted_as_in_a_fresh_process():
    keras.layers.Conv2D(3, 1)
    network = ImageEncoder("Xception", 71).network
    unnamed = [layer.name for layer in network.layers if layer.name.startswith("conv2d")]
    assert unnamed == ["conv2d", "conv2d_1", "conv2d_2", "conv2d_3"]
    assert [layer.name for layer in network.layers[:3]] == ["input_layer", "block1_conv1", "block1_conv1_bn"]


def test_errors(encoder):
    with pytest.raises(ValueError, match=r"must be one of \['efficientnet_lite0', .*'ResNet50'.*backbone='resnet7'"):
        ImageEncoder("resnet7")
    with pytest.raises(ValueError, match=r"name a layer or block of \['stem_conv'.*trainable_from='block1_foo'"):
        ImageEncoder("efficientnet_lite0", SIZE, trainable_from="block1_foo")
    with pytest.raises(ValueError, match="must name where the network can be cut. Received: 'block2_depthwise'"):
        ImageEncoder("efficientnet_lite0", SIZE, trainable_from="block2_depthwise")
    with pytest.raises(ValueError, match="is for EfficientNet-Lite"):
        ImageEncoder("MobileNet", SIZE, include_head=False)
    fresh = ImageEncoder("efficientnet_lite0", SIZE)
    with pytest.raises(
        ValueError, match=r"`image` must have the shape \('batch', 70, 70, 3\). Received: \(2, 64, 64, 3"
    ):
        fresh({"image": np.zeros((2, 64, 64, 3))})
    with pytest.raises(ValueError, match=r"`features` must have the shape \('batch', 9, 1280\)"):
        fresh({"features": np.zeros((2, 9, 320))})
    with pytest.raises(ValueError, match=r"must hold `image` or `features`. Received: \['pixels'\]"):
        fresh({"pixels": np.zeros((2, 9, 320))})


def test_efficientnet_b_sees_pixels_with_the_mean_and_the_deviation_of_imagenet():
    encoder = ImageEncoder("EfficientNetB0", image_size=32)
    pixels = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3)).astype("float32")
    seen = keras.Model(encoder.network.input, encoder.network.get_layer("normalization").output)
    expected = (pixels / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    np.testing.assert_allclose(seen(encoder.prepare_pixels(pixels)), expected, atol=1e-4)


def test_mirrored_features_are_those_of_the_photo_and_of_its_mirror_image():
    keras.utils.set_random_seed(2)
    plain = ImageEncoder("efficientnet_lite0", image_size=64)
    mirrored = ImageEncoder("efficientnet_lite0", image_size=64, mirrored=True)
    mirrored.network.set_weights(plain.network.get_weights())
    photos = np.random.default_rng(0).integers(0, 256, (3, 64, 64, 3)).astype("uint8")
    grid = (3, *plain.grid_shape, plain.channels)
    as_it_is, in_mirror = (ops.convert_to_numpy(plain.extract(x)).reshape(grid) for x in (photos, photos[:, :, ::-1]))
    expected = (as_it_is + in_mirror[:, :, ::-1]) / 2
    largest = expected.max()  # next to nothing, with random weights
    found = ops.convert_to_numpy(mirrored.extract(photos)).reshape(grid)
    np.testing.assert_allclose(found / largest, expected / largest, atol=1e-4)
    assert np.abs(as_it_is - expected).max() > 0.1 * largest


def test_a_backbone_that_learns_looks_in_no_mirror():
    with pytest.raises(ValueError, match="`mirrored` must be false if the backbone is trained"):
        ImageEncoder("efficientnet_lite0", image_size=64, trainable_from="head", mirrored=True)
