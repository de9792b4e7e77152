"""Photos and their captions, as a captioner's training takes them."""

import zlib

import numpy as np
import tensorflow as tf

from attention_apps.models.tokens import END, START
from attention_apps.preprocessing import captions
from attention_apps.preprocessing.image import read_image
from attention_apps.preprocessing.image_augmentation import augment_image, may_flip
from attention_apps.preprocessing.image_graph import resize_image
from attention_apps.training.feature_cache import FeatureCache
from attention_apps.training.manifest import group_rows

# The second of the views of a photo that are kept.
_MIRRORED = 1


class CaptionExamples:
    """One example for each photo: its features or pixels, and all its captions.

    What the frozen part of the backbone makes of each photo and of its mirror image is computed once and kept in a
    cache, and for training of `augmented_views` of it, too. Without them, when the top of the backbone learns, the
    photos themselves are read, and augmented anew each time.

    Args:
        captioner: the `ImageCaptioner`, for its backbone, vocabulary and configuration.
        rows: rows of a manifest, with `image` and `caption`.
        cache: folder of the features.
        training: whether photos may be mirrored and augmented.
    """

    def __init__(self, captioner, rows, cache, quiet, training):
        self.encoder, self.vocabulary = captioner.model.encoder, captioner.vocabulary
        self._extract = captioner._extract
        self.config = captioner.config
        self.training = training
        groups = group_rows(rows, "image")
        self.paths = list(groups)
        self._captions = [[row["caption"] for row in group] for group in groups.values()]
        self._tokens = [self._encode(texts) for texts in self._captions]
        self._flips = {
            path: training and may_flip(texts) for path, texts in zip(self.paths, self._captions, strict=True)
        }
        self.features = None
        if self.config.encoder.trainable_from is None or self.config.augmented_views:
            self.features = FeatureCache(cache, self._cache_key())
            self.features.fill(self.paths, self._compute_features, quiet=quiet)

    @property
    def signature(self):
        """What `Batches` needs to know of an example."""
        tokens = tf.TensorSpec((self.config.captions_per_image, None), tf.int32)
        if self.features is None:
            size = self.config.encoder.image_size
            return {"source": {"image": tf.TensorSpec((size, size, 3), tf.uint8)}, "tokens": tokens}
        features = tf.TensorSpec(self.encoder.feature_shape, tf.float16)
        return {"source": {"features": features}, "tokens": tokens}

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        if self.features is None:
            size, fit = self.config.encoder.image_size, self.config.encoder.fit
            image = resize_image(tf.constant(read_image(self.paths[index])), size, fit).numpy()
            source = {"image": image}
        else:
            source = {"features": self.features[self.paths[index]][0]}
        return {"source": source, "tokens": self._tokens[index][: self.config.captions_per_image], "index": index}

    def augment(self, example, random, epoch):
        """The photo as training sees it this time, with some of its captions where it has too many."""
        path, tokens = self.paths[example["index"]], self._tokens[example["index"]]
        if len(tokens) > self.config.captions_per_image:
            chosen = random.permutation(len(tokens))[: self.config.captions_per_image]
            tokens = tokens[np.sort(chosen)]
        if self.features is None:
            seed = random.integers(0, 2**31, 2)
            size = self.config.encoder.image_size
            pixels = augment_image(tf.constant(read_image(path)), seed, size, self._flips[path])
            return {"source": {"image": pixels.numpy()}, "tokens": tokens}
        views = self.features[path]
        view = random.integers(len(views))
        if view == _MIRRORED and not self.encoder.mirrored and not self._flips[path]:
            view = 0
        return {"source": {"features": views[view]}, "tokens": tokens}

    def references(self, index):
        """The captions that people wrote."""
        return self._captions[index]

    def name(self, index):
        return self.paths[index]

    def _encode(self, texts):
        """Token ids `(captions, time)`, as many rows as a step takes: those that are missing are padding."""
        ids = [
            [START, *self.vocabulary.encode(word.decode() for word in words), END]
            for words in captions.tokenize(texts).to_list()
        ]
        tokens = np.zeros((max(len(ids), self.config.captions_per_image), max(map(len, ids))), np.int32)
        for row, line in enumerate(ids):
            tokens[row, : len(line)] = line
        return tokens

    def _compute_features(self, paths):
        """`(2 + views, positions, channels)` for each photo: as it is, mirrored, and augmented.

        Where the features themselves are those of the photo and its mirror image, there is no second one to keep.
        """
        squares = [square for path in paths for square in self._squares(path)]
        features = self._extract(tf.stack(squares)).numpy().astype(np.float16)
        return np.split(features, len(paths))

    def _squares(self, path):
        size, fit = self.config.encoder.image_size, self.config.encoder.fit
        photo = tf.constant(read_image(path))
        square = resize_image(photo, size, fit)
        yield from (square,) if self.encoder.mirrored else (square, tf.reverse(square, [1]))
        for view in range(self._num_views):
            yield augment_image(photo, (zlib.crc32(path.encode()), view), size, self._flips[path])

    @property
    def _num_views(self):
        return self.config.augmented_views if self.training else 0

    def _cache_key(self):
        config, fixed = self.config.encoder, self.encoder.network.non_trainable_weights
        total = sum(float(np.abs(weight.numpy()).astype(np.float64).sum()) for weight in fixed)
        key = {
            "backbone": config.backbone,
            "weights": round(total, 2),
            "image_size": config.image_size,
            "fit": config.fit,
            "include_head": config.include_head,
            "mirrored": config.mirrored,
            "trainable_from": config.trainable_from,
            "augmented_views": self._num_views,
        }
        if self._num_views:  # which are mirrored or not, as the captions allow
            key["never_mirrored"] = sorted(path for path, flips in self._flips.items() if not flips)
        return key
