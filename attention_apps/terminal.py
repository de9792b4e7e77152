"""Text from outside, made safe for the terminal."""

import sys
import unicodedata
from typing import TextIO

# Besides control characters: those that reorder or end lines, and halves of surrogate pairs.
_ESCAPED_CATEGORIES = frozenset({"Cc", "Cs", "Zl", "Zp"})
_BIDI_CONTROLS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def printable(text: str) -> str:
    """The text on one line, with control characters, line ends and text direction controls as escapes.

    Use it for everything that came from outside: names of files, keys and words of a preset, fields of a manifest,
    messages of libraries. Otherwise a name could move the cursor, hide text or fake a line of output.

    Example:

        printable("a\\x1b[2J\\nb")   # 'a\\\\x1b[2J\\\\nb'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(letter) if _is_escaped(letter) else letter for letter in text)


def print_line(text: str, file: TextIO | None = None) -> None:
    """Prints one line at once; letters that the terminal cannot show become escapes."""
    file = sys.stdout if file is None else file
    encoding = getattr(file, "encoding", None) or "utf-8"
    line = printable(text).encode(encoding, "backslashreplace").decode(encoding)
    print(line, file=file, flush=True)


def _is_escaped(letter: str) -> bool:
    is_control = unicodedata.category(letter) in _ESCAPED_CATEGORIES or letter in _BIDI_CONTROLS
    return is_control and letter != "\t"


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")
