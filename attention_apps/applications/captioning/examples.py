"""Photos and their captions as training examples."""

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from attention_apps.applications.captioning.caption import (
    Box,
    Caption,
    boxes_of_words,
    count_pointing,
    pointing_game,
    read_boxes,
    regions_of_boxes,
)
from attention_apps.applications.captioning.codec import CaptionCodec
from attention_apps.applications.captioning.config import CaptionerConfig
from attention_apps.applications.parts import Evaluation, Examples, Reader, Reading, Source
from attention_apps.constants import END, START
from attention_apps.data import Batches, DataCheck, FeatureCache, Row, group_rows
from attention_apps.metrics import MetricResult, bleu, cider
from attention_apps.models import Seq2Seq
from attention_apps.preprocessing.image import read_image
from attention_apps.preprocessing.image_graph import augment_image, may_flip, resize_image
from attention_apps.preprocessing.text import split_captions
from attention_apps.training.config import TrainingConfig

# The second of the cached views of a photo.
_MIRRORED = 1


class CaptionExamples(Examples):
    """One example for each photo: its features or pixels, and all its captions.

    The features that the frozen part of the backbone computes for each photo, its mirror image and, in training, its
    `augmented_views` are cached. Without these views and with a trainable backbone, the photos themselves are read and
    augmented anew each time.

    Args:
        rows: rows of a manifest, with `image` and `caption`.
    """

    columns = ("image", "caption")
    path_columns = ("image",)
    reward_metric = "cider"
    source_signature: Mapping[str, tf.TensorSpec]

    def __init__(self, rows: Sequence[Row], config: CaptionerConfig):
        super().__init__(rows, config)
        groups = group_rows(rows, "image")
        self.paths = list(groups)
        self.references = [[row["caption"] for row in group] for group in groups.values()]
        is_whole = config.encoder.fit == "squash"  # in a cropped photo, boxes lie elsewhere
        self._boxes = [read_boxes(is_whole and group[0].values.get("boxes")) for group in groups.values()]
        self.words, self.min_count = self.target_tokens(None), config.min_count
        words: dict[str, list[Sequence[str]]] = {path: [] for path in groups}
        for row, tokens in zip(rows, self.words, strict=True):
            words[row["image"]].append(tokens)
        self._words = list(words.values())

    # What is particular about the data

    @staticmethod
    def data_check(config: CaptionerConfig, codec: CaptionCodec | None) -> DataCheck:
        return DataCheck(
            "image",
            "caption",
            probe=_probe,
            probe_name="read_image",
            tokenize=lambda text: [word.decode() for word in _split(tf.constant([text])).numpy()],
            vocabulary=None if codec is None else codec.vocabulary,
            max_target_length=config.max_words,
        )

    @staticmethod
    def metrics(texts: list[str], references: list[list[str]], sources: list[str]) -> dict[str, MetricResult]:
        bleus = {f"bleu_{order}": bleu(texts, references, max_order=order) for order in (1, 4)}
        return {"cider": cider(texts, references), **bleus}

    def measure(self, results: Iterable[Caption]) -> Evaluation:
        """Evaluate the captions, with the pointing game for photos that have boxes."""
        counts: list[np.ndarray] = []

        def count(captions: Iterable[Caption]) -> Iterator[Caption]:
            for caption, boxes in zip(captions, self._boxes, strict=True):
                counts.append(count_pointing(caption, boxes))
                yield caption

        evaluation = super().measure(count(results))
        return replace(evaluation, metrics=evaluation.metrics | pointing_game(counts))

    # Examples

    def bind(self, codec: CaptionCodec, model: Seq2Seq, cache: Path, training: bool, quiet: bool) -> None:
        self.codec, self.encoder = codec, model.encoder
        self._tokens = []
        for group in self._words:  # at least as many rows as a step uses
            ids = [[START, *codec.vocabulary.encode(words), END] for words in group]
            tokens = np.zeros((max(len(ids), self.config.captions_per_image), max(map(len, ids))), np.int32)
            for row, line in enumerate(ids):
                tokens[row, : len(line)] = line
            self._tokens.append(tokens)
        self._flips = {path: training and may_flip(texts) for path, texts in zip(self.paths, self.references)}
        self._num_views = self.config.augmented_views if training else 0
        size = self.config.encoder.image_size
        spec = tf.TensorSpec((None, size, size, 3), tf.uint8)
        self.source_signature, self.features = {"image": spec}, None
        if self.config.encoder.trainable_from is None or self.config.augmented_views:
            self.source_signature = {"features": tf.TensorSpec((None, *self.encoder.feature_shape), tf.float16)}
            self.features = FeatureCache(cache, self._cache_key())
            extract = tf.function(self.encoder.extract, [spec], autograph=False).get_concrete_function()
            # With constants, TensorFlow fuses convolutions and batch normalization: 1.8 times as fast.
            self._extract = convert_variables_to_constants_v2(extract)
            self.features.fill(self.paths, self._compute_features, quiet=quiet)

    def batches(self, training_config: TrainingConfig) -> Batches:
        tokens = tf.TensorSpec((self.config.captions_per_image, None), tf.int32)
        source = {name: tf.TensorSpec(spec.shape[1:], spec.dtype) for name, spec in self.source_signature.items()}
        signature: dict[str, Any] = {"source": source, "tokens": tokens}
        if self.config.box_weight:
            side, _ = self.encoder.grid_shape
            signature["regions"] = tf.TensorSpec((self.config.captions_per_image, None, side * side), tf.bool)
        return Batches(
            self,
            signature,
            batch_size=training_config.batch_size,
            seed=training_config.seed,
            augment=self.augment,
        )

    def reading(self, index: int, reader: Reader, options: Any) -> Reading:
        path = self.paths[index]
        return Reading([Source(self._source(path))], path)

    def _source(self, path: str) -> dict[str, np.ndarray]:
        """Return the photo, or its cached features."""
        if self.features is not None:
            return {"features": self.features[path][0]}
        config = self.config.encoder
        return {"image": resize_image(tf.constant(read_image(path)), config.image_size, config.fit).numpy()}

    def __getitem__(self, index: int) -> dict[str, Any]:
        tokens = self._tokens[index][: self.config.captions_per_image]
        return {"source": self._source(self.paths[index]), "tokens": tokens, "index": index}

    def augment(self, example: Mapping[str, Any], random: np.random.Generator, epoch: int) -> dict[str, Any]:
        """Return an example with an augmented photo, and a random choice of its captions if it has too many."""
        index = example["index"]
        tokens = self._tokens[index]
        chosen = np.sort(random.permutation(len(tokens))[: self.config.captions_per_image])
        source, boxes = self._augmented_source(index, random)
        augmented = {"source": source, "tokens": tokens[chosen]}
        return augmented | {"regions": self._regions(index, chosen, boxes)} if self.config.box_weight else augmented

    def _augmented_source(self, index: int, random: np.random.Generator) -> tuple[dict[str, np.ndarray], list[Box]]:
        """Return the photo or one of its cached views, and its boxes if they are known in that view."""
        path, boxes = self.paths[index], self._boxes[index]
        if self.features is None:
            seed = random.integers(0, 2**31, 2)
            size = self.config.encoder.image_size
            pixels = augment_image(tf.constant(read_image(path)), seed, size, self._flips[path])
            return {"image": pixels.numpy()}, []
        views = self.features[path]
        if boxes and self.config.box_weight:
            views = views[: _MIRRORED + 1]  # boxes are known in these views only
        view = random.integers(len(views))
        if view != _MIRRORED or self.encoder.mirrored:
            return {"features": views[view]}, boxes if view == 0 else []
        if not self._flips[path]:
            return {"features": views[0]}, boxes
        return {"features": views[view]}, [replace(box, left=1 - box.right, right=1 - box.left) for box in boxes]

    def _regions(self, index: int, chosen: np.ndarray, boxes: list[Box]) -> np.ndarray:
        """Return the regions of the object that each token of the captions names, `(captions, time, regions)`."""
        side, _ = self.encoder.grid_shape
        regions = np.zeros((len(chosen), self._tokens[index].shape[1], side * side), bool)
        captions = self._words[index] if boxes else []
        for place, row in enumerate(chosen[chosen < len(captions)]):
            for position, named in enumerate(boxes_of_words(captions[row], boxes), 1):  # after the start token
                regions[place, position] = regions_of_boxes(named, side)
        return regions

    def _compute_features(self, paths: Sequence[str]) -> list[np.ndarray]:
        """`(2 + views, positions, channels)` for each photo: as it is, mirrored, and augmented.

        Augmented views are not mirrored, so that they do not depend on the captions. Features that are the mean over
        the photo and its mirror image need no mirrored view.
        """
        size, fit = self.config.encoder.image_size, self.config.encoder.fit
        squares = []
        for path in paths:
            photo = tf.constant(read_image(path))
            square = resize_image(photo, size, fit)
            squares += [square] if self.encoder.mirrored else [square, tf.reverse(square, [1])]
            for view in range(self._num_views):
                squares.append(augment_image(photo, (zlib.crc32(path.encode()), view), size, may_flip=False))
        (features,) = self._extract(tf.stack(squares))
        features = features.numpy().astype(np.float16)
        return np.split(features, len(paths))

    def _cache_key(self):
        config, fixed = self.config.encoder, self.encoder.network.non_trainable_weights
        total = sum(float(np.abs(weight.numpy()).astype(np.float64).sum()) for weight in fixed)
        return {
            "backbone": config.backbone,
            "weights": round(total, 2),
            "image_size": config.image_size,
            "fit": config.fit,
            "include_head": config.include_head,
            "mirrored": config.mirrored,
            "trainable_from": config.trainable_from,
            "augmented_views": self._num_views,
        }


def _probe(path: str) -> None:
    """Raise an error where a photo cannot be read."""
    read_image(path)


_split = tf.function(lambda text: split_captions(text).values, [tf.TensorSpec((1,), tf.string)], autograph=False)
