"""Show, Attend and Tell."""

from collections.abc import Sequence
from os import PathLike
from typing import Any, overload

import numpy as np
import PIL.Image

from attention_apps.applications.application import Application
from attention_apps.applications.captioning.caption import Caption
from attention_apps.applications.captioning.codec import CaptionCodec
from attention_apps.applications.captioning.config import CaptionerConfig
from attention_apps.applications.captioning.examples import CaptionExamples
from attention_apps.applications.captioning.reader import ImageReader
from attention_apps.applications.parts import Parts
from attention_apps.applications.preset import find_preset, read_preset
from attention_apps.models import ImageEncoder, Seq2Seq
from attention_apps.models.decoder_config import make_decoder
from attention_apps.preprocessing.vocabulary import Vocabulary
from attention_apps.training.fine_tuning import named_weights
from attention_apps.training.losses import PointingLoss

Image = str | PathLike | bytes | PIL.Image.Image | np.ndarray


def make_model(config: CaptionerConfig, vocabulary: Vocabulary) -> Seq2Seq:
    """Build the encoder and the decoder of a captioner."""
    encoder = ImageEncoder(
        config.encoder.backbone,
        config.encoder.image_size,
        include_head=config.encoder.include_head,
        trainable_from=config.encoder.trainable_from,
        units=config.encoder.units,
        dropout=config.encoder.dropout,
        region_dropout=config.encoder.region_dropout,
        mirrored=config.encoder.mirrored,
        name="encoder",
    )
    model = Seq2Seq(encoder, make_decoder(config.decoder, len(vocabulary)))
    model.build({"source": {"features": (None, *encoder.feature_shape)}, "tokens": (None, None)})
    return model


def load_backbone(model: Seq2Seq) -> None:
    """Start with the backbone of the default preset, or with the ImageNet weights of `keras.applications`."""
    preset = read_preset(find_preset(ImageCaptioner.default_preset))
    if model.encoder.backbone != preset.config["encoder"]["backbone"]:
        model.encoder.load_pretrained()
        return
    for path, weight in named_weights(model).items():
        if path.startswith(f"encoder/{model.encoder.backbone}/"):
            weight.assign(preset.weights[path].astype("float32"))


class ImageCaptioner(Application[CaptionerConfig]):
    """Writes a caption for a photo and shows where it looked for each word.

    Example:
        captioner = ImageCaptioner.from_preset()
        caption = captioner.caption("photo.jpg")
        caption.text, caption.attention.shape   # ("a dog runs ...", (words, rows, columns))

    Reference:
        Xu et al. 2015, "Show, Attend and Tell".
    """

    task = "image_captioning"
    config_class = CaptionerConfig
    default_preset = "show_attend_tell_coco"
    parts = Parts(
        reader=ImageReader,
        codec=CaptionCodec,
        model=make_model,
        examples=CaptionExamples,
        load_pretrained=load_backbone,
        extra_loss=lambda config: PointingLoss(config.box_weight) if config.box_weight else None,
    )

    @overload
    def caption(self, images: Image, **options: Any) -> Caption: ...

    @overload
    def caption(self, images: Sequence[Image], **options: Any) -> list[Caption]: ...

    def caption(self, images: Image | Sequence[Image], **options: Any) -> Caption | list[Caption]:
        """Caption one image or a list of images: paths, bytes, PIL images or arrays.

        A single image that cannot be read raises an error. In a list, its caption has an `error` and no text.

        Args:
            options: options of the search, such as `beam_size=3, num_best=5`.
        """
        return self.answer(images, options)
