import numpy as np

from tests.recipes.loading import load

non_photos = load("non_photos", "image_captioning")


def test_all_kinds_are_drawn_the_same_each_time():
    first, again = non_photos.draw_all(12), non_photos.draw_all(12)
    assert len({image.tobytes() for image in first}) == 12
    for image, same in zip(first, again, strict=True):
        assert image.size == (non_photos.SIZE, non_photos.SIZE)
        np.testing.assert_array_equal(np.asarray(image), np.asarray(same))


def test_each_picture_depends_on_its_number_only():
    np.testing.assert_array_equal(
        np.asarray(non_photos.draw_all(1, first=9)[0]), np.asarray(non_photos.draw_all(10)[9])
    )
