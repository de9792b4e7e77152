import numpy as np
import pytest

from attention_apps.applications.speech_examples import SpeechExamples, waveform_features
from attention_apps.models.tokens import END, START
from attention_apps.preprocessing.audio import SAMPLE_RATE, read_audio
from attention_apps.preprocessing.vocabulary import Vocabulary
from attention_apps.training.manifest import Manifest
from tests.applications.recognizers import LETTERS, make_config, write_corpus

COUNT = 7


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder, COUNT)
    return folder


def make_examples(folder, training=False, **changes):
    rows = list(Manifest(folder / "corpus.tsv", {"audio": "audio", "transcript": "transcript"}, ("audio",)).rows())
    return SpeechExamples(make_config(**changes), Vocabulary(LETTERS), rows, folder / "cache", True, training)


def random(seed=0):
    return np.random.default_rng(seed)


def test_an_example_is_the_features_of_its_recording_and_its_letters(folder):
    examples = make_examples(folder)
    assert len(examples) == COUNT
    example = examples[2]
    expected = waveform_features(read_audio(folder / "2.wav"), examples.config.features)
    np.testing.assert_allclose(example["source"]["features"], expected, atol=2e-2)
    assert example["source"]["mask"].all()
    assert len(example["source"]["mask"]) == len(expected)
    text = examples.references(2)[0]
    assert text.isupper()
    assert example["tokens"].tolist() == [START, *(4 + LETTERS.index(letter) for letter in text), END]
    assert examples.name(2).endswith("2.wav")
    assert examples.lengths[2] == pytest.approx(len(read_audio(folder / "2.wav")) / SAMPLE_RATE)


def test_recordings_are_read_once(folder, monkeypatch):
    make_examples(folder)
    monkeypatch.setattr("attention_apps.applications.speech_examples.read_audio", None)
    make_examples(folder)


def test_training_hears_a_recording_differently_each_time_but_the_same_for_the_same_numbers(folder):
    examples = make_examples(folder, training=True)
    one, same, other = (examples.augment(examples[1], random(seed), 0)["source"]["features"] for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert one.shape != other.shape or not np.allclose(one, other)


def test_each_augmentation_begins_in_its_epoch(folder):
    off = {f"{kind}_probability": 0.0 for kind in ("speed", "reverberation", "noise")}
    louder = {**off, "volume_probability": 1.0, "volume_decibels": [40.0, 40.0]}
    spectrum = {"frequency_masks": 1, "max_mels": 12, "time_masks": 0}
    augmentation = {"waveform": louder, "waveform_from_epoch": 1, "spectrum": spectrum, "spectrum_from_epoch": 2}
    examples = make_examples(folder, training=True, augmentation=augmentation)
    heard = [examples.augment(examples[1], random(5), epoch)["source"]["features"] for epoch in range(3)]
    np.testing.assert_array_equal(heard[0], make_examples(folder)[1]["source"]["features"])
    assert not np.allclose(heard[1], heard[0])  # clipped
    assert (heard[1] != 0).all(axis=0).any()
    assert (heard[2] == 0).all(axis=0).any()


def test_a_tempo_makes_frames_fewer_and_moves_no_pitch(folder):
    off = {f"{kind}_probability": 0.0 for kind in ("speed", "reverberation", "noise", "volume")}
    features = {}
    for tempo in (0.8, 1.0, 1.25):
        augmentation = {"waveform": off, "spectrum_from_epoch": 9, "tempos": [tempo]}
        examples = make_examples(folder, training=True, augmentation=augmentation)
        features[tempo] = examples.augment(examples[1], random(), 0)["source"]["features"]
    np.testing.assert_array_equal(features[1.0], examples._features(examples[1]["waveform"]))
    # At 0.8 every fifth frame begins where at 1 every fourth does; at 1.25 it is the other way round.
    for tempo, step, same in ((0.8, 5, 4), (1.25, 4, 5)):
        assert len(features[tempo]) == pytest.approx(len(features[1.0]) / tempo, abs=1)
        slow, normal = features[tempo][::step], features[1.0][::same]
        count = min(len(slow), len(normal))
        correlations = [np.corrcoef(a, b)[0, 1] for a, b in zip(slow[:count], normal[:count], strict=True)]
        assert np.median(correlations) > 0.98


def test_noise_is_numbered_after_the_rows_and_says_nothing(folder):
    examples = make_examples(folder, training=True)
    assert len(examples) == COUNT + 2
    noise = examples[COUNT + 1]
    assert noise["tokens"].tolist() == [START, END]
    assert len(noise["waveform"]) == round(examples.lengths[-1] * SAMPLE_RATE)
    assert noise["waveform"].std() > 0
    np.testing.assert_array_equal(noise["waveform"], examples[COUNT + 1]["waveform"])
    assert examples.augment(noise, random(), 0)["tokens"].tolist() == [START, END]


def test_half_of_the_noise_comes_in_bursts(folder):
    count, block = 30, SAMPLE_RATE // 50
    examples = make_examples(folder, training=True, augmentation={"noise_alone": count})
    bursts = []
    for index in range(COUNT, COUNT + count):
        waveform = examples[index]["waveform"].astype(float)
        np.testing.assert_array_equal(waveform, examples[index]["waveform"])
        loudness = waveform[: len(waveform) // block * block].reshape(-1, block).std(axis=1)
        loud, soft = np.percentile(loudness, [90, 10])
        bursts.append(loud > 3 * soft)
    assert count / 3 <= sum(bursts) <= count / 2


def test_an_epoch_is_what_the_mixture_says(folder):
    mixture = [
        {"group": "even", "first_epoch": 0},
        {"group": "odd", "count": 5, "end_epoch": 2},
        {"group": "odd", "count": 1, "first_epoch": 2},
    ]
    examples = make_examples(folder, training=True, mixture=mixture)
    early, late = (examples.select(epoch, random()) for epoch in (1, 2))
    for selected, odd in ((early, 5), (late, 1)):
        rows = selected[selected < COUNT]
        assert np.sum(rows % 2 == 1) == odd
        assert sorted(rows[rows % 2 == 0]) == [0, 2, 4, 6]
        assert sorted(selected[selected >= COUNT]) == [COUNT, COUNT + 1]


def test_the_first_epochs_have_short_recordings_only(folder):
    lengths = make_examples(folder).lengths
    limit = float(np.median(lengths))
    examples = make_examples(folder, training=True, short_epochs=1, short_seconds=limit, augmentation={})
    assert set(examples.select(0, random())) == set(np.flatnonzero(lengths < limit))
    assert len(examples.select(1, random())) == COUNT


def test_a_group_that_is_not_in_the_data_is_refused(folder):
    with pytest.raises(ValueError, match="`mixture` must name groups of the data: 'even', 'odd'. Received: group='o'"):
        make_examples(folder, training=True, mixture=[{"group": "o"}])
