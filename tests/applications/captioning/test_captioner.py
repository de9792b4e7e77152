"""The captioner with a tiny, untrained model: what it takes, what it returns, how it is trained, saved and exported."""

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from tensorflow.core.protobuf import saved_model_pb2

from attention_apps.applications import CaptionerConfig, ConfidenceConfig, ImageCaptioner
from attention_apps.applications.captioning.captioner import load_backbone, make_model
from attention_apps.applications.preset import find_preset, read_preset
from attention_apps.models.decoder_config import AttentionConfig
from attention_apps.preprocessing.image_graph import decode_in_graph
from attention_apps.preprocessing.vocabulary import Vocabulary
from attention_apps.serving import Client, LoadedModel
from attention_apps.training import History, read_config, to_dict
from tests.applications.captioners import (
    PHOTO,
    WORDS,
    as_bytes,
    bound_examples,
    make_captioner,
    make_config,
    write_manifest,
)
from tests.serving.fake_model import running
from tests.serving.fresh_process import call_in_fresh_process
from tests.serving.photos import BAD, GOOD

NO_TRAINING = History(0, 0.0, 0, [], None, None, "epochs")
MIXED = [GOOD["jpeg"], BAD["truncated"][0], GOOD["gif"], BAD["text"][0], GOOD["bmp"], BAD["empty"][0], GOOD["gray png"]]


@pytest.fixture(scope="module")
def captioner():
    return make_captioner()


def test_a_new_captioner_starts_with_the_backbone_of_the_default_preset():
    model = make_model(CaptionerConfig(), Vocabulary(WORDS))
    load_backbone(model)
    weights = read_preset(find_preset("show_attend_tell_coco")).weights
    for name in ("stem_conv/kernel", "head_norm/moving_mean"):
        layer, weight = name.split("/")
        found = getattr(model.encoder.network.get_layer(layer), weight)
        np.testing.assert_allclose(found, weights[f"encoder/efficientnet_lite2/{name}"], rtol=1e-6)


# Answers


def test_a_caption_has_text_score_tokens_alternatives_and_attention(captioner):
    caption = captioner.caption(PHOTO)
    assert caption.text.split() == caption.tokens
    assert set(caption.tokens) <= set(WORDS)
    assert caption.attention.shape == (len(caption.tokens), 2, 2)
    np.testing.assert_allclose(caption.attention.sum((1, 2)), 1, atol=1e-5)
    assert caption.alternatives[0][0] == caption.text
    assert len(caption.alternatives) == 2
    assert caption.score == caption.alternatives[0][1] >= caption.alternatives[1][1]
    assert 0 < caption.confidence < 1
    np.testing.assert_array_equal(caption.pixels, PHOTO)


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


@pytest.mark.parametrize(
    ("photo", "error"),
    [("https://example.com/photo.jpg", ValueError), ("missing.jpg", FileNotFoundError), (b"", ValueError)],
)
def test_a_single_broken_photo_raises(captioner, photo, error):
    with pytest.raises(error):
        captioner.caption(photo)


def test_more_photos_than_a_batch_come_back_in_order(captioner):
    photos = [np.full((20, 20, 3), shade, np.uint8) for shade in range(0, 250, 7)]
    together = list(captioner.run(iter(photos)))
    assert len(together) == len(photos)
    for number in (0, 1, 31, 32, 35):
        alone = captioner.caption(photos[number])
        assert together[number].text == alone.text
        assert together[number].score == pytest.approx(alone.score, abs=1e-4)


# Parts


@pytest.mark.parametrize("line", ["decoder.attention.hard=true", "decoder.kind=transformer"])
def test_another_attention_or_decoder_goes_in_by_one_line_and_learns(line, tmp_path):
    config = to_dict(make_config(attention=AttentionConfig(units=6), hidden_dim=9))
    config = read_config(CaptionerConfig, config, [line, "training.max_steps=1"])
    captioner = ImageCaptioner(config, Vocabulary(WORDS))
    before = captioner.model.decoder.get_weights()
    captioner.fit(write_manifest(tmp_path, [("photo.png", "a dog runs")]), quiet=True)
    assert any((old != new).any() for old, new in zip(before, captioner.model.decoder.get_weights(), strict=True))
    caption = captioner.caption(PHOTO, beam_size=1)
    assert caption.attention.shape == (len(caption.tokens), 2, 2)


