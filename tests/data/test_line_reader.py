import gzip

import pytest

from attention_apps.data import line_reader
from attention_apps.data.line_reader import LineReader, raise_problem


def read(path):
    problems = []
    return list(LineReader(path, problems.append)), [(problem.line, problem.message) for problem in problems]


@pytest.mark.parametrize("name", ["lines.txt", "lines.txt.gz"])
def test_lines_keep_their_ends_and_lose_the_byte_order_mark(tmp_path, name):
    content = "\ufeffeins\nzwölf\r\n\nlast".encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert read(tmp_path / name) == (["eins\n", "zwölf\r\n", "\n", "last"], [])


def test_a_bad_line_is_reported_and_comes_out_empty(tmp_path, monkeypatch):
    monkeypatch.setattr(line_reader, "MAX_LINE_BYTES", 20)
    path = tmp_path / "lines.txt"
    path.write_bytes(b"good\n" + b"x" * 55 + b"\n\xff\nwith\0nul\nlast\n")
    lines, problems = read(path)
    assert lines == ["good\n", "", "", "", "last\n"]
    assert problems == [
        (2, "the line is longer than 20 bytes"),
        (3, "the line is not UTF-8 (byte 0xff at 1)"),
        (4, "the line has a NUL character"),
    ]


def test_a_problem_is_an_error_where_nobody_collects_them(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_bytes(b"good\n\xff\n")
    with pytest.raises(ValueError, match=r"lines\.txt, line 2: the line is not UTF-8"):
        list(LineReader(path, raise_problem))


@pytest.mark.parametrize(
    ("content", "message"),
    [("ä".encode("utf-16"), "is UTF-16 text; save it as UTF-8"), (b"\xff", "is not a text file")],
)
def test_a_file_that_is_not_text_is_an_error(tmp_path, content, message):
    path = tmp_path / "lines.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        list(LineReader(path, raise_problem))
