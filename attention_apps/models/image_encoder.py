"""The encoder of photos."""

import math
import re
import sys
from functools import partial

import keras
from keras import ops

from attention_apps.layers.constructor_config import ConstructorConfig
from attention_apps.models.efficientnet_lite import EFFICIENTNET_LITE_NAMES, efficientnet_lite, normalize_pixels


@keras.saving.register_keras_serializable(package="attention_apps")
class ImageEncoder(ConstructorConfig, keras.layers.Layer):
    """Encodes a photo as the unpooled feature grid of an ImageNet network: each cell is a position for attention.

    The backbone starts with random weights, without a download. Its batch normalization always uses the statistics of
    ImageNet and is never trained.

    Args:
        backbone: `"efficientnet_lite0"` to `"efficientnet_lite2"`, or the name of any `keras.applications` model,
            such as `"ResNet50"`, which is built without its top and gets pixels preprocessed its way.
        image_size: Side of the square images.
        include_head: Whether the grid is the output of EfficientNet-Lite's last convolution (1280 channels) or its
            input (320 or 352 channels).
        trainable_from: Name of the backbone's first trainable layer or block, such as `"block16"`; everything below
            it is frozen. By default the whole backbone is frozen. The layers above may depend on the layers below
            only through the input of that layer.
        units: Size of a linear projection of each region; none by default.
        dropout: Dropout rate on the features.
        region_dropout: Fraction of the regions that are hidden from attention in training.
        mirrored: Whether to average the features of the photo and of its mirror image, mirrored back; for a frozen
            backbone.

    Attributes:
        grid_shape: Rows and columns of the grid.
        channels: Features per region, before the projection.
        feature_shape: Positions and channels of the result of `extract`: the grid, or the input of the first trainable
            layer.

    Call arguments:
        source: Dict of `image` `(batch, image_size, image_size, 3)`, pixels from 0 to 255, or of `features`
            `(batch, *feature_shape)`, the result of `extract` for the images.

    Returns:
        The memory: `values` `(batch, regions, units or channels)`, row by row; `mask` `(batch, regions)`, `False` for
        hidden regions.

    Example:
        encoder = ImageEncoder("EfficientNetV2B0", image_size=256)
        encoder.load_pretrained()
        memory = encoder({"image": photos})  # values: (batch, 64, 1280)

    Reference: Xu et al. 2015, "Show, Attend and Tell", section 3.1.1.
    """

    def __init__(
        self,
        backbone="efficientnet_lite2",
        image_size=256,
        include_head=True,
        trainable_from=None,
        units=None,
        dropout=0.0,
        region_dropout=0.0,
        mirrored=False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if mirrored and trainable_from is not None:
            raise ValueError(
                "`mirrored` must be false if the backbone is trained. Received: mirrored=True, "
                f"trainable_from={trainable_from!r}"
            )
        self.backbone = backbone
        self.image_size = image_size
        self.include_head = include_head
        self.trainable_from = trainable_from
        self.units = units
        self.dropout = dropout
        self.region_dropout = region_dropout
        self.mirrored = mirrored
        self.network, self.prepare_pixels = self._make_network()
        first = _freeze_below(self.network, trainable_from)
        self._frozen_part, self._learning_part, self._cut_shape = _cut(self.network, first, trainable_from)
        _, *grid_shape, self.channels = self.network.output.shape
        self.grid_shape = tuple(grid_shape)
        self.feature_shape = (math.prod(self._cut_shape[:2]), self._cut_shape[2])
        self.dropout_layer = keras.layers.Dropout(dropout, dtype=self.dtype_policy)
        self.region_dropout_layer = keras.layers.Dropout(region_dropout, dtype=self.dtype_policy)
        if units is not None:
            self.projection = keras.layers.Dense(units, dtype=self.dtype_policy, name="projection")

    def build(self, source_shape):
        expected = {"image": (self.image_size, self.image_size, 3), "features": self.feature_shape}
        if not source_shape.keys() & expected.keys():
            raise ValueError(f"`source` must hold `image` or `features`. Received: {sorted(source_shape)}")
        for key in source_shape.keys() & expected.keys():
            if any(size not in (None, wanted) for size, wanted in zip(source_shape[key][1:], expected[key])):
                raise ValueError(
                    f"`{key}` must have the shape {('batch', *expected[key])}. Received: {tuple(source_shape[key])}"
                )
        if self.units is not None:
            self.projection.build((None, None, self.channels))

    def call(self, source, training=None):
        features = source["features"] if "features" in source else self.extract(source["image"])
        if self._learning_part is not None:
            grid = self._learning_part(ops.reshape(features, (-1, *self._cut_shape)))
            rows, columns = self.grid_shape
            features = ops.reshape(grid, (-1, rows * columns, self.channels))
        values = self.dropout_layer(features, training=training)  # (B, S, channels)
        values = values if self.units is None else self.projection(values)  # (B, S, D)
        regions = self.region_dropout_layer(ops.ones(ops.shape(values)[:2], values.dtype), training=training)  # (B, S)
        return {"values": values, "mask": regions > 0}

    def compute_output_shape(self, source_shape):
        batch = next(iter(source_shape.values()))[0]
        rows, columns = self.grid_shape
        return {
            "values": (batch, rows * columns, self.units or self.channels),
            "mask": (batch, rows * columns),
        }

    def extract(self, images):
        """The output of the frozen part of the backbone, `(batch, *feature_shape)`. Compute it once per image."""
        pixels = self.prepare_pixels(ops.cast(images, "float32"))
        if self.mirrored:
            both = self._frozen_part(ops.concatenate([pixels, ops.flip(pixels, axis=2)]))
            features, mirrored = ops.split(both, 2)
            features = (features + ops.flip(mirrored, axis=2)) / 2
        else:
            features = self._frozen_part(pixels)
        return ops.reshape(features, (-1, *self.feature_shape))

    def load_pretrained(self, path=None):
        """Load ImageNet weights into a backbone of `keras.applications`.

        Args:
            path: A weights file in the format of Keras, by default downloaded.
        """
        if self.backbone in EFFICIENTNET_LITE_NAMES:
            raise ValueError(f"Keras has no ImageNet weights of this backbone. Received: backbone={self.backbone!r}")
        make, _ = _application(self.backbone, self.image_size)
        self.network.set_weights(make(weights=path or "imagenet").get_weights())

    def _make_network(self):
        if self.backbone in EFFICIENTNET_LITE_NAMES:
            output = "head" if self.include_head else "blocks"
            return efficientnet_lite(self.backbone, output, self.image_size, self.dtype_policy), normalize_pixels
        if not self.include_head:
            raise ValueError(f"`include_head=False` is for EfficientNet-Lite. Received: backbone={self.backbone!r}")
        make, prepare_pixels = _application(self.backbone, self.image_size)
        policy = keras.config.dtype_policy()
        keras.config.set_dtype_policy(self.dtype_policy)  # keras.applications take no dtype
        try:
            network = make(weights=None)
        finally:
            keras.config.set_dtype_policy(policy)
        _name_by_place(network, self.backbone.lower())
        return network, prepare_pixels


def _application(name, image_size):
    """A function that makes a `keras.applications` model, given `weights`, and the one that preprocesses its pixels."""
    make = vars(keras.applications).get(name)
    if callable(make):
        network = partial(make, include_top=False, input_shape=(image_size, image_size, 3))
        if name.startswith("EfficientNetB"):  # what the network does itself if it is created with ImageNet weights
            return (
                network,
                lambda pixels: 255 * keras.applications.imagenet_utils.preprocess_input(pixels, mode="torch"),
            )
        return network, sys.modules[make.__module__].preprocess_input
    applications = [key for key, value in vars(keras.applications).items() if callable(value)]
    choices = [*EFFICIENTNET_LITE_NAMES, *sorted(applications)]
    raise ValueError(f"`backbone` must be one of {choices}. Received: backbone={name!r}")


def _name_by_place(network, name):
    """Names the network, and renumbers its layers that have default names from its first layer on.

    Saved weights are found by these names, and Keras numbers all layers of a process.
    """
    network.name = name
    unnamed = {}
    for layer in network.layers:
        kind, number = re.fullmatch(r"(.+?)(?:_(\d+))?", layer.name).groups()
        if kind.replace("_", "") == type(layer).__name__.lower():
            unnamed.setdefault(kind, []).append((int(number or 0), layer))
    for kind, numbered in unnamed.items():
        for place, (_, layer) in enumerate(sorted(numbered, key=lambda pair: pair[0])):
            layer.name = f"{kind}_{place}" if place else kind


def _freeze_below(network, name):
    """Make only the layers from `name` on trainable, except batch normalization; return the first of them."""
    starts = [i for i, layer in enumerate(network.layers) if f"{layer.name}_".startswith(f"{name}_")]
    if name is not None and not starts:
        choices = [layer.name for layer in network.layers if layer.weights]
        raise ValueError(f"`trainable_from` must name a layer or block of {choices}. Received: trainable_from={name!r}")
    first = starts[0] if starts else len(network.layers)
    for index, layer in enumerate(network.layers):
        layer.trainable = index >= first and not isinstance(layer, keras.layers.BatchNormalization)
    return network.layers[first] if starts else None


def _cut(network, first, name):
    """The network below the layer `first`, the rest of the network, and the shape between the two.

    Both are functions, not models, because the network itself owns the weights.
    """
    if first is None:
        return partial(network, training=False), None, network.output.shape[1:]
    try:
        below, rest = keras.Model(network.input, first.input), keras.Model(first.input, network.output)
    except ValueError:
        raise ValueError(f"`trainable_from` must name where the network can be cut. Received: {name!r}") from None
    return partial(below, training=False), partial(rest, training=False), first.input.shape[1:]
