import math

import numpy as np
import pytest
import tensorflow as tf

from attention_apps.applications.recognition.examples import SpeechExamples, SubWordExamples
from attention_apps.applications.recognition.reader import AudioReader
from attention_apps.constants import END, START
from attention_apps.models.moonshine_encoder import MIN_SAMPLES
from attention_apps.preprocessing.audio import SAMPLE_RATE, read_audio
from attention_apps.preprocessing.audio_features import log_mel
from tests.applications.recognizers import (
    LETTERS,
    bound_examples,
    make_config,
    make_moonshine,
    make_recognizer,
    wav_bytes,
    write_corpus,
)

COUNT = 7


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder, COUNT)
    return folder


@pytest.fixture(scope="module")
def recognizer():
    return make_recognizer()


@pytest.fixture
def make_examples(folder, recognizer):
    """Examples with other settings; the model has no part in them."""

    def make(training=False, **changes):
        config = make_config(**changes)
        rows = list(recognizer.manifest(folder / "corpus.tsv").rows())
        examples = SpeechExamples(rows, config)
        examples.bind(recognizer.codec, recognizer.model, folder / "cache", training=training, quiet=True)
        return examples

    return make


def reading_of(examples, index):
    return examples.reading(index, AudioReader(examples.config), examples.config.output)


def random(seed=0):
    return np.random.default_rng(seed)


def test_an_example_is_a_recording_and_its_letters(make_examples, folder):
    examples = make_examples(training=True, augmentation={})
    assert len(examples) == COUNT
    expected = read_audio(folder / "2.wav")
    np.testing.assert_allclose(examples[2]["waveform"] / 32767, expected, atol=1e-4)
    assert examples.lengths[2] == pytest.approx(len(expected) / SAMPLE_RATE)
    text = examples.references[2][0]
    assert text.isupper()
    assert examples[2]["tokens"].tolist() == [START, *(4 + LETTERS.index(letter) for letter in text), END]
    reading = reading_of(examples, 2)
    assert reading.item.endswith("2.wav")
    (source,) = reading.sources
    np.testing.assert_allclose(source.tensors["waveform"], expected, atol=1e-4)


def test_a_batch_has_features_and_a_mask(make_examples):
    examples = make_examples(training=True)
    batch = next(iter(examples.batches(examples.config.training).batches(0)))
    features, mask = batch["source"]["features"], batch["source"]["mask"]
    assert features.shape[:2] == mask.shape
    assert features.shape[2] == examples.config.features.num_mels
    assert len(batch["tokens"]) == len(features)
    assert set(np.asarray(batch["tokens"])[:, 0]) == {START}


def test_recordings_are_decoded_once_for_training(make_examples, monkeypatch):
    make_examples(training=True)
    monkeypatch.setattr("attention_apps.applications.recognition.examples.read_audio", None)
    assert len(make_examples(training=True, augmentation={})) == COUNT


def test_validation_reads_the_files_themselves(make_examples, folder):
    examples = make_examples()
    (source,) = reading_of(examples, 2).sources
    assert len(examples) == COUNT
    np.testing.assert_array_equal(source.tensors["waveform"], read_audio(folder / "2.wav"))


def features_of(examples, index):
    """Features of a recording that was not augmented."""
    waveform = examples[index]["waveform"].astype(np.float32) / 32767
    lengths = tf.constant([len(waveform)])
    return log_mel(tf.constant(waveform[np.newaxis]), lengths, examples.config.features)[0][0].numpy()


