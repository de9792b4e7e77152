import io
import struct

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from attention_apps.preprocessing.image import read_image
from attention_apps.preprocessing.image_graph import (
    ImageStatus,
    augment_image,
    decode_in_graph,
    jitter_colors,
    map_rows_ignoring_errors,
    may_flip,
    random_cut,
    resize_image,
    to_rgb,
)
from tests.serving.fresh_process import call_in_fresh_process

SIZE = 12


def encode(shape, image_format, seed=0, **options):
    noise = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    buffer = io.BytesIO()
    PIL.Image.fromarray(noise).save(buffer, image_format, **options)
    return buffer.getvalue()


def turned(orientation):
    exif = PIL.Image.Exif()
    exif[0x010F] = "maker of cameras"
    exif[0x0112] = orientation
    return exif


GOOD = {
    "jpeg": encode((40, 30, 3), "JPEG"),
    "turned jpeg": encode((15, 30, 3), "JPEG", exif=turned(6)),
    "gray jpeg": encode((9, 30), "JPEG"),
    "png": encode((7, 5, 3), "PNG"),
    "turned png": encode((7, 19, 3), "PNG", exif=turned(8)),
    "transparent png": encode((20, 17, 4), "PNG"),
    "one pixel": encode((1, 1, 3), "PNG"),
    "gif": encode((23, 31), "GIF"),
    "bmp": encode((11, 13, 3), "BMP"),
}
BAD = {
    "empty": (b"", ImageStatus.BROKEN),
    "truncated jpeg": (GOOD["jpeg"][:300], ImageStatus.BROKEN),
    "truncated png": (GOOD["png"][:40], ImageStatus.BROKEN),
    "no header": (b"\x89PNG\r\n\x1a\n", ImageStatus.BROKEN),
    "text": (b"a text called .jpg", ImageStatus.UNSUPPORTED),
    "truncated gif": (GOOD["gif"][:-30], ImageStatus.BROKEN),
    "gif without a frame": (GOOD["gif"][:13] + b"\x3b", ImageStatus.BROKEN),
    "truncated bmp": (GOOD["bmp"][:-30], ImageStatus.BROKEN),
    "header of a bmp": (b"BM" + bytes(20), ImageStatus.BROKEN),
    "bmp with a table of colors": (encode((5, 5), "BMP"), ImageStatus.UNSUPPORTED),
    "webp": (encode((5, 5, 3), "WEBP"), ImageStatus.UNSUPPORTED),
    "bomb": (GOOD["png"][:16] + struct.pack(">II", 20000, 20000) + GOOD["png"][24:], ImageStatus.TOO_LARGE),
}


def exported(fit):
    module = tf.Module()
    signature = [tf.TensorSpec([None], tf.string)]
    module.decode = tf.function(lambda image_bytes: decode_in_graph(image_bytes, SIZE, fit), input_signature=signature)
    return module


@pytest.fixture(scope="module")
def decode():
    return exported("squash").decode


@pytest.mark.parametrize("fit", ["squash", "crop"])
def test_the_graph_and_the_application_see_the_same_pixels(fit):
    images, status = exported(fit).decode(list(GOOD.values()))
    assert images.dtype == tf.uint8
    assert images.shape == (len(GOOD), SIZE, SIZE, 3)
    np.testing.assert_array_equal(status, len(GOOD) * [ImageStatus.DECODED])
    for image, contents in zip(images, GOOD.values(), strict=True):
        np.testing.assert_array_equal(image, resize_image(read_image(contents), SIZE, fit))


def test_one_bad_image_does_not_fail_the_others(decode):
    for contents, expected in BAD.values():
        images, status = decode([GOOD["png"], contents, GOOD["jpeg"]])
        np.testing.assert_array_equal(status, [ImageStatus.DECODED, expected, ImageStatus.DECODED])
        assert not images[1].numpy().any()
        np.testing.assert_array_equal(images[0], resize_image(read_image(GOOD["png"]), SIZE))
        np.testing.assert_array_equal(images[2], resize_image(read_image(GOOD["jpeg"]), SIZE))


def test_all_bad_and_none_at_all(decode):
    images, status = decode([contents for contents, _ in BAD.values()])
    np.testing.assert_array_equal(status, [expected for _, expected in BAD.values()])
    assert not images.numpy().any()
    images, status = decode(tf.constant([], tf.string))
    assert images.shape == (0, SIZE, SIZE, 3)
    assert status.shape == (0,)


