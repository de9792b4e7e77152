import numpy as np
import pytest
import soundfile

from attention_apps.preprocessing.audio import SAMPLE_RATE
from tests.recipes.loading import load

dataset = load("dataset", "speech_recognition")


def write_tone(path, seconds=0.2, level=0.2):
    path.parent.mkdir(parents=True, exist_ok=True)
    time = np.arange(round(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    samples = (level * np.sin(2 * np.pi * 300 * time)).astype("float32")
    if path.suffix == ".raw":
        path.write_bytes((samples * 32767).astype(">i2").tobytes())
    elif path.suffix == ".sph":
        soundfile.write(path, samples, SAMPLE_RATE, format="NIST")
    else:
        soundfile.write(path, samples, SAMPLE_RATE)
    return path


def names(utterances):
    return [(utterance.transcript, utterance.speaker, utterance.split) for utterance in utterances]


def test_a_manifest_is_read_with_and_without_speaker_and_split(tmp_path):
    write_tone(tmp_path / "wav" / "a.wav")
    (tmp_path / "manifest.tsv").write_text('audio\ttranscript\tspeaker\tsplit\nwav/a.wav\tSAY "A"\tann\tdev\n')
    (utterance,) = dataset.read_corpus(tmp_path)
    assert names([utterance]) == [('SAY "A"', "ann", "dev")]
    assert len(utterance.read()) == 3200
    (tmp_path / "plain.csv").write_text("audio,transcript\nwav/a.wav,A\n")
    assert names(dataset.read_corpus(tmp_path / "plain.csv")) == [("A", "", "")]


@pytest.mark.parametrize("suffix", [".sph", ".raw"])
def test_the_layout_of_an4(suffix, tmp_path, monkeypatch):
    monkeypatch.setattr(dataset, "AN4_DEV_UTTERANCES", 1)
    (tmp_path / "etc").mkdir()
    parts = {
        "train": [("mabc", "an2", "<s> GO </s>"), ("fabc", "an1", "A B")],
        "test": [("fxyz", "cen3", "<s> NO </s>")],
    }
    for part, rows in parts.items():
        ids = "".join(f"an4_clstk/{speaker}/{name}-{speaker}-b\n" for speaker, name, _ in rows)
        lines = "".join(f"{text} ({name}-{speaker}-b)\n" for speaker, name, text in rows)
        (tmp_path / "etc" / f"an4_{part}.fileids").write_text(ids)
        (tmp_path / "etc" / f"an4_{part}.transcription").write_text(lines)
        for speaker, name, _ in rows:
            write_tone(tmp_path / "wav" / "an4_clstk" / speaker / f"{name}-{speaker}-b{suffix}")
    utterances = dataset.read_corpus(tmp_path)
    expected = [("A B", "fabc", "train_dev"), ("GO", "mabc", "train_nodev"), ("NO", "fxyz", "test")]
    assert names(utterances) == expected
    samples = utterances[0].read()
    assert len(samples) == 3200
    assert np.abs(samples).max() == pytest.approx(0.2, abs=0.01)


def test_the_layout_of_librispeech(tmp_path):
    folder = tmp_path / "train-clean-100" / "84" / "121123"
    write_tone(folder / "84-121123-0000.flac")
    (folder / "84-121123.trans.txt").write_text("84-121123-0000 GO ON\n")
    (utterance,) = dataset.read_corpus(tmp_path)
    assert names([utterance]) == [("GO ON", "84", "train-clean-100")]
    assert len(utterance.read()) == 3200


def test_the_layout_of_common_voice(tmp_path):
    write_tone(tmp_path / "clips" / "one.mp3")
    for split in ("train", "dev", "test"):
        rows = 'abc\tone.mp3\tHe said "yes\t2\n' if split == "train" else ""
        (tmp_path / f"{split}.tsv").write_text("client_id\tpath\tsentence\tup_votes\n" + rows)
    (utterance,) = dataset.read_corpus(tmp_path)
    assert names([utterance]) == [('He said "yes', "abc", "train")]
    assert len(utterance.read()) == pytest.approx(3200, abs=1600)


def test_an_unknown_layout_and_an_unknown_split_are_explained(tmp_path):
    with pytest.raises(ValueError, match=r"must be a manifest or a folder that has one of: manifest\.\*"):
        dataset.read_corpus(tmp_path)
    utterances = [dataset.Utterance("a.wav", "A", split="train")]
    assert dataset.of_split(utterances, "train") == utterances
    with pytest.raises(ValueError, match="There is no split 'dev'. Splits found: train"):
        dataset.of_split(utterances, "dev")


@pytest.fixture
def digits(tmp_path):
    return [
        dataset.Utterance(str(write_tone(tmp_path / f"{speaker}{digit}.wav", 0.1 * digit)), str(digit), speaker)
        for speaker in ("ann", "bob")
        for digit in (1, 2, 3)
    ]


def test_digits_are_joined_with_pauses_and_known_times(digits):
    for joined in dataset.join_utterances(digits, 5, seed=3, lengths=(3, 3), single=0.0):
        waveform, times = joined.read_with_times()
        assert len({part.speaker for part in joined.parts}) == 1
        assert joined.transcript == " ".join(part.transcript for part in joined.parts)
        assert len(times) == len(joined.parts) == len(joined.pauses) - 1 == 3
        assert len(waveform) / SAMPLE_RATE == pytest.approx(times[-1][1] + joined.pauses[-1], abs=1e-3)
        for (start, end), part in zip(times, joined.parts, strict=True):
            spoken = waveform[round(start * SAMPLE_RATE) : round(end * SAMPLE_RATE)]
            np.testing.assert_array_equal(spoken, part.read())
        before = waveform[: round(times[0][0] * SAMPLE_RATE)]
        assert np.abs(before).max(initial=0) < 0.02


def test_what_is_quiet_around_a_digit_is_no_part_of_its_time(tmp_path):
    waveform = np.concatenate([np.zeros(1600), 0.5 * np.sin(np.arange(4800)), np.zeros(3200)]).astype(np.float32)
    soundfile.write(tmp_path / "one.wav", waveform, SAMPLE_RATE)
    one = dataset.Utterance(str(tmp_path / "one.wav"), "ONE", "ann")
    _, times = dataset.JoinedUtterance((one, one), (0.3, 0.0, 0.2), 0).read_with_times()
    np.testing.assert_allclose(times, [(0.4, 0.7), (1.0, 1.3)], atol=0.021)


def test_strings_depend_on_the_seed_only(digits):
    first, again = (dataset.join_utterances(digits, 30, seed=1) for _ in range(2))
    assert first == again
    assert first != dataset.join_utterances(digits, 30, seed=2)
    np.testing.assert_array_equal(first[0].read(), again[0].read())
    sizes = {len(joined.parts) for joined in dataset.join_utterances(digits, 300, seed=1)}
    assert sizes == set(range(1, 9))
