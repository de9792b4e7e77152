"""Error rates by length and by speaker."""

import soundfile

from attention_apps.metrics import wer
from attention_apps.preprocessing.audio import SAMPLE_RATE
from tests.recipes.loading import load

breakdown = load("breakdown", "speech_recognition")
TEXTS = ["a b", "a b c d", "a x", "x y z a"]
REFERENCES = ["a b", "a b c d", "a b", "a b c d"]


class FakeRecognizer:
    """Answers each recording with its text of `TEXTS`."""

    def manifest(self, path):
        return self

    def rows(self):
        return [FakeRow(audio, speaker) for audio, speaker in zip(self.sources, ("ann", "bob", "ann", "bob"))]

    def evaluate(self, path, quiet):
        self.sources = [str(path / f"{index}.wav") for index in range(4)]
        self.metrics = {"wer": wer(TEXTS, REFERENCES)}
        return self


class FakeRow(dict):
    def __init__(self, audio, speaker):
        super().__init__(audio=audio)
        self.values = {"speaker": speaker}


def test_rows_of_all_lengths_and_speakers(tmp_path):
    for index, seconds in enumerate((1, 9, 2, 3.5)):
        soundfile.write(tmp_path / f"{index}.wav", [0.0] * round(seconds * SAMPLE_RATE), SAMPLE_RATE)
    rows = [line.strip("| ").split(" | ") for line in breakdown.breakdown(FakeRecognizer(), tmp_path)[2:]]
    assert [(name, count, rate.split(" ")[0]) for name, count, rate in rows] == [
        ("all", "4", "41.7"),  # 5 of 12 words
        ("under 3 s", "2", "25.0"),
        ("3 to 4 s", "1", "100.0"),
        ("8 s and more", "1", "0.0"),
        ("ann", "2", "25.0"),
        ("bob", "2", "50.0"),
    ]
    assert rows[2][2] == "100.0 (100.0 to 100.0)"


def test_a_limit_belongs_to_the_longer_group():
    assert [breakdown.length_group(seconds) for seconds in (2.99, 3, 7.99, 8)] == [
        "under 3 s",
        "3 to 4 s",
        "6 to 8 s",
        "8 s and more",
    ]