def test_a_backbone_of_keras_may_be_saved_and_change_its_image_size(tmp_path):
    config = make_config(attention=AttentionConfig(units=6))
    config = replace(config, encoder=replace(config.encoder, backbone="MobileNet"))
    captioner = ImageCaptioner(config, Vocabulary(WORDS))
    captioner.save(tmp_path / "mine")
    loaded = ImageCaptioner.from_preset(tmp_path / "mine")
    larger = captioner.with_config(replace(config, encoder=replace(config.encoder, image_size=96)))
    assert larger.caption(PHOTO, beam_size=1).attention.shape[1:] == (3, 3)
    for other in (loaded, larger):
        for ours, theirs in zip(captioner.model.weights, other.model.weights, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_another_configuration_trains_more_and_says_the_same(captioner):
    config = captioner.config
    encoder = replace(config.encoder, trainable_from="head", dropout=0.3)
    other = captioner.with_config(replace(config, encoder=encoder, decoder=replace(config.decoder, dropout=0.4)))
    assert len(other.model.trainable_variables) > len(captioner.model.trainable_variables)
    assert other.caption(PHOTO).text == captioner.caption(PHOTO).text
    assert other.caption(PHOTO).score == pytest.approx(captioner.caption(PHOTO).score, abs=1e-5)


def test_a_hard_captioner_starts_from_a_soft_one_is_saved_and_goes_back(captioner, tmp_path):
    config = captioner.config
    attention = replace(config.decoder.attention, hard=True)
    hard = captioner.with_config(replace(config, decoder=replace(config.decoder, attention=attention)))
    assert len(hard.model.weights) > len(captioner.model.weights)
    assert set(np.unique(hard.caption(PHOTO).attention)) <= {0.0, 1.0}
    hard.save(tmp_path / "hard")
    soft = ImageCaptioner.from_preset(tmp_path / "hard").with_config(config)
    assert soft.caption(PHOTO).score == pytest.approx(captioner.caption(PHOTO).score, abs=1e-5)


# Training


@pytest.mark.parametrize("metric", [None, "bleu_4"])
def test_captions_are_rewarded_for_being_like_those_that_people_wrote(captioner, tmp_path, metric):
    critical = replace(captioner.config.training.self_critical, epochs=1, metric=metric)
    training = replace(captioner.config.training, self_critical=critical)
    other = captioner.with_config(replace(captioner.config, training=training))
    words = captioner.vocabulary.words[:5]
    (tmp_path / "two.png").write_bytes(as_bytes("PNG", PHOTO[:, ::-1]))
    path = write_manifest(tmp_path, [("photo.png", " ".join(words)), ("two.png", words[0])])
    examples = bound_examples(other, path, tmp_path / "cache")
    ids = list(other.vocabulary.encode(words))
    right, wrong, other_photo = other._rewarded(examples).reward([ids, ids[1:], ids], [0, 0, 1])
    assert right > max(wrong, other_photo)


def test_new_words_are_added_where_they_are_frequent_enough(captioner, tmp_path, monkeypatch):
    monkeypatch.setattr("attention_apps.applications.application.train", lambda *given, **named: [NO_TRAINING])
    other = captioner.with_config(replace(captioner.config, min_count=2))
    path = write_manifest(tmp_path, [("photo.png", "a tall lynx"), ("photo.png", "one lynx , tall , alone")])
    other.fit(path, quiet=True)
    assert other.vocabulary.words == (*WORDS, "lynx", "tall")


# Export


def tell_apart(model):
    """Makes the captions of an untrained model differ from photo to photo."""
    encoder = model.encoder
    seen = encoder.projection(encoder.extract(decode_in_graph(list(GOOD.values()), 64)[0]))
    encoder.projection.kernel.assign(encoder.projection.kernel * 3 / float(np.std(seen, axis=0).mean()))
    for weight in model.decoder.trainable_weights:
        weight.assign(3.0 * weight)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A captioner that tells photos apart and is sure of some captions only, and the folder of its export."""
    captioner = make_captioner()
    tell_apart(captioner.model)
    threshold = float(np.median([caption.confidence for caption in captioner.caption(list(GOOD.values()))]))
    captioner = captioner.with_config(replace(captioner.config, confidence=ConfidenceConfig(threshold=threshold)))
    return captioner, captioner.export(tmp_path_factory.mktemp("export") / "captioner")


def check_like_live(captioner, outputs, images):
    """Compares the outputs of an export with the live captions; returns these."""
    live = captioner.caption(images)
    for row, caption in enumerate(live):
        count = len(caption.tokens)
        assert outputs["status"][row] == b"ok"
        assert [text.decode() for text in outputs["text"][row]] == [text for text, _ in caption.alternatives]
        assert [token.decode() for token in outputs["tokens"][row] if token] == caption.tokens
        assert outputs["token_ids"][row, :count].tolist() == captioner.vocabulary.encode(caption.tokens)
        np.testing.assert_allclose(outputs["score"][row], [score for _, score in caption.alternatives], rtol=1e-4)
        np.testing.assert_allclose(outputs["attention"][row, :count], caption.attention, atol=1e-4)
        assert not outputs["attention"][row, count:].any()
        assert outputs["confidence"][row] == pytest.approx(caption.confidence, abs=1e-4)
        assert outputs["unsure"][row] == caption.unsure
    return live


@pytest.mark.slow
def test_an_export_answers_like_the_captioner_where_this_package_cannot_be_imported(exported, tmp_path):
    captioner, folder = exported
    images = list(GOOD.values())
    bad = [contents for contents, _ in BAD.values()]
    calls = [("serving_default", {"image_bytes": batch}) for batch in (images, MIXED, bad)]
    together, mixed, nothing = call_in_fresh_process(folder, calls, tmp_path)
    captions = check_like_live(captioner, together, images)
    assert len({caption.text for caption in captions}) > 1
    assert {caption.unsure for caption in captions} == {True, False}
    good = [row for row, image in enumerate(MIXED) if image in images]
    check_like_live(captioner, {name: array[good] for name, array in mixed.items()}, [MIXED[row] for row in good])
    assert [status.decode() for status in nothing["status"]] == [status for _, status in BAD.values()]
    assert not nothing["text"].any()
    assert not nothing["attention"].any()
    assert (nothing["score"] == tf.float32.min).all()


@pytest.mark.slow
def test_an_export_stores_its_weights_once(exported):
    captioner, folder = exported
    size = sum(path.stat().st_size for path in (folder / "variables").iterdir())
    assert size < 1.2 * 4 * sum(int(np.prod(weight.shape)) for weight in captioner.model.weights)


@pytest.mark.slow
def test_sixteen_clients_at_once_get_what_the_model_says_to_each_alone(exported):
    model = LoadedModel(exported[1])
    images = [*GOOD.values(), *(contents for contents, _ in BAD.values())]
    alone = [model.predict({"image_bytes": [image]}) for image in images]
    with running({"captioner": model}) as (url, _), ThreadPoolExecutor(16) as pool:
        asked = [number % len(images) for number in range(64)]
        rows = [[{"image_bytes": images[number]}] for number in asked]
        answers = list(pool.map(lambda row: Client(url).predict("captioner", row), rows))
    for number, (answer,) in zip(asked, answers, strict=True):
        expected = alone[number]
        assert answer["status"] == expected["status"][0].decode()
        assert answer["text"] == [text.decode() for text in expected["text"][0]]
        if answer["status"] == "ok":
            np.testing.assert_allclose(answer["score"], expected["score"][0], rtol=1e-4)


@pytest.mark.slow
def test_a_c_program_gets_the_same_texts(exported, tmp_path):
    captioner, folder = exported
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no gcc")
    root = Path(tf.sysconfig.get_lib())
    libraries = [f"-l:{name}" for name in ("libtensorflow_cc.so.2", "libtensorflow_framework.so.2")]
    if not all((root / name.removeprefix("-l:")).exists() for name in libraries):
        pytest.skip("this TensorFlow comes without its C library")
    program = tmp_path / "predict"
    source = Path(__file__).parents[2] / "serving" / "predict.c"
    paths = [f"-I{tf.sysconfig.get_include()}", f"-L{root}", f"-Wl,-rpath,{root}"]
    built = subprocess.run(
        [compiler, str(source), "-o", str(program), *paths, *libraries], capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    for number, image in enumerate(MIXED):
        (tmp_path / f"{number}.image").write_bytes(image)
    files = [str(tmp_path / f"{number}.image") for number in range(len(MIXED))]
    done = subprocess.run([program, folder, *operations(folder), *files], capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    lines = done.stdout.decode().splitlines()
    captions = captioner.caption(MIXED)
    texts = [text for one in captions for text, _ in one.alternatives or [("", 0), ("", 0)]]
    assert lines[: len(texts)] == texts
    assert [line == "ok" for line in lines[len(texts) :]] == [one.error is None for one in captions]


def operations(folder):
    """The operations of the input and of the outputs `text` and `status`, and the output numbers."""
    content = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    signature = content.meta_graphs[0].signature_def["serving_default"]
    image = signature.inputs["image_bytes"].name.split(":")[0]
    (text, first), (status, second) = (signature.outputs[name].name.split(":") for name in ("text", "status"))
    assert text == status
    return image, text, first, second
