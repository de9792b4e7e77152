import numpy as np
import pytest

from attention_apps.applications.recognition.transcript import SpokenWord, Transcript, TranscriptPart


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
    failed = Transcript.failed("a.wav", "broken")
    assert (failed.text, failed.words, failed.tokens, failed.alternatives, failed.seconds) == ("", [], [], [], 0.0)
    assert failed.score == -np.inf
    assert failed.confidence == 0
    assert failed.to_srt() == ""
    assert failed.to_vtt() == "WEBVTT\n"


def test_confidence_is_the_mean_over_the_letters():
    parts = [make_part(0.0, 1.0, "AB", [], confidence=0.9), make_part(1.0, 2.0, "ABCDEF", [], confidence=0.5)]
    silence = TranscriptPart.silent(2.0, 3.0)
    assert Transcript([*parts, silence]).confidence == pytest.approx((2 * 0.9 + 6 * 0.5) / 8)


@pytest.mark.parametrize(("threshold", "unsure"), [(0.0, False), (0.4, False), (0.6, True)])
def test_a_text_below_the_threshold_is_unsure(threshold, unsure):
    assert Transcript([make_part(0.0, 1.0, "AB", [])], threshold=threshold).unsure is unsure


def test_a_text_that_was_withheld_is_unsure_and_silence_is_not():
    withheld = Transcript([make_part(0.0, 1.0, "", [], confidence=0.2)])
    assert (withheld.text, withheld.confidence, withheld.unsure) == ("", pytest.approx(0.2), True)
    silent = Transcript([TranscriptPart.silent(0.0, 1.0)], threshold=0.9)
    assert (silent.text, silent.confidence, silent.unsure) == ("", 0.0, False)
    assert silent.alternatives == [("", 0.0)]


def test_it_is_drawn_and_written_as_a_page(transcript, tmp_path):
    transcript.plot(tmp_path / "a.png")
    transcript.to_html(tmp_path / "a.html")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert "N&lt;O" in (tmp_path / "a.html").read_text()


def test_the_attention_of_a_very_long_recording_is_left_to_its_parts():
    assert Transcript([make_part(3600.0, 3640.0, "A" * 400, [])]).attention is None
