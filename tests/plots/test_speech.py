import time
from dataclasses import replace
from types import SimpleNamespace

import matplotlib
import numpy as np
from PIL import Image

from attention_apps.plots.speech import SpeechAlignment, draw_speech, write_speech

WORDS = [SimpleNamespace(word="A$<b>", start=1.0, end=1.5, confidence=0.25)]


def make_piece(**changes):
    features, weights = np.zeros((40, 7), np.float16), np.eye(3, 10, dtype=np.float32)
    return replace(SpeechAlignment(1.0, 1.4, features, "A$<", weights, WORDS), **changes)


def test_a_picture_is_drawn(tmp_path):
    draw_speech([make_piece(), make_piece(start=1.4, end=1.8)], tmp_path / "speech.png")
    assert (tmp_path / "speech.png").read_bytes().startswith(b"\x89PNG")


def test_silence_and_nothing_are_drawn_too(tmp_path):
    silent = make_piece(letters="", weights=np.zeros((0, 1), np.float32), words=[])
    draw_speech([silent], tmp_path / "silent.svg")
    draw_speech([], tmp_path / "nothing.svg")
    assert "<svg" in (tmp_path / "silent.svg").read_text()


def test_the_page_has_each_word_at_its_place_and_no_markup_of_its_own(tmp_path):
    write_speech([make_piece(end=3.0)], tmp_path / "speech.html")
    page = (tmp_path / "speech.html").read_text()
    assert "<b>" not in page
    assert "A$&lt;b&gt;" in page
    assert "left: 0.00%; width: 25.00%; --sure: 0.25" in page
    assert "1.00 to 1.50 s" in page


def test_a_long_recording_is_drawn_in_part_and_in_little_time(tmp_path):
    piece = make_piece(
        features=np.zeros((100_000, 7), np.float16),
        letters="A" * 5000,
        weights=np.zeros((5000, 30_000), np.float32),
        words=WORDS * 5000,
    )
    start = time.process_time()
    pieces = [make_piece(start=float(second), end=second + 1.0) for second in range(20_000)]
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        draw_speech(pieces, tmp_path / "many.svg")
    draw_speech([piece], tmp_path / "long.png")
    assert time.process_time() - start < 60
    assert "The first 12 of 20,000 pieces, up to 12 s" in (tmp_path / "many.svg").read_text()
    assert max(Image.open(tmp_path / "long.png").size) <= 6000


def test_a_short_recording_is_drawn_whole(tmp_path):
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        draw_speech([make_piece()] * 3, tmp_path / "speech.svg")
    assert "The first" not in (tmp_path / "speech.svg").read_text()


def test_every_word_is_on_the_page(tmp_path):
    write_speech([make_piece()] * 500, tmp_path / "speech.html")
    assert (tmp_path / "speech.html").read_text().count("<tr><td>") == 500
