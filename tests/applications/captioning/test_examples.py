import json
import os
from dataclasses import replace

import numpy as np
import pytest

from attention_apps.applications.captioning.examples import CaptionExamples
from attention_apps.constants import END, START
from tests.applications.captioners import PHOTO, WORDS, as_bytes, bound_examples, make_captioner, write_manifest


@pytest.fixture(scope="module")
def captioner():
    return make_captioner()


def test_the_captions_of_a_photo_are_one_example(captioner, tmp_path):
    (tmp_path / "two.png").write_bytes(as_bytes("PNG", PHOTO[:, ::-1]))
    rows = [("photo.png", "A dog runs."), ("two.png", "a cat"), ("photo.png", "a zebra")]
    examples = bound_examples(captioner, write_manifest(tmp_path, rows), tmp_path / "cache", training=False)
    assert len(examples) == 2
    assert examples.references[0] == ["A dog runs.", "a zebra"]
    assert examples.references[1] == ["a cat"]
    tokens = examples[0]["tokens"]
    a, dog, runs = captioner.vocabulary.encode(["a", "dog", "runs"])
    assert tokens[:2].tolist() == [[START, a, dog, runs, END], [START, a, 3, END, 0]]
    assert not tokens[2:].any()
    assert len(tokens) == captioner.config.captions_per_image
    reading = examples.reading(1, captioner.reader, captioner.config.output)
    assert reading.item.endswith("two.png")
    np.testing.assert_array_equal(reading.sources[0].tensors["features"], examples[1]["source"]["features"])
    assert examples.unknown_rates(captioner.codec) == {"caption": pytest.approx(1 / 7)}


def test_captions_are_split_once_by_the_data_check(captioner, tmp_path, monkeypatch):
    path = write_manifest(tmp_path, [("photo.png", "A dog runs."), ("photo.png", "a cat"), ("photo.png", "a zebra")])
    manifest = captioner.manifest(path)
    check = captioner.parts.examples.data_check(captioner.config, captioner.codec)
    rows = list(check.run({"data": manifest}, quiet=True, keep_rows=True).good_rows(manifest))
    expected = captioner.parts.examples(list(manifest.rows()), captioner.config)
    monkeypatch.setattr("attention_apps.applications.captioning.examples._split", None)
    examples = captioner.parts.examples(rows, captioner.config)
    assert examples.words == expected.words == [["a", "dog", "runs"], ["a", "cat"], ["a", "zebra"]]


def test_of_too_many_captions_some_are_drawn_each_time(captioner, tmp_path):
    captioner = captioner.with_config(replace(captioner.config, captions_per_image=2))
    manifest = write_manifest(tmp_path, [("photo.png", word) for word in WORDS])
    examples = bound_examples(captioner, manifest, tmp_path / "cache")
    random, seen = np.random.default_rng(0), set()
    for _ in range(40):
        tokens = examples.augment(examples[0], random, 0)["tokens"]
        assert len(tokens) == 2
        seen |= set(tokens[:, 1].tolist())
    assert seen == set(captioner.vocabulary.encode(WORDS))


def test_rare_words_are_not_in_a_new_vocabulary(captioner, tmp_path):
    manifest = write_manifest(tmp_path, [("photo.png", "a tall lynx"), ("photo.png", "one lynx , tall , alone")])
    rows = list(captioner.manifest(manifest).rows())
    examples = CaptionExamples(rows, replace(captioner.config, min_count=2))
    assert set(examples.make_vocabulary().words) == {"tall", "lynx"}


def test_an_empty_and_an_endless_caption_are_named_with_their_lines(captioner, tmp_path):
    rows = [("photo.png", "a dog"), ("photo.png", ""), ("photo.png", "dog " * 500)]
    manifest = captioner.manifest(write_manifest(tmp_path, rows))
    report = CaptionExamples.data_check(captioner.config, captioner.codec).run({"training": manifest}, quiet=True)
    assert report.used == {"training": 1}
    problems = report.first_problems()
    assert "photos.csv, line 3" in problems
    assert "`caption` is empty" in problems
    assert "photos.csv, line 4" in problems
    assert "`caption` has 500 tokens, more than 50" in problems


def test_the_first_metric_is_cider():
    metrics = CaptionExamples.metrics(["a dog runs", "a cat"], [["a dog runs"], ["a bird"]], ["1.jpg", "2.jpg"])
    assert list(metrics) == ["cider", "bleu_1", "bleu_4"]
    assert metrics["bleu_1"].score == pytest.approx(0.8)