@pytest.mark.slow
def test_a_saved_model_decodes_without_this_package(decode, tmp_path):
    module = exported("squash")
    tf.saved_model.save(module, tmp_path / "model", signatures=module.decode)
    contents = [GOOD["turned jpeg"], BAD["truncated jpeg"][0], GOOD["transparent png"], BAD["bomb"][0]]
    calls = [("serving_default", {"image_bytes": contents})]
    (result,) = call_in_fresh_process(tmp_path / "model", calls, tmp_path)
    images, status = decode(contents)
    np.testing.assert_array_equal(result["output_0"], images)
    np.testing.assert_array_equal(result["output_1"], status)
    assert list(result["output_1"]) == [0, 1, 0, 3]


def test_squashing_keeps_everything_and_cropping_the_center():
    image = np.zeros((20, 60, 3), np.uint8)
    image[:, :20], image[:, 40:] = 200, 100
    for picture in (image, image.transpose(1, 0, 2)):
        squashed = resize_image(picture, 30, "squash").numpy()
        assert sorted(np.bincount(squashed[..., 0].ravel())[[0, 100, 200]]) == pytest.approx([300, 300, 300], abs=60)
        assert not resize_image(picture, 30, "crop").numpy().any()


def test_resizing_averages_what_it_leaves_out():
    stripes = np.tile(np.array([[[0], [200]]], np.uint8), (64, 32, 3))  # a plain bilinear resize would see one kind
    assert np.abs(resize_image(stripes, 4).numpy().astype(int) - 100).max() <= 13


def test_an_unknown_fit_is_refused():
    with pytest.raises(ValueError, match=r"must be one of \['squash', 'crop'\]. Received: fit='stretch'"):
        resize_image(np.zeros((2, 2, 3), np.uint8), 4, "stretch")


def test_rgb_from_one_to_four_channels():
    np.testing.assert_array_equal(to_rgb(tf.constant([[[7]]], tf.uint8)), [[[7, 7, 7]]])
    np.testing.assert_array_equal(to_rgb(tf.constant([[[0, 255], [0, 0], [0, 51]]], tf.uint8))[0, :, 0], [0, 255, 204])
    np.testing.assert_array_equal(to_rgb(tf.constant([[[1, 2, 3]]], tf.uint8)), [[[1, 2, 3]]])
    np.testing.assert_array_equal(to_rgb(tf.constant([[[255, 10, 0, 255]]], tf.uint8)), [[[255, 10, 0]]])


HEIGHT, WIDTH, AUGMENTATION_SIZE = 40, 60, 16
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
    first = augment(photo, (3, 5), AUGMENTATION_SIZE)
    assert first.dtype == tf.uint8
    assert first.shape == (AUGMENTATION_SIZE, AUGMENTATION_SIZE, 3)
    np.testing.assert_array_equal(first, augment(photo, (3, 5), AUGMENTATION_SIZE))
    np.testing.assert_array_equal(first, augment_image(photo, (3, 5), AUGMENTATION_SIZE))
    assert (first.numpy() != augment(photo, (3, 6), AUGMENTATION_SIZE).numpy()).any()


def test_half_of_the_photos_are_mirrored_if_they_may_be(photo, augment):
    plain = resize_image(photo, AUGMENTATION_SIZE).numpy()
    mirrored = 0
    for seed in range(40):
        seed = tf.constant([1, seed])
        result = augment(photo, seed, AUGMENTATION_SIZE, tf.constant(True), **UNCHANGED).numpy()
        mirrored += (result == plain[:, ::-1]).all()
        assert (result == plain).all() or (result == plain[:, ::-1]).all()
        kept = augment(photo, seed, AUGMENTATION_SIZE, tf.constant(False), **UNCHANGED)
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


# A function on each row, some of which fail


@tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
def numbers(rows):
    def read(row):
        number = tf.strings.to_number(row)
        return tf.range(number), number

    return map_rows_ignoring_errors(read, rows, (tf.zeros([1]), tf.constant(-1.0)))


def test_rows_stay_in_order_and_are_padded_and_those_that_fail_are_replaced():
    ranges, values = numbers(["3", "none", "1", "", "4"])
    assert values.numpy().tolist() == [3, -1, 1, -1, 4]
    np.testing.assert_array_equal(ranges, [[0, 1, 2, 0], [0] * 4, [0] * 4, [0] * 4, [0, 1, 2, 3]])


def test_all_may_fail_and_none_may_be_there():
    assert numbers(["x", "y"])[1].numpy().tolist() == [-1, -1]
    assert numbers(tf.zeros([0], tf.string))[0].shape[0] == 0
