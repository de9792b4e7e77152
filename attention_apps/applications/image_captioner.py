"""Show, Attend and Tell."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import PIL.Image
import tensorflow as tf

from attention_apps.applications.application import Application, share_of_unknown
from attention_apps.applications.caption import Caption
from attention_apps.applications.caption_examples import CaptionExamples
from attention_apps.applications.caption_graph import CaptionGraph
from attention_apps.decoding import DecodingOptions, DecodingResult
from attention_apps.metrics import MetricResult, bleu, cider
from attention_apps.models import Seq2Seq
from attention_apps.models.decoder_config import AttentionConfig, DecoderConfig, make_decoder
from attention_apps.models.image_encoder import ImageEncoder
from attention_apps.models.tokens import UNKNOWN
from attention_apps.preprocessing import captions
from attention_apps.preprocessing.image import read_image
from attention_apps.preprocessing.image_graph import resize_image
from attention_apps.preprocessing.vocabulary import Vocabulary
from attention_apps.training.config import TrainingConfig
from attention_apps.training.data_check import DataCheck
from attention_apps.training.datasets import Batches

_MAX_SHOWN_SIDE = 1024


@dataclass(frozen=True)
class ImageEncoderConfig:
    """The network that looks at the photo; see `ImageEncoder`."""

    backbone: str = "efficientnet_lite2"
    image_size: int = 256
    # How a photo becomes a square: all of it, squashed, or the middle of it.
    fit: Literal["squash", "crop"] = "squash"
    include_head: bool = True
    trainable_from: str | None = None
    units: int | None = None
    dropout: float = 0.0
    # The share of the regions that training hides from attention.
    region_dropout: float = 0.0
    # Each photo is looked at twice, the second time in a mirror; not where the backbone learns.
    mirrored: bool = False

    def __post_init__(self) -> None:
        if not 32 <= self.image_size <= 1024:
            raise ValueError(f"`image_size` must be between 32 and 1024. Received: image_size={self.image_size}")
        if self.units is not None and not 1 <= self.units <= 8192:
            raise ValueError(f"`units` must be between 1 and 8192. Received: units={self.units}")


def _decoder_of_the_paper():
    return DecoderConfig(
        embedding_dim=256,
        units=512,
        attention=AttentionConfig(kind="additive", units=256),
        context_gate="scalar",
        deep_output=True,
        tied_embeddings=True,
        dropout=0.5,
    )


@dataclass(frozen=True)
class CaptionerConfig:
    """All that makes up a captioner."""

    encoder: ImageEncoderConfig = field(default_factory=ImageEncoderConfig)
    decoder: DecoderConfig = field(default_factory=_decoder_of_the_paper)
    decoding: DecodingOptions = field(
        default_factory=lambda: DecodingOptions(
            length_penalty=0.7, length_penalty_kind="average", banned_tokens=(UNKNOWN,)
        )
    )
    training: TrainingConfig = field(default_factory=TrainingConfig)
    # Words seen less often than this in the training captions are unknown.
    min_count: int = 5
    # Captions of a photo that a step takes at most, and words of a caption.
    captions_per_image: int = 5
    max_words: int = 50
    # Cut and recoloured versions of each photo that training keeps in its cache, as what the frozen part of the
    # backbone makes of them. With none, and a backbone that learns, photos are augmented anew each time.
    augmented_views: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.augmented_views <= 100:
            raise ValueError(
                f"`augmented_views` must be between 0 and 100. Received: augmented_views={self.augmented_views}"
            )

    def fewest_weights(self, vocabulary_size: int) -> int:
        """How many weights the model has at least, known without making it."""
        return self.decoder.fewest_weights(vocabulary_size)


class ImageCaptioner(Application):
    """Writes a caption for a photo and shows where it looked for each word.

    Example:
        captioner = ImageCaptioner.from_preset("show_attend_tell_flickr8k")
        caption = captioner.caption("photo.jpg")
        caption.text, caption.attention.shape   # ("a dog runs ...", (words, rows, columns))

    Reference:
        Xu et al. 2015, "Show, Attend and Tell".
    """

    task = "image_captioning"
    config_class = CaptionerConfig
    columns = ("image", "caption")
    default_preset = "show_attend_tell_flickr8k"

    def caption(self, images: Any, options: DecodingOptions | None = None) -> Any:
        """Captions one image, or each of a list: paths, bytes, PIL images or arrays.

        A single image that cannot be read raises an error; in a list it gets a caption with its `error` and no text.

        Returns:
            A `Caption`, or a list of them in the order of the images.
        """
        if isinstance(images, list | tuple):
            return list(self.captions(images, options))
        (caption,) = self.captions([images], options)
        if caption.error is not None:
            raise ValueError(caption.error)
        return caption

    def captions(self, images: Iterable[Any], options: DecodingOptions | None = None) -> Iterable[Caption]:
        """As `caption`, one after the other: for more images than fit into memory."""
        return self._results(images, options)

    def _batch_results(self, batch, options):
        read = [self._try_to_read(image) for image in batch]
        squares = [square for square, _, error in read if error is None]
        written = iter(self._caption_squares(squares, options) if squares else ())
        return [
            Caption.failed(source, error) if error is not None else next(written).of(source, shown)
            for source, (_, shown, error) in zip(batch, read, strict=True)
        ]

    def _try_to_read(self, image):
        """The square that the model sees, the photo as it is shown, and what is wrong."""
        config = self.config.encoder
        try:
            pixels = read_image(image)
        except (ValueError, TypeError, OSError) as error:
            return None, None, str(error)
        square = resize_image(tf.constant(pixels), config.image_size, config.fit)
        return square, _shrink(pixels, config.fit), None

    def _caption_squares(self, squares, options):
        source = {"features": self._extract(tf.stack(squares))}
        result = self._search(source, options)
        weights = self._attention(source, result.token_ids[:, 0]).numpy()
        rows, columns = self.model.encoder.grid_shape
        token_ids = result.token_ids.numpy()
        for index, texts in enumerate(self._texts(result, source)):
            tokens = self.vocabulary.decode(token_ids[index, 0].tolist())
            attention = weights[index, : len(tokens)].reshape(-1, rows, columns)
            scores = result.scores[index].numpy().tolist()
            yield Caption(texts[0], scores[0], tokens, list(zip(texts, scores, strict=True)), attention)

    def _extract(self, squares):
        size = self.config.encoder.image_size
        return self._graph("extract", self.model.encoder.extract, [tf.TensorSpec((None, size, size, 3), tf.uint8)])(
            squares
        )

    # What `Application` asks for

    def _make_model(self) -> Seq2Seq:
        config = self.config.encoder
        encoder = ImageEncoder(
            config.backbone,
            config.image_size,
            include_head=config.include_head,
            trainable_from=config.trainable_from,
            units=config.units,
            dropout=config.dropout,
            region_dropout=config.region_dropout,
            mirrored=config.mirrored,
            name="encoder",
        )
        model = Seq2Seq(encoder, make_decoder(self.config.decoder, len(self.vocabulary)))
        model.build({"source": {"features": (None, *encoder.feature_shape)}, "tokens": (None, None)})
        return model

    def _learn_words(self, rows):
        fresh = self.model is None
        super()._learn_words(rows)
        if fresh:
            self.model.encoder.load_pretrained()

    def _path_columns(self):
        return ("image",)

    def _data_check(self):
        return DataCheck(
            "image",
            "caption",
            probe=lambda path: read_image(path) is None or None,
            tokenize=_words,
            vocabulary=self.vocabulary,
            max_target_length=self.config.max_words,
        )

    def _make_vocabulary(self, rows):
        return Vocabulary.build(_all_words(rows), min_count=self.config.min_count)

    def _new_words(self, rows):
        return Vocabulary.build(_all_words(rows), min_count=self.config.min_count).tokens[4:]

    def _unknown_rates(self, rows):
        return {"caption": share_of_unknown(_all_words(rows), self.vocabulary)}

    def _examples(self, rows, cache, quiet, training):
        return CaptionExamples(self, rows, cache, quiet, training)

    def _batches(self, examples, training_config, training):
        return Batches(
            examples,
            examples.signature,
            batch_size=training_config.batch_size,
            seed=training_config.seed,
            shuffle=training,
            augment=examples.augment if training else None,
        )

    def _reward_metric(self):
        return "cider"

    def _sampled_texts(self, token_ids, examples, rows):
        return _join([self.vocabulary.decode(ids) for ids in token_ids])

    def _search_signature(self, source):
        return [{name: tf.TensorSpec((None, *tensor.shape[1:]), tensor.dtype) for name, tensor in source.items()}]

    def _signatures(self, options):
        return CaptionGraph(self, options).signatures()

    def _texts(self, result: DecodingResult, source):
        ids = result.token_ids.numpy()
        words = [self.vocabulary.decode(row.tolist()) for row in ids.reshape(-1, ids.shape[-1])]
        texts = iter(_join(words))
        return [[next(texts) for _ in range(ids.shape[1])] for _ in range(ids.shape[0])]

    def _metrics(self, texts, references, sources) -> dict[str, MetricResult]:
        bleus = {f"bleu_{order}": bleu(texts, references, max_order=order) for order in (1, 4)}
        return {"cider": cider(texts, references), **bleus}


def _shrink(pixels, fit):
    """A photo small enough to be kept with its caption, without what `fit` cuts off."""
    if fit == "crop":
        side = min(pixels.shape[:2])
        top, left = ((length - side) // 2 for length in pixels.shape[:2])
        pixels = pixels[top : top + side, left : left + side]
    image = PIL.Image.fromarray(pixels)
    # From twice the size on, and not from four times, blocks become their means first: that takes a third of the time.
    image.thumbnail((_MAX_SHOWN_SIDE, _MAX_SHOWN_SIDE), reducing_gap=1.0)
    return np.asarray(image)


@tf.function(input_signature=[tf.TensorSpec((1,), tf.string)])
def _tokenize_one(text):
    return captions.tokenize(text).values


def _words(text):
    return [word.decode() for word in _tokenize_one(tf.constant([text])).numpy()]


def _all_words(rows):
    tokens = captions.tokenize([row["caption"] for row in rows]).to_list()
    return [[word.decode() for word in words] for words in tokens]


def _join(words):
    return (
        [text.decode() for text in captions.detokenize(tf.ragged.constant(words, dtype=tf.string)).numpy()]
        if words
        else []
    )
