from itertools import pairwise

import numpy as np
import pytest
import tensorflow as tf

from attention_apps.applications.recognition.transcript import (
    SpokenWord,
    Transcript,
    TranscriptPart,
    spoken_words,
    token_spans,
)


def make_part(start, end, text, words, alternatives=2, confidence=0.5):
    letters = list(text)
    frames = round((end - start) / 0.04)
    attention = np.zeros((len(letters), frames), np.float32)
    attention[np.arange(len(letters)), np.arange(len(letters))] = 1
    ranked = [(text, -1.0), (text + "X", -2.0)][:alternatives]
    envelope = np.random.default_rng(0).normal(size=(4 * frames, 2)).astype(np.float16)
    return TranscriptPart(start, end, -1.0, letters, ranked, attention, words, confidence, envelope)


@pytest.fixture
def transcript():
    first = [SpokenWord("GO", 0.1, 0.5, 0.9), SpokenWord("ON", 0.6, 0.9, 0.8)]
    parts = [
        make_part(0.0, 2.0, "GO ON", first),
        make_part(2.0, 3.0, "", [], alternatives=1),
        make_part(3.0, 5.0, "N<O", [SpokenWord("N<O", 3661.0, 3662.5, 0.7)]),
    ]
    return Transcript(parts, 0.04, source="call.wav")


def test_the_pieces_are_joined(transcript):
    assert transcript.text == "GO ON N<O"
    assert "".join(transcript.tokens) == "GO ON N<O"
    assert transcript.score == -3
    assert transcript.seconds == 5
    assert [word.word for word in transcript.words] == ["GO", "ON", "N<O"]
    assert transcript.confidence == pytest.approx(0.5)


def test_alternatives_are_joined_rank_by_rank_though_silence_has_one(transcript):
    assert transcript.alternatives == [("GO ON N<O", -3.0), ("GO ONX N<OX", -5.0)]


def test_attention_has_each_piece_where_it_was_heard(transcript):
    attention = transcript.attention
    assert attention.shape == (9, 125)
    assert attention[0, 0] == 1
    assert attention[4, 4] == 1
    assert attention[5].sum() == 0  # the space that joins two pieces
    assert attention[6, 75] == 1


def test_subtitles_break_at_long_pauses(transcript):
    assert transcript.to_srt() == ("1\n00:00:00,100 --> 00:00:00,900\nGO ON\n\n2\n01:01:01,000 --> 01:01:02,500\nN<O\n")


def test_subtitles_for_web_pages_escape_what_would_be_a_tag(transcript):
    expected = "WEBVTT\n\n00:00:00.100 --> 00:00:00.900\nGO ON\n\n01:01:01.000 --> 01:01:02.500\nN&lt;O\n"
    assert transcript.to_vtt() == expected


def test_subtitles_break_where_a_line_is_full():
    words = [SpokenWord("WORDS", 0.5 * number, 0.5 * number + 0.4, 1.0) for number in range(20)]
    lines = Transcript([make_part(0.0, 11.0, "", words)]).to_srt().split("\n")
    texts = [line for line in lines if line.startswith("WORDS")]
    assert len(texts) == 3
    assert max(map(len, texts)) <= 42


def test_a_failure_has_an_error_and_nothing_else():
    failed = Transcript(error="broken", source="a.wav")
    assert (failed.text, failed.words, failed.tokens, failed.alternatives, failed.seconds) == ("", [], [], [], 0.0)
    assert failed.score == -np.inf
    assert failed.confidence == 0
    assert failed.to_srt() == ""
    assert failed.to_vtt() == "WEBVTT\n"


def test_confidence_is_the_mean_over_the_letters():
    parts = [make_part(0.0, 1.0, "AB", [], confidence=0.9), make_part(1.0, 2.0, "ABCDEF", [], confidence=0.5)]
    silence = TranscriptPart(2.0, 3.0)
    assert Transcript([*parts, silence]).confidence == pytest.approx((2 * 0.9 + 6 * 0.5) / 8)


@pytest.mark.parametrize(("threshold", "unsure"), [(0.0, False), (0.4, False), (0.6, True)])
def test_a_text_below_the_threshold_is_unsure(threshold, unsure):
    assert Transcript([make_part(0.0, 1.0, "AB", [])], threshold=threshold).unsure is unsure


def test_a_text_that_was_withheld_is_unsure_and_silence_is_not():
    withheld = Transcript([make_part(0.0, 1.0, "", [], confidence=0.2)])
    assert (withheld.text, withheld.confidence, withheld.unsure) == ("", pytest.approx(0.2), True)
    silent = Transcript([TranscriptPart(0.0, 1.0)], threshold=0.9)
    assert (silent.text, silent.confidence, silent.unsure) == ("", 0.0, False)
    assert silent.alternatives == [("", 0.0)]


def test_it_is_drawn_and_written_as_a_page(transcript, tmp_path):
    transcript.plot(tmp_path / "a.png")
    transcript.to_html(tmp_path / "a.html")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert "N&lt;O" in (tmp_path / "a.html").read_text()


def test_the_attention_of_a_very_long_recording_is_left_to_its_parts():
    assert Transcript([make_part(3600.0, 3640.0, "A" * 400, [])]).attention is None


ALL_LOUD = np.ones(300, bool)


