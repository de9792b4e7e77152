"""The captioner with an untrained model: what it takes, what it gives back, how it is kept."""

import csv
import os
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from attention_apps.applications.image_captioner import CaptionerConfig, ImageCaptioner, _shrink
from attention_apps.decoding import DecodingOptions
from attention_apps.models.decoder_config import AttentionConfig
from attention_apps.preprocessing.vocabulary import Vocabulary
from attention_apps.training.config import read_config, to_dict
from tests.applications.captioners import (
    PHOTO,
    WORDS,
    as_bytes,
    bad_photos,
    make_captioner,
    make_config,
    odd_photos,
)


@pytest.fixture(scope="module")
def captioner():
    return make_captioner()


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


@pytest.mark.parametrize("backbone", ["EfficientNetB0", "MobileNet"])
def test_a_captioner_with_a_backbone_of_keras_is_loaded_and_may_change_its_image_size(backbone, tmp_path):
    config = make_config(attention=AttentionConfig(units=6))
    config = replace(config, encoder=replace(config.encoder, backbone=backbone))
    captioner = ImageCaptioner(config, Vocabulary(WORDS))
    captioner.save(tmp_path / "mine")
    loaded = ImageCaptioner.load(tmp_path / "mine")
    larger = captioner.with_config(replace(config, encoder=replace(config.encoder, image_size=96)))
    assert larger.caption(PHOTO).attention.shape[1:] == (3, 3)
    for other in (loaded, larger):
        for ours, theirs in zip(captioner.model.weights, other.model.weights, strict=True):
            np.testing.assert_array_equal(ours, theirs)


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
    "line",
    [
        "decoder.attention.hard=true",
        "decoder.attention.kind=luong",
        "decoder.attention.kind=multi_head",
        "decoder.attention.kind=coverage",
        "decoder.kind=transformer",
    ],
)
def test_another_attention_or_decoder_goes_in_by_one_line_and_learns(line, tmp_path):
    config = to_dict(make_config(attention=AttentionConfig(units=6), hidden_dim=9))
    config = read_config(CaptionerConfig, config, [line, "training.max_steps=1"])
    captioner = ImageCaptioner(config, Vocabulary(WORDS))
    before = captioner.model.decoder.get_weights()
    captioner.fit(write_manifest(tmp_path, [("photo.png", "a dog runs")]), quiet=True)
    assert any((old != new).any() for old, new in zip(before, captioner.model.decoder.get_weights(), strict=True))
    caption = captioner.caption(PHOTO)
    assert caption.attention.shape == (len(caption.tokens), 2, 2)


def test_a_transformer_with_hard_attention_is_refused():
    lines = ["decoder.kind=transformer", "decoder.attention.hard=true"]
    with pytest.raises(ValueError, match=r"`attention.hard` must be false for a Transformer.*attention.hard=True"):
        read_config(CaptionerConfig, {}, lines)


@pytest.mark.parametrize("name", bad_photos())
def test_what_is_no_photo_is_named_with_the_reason(captioner, tmp_path, name):
    contents, message = bad_photos()[name]
    (tmp_path / name).write_bytes(contents)
    with pytest.raises(ValueError, match=rf"{name} .*{message}|{name} {message}"):
        captioner.caption(tmp_path / name)
    bad, good = captioner.caption([tmp_path / name, PHOTO])
    assert message in bad.error
    assert good.error is None


@pytest.mark.parametrize("name", odd_photos())
def test_one_pixel_and_an_animation_are_photos(captioner, tmp_path, name):
    (tmp_path / name).write_bytes(odd_photos()[name])
    caption = captioner.caption(tmp_path / name)
    assert caption.tokens
    caption.plot(tmp_path / "where.png")


def test_an_animation_has_the_caption_of_its_first_frame(captioner):
    still = as_bytes("GIF")
    assert captioner.caption(odd_photos()["animated.gif"]).text == captioner.caption(still).text


def test_a_large_photo_is_kept_small_with_its_caption(captioner):
    caption = captioner.caption(np.zeros((3000, 1500, 3), np.uint8))
    assert caption.pixels.shape == (1024, 512, 3)


