import io

import pytest

from attention_apps.terminal import print_line, printable


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("photo.jpg", "photo.jpg"),
        ("日本 é \U0001f600", "日本 é \U0001f600"),
        ("a\tb", "a\tb"),
        ("a\\n", "a\\n"),
        ("a\nattention-apps: all is well", "a\\nattention-apps: all is well"),
        ("\x1b]0;title\x07\r\x9b2J\x7f", "\\x1b]0;title\\x07\\r\\x9b2J\\x7f"),
        ("\u202egpj.exe", "\\u202egpj.exe"),
        ("a\u2028b\u2029c\x85d", "a\\u2028b\\u2029c\\x85d"),
        ("\udcff", "\\udcff"),
    ],
)
def test_control_characters_are_escaped(text, expected):
    assert printable(text) == expected


def test_no_character_at_all_begins_a_line_or_controls_a_terminal():
    text = printable("".join(map(chr, range(0x110000))))
    assert len(text.splitlines()) == 1
    assert not any((ord(letter) < 32 and letter != "\t") or 0x7F <= ord(letter) < 0xA0 for letter in text)
    text.encode()


def test_letters_that_the_terminal_has_not_are_escaped():
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    print_line("é\n日", file)
    assert file.buffer.getvalue() == b"\\xe9\\n\\u65e5\n"
