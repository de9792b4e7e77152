import numpy as np
import pytest
from PIL import Image

from attention_apps.applications.captioning.caption import (
    Box,
    Caption,
    boxes_of_words,
    count_pointing,
    join_boxes,
    pointing_game,
    read_boxes,
    regions_of_boxes,
)

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
    failed = Caption(error="Image file not found: photo.jpg", source="photo.jpg")
    for show in (failed.plot, failed.to_html):
        with pytest.raises(ValueError, match=r"has no photo to show\. Image file not found: photo\.jpg"):
            show(tmp_path / "where.html")
    assert failed._repr_html_() is None
    assert (failed.text, failed.score, failed.confidence, failed.unsure) == ("", -np.inf, 0.0, False)


CAT, TABLE = Box("cat", 0.0, 0.0, 0.5, 0.25), Box("dining table", 0.5, 0.5, 1.0, 1.0)


def make_caption(words, points, side=4):
    attention = np.full((len(words), side, side), 0.01)
    for word, (row, column) in enumerate(points):
        attention[word, row, column] = 1.0
    return Caption(" ".join(words), 0.0, words, [], attention)


def test_a_word_names_the_boxes_of_its_class():
    words = ["two", "kittens", "on", "a", "table", "cats", "buses"]
    named = boxes_of_words(words, [CAT, TABLE, Box("bus", 0, 0, 1, 1)])
    assert [bool(boxes) for boxes in named] == [False, True, False, False, True, True, True]
    assert named[1] == [CAT]
    assert named[4] == [TABLE]


def test_the_regions_of_a_box_have_their_centers_in_it():
    regions = regions_of_boxes([CAT], 4).reshape(4, 4)
    assert regions.tolist() == [[True, True, False, False]] + [[False] * 4] * 3


def test_a_box_without_any_center_has_the_region_around_it():
    regions = regions_of_boxes([Box("cat", 0.76, 0.3, 0.8, 0.32)], 4).reshape(4, 4)
    assert np.argwhere(regions).tolist() == [[1, 3]]


def test_no_boxes_have_no_regions():
    assert not regions_of_boxes([], 4).any()


def test_the_strongest_region_inside_a_box_is_a_hit():
    caption = make_caption(["a", "cat", "on", "table"], [(3, 3), (0, 1), (0, 0), (0, 0)])
    words, hits, middle, chance = count_pointing(caption, [CAT, TABLE])
    assert (words, hits, middle) == (2, 1, 1)  # the middle is the corner of the table
    assert chance == pytest.approx(2 / 16 + 4 / 16)


def test_a_failed_caption_counts_nothing():
    assert not count_pointing(Caption(error="broken", source="photo.jpg"), [CAT]).any()


def test_the_game_is_scored_over_words_not_photos():
    scores = pointing_game([np.array([3, 3, 0, 1.5]), np.array([1, 0, 1, 0.5]), np.zeros(4)])
    assert scores["pointing"].score == 3 / 4
    assert scores["pointing_middle"].score == 1 / 4
    assert scores["pointing_chance"].score == 1 / 2
    assert scores["pointing"].details == {"words": 4.0}


def test_without_a_named_object_there_is_no_score():
    assert pointing_game([np.zeros(4)]) == {}


def test_boxes_are_joined_by_the_name_of_the_photo(tmp_path):
    table = tmp_path / "boxes.tsv"
    table.write_text("image\tclass\tleft\ttop\tright\tbottom\na.jpg\tcat\t0\t0\t0.5\t0.25\n")
    rows = [{"image": "photos/a.jpg", "caption": "a cat"}, {"image": "b.jpg", "caption": "a dog"}]
    with_box, without = join_boxes(rows, table)
    assert read_boxes(with_box["boxes"]) == [CAT]
    assert "boxes" not in without


def test_boxes_may_be_json_text():
    assert read_boxes('[["cat", 0, 0, 0.5, 0.25]]') == [CAT]
    assert read_boxes(None) == []


@pytest.mark.parametrize(
    "values", [["cat", 0.5, 0, 0.2, 1], ["cat", 0, 0, 1], ["cat", "x", 0, 1, 1], ["cat", 0, 0, 2, 1]]
)
def test_a_bad_box_is_shown(values):
    with pytest.raises(ValueError, match="Received: .*cat"):
        Box.from_list(values)
