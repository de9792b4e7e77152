import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from attention_apps.applications.captioning.reader import ImageReader
from tests.applications.captioners import PHOTO, as_bytes, bad_photos, make_config, odd_photos
from tests.serving.photos import BAD, GOOD


@pytest.fixture(scope="module")
def reader():
    return ImageReader(make_config())


def test_a_photo_is_one_square_that_fits_the_signature(reader, tmp_path):
    (tmp_path / "photo.png").write_bytes(as_bytes("PNG"))
    squares = []
    for item in (str(tmp_path / "photo.png"), as_bytes("PNG"), Image.fromarray(PHOTO), PHOTO):
        reading = reader.read(item, None)
        (source,) = reading.sources
        squares.append(source.tensors["image"])
        assert reading.item is item
        np.testing.assert_array_equal(reading.shown, PHOTO)
    spec = reader.signature["image"]
    assert spec.shape.is_compatible_with((1, *squares[0].shape))
    assert squares[0].dtype == spec.dtype.as_numpy_dtype
    for square in squares[1:]:
        np.testing.assert_array_equal(square, squares[0])


@pytest.mark.parametrize("name", bad_photos())
def test_what_is_no_photo_is_named_with_the_reason(reader, tmp_path, name):
    contents, message = bad_photos()[name]
    (tmp_path / name).write_bytes(contents)
    with pytest.raises(ValueError, match=rf"{name} .*{message}|{name} {message}"):
        reader.read(tmp_path / name, None)


@pytest.mark.parametrize("name", odd_photos())
def test_one_pixel_and_an_animation_are_photos(reader, name):
    reading = reader.read(odd_photos()[name], None)
    assert reading.sources[0].tensors["image"].shape == (64, 64, 3)


def test_an_animation_is_its_first_frame(reader):
    first, still = (reader.read(contents, None).shown for contents in (odd_photos()["animated.gif"], as_bytes("GIF")))
    np.testing.assert_array_equal(first, still)


def test_a_large_photo_is_shown_small_and_looks_the_same(reader):
    random = np.random.default_rng(0)
    photo = Image.fromarray(random.integers(0, 256, (60, 80, 3), np.uint8)).resize((4000, 3000))
    expected = photo.resize((1024, 768), Image.Resampling.BICUBIC)
    shown = reader.read(photo, None).shown
    assert shown.shape == (768, 1024, 3)
    assert np.abs(shown - np.asarray(expected, int)).max() <= 3


def test_of_a_photo_that_is_cropped_the_part_that_was_seen_is_shown():
    cropping = ImageReader(make_config(encoder={"fit": "crop"}))
    np.testing.assert_array_equal(cropping.read(PHOTO, None).shown, PHOTO[:, 10:50])
    np.testing.assert_array_equal(cropping.read(PHOTO[:, :29], None).shown, PHOTO[5:34, :29])


def test_a_graph_gives_every_file_its_status_and_reads_the_good_ones_alike(reader):
    files = [*GOOD.values(), *(contents for contents, _ in BAD.values())]
    source, context = reader.in_graph(tf.constant(files))
    expected = ["ok"] * len(GOOD) + [status for _, status in BAD.values()]
    assert [status.decode() for status in context["status"].numpy()] == expected
    for row, contents in enumerate(GOOD.values()):
        live = reader.read(contents, None).sources[0].tensors["image"]
        assert np.abs(source["image"][row].numpy() - live.astype(int)).max() <= 2


def test_the_way_to_call_an_export_comes_with_a_call_that_works(reader):
    ((name, raw_input),) = reader.raw_inputs().items()
    assert name == "serving_default"
    assert raw_input.notes.keys() == raw_input.specs.keys() == raw_input.example.keys()
    _, context = raw_input.in_graph(tf.constant(raw_input.example["image_bytes"]))
    assert context["status"].numpy().tolist() == [b"ok"]
