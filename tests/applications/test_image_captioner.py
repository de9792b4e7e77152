"""The captioner with an untrained model: what it takes, what it gives back, how it is kept."""

import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from attention_apps.applications.image_captioner import CaptionerConfig, ImageCaptioner, ImageEncoderConfig
from attention_apps.decoding import DecodingOptions
from attention_apps.models.decoder_config import AttentionConfig, DecoderConfig
from attention_apps.preprocessing.vocabulary import Vocabulary

WORDS = ["a", "dog", "cat", "runs", "on", "grass"]
PHOTO = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)


def make_config(**decoder):
    return CaptionerConfig(
        encoder=ImageEncoderConfig("efficientnet_lite0", image_size=64, units=10),
        decoder=DecoderConfig(embedding_dim=8, units=12, **decoder),
        decoding=DecodingOptions(beam_size=3, num_best=2, max_length=5),
    )


@pytest.fixture(scope="module")
def captioner():
    config = make_config(attention=AttentionConfig(units=6), context_gate="scalar", deep_output=True)
    return ImageCaptioner(config, Vocabulary(WORDS))


def as_bytes(image_format):
    buffer = io.BytesIO()
    Image.fromarray(PHOTO).save(buffer, image_format)
    return buffer.getvalue()


def test_a_caption_has_text_score_tokens_alternatives_and_attention(captioner):
    caption = captioner.caption(PHOTO)
    assert caption.text.split() == caption.tokens
    assert set(caption.tokens) <= {*WORDS, "<unk>"}
    assert caption.attention.shape == (len(caption.tokens), 2, 2)
    np.testing.assert_allclose(caption.attention.sum((1, 2)), 1, atol=1e-5)
    assert caption.alternatives[0][0] == caption.text
    assert len(caption.alternatives) == 2
    assert caption.score == caption.alternatives[0][1] >= caption.alternatives[1][1]


def test_paths_bytes_pil_images_and_arrays_are_the_same_photo(captioner, tmp_path):
    (tmp_path / "photo.png").write_bytes(as_bytes("PNG"))
    sources = [str(tmp_path / "photo.png"), tmp_path / "photo.png", as_bytes("PNG"), Image.fromarray(PHOTO), PHOTO]
    captions = captioner.caption(sources)
    assert {caption.text for caption in captions} == {captioner.caption(PHOTO).text}
    assert captions[0].source == sources[0]


def test_a_broken_photo_in_a_list_gets_its_error_and_the_others_their_captions(captioner, tmp_path):
    (tmp_path / "text.jpg").write_text("not a photo")
    captions = captioner.caption([PHOTO, str(tmp_path / "text.jpg"), str(tmp_path / "missing.jpg"), PHOTO])
    assert [caption.error is None for caption in captions] == [True, False, False, True]
    assert "text.jpg" in captions[1].error
    assert "missing.jpg" in captions[2].error
    assert captions[1].text == ""
    assert captions[0].text == captions[3].text


def test_a_single_broken_photo_raises(captioner):
    with pytest.raises(ValueError, match="https"):
        captioner.caption("https://example.com/photo.jpg")


def test_more_photos_than_a_batch_come_back_in_order(captioner):
    photos = [np.full((20, 20, 3), shade, np.uint8) for shade in range(0, 250, 7)]
    together = [caption.text for caption in captioner.captions(iter(photos))]
    assert together == [captioner.caption(photo).text for photo in photos]


def test_options_of_a_call_win_over_those_of_the_configuration(captioner):
    caption = captioner.caption(PHOTO, DecodingOptions(beam_size=1, max_length=2))
    assert len(caption.alternatives) == 1
    assert len(caption.tokens) <= 2


@pytest.mark.parametrize("half_precision", [False, True])
def test_what_is_saved_is_loaded(captioner, tmp_path, half_precision):
    captioner.save(tmp_path / "mine", half_precision=half_precision)
    again = ImageCaptioner.load(tmp_path / "mine")
    assert again.config == captioner.config
    assert again.vocabulary == captioner.vocabulary
    tolerance = 1e-2 if half_precision else 1e-6
    for ours, theirs in zip(captioner.model.weights, again.model.weights, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)
    if not half_precision:
        assert again.caption(PHOTO).text == captioner.caption(PHOTO).text


def test_another_task_is_refused(captioner, tmp_path, monkeypatch):
    monkeypatch.setattr(ImageCaptioner, "task", "something_else")
    captioner.save(tmp_path / "mine")
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"`task` must be 'image_captioning'. Received: task='something_else'"):
        ImageCaptioner.load(tmp_path / "mine")


def test_weights_of_another_model_are_refused(captioner, tmp_path):
    wide = replace(captioner.config, decoder=replace(captioner.config.decoder, units=13))
    captioner.config, kept = wide, captioner.config
    try:
        captioner.save(tmp_path / "mine")
    finally:
        captioner.config = kept
    with pytest.raises(ValueError, match="must be of shape"):
        ImageCaptioner.load(tmp_path / "mine")


def test_a_captioner_without_a_model_says_how_to_get_one():
    with pytest.raises(ValueError, match="This ImageCaptioner has no model yet"):
        ImageCaptioner().caption(PHOTO)


@pytest.mark.parametrize(
    "decoder",
    [
        {"attention": AttentionConfig(units=6, hard=True)},
        {"attention": AttentionConfig(kind="luong")},
        {"attention": AttentionConfig(kind="multi_head", units=8, num_heads=2)},
        {"attention": AttentionConfig(kind="coverage", units=6)},
        {"kind": "transformer", "num_heads": 2, "hidden_dim": 9, "num_layers": 1},
    ],
    ids=lambda decoder: decoder.get("kind") or decoder["attention"].kind,
)
def test_another_attention_or_decoder_goes_in_by_one_line(decoder):
    caption = ImageCaptioner(make_config(**decoder), Vocabulary(WORDS)).caption(PHOTO)
    assert caption.attention.shape == (len(caption.tokens), 2, 2)
