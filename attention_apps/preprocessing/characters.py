"""Transcripts to letters and back; the space between words is a letter too."""

import re
import unicodedata
from collections.abc import Iterable
from typing import Literal, get_args

Case = Literal["upper", "lower", "keep"]

_QUOTES = str.maketrans("\u2018\u2019\u02bc\u201c\u201d", "'''\"\"")


def normalize(text: str, case: Case = "upper", punctuation: bool = False) -> str:
    """A transcript on one line, with single spaces, in one case.

    Args:
        case: `"upper"`, `"lower"`, or `"keep"` for what it is.
        punctuation: whether it stays; apostrophes within words always do, and hyphens become spaces where it does not.
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
    """The letters of a transcript."""
    return list(text)


def detokenize(tokens: Iterable[str]) -> str:
    """The transcript of some letters, spaces at its ends left out and doubled ones made one."""
    return " ".join("".join(tokens).split())
