"""Photos and their captions, as a captioner's training takes them."""

import numpy as np
import tensorflow as tf

from attention_apps.models.tokens import END, START
from attention_apps.preprocessing import captions
from attention_apps.preprocessing.image import read_image
from attention_apps.preprocessing.image_augmentation import augment_image, may_flip
from attention_apps.preprocessing.image_graph import resize_image
from attention_apps.training.feature_cache import FeatureCache
from attention_apps.training.manifest import group_rows


class CaptionExamples:
    """One example for each photo: its features or pixels, and all its captions.

    While the backbone is frozen, its features of each photo and of its mirror image are computed once and kept in a
    cache. When the top of the backbone learns, the photos themselves are read, and augmented in training.

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
        self._flips = [training and may_flip(texts) for texts in self._captions]
        self.features = None
        if self.config.encoder.trainable_from is None:
            self.features = FeatureCache(cache, self._cache_key())
            self.features.fill(self.paths, self._compute_features, quiet=quiet)

    @property
    def signature(self):
        """What `Batches` needs to know of an example."""
        tokens = tf.TensorSpec((self.config.captions_per_image, None), tf.int32)
        if self.features is None:
            size = self.config.encoder.image_size
            return {"source": {"image": tf.TensorSpec((size, size, 3), tf.uint8)}, "tokens": tokens}
        rows, columns = self.encoder.grid_shape
        shape = (rows * columns, self.encoder.channels)
        return {"source": {"features": tf.TensorSpec(shape, tf.float16)}, "tokens": tokens}

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
        index = example["index"]
        tokens = self._tokens[index]
        if len(tokens) > self.config.captions_per_image:
            chosen = random.permutation(len(tokens))[: self.config.captions_per_image]
            tokens = tokens[np.sort(chosen)]
        if self.features is None:
            seed = random.integers(0, 2**31, 2)
            size = self.config.encoder.image_size
            pixels = augment_image(tf.constant(read_image(self.paths[index])), seed, size, self._flips[index])
            return {"source": {"image": pixels.numpy()}, "tokens": tokens}
        mirrored = int(self._flips[index] and random.random() < 0.5)
        features = self.features[self.paths[index]][mirrored]
        return {"source": {"features": features}, "tokens": tokens}

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
        """`(2, regions, channels)` for each photo: as it is, and mirrored."""
        size, fit = self.config.encoder.image_size, self.config.encoder.fit
        squares = tf.stack([resize_image(tf.constant(read_image(path)), size, fit) for path in paths])
        both = self._extract(tf.concat([squares, tf.reverse(squares, [2])], axis=0)).numpy().astype(np.float16)
        return [np.stack(pair) for pair in zip(both[: len(paths)], both[len(paths) :], strict=True)]

    def _cache_key(self):
        config = self.config.encoder
        total = sum(float(np.abs(weight.numpy()).astype(np.float64).sum()) for weight in self.encoder.network.weights)
        return {
            "backbone": config.backbone,
            "weights": round(total, 2),
            "image_size": config.image_size,
            "fit": config.fit,
            "include_head": config.include_head,
        }
