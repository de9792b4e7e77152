import numpy as np
import pytest
import tensorflow as tf

from attention_apps.preprocessing.image_augmentation import (
    augment_image,
    jitter_colors,
    may_flip,
    random_cut,
)
from attention_apps.preprocessing.image_graph import resize_image

HEIGHT, WIDTH, SIZE = 40, 60, 16
UNCHANGED = {"smallest_area": 1.0, "largest_stretch": 1.0, "jitter": 0.0}


@pytest.fixture(scope="module")
def photo():
    rows, columns = np.mgrid[0:HEIGHT, 0:WIDTH]
    return np.stack([rows * 6, columns * 4, 250 - rows * 3], -1).astype(np.uint8)


@pytest.fixture(scope="module")
def augment():
    return tf.function(augment_image)


def test_a_photo_is_flipped_only_if_no_caption_names_a_side():
    assert may_flip(["A dog runs .", "Two brown dogs on a bright day ."])
    assert may_flip([])
    for caption in (
        "A man on the left waves .",
        "the RIGHT hand",
        "a left-handed player",
        "the rightmost child",
    ):
        assert not may_flip(["A man waves .", caption])


def test_the_same_seed_gives_the_same_photo(photo, augment):
    first = augment(photo, (3, 5), SIZE)
    assert first.dtype == tf.uint8
    assert first.shape == (SIZE, SIZE, 3)
    np.testing.assert_array_equal(first, augment(photo, (3, 5), SIZE))
    np.testing.assert_array_equal(first, augment_image(photo, (3, 5), SIZE))
    assert (first.numpy() != augment(photo, (3, 6), SIZE).numpy()).any()


def test_half_of_the_photos_are_mirrored_if_they_may_be(photo, augment):
    plain = resize_image(photo, SIZE).numpy()
    mirrored = 0
    for seed in range(40):
        seed = tf.constant([1, seed])
        result = augment(photo, seed, SIZE, tf.constant(True), **UNCHANGED).numpy()
        mirrored += (result == plain[:, ::-1]).all()
        assert (result == plain).all() or (result == plain[:, ::-1]).all()
        kept = augment(photo, seed, SIZE, tf.constant(False), **UNCHANGED)
        np.testing.assert_array_equal(kept, plain)
    assert 10 <= mirrored <= 30


def test_a_cut_is_part_of_the_photo_and_as_large_as_asked_for(photo):
    shapes, corners = set(), set()
    for seed in range(60):
        cut = random_cut(tf.constant(photo), (7, seed), 0.5, 1.5).numpy()
        height, width, _ = cut.shape
        top, left = int(cut[0, 0, 0]) // 6, int(cut[0, 0, 1]) // 4  # the photo's colors tell the place
        np.testing.assert_array_equal(cut, photo[top : top + height, left : left + width])
        assert height * width >= 0.38 * HEIGHT * WIDTH  # half of it, less what stretching pushed over the edge
        shapes.add((height, width))
        corners.add((top, left))
    assert len(shapes) > 30
    assert len(corners) > 20


def test_a_cut_of_a_tiny_photo_has_a_pixel():
    for seed in range(5):
        assert random_cut(tf.zeros((1, 1, 3), tf.uint8), (0, seed), 0.1, 2.0).shape == (1, 1, 3)


def test_colors_change_by_no_more_than_asked_for(photo):
    np.testing.assert_array_equal(jitter_colors(photo, (0, 0), 0.0), photo)
    gray = np.full((4, 4, 3), 100, np.uint8)
    levels = [int(jitter_colors(gray, (2, seed), 0.2)[0, 0, 0]) for seed in range(50)]
    assert min(levels) >= 80
    assert max(levels) <= 120
    assert max(levels) - min(levels) > 25
    ranges = [np.ptp(jitter_colors(photo, (2, seed), 0.3).numpy().astype(int)) for seed in range(20)]
    assert max(ranges) > min(ranges)
