"""What the demonstrations are shown on."""

from typing import Any

# Photos that come with scikit-image, free to show.
PHOTOS = ("astronaut", "cat", "coffee")
TEXTS = (
    "The city council of Brookfield voted on Tuesday night to close the old harbour bridge to cars from next month, "
    "after engineers warned that its steel cables had rusted faster than expected.",
    "A rare white otter named Pebble, who escaped from the Larkhill zoo on Sunday, was found unharmed two days later "
    "in a farmer's pond eight miles away, keepers said.",
)


def sample_photos() -> list[Any]:
    """The pixels of `PHOTOS`."""
    try:
        from skimage import data
    except ImportError:
        raise ValueError("The photos come with scikit-image: `pip install 'attention_apps[demo]'`") from None
    return [getattr(data, name)() for name in PHOTOS]