def test_a_large_photo_is_shrunk_in_blocks_first_and_looks_the_same(monkeypatch):
    random, factors, reduce = np.random.default_rng(0), [], Image.Image.reduce
    photo = Image.fromarray(random.integers(0, 256, (60, 80, 3), np.uint8)).resize((4000, 3000))
    expected = photo.resize((1024, 768), Image.Resampling.BICUBIC)
    monkeypatch.setattr(
        Image.Image, "reduce", lambda image, factor, box=None: factors.append(factor) or reduce(image, factor, box)
    )
    shrunk = _shrink(np.asarray(photo), "squash")
    assert factors == [(3, 3)]
    assert shrunk.shape == (768, 1024, 3)
    assert np.abs(shrunk - np.asarray(expected, int)).max() <= 3


def test_of_a_photo_that_is_cropped_the_part_that_was_seen_is_shown():
    cropping = ImageCaptioner(make_config(encoder={"fit": "crop"}), Vocabulary(WORDS))
    np.testing.assert_array_equal(cropping.caption(PHOTO).pixels, PHOTO[:, 10:50])
    np.testing.assert_array_equal(cropping.caption(PHOTO[:, :29]).pixels, PHOTO[5:34, :29])


def write_manifest(folder, rows, header=("image", "caption")):
    (folder / "photo.png").write_bytes(as_bytes("PNG"))
    with (folder / "photos.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return folder / "photos.csv"


def test_a_manifest_without_a_column_is_named_with_those_it_has(captioner, tmp_path):
    path = write_manifest(tmp_path, [("photo.png", "a dog")], header=("image", "title"))
    with pytest.raises(ValueError, match=r"photos\.csv has no column `caption`\. Columns found: image, title"):
        captioner.fit(path, quiet=True)


def test_fine_tuning_says_how_many_words_are_new(captioner, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("attention_apps.applications.application.train", lambda *arguments, **options: [])
    captioner = captioner.with_config(replace(captioner.config, min_count=2))
    path = write_manifest(tmp_path, [("photo.png", "a tall lynx"), ("photo.png", "one lynx , tall , alone")])
    captioner.fit(path)
    assert "New tokens in the vocabulary: 2\n" in capsys.readouterr().err
    assert captioner.vocabulary.tokens[-2:] == ("lynx", "tall")
    captioner.fit(path, quiet=True)
    assert "New tokens" not in capsys.readouterr().err


def test_an_empty_and_an_endless_caption_are_named_with_their_lines(captioner, tmp_path):
    rows = [("photo.png", "a dog"), ("photo.png", ""), ("photo.png", "dog " * 500)]
    report = captioner.check_data(write_manifest(tmp_path, rows), quiet=True)
    assert report.used == {"training": 1}
    problems = report.first_problems()
    assert "photos.csv, line 3" in problems
    assert "`caption` is empty" in problems
    assert "photos.csv, line 4" in problems
    assert "`caption` has 500 tokens, more than 50" in problems


@pytest.mark.parametrize("metric", [None, "bleu_4"])
def test_captions_are_rewarded_for_being_like_those_that_people_wrote(captioner, tmp_path, metric):
    critical = replace(captioner.config.training.self_critical, epochs=1, metric=metric)
    training = replace(captioner.config.training, self_critical=critical)
    other = captioner.with_config(replace(captioner.config, training=training))
    words = captioner.vocabulary.tokens[4:9]
    (tmp_path / "two.png").write_bytes(as_bytes("PNG", PHOTO[:, ::-1]))
    path = write_manifest(tmp_path, [("photo.png", " ".join(words)), ("two.png", words[0])])
    examples = other._examples(list(other.manifest(path).rows()), tmp_path / "cache", True, training=True)
    ids = list(other.vocabulary.encode(words))
    right, wrong, other_photo = other._rewarded(examples).reward([ids, ids[1:], ids], [0, 0, 1])
    assert right > max(wrong, other_photo)


def test_another_configuration_keeps_the_weights(captioner):
    config = captioner.config
    encoder = replace(config.encoder, trainable_from="head", dropout=0.3)
    other = captioner.with_config(replace(config, encoder=encoder, decoder=replace(config.decoder, dropout=0.4)))
    assert other.model.encoder.trainable_from == "head"
    assert len(other.model.trainable_variables) > len(captioner.model.trainable_variables)
    assert other.caption(PHOTO).text == captioner.caption(PHOTO).text
    assert other.caption(PHOTO).score == pytest.approx(captioner.caption(PHOTO).score, abs=1e-5)


def test_training_sees_a_photo_in_several_views(captioner, tmp_path):
    config = replace(
        captioner.config, augmented_views=2, encoder=replace(captioner.config.encoder, trainable_from="block13")
    )
    tuned = captioner.with_config(config)
    path = write_manifest(tmp_path, [("photo.png", "a dog on the left")])
    rows = list(tuned.manifest(path).rows())
    examples = tuned._examples(rows, tmp_path / "cache", quiet=True, training=True)
    views = examples.features[examples.paths[0]]
    assert views.shape == (4, *tuned.model.encoder.feature_shape)
    assert len({view.tobytes() for view in views}) == 4
    random = np.random.default_rng(0)
    seen = {examples.augment(examples[0], random, 0)["source"]["features"].tobytes() for _ in range(40)}
    assert seen == {views[view].tobytes() for view in (0, 2, 3)}  # never mirrored: the caption says left
    validation = tuned._examples(rows, tmp_path / "cache", quiet=True, training=False)
    np.testing.assert_array_equal(validation[0]["source"]["features"], views[0])
    key = examples._cache_key()
    for weight in tuned.model.trainable_weights:
        weight.assign(weight + 1.0)
    assert examples._cache_key() == key  # what learns is not in the cache


def test_a_photo_that_is_looked_at_in_a_mirror_as_well_is_kept_once(captioner, tmp_path):
    config = replace(captioner.config, encoder=replace(captioner.config.encoder, mirrored=True))
    mirrored = captioner.with_config(config)
    rows = list(mirrored.manifest(write_manifest(tmp_path, [("photo.png", "a dog on the left")])).rows())
    examples = mirrored._examples(rows, tmp_path / "cache", quiet=True, training=True)
    assert examples.features[examples.paths[0]].shape == (1, *mirrored.model.encoder.feature_shape)
    example = examples.augment(examples[0], np.random.default_rng(0), 0)
    np.testing.assert_array_equal(example["source"]["features"], examples[0]["source"]["features"])


def test_views_are_made_anew_when_a_caption_forbids_to_mirror_the_photo(captioner, tmp_path):
    def examples(text, captioner, cache="cache", training=True):
        path = write_manifest(tmp_path, [("photo.png", text)])
        os.utime(tmp_path / "photo.png", (0, 0))  # written again, but not another photo
        return captioner._examples(list(captioner.manifest(path).rows()), tmp_path / cache, True, training)

    viewing = captioner.with_config(replace(captioner.config, augmented_views=3))
    free, bound = examples("a dog", viewing), examples("a left dog", viewing)
    assert free.features.folder != bound.features.folder
    anew = examples("a left dog", viewing, cache="other")
    np.testing.assert_array_equal(bound.features[bound.paths[0]], anew.features[anew.paths[0]])
    for options in ({"captioner": captioner}, {"captioner": viewing, "training": False}):
        free, bound = examples("a dog", **options), examples("a left dog", **options)
        assert free.features.folder == bound.features.folder
        assert "never_mirrored" not in free._cache_key()


def test_a_hard_captioner_starts_from_a_soft_one_is_saved_and_goes_back(captioner, tmp_path):
    config = captioner.config
    attention = replace(config.decoder.attention, hard=True)
    hard = captioner.with_config(replace(config, decoder=replace(config.decoder, attention=attention)))
    assert len(hard.model.weights) > len(captioner.model.weights)
    assert set(np.unique(hard.caption(PHOTO).attention)) <= {0.0, 1.0}
    hard.save(tmp_path / "hard")
    soft = ImageCaptioner.load(tmp_path / "hard").with_config(config)
    assert soft.caption(PHOTO).score == pytest.approx(captioner.caption(PHOTO).score, abs=1e-5)


@pytest.mark.parametrize("change", [{"units": 13}, {"num_layers": 2}, {"attention": AttentionConfig("luong")}])
def test_a_configuration_of_another_size_is_refused(captioner, change):
    config = replace(captioner.config, decoder=replace(captioner.config.decoder, **change))
    with pytest.raises(ValueError, match="`config` changes the sizes of the model"):
        captioner.with_config(config)


def test_one_graph_does_for_any_number_of_photos(captioner):
    captioner.caption([PHOTO, PHOTO])
    captioner.caption(PHOTO)
    captioner.caption([PHOTO, PHOTO, PHOTO])
    assert {name: graph.experimental_get_tracing_count() for name, graph in captioner._graphs.items()} == dict.fromkeys(
        captioner._graphs, 1
    )
