import re
import time
from dataclasses import replace
from types import SimpleNamespace

import matplotlib
import numpy as np
from PIL import Image

from attention_apps.plots.speech import SpeechAlignment, draw_speech, write_speech

WORDS = [SimpleNamespace(word="A$<b>", start=1.0, end=1.5, confidence=0.25)]


def make_piece(**changes):
    return replace(SpeechAlignment(1.0, 1.4, np.float16([[-0.5, 0.25], [-1, 0.5]]), WORDS), **changes)


def say_at(*starts):
    return [SimpleNamespace(word=f"w{start:g}", start=start, end=start + 0.5, confidence=1.0) for start in starts]


def test_a_picture_is_drawn_with_the_words(tmp_path):
    draw_speech([make_piece(), make_piece(start=1.4, end=1.8)], tmp_path / "speech.png")
    assert (tmp_path / "speech.png").read_bytes().startswith(b"\x89PNG")
    figure = draw_speech([make_piece()])
    assert [text.get_text() for text in figure.axes[0].texts] == [" A$<b>"]


def test_silence_and_nothing_are_drawn_too(tmp_path):
    silent = make_piece(envelope=np.zeros((1, 2), np.float16), words=[])
    draw_speech([silent], tmp_path / "silent.svg")
    draw_speech([], tmp_path / "nothing.svg")
    assert "<svg" in (tmp_path / "silent.svg").read_text()
    assert "<table>" in write_speech([])


def test_a_piece_becomes_rows_and_a_word_is_in_the_row_in_which_it_begins():
    envelope = np.repeat([[-0.25, 0.5], [-1, 0.75]], 1000, axis=0)
    piece = SpeechAlignment(2.0, 14.0, envelope, say_at(2.0, 7.9, 8.0, 14.0))
    figure = draw_speech([piece])
    assert [[text.get_text() for text in axis.texts] for axis in figure.axes] == [[" w2", " w7.9"], [" w8", " w14"]]
    assert [axis.get_xlim() for axis in figure.axes] == [(2, 8.5), (8, 14.5)]
    page = write_speech([piece])
    rows = re.findall(r'points="(.*?)".*?<div class="axis">(.*?)</div>', page, re.S)
    assert [re.findall(">(w.*?)<", words) for _, words in rows] == [["w2", "w7.9"], ["w8", "w14"]]
    heights = [{int(point.split(",")[1]) for point in points.split()} for points, _ in rows]
    assert heights == [{25, 62}, {12, 100}]  # 0 is as loud as the loudest sample, 50 is silence


def test_the_page_has_each_word_at_its_place_and_no_markup_of_its_own(tmp_path):
    write_speech([make_piece(end=3.0)], tmp_path / "speech.html")
    page = (tmp_path / "speech.html").read_text()
    assert "<b>" not in page
    assert "A$&lt;b&gt;" in page
    assert "left: 0.00%; width: 25.00%; --sure: 0.25" in page
    assert "1.00 to 1.50 s" in page


def test_a_long_recording_is_drawn_in_part_and_in_little_time(tmp_path):
    piece = make_piece(end=30.0, envelope=np.zeros((100_000, 2), np.float16), words=WORDS * 5000)
    start = time.process_time()
    pieces = [make_piece(start=float(second), end=second + 1.0) for second in range(20_000)]
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        draw_speech(pieces, tmp_path / "many.svg")
    draw_speech([piece], tmp_path / "long.png")
    assert time.process_time() - start < 60
    assert "The first 30 of 20,000 s" in (tmp_path / "many.svg").read_text()
    assert max(Image.open(tmp_path / "long.png").size) <= 6000


def test_a_short_recording_is_drawn_whole(tmp_path):
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        draw_speech([make_piece()] * 3, tmp_path / "speech.svg")
    assert "The first" not in (tmp_path / "speech.svg").read_text()


def test_every_word_is_on_the_page(tmp_path):
    write_speech([make_piece()] * 500, tmp_path / "speech.html")
    assert (tmp_path / "speech.html").read_text().count("<tr><td>") == 500