def test_training_sees_a_photo_in_several_views(captioner, tmp_path):
    encoder = replace(captioner.config.encoder, trainable_from="block13")
    tuned = captioner.with_config(replace(captioner.config, augmented_views=2, encoder=encoder))
    path = write_manifest(tmp_path, [("photo.png", "a dog on the left")])
    examples = bound_examples(tuned, path, tmp_path / "cache")
    views = examples.features[examples.paths[0]]
    assert views.shape == (4, *tuned.model.encoder.feature_shape)
    assert len({view.tobytes() for view in views}) == 4
    random = np.random.default_rng(0)
    seen = {examples.augment(examples[0], random, 0)["source"]["features"].tobytes() for _ in range(40)}
    assert seen == {views[view].tobytes() for view in (0, 2, 3)}  # never mirrored: the caption says left
    validation = bound_examples(tuned, path, tmp_path / "cache", training=False)
    np.testing.assert_array_equal(validation[0]["source"]["features"], views[0])
    key = examples._cache_key()
    for weight in tuned.model.trainable_weights:
        weight.assign(weight + 1.0)
    assert examples._cache_key() == key  # trainable weights do not change cached features


def test_a_trainable_backbone_sees_pixels_that_are_augmented_anew(captioner, tmp_path):
    encoder = replace(captioner.config.encoder, trainable_from="block13")
    tuned = captioner.with_config(replace(captioner.config, encoder=encoder))
    examples = bound_examples(tuned, write_manifest(tmp_path, [("photo.png", "a dog")]), tmp_path / "cache")
    assert list(examples.source_signature) == ["image"]
    random = np.random.default_rng(0)
    one, other = (examples.augment(examples[0], random, 0)["source"]["image"] for _ in range(2))
    assert one.shape == other.shape == (64, 64, 3)
    assert (one != other).any()


def test_a_photo_that_is_averaged_with_its_mirror_image_is_cached_once(captioner, tmp_path):
    config = replace(captioner.config, encoder=replace(captioner.config.encoder, mirrored=True))
    mirrored = captioner.with_config(config)
    manifest = write_manifest(tmp_path, [("photo.png", "a dog on the left")])
    examples = bound_examples(mirrored, manifest, tmp_path / "cache")
    assert examples.features[examples.paths[0]].shape == (1, *mirrored.model.encoder.feature_shape)
    example = examples.augment(examples[0], np.random.default_rng(0), 0)
    np.testing.assert_array_equal(example["source"]["features"], examples[0]["source"]["features"])


def test_cached_views_do_not_depend_on_the_captions(captioner, tmp_path):
    def examples(text, captioner, cache="cache", training=True):
        path = write_manifest(tmp_path, [("photo.png", text)])
        os.utime(tmp_path / "photo.png", (0, 0))  # written again, but the same photo
        return bound_examples(captioner, path, tmp_path / cache, training)

    viewing = captioner.with_config(replace(captioner.config, augmented_views=3))
    free, bound = examples("a dog", viewing), examples("a left dog", viewing)
    assert free.features.folder == bound.features.folder
    anew = examples("a left dog", viewing, cache="other")
    np.testing.assert_array_equal(free.features[free.paths[0]], anew.features[anew.paths[0]])


def test_tokens_that_name_an_object_get_its_regions_also_in_the_mirror(captioner, tmp_path):
    captioner = captioner.with_config(replace(captioner.config, box_weight=1.0))
    manifest = tmp_path / "photos.jsonl"
    (tmp_path / "photo.png").write_bytes(as_bytes("PNG", PHOTO))
    row = {"image": "photo.png", "caption": "a dog runs", "boxes": [["dog", 0.0, 0.0, 0.5, 1.0]]}
    manifest.write_text(json.dumps(row) + "\n")
    examples = bound_examples(captioner, manifest, tmp_path / "cache")
    side, _ = examples.encoder.grid_shape
    random, seen = np.random.default_rng(0), set()
    for _ in range(20):
        example = examples.augment(examples[0], random, 0)
        regions = example["regions"].reshape(-1, example["tokens"].shape[1], side, side)
        assert np.argwhere(regions.any(axis=(-1, -2))).tolist() == [[0, 2]]  # `dog`, after the start token and `a`
        is_left = regions[0, 2, :, 0].all()
        features = examples.features[examples.paths[0]]
        np.testing.assert_array_equal(example["source"]["features"], features[0 if is_left else 1])
        assert regions[0, 2, :, -1].all() == (side == 1 or not is_left)
        seen.add(bool(is_left))
    assert seen == ({True} if side == 1 else {True, False})
    (batch,) = examples.batches(captioner.config.training).batches(0)
    assert batch["regions"].shape[-1] == side * side


def test_photos_with_boxes_are_scored_by_the_pointing_game(captioner, tmp_path):
    manifest = tmp_path / "photos.jsonl"
    (tmp_path / "photo.png").write_bytes(as_bytes("PNG", PHOTO))
    words = captioner.caption(PHOTO).tokens
    row = {"image": "photo.png", "caption": "a dog", "boxes": [[words[0], 0.0, 0.0, 1.0, 1.0]]}
    manifest.write_text(json.dumps(row) + "\n")
    metrics = captioner.evaluate(manifest, quiet=True).metrics
    assert metrics["pointing"].score == 1.0
    assert metrics["pointing_chance"].score == 1.0