def find_words(rows):
    """The words of rows of letters, spans, confidences, loud frames and seconds, padded to one batch."""
    letters, spans, confidences, loud, seconds = zip(*rows, strict=True)
    size, frames = max(1, *map(len, letters)), max(map(len, loud))
    outputs = spoken_words(
        tf.constant([[*row] + [""] * (size - len(row)) for row in letters]),
        tf.constant([[*row] + [[0, 1]] * (size - len(row)) for row in spans], tf.int32),
        tf.constant([[*row] + [0.0] * (size - len(row)) for row in confidences]),
        0.04,
        tf.constant([np.pad(row, (0, frames - len(row)), constant_values=True) for row in loud], tf.bool),
        tf.constant([len(row) for row in loud]),
        tf.constant(seconds, tf.float64),
    )
    names = ("words", "start", "end", "word_confidence")
    table = zip(*(outputs[name].numpy().tolist() for name in names), strict=True)
    return [[SpokenWord(word.decode(), *rest) for word, *rest in zip(*row, strict=True) if word] for row in table]


def row_of(letters, spans, loud=ALL_LOUD, seconds=3.0, confidences=None):
    return letters, spans, confidences or [1.0] * len(letters), loud, seconds


def words_of(*given, **named):
    return find_words([row_of(*given, **named)])[0]


def between(first, end):
    loud = np.zeros(300, bool)
    loud[first:end] = True
    return loud


def test_words_are_what_is_between_spaces():
    spans = [[place, place + 1] for place in range(9)]
    assert [word.word for word in words_of("  ÄB  C  ", spans)] == ["ÄB", "C"]
    assert words_of("", []) == words_of("   ", spans[:3]) == []


def test_sub_words_with_a_space_in_front_begin_a_word():
    spans = [[place, place + 1] for place in range(6)]
    words = words_of([" Go", "ing", " ", "on", ",", " so"], spans)
    assert [word.word for word in words] == ["Going", "on,", "so"]


def test_punctuation_has_no_time_of_its_own():
    tokens = [' "', "So", ",", " -"]
    so, dash = words_of(tokens, [[2, 3], [25, 26], [60, 61], [65, 66]], between(100, 110))
    assert (so.word, dash.word) == ('"So,', "-")
    assert so[1:3] == pytest.approx((1.0, 1.1))
    assert dash.start >= 1.1


def test_a_word_lasts_as_long_as_the_sound_around_its_letters():
    (word,) = words_of("AB", [[25, 26], [33, 34]], between(90, 150))
    assert word[1:3] == pytest.approx((0.9, 1.5))


def test_letters_before_the_sound_do_not_count():
    (word,) = words_of("AB", [[20, 21], [36, 37]], between(100, 130))
    assert word[1:3] == pytest.approx((1.0, 1.3))


def test_the_sound_of_a_neighbor_is_not_taken():
    words = words_of("A B", [[20, 22], [25, 26], [30, 31]])
    assert words[0].end == words[1].start == pytest.approx((0.88 + 1.2) / 2, abs=0.02)
    assert words[0].start == pytest.approx(0.8 - 0.35, abs=0.01)


def test_times_stay_within_the_recording():
    (word,) = words_of("A", [[70, 80]], seconds=2.9)
    assert 0 <= word.start < word.end <= np.float32(2.9)


def test_where_there_are_no_levels_the_letters_alone_say_when():
    (word,) = words_of("A", [[1, 3]], loud=np.zeros(0, bool), seconds=0.2)
    assert word[1:3] == pytest.approx((0.04, 0.12))


def test_confidence_is_the_geometric_mean_over_the_letters():
    (word,) = words_of("AB", [[1, 2], [3, 4]], confidences=[0.9, 0.4])
    assert word.confidence == pytest.approx(0.6)


def test_a_recording_has_the_same_words_in_any_company():
    random = np.random.default_rng(0)
    rows = []
    for _ in range(40):
        letters = "".join(random.choice(list("ABÜ  "), int(random.integers(0, 12))))
        ends = np.sort(random.integers(0, 60, (2, len(letters))), axis=1)
        spans = [[first, first + 1 + last] for first, last in zip(ends[0], ends[1] % 3, strict=True)]
        frames = int(random.integers(5, 250))
        loud = np.cumsum(random.random(frames) < random.choice([0.03, 0.3])) % 2 == 1
        rows.append(row_of(letters, spans, loud, frames / 100, random.random(len(letters)).tolist()))
    together = find_words(rows)
    assert sum(map(len, together)) > 50
    for row, words in zip(rows[:12], together, strict=False):
        alone = find_words([row])[0]
        assert [word[:3] for word in alone] == [word[:3] for word in words]
        assert [word.confidence for word in alone] == pytest.approx([word.confidence for word in words])
        assert all(0 <= word.start <= word.end <= np.float32(row[4]) for word in words)
        assert all(left.end <= right.start for left, right in pairwise(words))


def test_without_an_alignment_attention_says_where_letters_are_and_never_goes_back():
    attention = np.stack([np.eye(9)[[2, 5, 4, 7]]] * 2)
    alignment = np.random.default_rng(0).integers(0, 7, (2, 4, 2))
    spans = token_spans(tf.constant(attention), tf.constant(alignment, tf.int32), tf.constant([True, False])).numpy()
    np.testing.assert_array_equal(spans[0], alignment[0])
    assert spans[1].tolist() == [[2, 3], [5, 6], [5, 6], [7, 8]]
    np.testing.assert_array_equal(token_spans(tf.constant(attention))[0], spans[1])
