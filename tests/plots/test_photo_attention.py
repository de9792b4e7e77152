import re

import numpy as np
import pytest
from PIL import Image

from attention_apps.plots.photo_attention import PhotoAttention, draw_photo_attention, write_photo_attention
from tests.browser import open_browser

ROWS, COLUMNS = 3, 4
WORDS = ["a", "$dog", "<b>"]


def look_at(*cells):
    weights = np.zeros((len(cells), ROWS, COLUMNS), np.float32)
    for word, (row, column) in enumerate(cells):
        weights[word, row, column] = 1
    return weights


SHOWN = PhotoAttention(np.full((90, 160, 3), 200, np.uint8), WORDS, look_at((0, 0), (2, 3), (1, 1)))
ALTERNATIVES = [("a $dog <b>", -0.25), ("a </script><i>cat", -1.5)]


def panels(path):
    """How many pictures stand in a figure on white, side by side in its first row, and one below the other."""
    dark = np.asarray(Image.open(path).convert("L")) < 250
    across, down = dark.any(0), dark.any(1)
    return [int(np.sum(np.diff(line.astype(int), prepend=0) == 1)) for line in (across, down)]


def test_the_photo_and_a_panel_for_each_word_are_drawn(tmp_path):
    draw_photo_attention(SHOWN, tmp_path / "a.png")
    assert panels(tmp_path / "a.png")[0] == 4


def test_many_words_make_several_rows(tmp_path):
    draw_photo_attention(PhotoAttention(SHOWN.pixels, ["x"] * 11, look_at(*[(0, 0)] * 11)), tmp_path / "a.png")
    assert panels(tmp_path / "a.png")[0] == 5


def test_what_was_looked_at_is_bright_and_the_rest_dim(tmp_path):
    one = PhotoAttention(SHOWN.pixels, ["here"], look_at((0, 0)))
    draw_photo_attention(one, tmp_path / "a.png")
    picture = np.asarray(Image.open(tmp_path / "a.png").convert("L")).astype(int)
    height, width = picture.shape
    panel = picture[height // 4 :, width // 2 + 10 : -10]
    assert panel[: height // 10, : width // 16].mean() > 150
    assert panel[-height // 4 : -height // 8, -width // 8 :].mean() < 80


@pytest.mark.parametrize("size", [(1, 1), (1, 1000), (1000, 1)])
def test_any_shape_of_photo_and_no_words(tmp_path, size):
    for words, weights in ((["x"], look_at((1, 2))), ([], np.zeros((0, ROWS, COLUMNS)))):
        shown = PhotoAttention(np.zeros((*size, 3), np.uint8), words, weights)
        draw_photo_attention(shown, tmp_path / "a.png")
        write_photo_attention(shown, [("x", 0.0)], tmp_path / "a.html")
        assert min(Image.open(tmp_path / "a.png").size) > 50


def test_weights_of_zero_are_drawn_as_darkness(tmp_path):
    draw_photo_attention(PhotoAttention(SHOWN.pixels, ["x"], np.zeros((1, ROWS, COLUMNS))), tmp_path / "a.png")
    picture = np.asarray(Image.open(tmp_path / "a.png").convert("L")).astype(int)
    height, width = picture.shape
    middle = slice(height // 2 - 20, height // 2 + 20)
    assert picture[middle, width // 5 : width // 3].min() > 190
    assert picture[middle, -width // 3 : -width // 5].max() < 80


def test_a_page_is_escaped_and_needs_nothing_from_elsewhere(tmp_path):
    write_photo_attention(SHOWN, ALTERNATIVES, tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "&lt;b&gt;" in page
    assert "a &lt;/script&gt;&lt;i&gt;cat" in page
    assert not {"<b>", "<i>", "</script>"} & set(re.findall(r"</?\w+>", page))
    assert "http" not in page
    assert {link[:11] for link in re.findall(r'src="([^"]*)"', page)} == {"data:image/"}
    assert "url(" not in page


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "where.html"
    write_photo_attention(SHOWN, ALTERNATIVES, path)
    return path


def brightness(browser, row, column):
    """How bright the middle of a region of the photo is on the screen, once it has stopped to change."""
    browser.run("return document.getAnimations().forEach(one => one.finish())")
    script = "return document.querySelector('.photo-attention > img').getBoundingClientRect().toJSON()"
    photo = browser.run(script)
    x = photo["left"] + photo["width"] * (column + 0.5) / COLUMNS
    y = photo["top"] + photo["height"] * (row + 0.5) / ROWS
    return browser.screenshot()[int(y), int(x)].mean()


def test_in_a_browser_pointing_at_a_word_lights_up_where_the_model_looked(page):
    with open_browser() as browser:
        browser.open(page)
        assert brightness(browser, 0, 0) == brightness(browser, 2, 3) == pytest.approx(200, abs=3)
        browser.hover(".word:nth-of-type(1)")
        assert brightness(browser, 0, 0) > 150
        assert brightness(browser, 2, 3) < 80
        browser.hover(".word:nth-of-type(2)")
        assert brightness(browser, 0, 0) < 80
        assert brightness(browser, 2, 3) > 150
        browser.hover("ol")
        assert brightness(browser, 0, 0) == brightness(browser, 2, 3) == pytest.approx(200, abs=3)
        browser.press_tab()
        assert browser.run("return document.activeElement.textContent") == "a"
        assert brightness(browser, 0, 0) > 150
        assert brightness(browser, 2, 3) < 80
        assert browser.run("return document.querySelector('ol').innerText").splitlines() == [
            "-0.250 a $dog <b>",
            "-1.500 a </script><i>cat",
        ]