def test_training_hears_a_recording_differently_each_time_but_the_same_for_the_same_numbers(make_examples):
    examples = make_examples(training=True)
    one, same, other = (examples.augment(examples[1], random(seed), 0)["source"]["features"] for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert one.shape != other.shape or not np.allclose(one, other)


def test_each_augmentation_begins_in_its_epoch(make_examples):
    off = {f"{kind}_probability": 0.0 for kind in ("speed", "reverberation", "noise")}
    louder = {**off, "volume_probability": 1.0, "volume_decibels": [40.0, 40.0]}
    spectrum = {"frequency_masks": 1, "max_mels": 12, "time_masks": 0}
    augmentation = {"waveform": louder, "waveform_from_epoch": 1, "spectrum": spectrum, "spectrum_from_epoch": 2}
    examples = make_examples(training=True, augmentation=augmentation)
    heard = [examples.augment(examples[1], random(5), epoch)["source"]["features"] for epoch in range(3)]
    np.testing.assert_array_equal(heard[0], features_of(examples, 1))
    assert not np.allclose(heard[1], heard[0])  # clipped
    assert (heard[1] != 0).all(axis=0).any()
    assert (heard[2] == 0).all(axis=0).any()


def test_a_tempo_makes_frames_fewer_and_moves_no_pitch(make_examples):
    off = {f"{kind}_probability": 0.0 for kind in ("speed", "reverberation", "noise", "volume")}
    features = {}
    for tempo in (0.8, 1.0, 1.25):
        augmentation = {"waveform": off, "spectrum_from_epoch": 9, "tempos": [tempo]}
        examples = make_examples(training=True, augmentation=augmentation)
        features[tempo] = examples.augment(examples[1], random(), 0)["source"]["features"]
    np.testing.assert_array_equal(features[1.0], features_of(examples, 1))
    # At 0.8 every fifth frame begins where at 1 every fourth does; at 1.25 it is the other way round.
    for tempo, step, same in ((0.8, 5, 4), (1.25, 4, 5)):
        assert len(features[tempo]) == pytest.approx(len(features[1.0]) / tempo, abs=1)
        slow, normal = features[tempo][::step], features[1.0][::same]
        count = min(len(slow), len(normal))
        correlations = [np.corrcoef(a, b)[0, 1] for a, b in zip(slow[:count], normal[:count], strict=True)]
        assert np.median(correlations) > 0.98


def test_noise_is_numbered_after_the_rows_and_says_nothing(make_examples):
    examples = make_examples(training=True)
    assert len(examples) == COUNT + 2
    noise = examples[COUNT + 1]
    assert noise["tokens"].tolist() == [START, END]
    assert len(noise["waveform"]) == round(examples.lengths[-1] * SAMPLE_RATE)
    assert noise["waveform"].std() > 0
    np.testing.assert_array_equal(noise["waveform"], examples[COUNT + 1]["waveform"])
    assert examples.augment(noise, random(), 0)["tokens"].tolist() == [START, END]


def test_little_speech_gets_little_noise(make_examples):
    examples = make_examples(training=True, augmentation={"noise_alone": 60, "max_noise_fraction": 0.25})
    assert len(examples) == COUNT + math.ceil(COUNT / 4)


def test_half_of_the_noise_comes_in_bursts(make_examples):
    count, block = 30, SAMPLE_RATE // 50
    examples = make_examples(training=True, augmentation={"noise_alone": count, "max_noise_fraction": 10.0})
    bursts = []
    for index in range(COUNT, COUNT + count):
        waveform = examples[index]["waveform"].astype(float)
        np.testing.assert_array_equal(waveform, examples[index]["waveform"])
        loudness = waveform[: len(waveform) // block * block].reshape(-1, block).std(axis=1)
        loud, soft = np.percentile(loudness, [90, 10])
        bursts.append(loud > 3 * soft)
    assert count / 3 <= sum(bursts) <= count / 2


def test_an_epoch_is_what_the_mixture_says(make_examples):
    mixture = [
        {"group": "even", "first_epoch": 0},
        {"group": "odd", "count": 5, "end_epoch": 2},
        {"group": "odd", "count": 1, "first_epoch": 2},
    ]
    examples = make_examples(training=True, mixture=mixture)
    early, late = (examples.select(epoch, random()) for epoch in (1, 2))
    for selected, odd in ((early, 5), (late, 1)):
        rows = selected[selected < COUNT]
        assert np.sum(rows % 2 == 1) == odd
        assert sorted(rows[rows % 2 == 0]) == [0, 2, 4, 6]
        assert sorted(selected[selected >= COUNT]) == [COUNT, COUNT + 1]


def test_the_first_epochs_have_short_recordings_only(make_examples):
    lengths = make_examples(training=True, augmentation={}).lengths
    limit = float(np.median(lengths))
    examples = make_examples(training=True, short_epochs=1, short_seconds=limit, augmentation={})
    assert set(examples.select(0, random())) == set(np.flatnonzero(lengths < limit))
    assert len(examples.select(1, random())) == COUNT


def test_a_group_that_is_not_in_the_data_is_refused(make_examples):
    with pytest.raises(ValueError, match="`mixture` must name groups of the data: 'even', 'odd'. Received: group='o'"):
        make_examples(training=True, mixture=[{"group": "o"}])


def test_the_vocabulary_and_the_share_of_unknown_letters_are_those_of_the_texts(make_examples, recognizer):
    examples = make_examples()
    letters = {letter for index in range(COUNT) for letter in examples.references[index][0]}
    assert set(examples.make_vocabulary().words) == letters
    assert examples.unknown_rates(recognizer.codec) == {"transcript": 0.0}


def test_a_text_too_long_for_its_recording_is_left_out(tmp_path, recognizer):
    manifest = write_corpus(tmp_path, 3)
    manifest.write_text(manifest.read_text() + f"0.wav\t{'AAB' * 12}\teven\n0.wav\tAABB\teven\n")
    report = SpeechExamples.data_check(make_config(decoding={"max_length": 99}), None).run(
        {"data": recognizer.manifest(manifest)}, quiet=True
    )
    assert report.counts["unusable"] == 1
    assert report.used == {"data": 4}
    assert "needs 48 frames for its 36 letters" in report.problems[0].message


def test_metrics_are_error_rates():
    metrics = SpeechExamples.metrics(["A B", "C"], [["A B"], ["D"]], ["a.wav", "b.wav"])
    assert list(metrics) == ["wer", "cer"]
    assert metrics["wer"].score == pytest.approx(1 / 3)


SUB_WORD_COUNT = 4


@pytest.fixture(scope="module")
def moonshine():
    return make_moonshine()


@pytest.fixture(scope="module")
def sub_word_manifest(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    manifest = write_corpus(folder, SUB_WORD_COUNT)
    (folder / "short.wav").write_bytes(wav_bytes(np.full(800, 0.1, np.float32)))
    lines = manifest.read_text().splitlines()
    rows = [f"{number}.wav\tA ac,\teven" for number in range(SUB_WORD_COUNT)]
    manifest.write_text("\n".join([lines[0], *rows]) + "\n")
    return manifest


def test_an_example_is_a_waveform_and_its_sub_words(moonshine, sub_word_manifest, tmp_path):
    examples = bound_examples(moonshine, sub_word_manifest, tmp_path)
    assert examples[1]["tokens"].tolist() == [START, 9, 3, 4, 7, 8, END]  # A is out of vocabulary
    source = examples.augment(examples[1], np.random.default_rng(0), epoch=0)["source"]
    assert source["lengths"] == len(source["waveform"]) > SAMPLE_RATE // 4
    assert np.abs(source["waveform"]).max() <= 1


def test_a_batch_is_what_the_model_takes(moonshine, sub_word_manifest, tmp_path):
    examples = bound_examples(moonshine, sub_word_manifest, tmp_path)
    batch = next(iter(examples.batches(moonshine.config.training).batches(epoch=0)))
    waveform, lengths = batch["source"]["waveform"], batch["source"]["lengths"]
    assert waveform.shape == (SUB_WORD_COUNT, max(lengths.numpy()))
    logits = moonshine.model({"source": batch["source"], "tokens": batch["tokens"][:, :-1]})
    assert logits.shape == (SUB_WORD_COUNT, 6, len(moonshine.vocabulary))


def test_a_recording_too_short_for_a_position_is_padded(moonshine, sub_word_manifest, tmp_path):
    examples = bound_examples(moonshine, sub_word_manifest, tmp_path)
    waveform = read_audio(sub_word_manifest.parent / "short.wav")
    source = examples.make_source(waveform, np.random.default_rng(0), epoch=0)
    assert source["lengths"] == len(source["waveform"]) == MIN_SAMPLES


def test_the_vocabulary_does_not_grow(moonshine, sub_word_manifest, tmp_path):
    examples = bound_examples(moonshine, sub_word_manifest, tmp_path)
    assert examples.has_fixed_vocabulary
    with pytest.raises(ValueError, match="needs their vocabulary"):
        examples.make_vocabulary()


def test_transcripts_longer_than_the_decoder_can_write_are_left_out(moonshine, sub_word_manifest, tmp_path):
    path = tmp_path / "long.tsv"
    folder = sub_word_manifest.parent
    path.write_text(f"audio\ttranscript\n{folder}/0.wav\t{'c' * 14}\n{folder}/1.wav\tab\n")
    report = SubWordExamples.data_check(moonshine.config, moonshine.codec).run({"data": moonshine.manifest(path)})
    assert report.used == {"data": 1}
    assert "tokens, more than 12" in report.problems[0].message
