"""What the demonstrations are shown on."""

from pathlib import Path
from typing import Any

# Photos that come with scikit-image, free to show.
PHOTOS = ("camera", "astronaut", "cat", "coffee")
TEXTS = (
    "Researchers at the University of Westmere have found a new species of frog in a city park. The frog, which is "
    "smaller than a fingernail, lives under wet leaves and sings only at night.",
    "The town of Brookfield will close its old harbor bridge to cars next month after engineers warned that its steel "
    "cables had rusted faster than expected, the mayor said on Tuesday.",
    "A rare white otter that escaped from the Larkhill zoo on Sunday has been found unharmed in a farmer's pond eight "
    "miles away, keepers said on Tuesday.",
)
# English, of what a translator was trained on.
DESCRIPTIONS = (
    "Two dogs are playing in the snow.",
    "A man in a blue shirt is standing on a ladder cleaning a window.",
    "I am eating an apple.",
)
# Sentences spoken by Flite, and the files of them; recordings/README.md names voices and license.
SENTENCES = {
    "train.flac": "The train to the mountains leaves at half past nine. "
    "Please keep your ticket until the end of the journey.",
    "message.flac": "If you would like to hear this message again, stay on the line, "
    "and someone will be with you shortly.",
}


def sample_recordings() -> list[Path]:
    """The files of `SENTENCES`."""
    return [Path(__file__).parent / "recordings" / name for name in SENTENCES]


def sample_photos() -> list[Any]:
    """The pixels of `PHOTOS`."""
    try:
        from skimage import data
    except ImportError:
        raise ValueError("The photos come with scikit-image: `pip install 'attention_apps[demo]'`") from None
    return [getattr(data, name)() for name in PHOTOS]
