import html
import json
import re
import time

import matplotlib
import numpy as np
import pytest
from PIL import Image

from attention_apps.plots.alignment import Alignment, draw_alignments, write_alignments
from tests.browser import open_browser

ONE = Alignment(["A$", "<b>"], ["x", "</script>", "日"], np.array([[1.0, 0.0, 0.0], [0.25, 0.5, 0.25]]), [False, True])
EMPTY = Alignment([], ["x"], np.zeros((0, 1)), [])


@pytest.mark.parametrize("alignments", [[ONE], [ONE, ONE], [EMPTY], []])
def test_a_picture_is_drawn(alignments, tmp_path):
    draw_alignments(alignments, tmp_path / "a.png")
    assert min(Image.open(tmp_path / "a.png").size) > 50


def test_two_passages_make_a_taller_picture(tmp_path):
    for count in (1, 2):
        draw_alignments([ONE] * count, tmp_path / f"{count}.png")
    heights = [Image.open(tmp_path / f"{count}.png").size[1] for count in (1, 2)]
    assert heights[1] > 1.5 * heights[0]


def test_a_page_holds_words_and_weights_and_nothing_from_elsewhere(tmp_path):
    write_alignments([ONE, EMPTY], tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    assert "http" not in page
    weights = re.findall(r'<script type="application/json">(.*?)</script>', page)
    assert json.loads(weights[0]) == ONE.weights.tolist()
    assert len(weights) == 2
    assert 'class="copied"' in page


def test_marks_stand_where_people_put_them(tmp_path):
    words = ["He", "(", "Bob", "'s", ")", "pays", "$", "3", ",", "he", "said", "-", "twice", "!"]
    write_alignments([Alignment(words, words, np.eye(len(words)), [False] * len(words))], tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    plain = html.unescape(re.sub("<[^>]*>", "", page[page.index("<h2") : page.index("</h2>")]))
    assert plain == "He (Bob's) pays $3, he said - twice!"


@pytest.mark.parametrize(
    ("alignments", "title"),
    [
        ([Alignment(["'"] * 200_000, ["'"] * 200_000, None, [True] * 200_000)], "of 200,000 written and 200,000 read"),
        ([ONE] * 5000, "The first 5 of 5,000 passages"),
        ([Alignment(["x" * 200_000], ["y"], np.ones((1, 1)), [True])], "xxx"),
    ],
    ids=["words", "passages", "letters"],
)
def test_a_long_text_is_drawn_in_part_and_in_little_time(alignments, title, tmp_path):
    start = time.process_time()
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        draw_alignments(alignments, tmp_path / "a.svg")
    assert time.process_time() - start < 20
    assert title in (tmp_path / "a.svg").read_text()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Glyph")
def test_the_largest_picture_takes_seconds(tmp_path):
    start = time.process_time()
    draw_alignments([Alignment(["漢" * 40] * 101, ["漢" * 40] * 401, None, [True] * 101)] * 11, tmp_path / "a.png")
    assert time.process_time() - start < 20


def test_the_page_of_a_long_copied_text_grows_with_the_text_only(tmp_path):
    words = ["word"] * 50_000
    write_alignments([Alignment(words, words, None, [True] * len(words))], tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text()
    assert '<script type="application/json">null</script>' in page
    assert len(page) < 100 * len(words)


def test_an_empty_page_is_a_page(tmp_path):
    write_alignments([], tmp_path / "a.html")
    assert "<section>" not in (tmp_path / "a.html").read_text()


def test_in_a_browser_pointing_at_a_word_colors_what_was_read_for_it(tmp_path):
    write_alignments([ONE], tmp_path / "a.html")
    colors = "return [...document.querySelectorAll('.source span')].map(word => word.style.background)"
    shown = "return [...document.querySelectorAll('.written .shown')].map(word => word.innerText)"
    full, half, none = (f"rgba(255, 140, 0, {share})" for share in (0.8, 0.4, 0))
    with open_browser() as browser:
        browser.open(tmp_path / "a.html")
        assert browser.run(shown) == ["A$"]
        assert browser.run(colors) == [full, none, none]
        browser.hover(".written span:nth-of-type(2)")
        assert browser.run(shown) == ["<b>"]
        assert browser.run(colors) == [half, full, half]


def test_in_a_browser_copied_words_point_at_themselves(tmp_path):
    write_alignments([Alignment(["a", "b"], ["a", "b"], None, [True, True])], tmp_path / "a.html")
    with open_browser() as browser:
        browser.open(tmp_path / "a.html")
        browser.hover(".written span:nth-of-type(2)")
        colors = "return [...document.querySelectorAll('.source span')].map(word => word.style.background)"
        assert browser.run(colors) == ["rgba(255, 140, 0, 0)", "rgba(255, 140, 0, 0.8)"]
