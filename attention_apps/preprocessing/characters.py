"""Split transcripts into characters and join them again. The space between words is a character too."""

import re
import unicodedata
from collections.abc import Iterable
from typing import Literal, get_args

Case = Literal["upper", "lower", "keep"]

_QUOTES = str.maketrans("\u2018\u2019\u02bc\u201c\u201d", "'''\"\"")


def normalize(text: str, case: Case = "upper", punctuation: bool = False) -> str:
    """Normalize a transcript to one line with single spaces.

    Args:
        case: `"upper"`, `"lower"`, or `"keep"` to leave it unchanged.
        punctuation: whether to keep punctuation. Otherwise hyphens become spaces and the rest is removed. Apostrophes
            within words always stay.
    """
    if case not in get_args(Case):
        raise ValueError(f"`case` must be one of {', '.join(get_args(Case))}. Received: case={case!r}")
    text = unicodedata.normalize("NFC", text).translate(_QUOTES)
    if not punctuation:
        text = re.sub(r"(?<!\w)'|'(?!\w)|[^\w\s']|_", " ", text)
    if case != "keep":
        text = text.upper() if case == "upper" else text.lower()
    return " ".join(text.split())


def tokenize(text: str) -> list[str]:
    """Return the characters of a transcript."""
    return list(text)


def detokenize(tokens: Iterable[str]) -> str:
    """Join characters into a transcript with single spaces and none at the ends."""
    return " ".join("".join(tokens).split())
