"""A Python version of coco-caption's tokenization: the Stanford tokenizer and a list of removed punctuation."""

import re
from collections.abc import Iterable

_DROPPED = frozenset(("''", "'", "``", "`", ".", "?", "!", ",", ":", "-", "--", ";", '"'))
# coco-caption intends to remove brackets too, but it lowercases their names first, so they stay.
_BRACKETS = {"(": "-lrb-", ")": "-rrb-", "[": "-lsb-", "]": "-rsb-", "{": "-lcb-", "}": "-rcb-"}
_TYPOGRAPHIC = str.maketrans(
    {
        "\u201c": '"',
        "\u201d": '"',
        "\u2018": "'",
        "\u2019": "'",
        "\u2013": "--",
        "\u2014": "--",
        "\u2026": "...",
    }
)
_TWO_WORDS = re.compile(r"\b(can)(not)\b|\b(gon|wan)(na)\b|\b(got)(ta)\b|\b(gim|lem)(me)\b")
_CONTRACTION = re.compile(r"(?<=\w)(n't|'(?:s|m|d|re|ve|ll))(?![\w'])")
_WORD = r"\w+(?:'\w+)*"
_TOKEN = re.compile(
    rf"""
    (?:[^\W\d_]\.){{2,}}                                 # u.s., a.m.
    | \b(?:[^\W\d_]|mr|mrs|ms|dr|st|jr|sr|vs|etc|mt)\.(?=\s+\S)  # abbreviations, unless they end the caption
    | -(?:[lr][rsc]b)-                                   # brackets that have been named already
    | \w+\.(?:com|net|org)\b
    | <[a-z]+>
    | n't | '(?:s|m|d|re|ve|ll)(?!\w) | '\d\ds? | 'n'
    | [+-]?\d+(?:[.,:/]\d+)+(?:-{_WORD})*
    | {_WORD}(?:[-/_]{_WORD})*
    | \.{{2,}} | -{{2,}} | [!?]+
    | \S
    """,
    re.VERBOSE,
)


def caption_words(caption: str) -> list[str]:
    """Split a caption into lowercase words. Contractions are split ("man 's"), hyphens kept, punctuation removed.

    For usual captions this equals Stanford's PTBTokenizer, which needs Java, followed by coco-caption's list of
    punctuation. It knows fewer abbreviations and no web addresses.
    """
    text = caption.lower().translate(_TYPOGRAPHIC)
    text = _TWO_WORDS.sub(lambda match: " ".join(part for part in match.groups() if part), text)
    text = _CONTRACTION.sub(r" \1", text)
    words = (_BRACKETS.get(word, word) for word in _TOKEN.findall(text))
    return [word for word in words if word not in _DROPPED and word.strip(".")]


def tokenize_captions(captions: Iterable[str]) -> list[str]:
    """Return captions with their words (see `caption_words`) separated by single spaces."""
    return [" ".join(caption_words(caption)) for caption in captions]
