import numpy as np
import pytest
from PIL import Image

from attention_apps import Caption

PIXELS = np.full((30, 40, 3), 90, np.uint8)
CAPTION = Caption(
    text="a dog",
    score=-0.5,
    tokens=["a", "dog"],
    alternatives=[("a dog", -0.5), ("a <cat>", -0.75)],
    attention=np.full((2, 2, 2), 0.25),
    source="photo.jpg",
    pixels=PIXELS,
)


@pytest.mark.parametrize("name", ["where.png", "where.svg", "where.pdf"])
def test_a_plot_is_written_in_the_format_of_its_name(name, tmp_path):
    CAPTION.plot(tmp_path / name)
    beginnings = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    assert (tmp_path / name).read_bytes().startswith(beginnings[name[-3:]])


def test_a_plot_has_a_panel_more_than_words(tmp_path):
    CAPTION.plot(tmp_path / "two.png")
    Caption("a", 0.0, ["a"], [("a", 0.0)], np.ones((1, 2, 2)), pixels=PIXELS).plot(tmp_path / "one.png")
    two, one = (Image.open(tmp_path / name).size[0] for name in ("two.png", "one.png"))
    assert two == pytest.approx(one * 3 / 2, abs=2)


def test_a_page_and_a_notebook_show_the_same(tmp_path):
    CAPTION.to_html(tmp_path / "where.html")
    page = (tmp_path / "where.html").read_text(encoding="utf-8")
    assert CAPTION._repr_html_() in page
    assert "a &lt;cat&gt;" in page
    assert "-0.750" in page


def test_a_short_repr_has_neither_pixels_nor_source():
    assert "a dog" in repr(CAPTION)
    assert "pixels" not in repr(CAPTION)


def test_a_caption_without_a_photo_says_so(tmp_path):
    failed = Caption.failed("photo.jpg", "Image file not found: photo.jpg")
    for show in (failed.plot, failed.to_html):
        with pytest.raises(ValueError, match=r"has no photo to show\. Image file not found: photo\.jpg"):
            show(tmp_path / "where.html")
    assert failed._repr_html_() is None
    assert (failed.text, failed.score, failed.confidence, failed.unsure) == ("", -np.inf, 0.0, False)
