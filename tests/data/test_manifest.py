import csv
import gzip
import json
import re
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_apps.data.manifest import LineReader, Manifest, Row, group_rows, hold_out, raise_problem


def read_lines(path):
    problems = []
    return list(LineReader(path, problems.append)), [(problem.line, problem.message) for problem in problems]


@pytest.mark.parametrize("name", ["lines.txt", "lines.txt.gz"])
def test_lines_keep_their_ends_and_lose_the_byte_order_mark(tmp_path, name):
    content = "\ufeffeins\nzwölf\r\n\nlast".encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert read_lines(tmp_path / name) == (["eins\n", "zwölf\r\n", "\n", "last"], [])


def test_a_bad_line_is_reported_and_comes_out_empty(tmp_path, monkeypatch):
    monkeypatch.setattr("attention_apps.data.manifest.MAX_LINE_BYTES", 20)
    path = tmp_path / "lines.txt"
    path.write_bytes(b"good\n" + b"x" * 55 + b"\n\xff\nwith\0nul\nlast\n")
    lines, problems = read_lines(path)
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


COLUMNS = {"image": "image", "caption": "caption"}


def write(path, content):
    content = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def read(path, columns=COLUMNS, paths=()):
    """The rows and problems of a manifest."""
    problems = []
    rows = list(Manifest(path, columns, paths).rows(problems.append))
    return rows, problems


def pairs(rows):
    return [(row.line, row["image"], row["caption"]) for row in rows]


CONTENTS = {
    "data.csv": 'image,caption,split\na.jpg,"A dog, asleep",x\nb.jpg,"Two\nlines ""said""",x\n\nc.jpg,Plain,x\n',
    "data.tsv": 'image\tcaption\tsplit\na.jpg\tA "dog\ttrain\nb.jpg\t"Hello"\tdev\n\nc.jpg\tPlain\tdev',
    "data.jsonl": '{"image": "a.jpg", "caption": "A dog", "split": 1}\n\n{"caption": " B ", "image": "b.jpg"}\n',
}
EXPECTED = {
    "data.csv": [(2, "a.jpg", "A dog, asleep"), (3, "b.jpg", 'Two\nlines "said"'), (6, "c.jpg", "Plain")],
    "data.tsv": [(2, "a.jpg", 'A "dog'), (3, "b.jpg", '"Hello"'), (5, "c.jpg", "Plain")],
    "data.jsonl": [(1, "a.jpg", "A dog"), (3, "b.jpg", "B")],
}


@pytest.mark.parametrize("name", CONTENTS)
@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_every_format_gives_its_rows_with_their_lines(tmp_path, name, ending, newline, mark):
    content = mark + CONTENTS[name].replace("\n", newline)
    rows, problems = read(write(tmp_path / (name + ending), content))
    assert [(line, image, caption.replace("\r", "")) for line, image, caption in pairs(rows)] == EXPECTED[name]
    assert problems == []
    assert rows[0].file == tmp_path / (name + ending)


def test_other_columns_keep_their_names_and_types(tmp_path):
    rows, _ = read(write(tmp_path / "data.jsonl", CONTENTS["data.jsonl"]))
    assert rows[0]["split"] == 1
    rows, _ = read(write(tmp_path / "data.csv", CONTENTS["data.csv"]))
    assert rows[0]["split"] == "x"


def test_columns_may_have_other_names(tmp_path):
    path = write(tmp_path / "data.csv", "file , title,caption\na.jpg,Ours,Theirs\n")
    rows, _ = read(path, {"image": "file", "caption": "title"})
    assert dict(rows[0].values) == {"image": "a.jpg", "caption": "Ours"}


def test_paths_are_relative_to_the_manifest(tmp_path):
    path = write(tmp_path / "data.csv", "image,caption\nimages/a.jpg,x\n/b.jpg,y\n,z\n")
    rows, _ = read(path, paths=("image",))
    assert [row["image"] for row in rows] == [str(tmp_path / "images/a.jpg"), "/b.jpg", ""]


def test_a_manifest_can_be_read_again(tmp_path):
    manifest = Manifest(write(tmp_path / "data.tsv", CONTENTS["data.tsv"]), COLUMNS)
    assert list(manifest.rows()) == list(manifest.rows())


texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1).map(str.strip).filter(bool)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=5))
def test_what_was_written_is_read(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("manifest") / "data.csv"
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("image", "caption"), *rows])
    assert [(row["image"], row["caption"]) for row in Manifest(path, COLUMNS).rows()] == rows
    lines = "".join(json.dumps({"image": image, "caption": caption}) + "\n" for image, caption in rows)
    read_back = read(write(path.with_suffix(".jsonl"), lines))[0]
    assert [(row["image"], row["caption"]) for row in read_back] == rows


HEADER = {"data.csv": "image,caption\n", "data.tsv": "image\tcaption\n"}
GOOD = {"data.csv": "a.jpg,x\n", "data.tsv": "a.jpg\tx\n", "data.jsonl": '{"image": "a.jpg", "caption": "x"}\n'}


@pytest.mark.parametrize(
    ("name", "line", "kind", "message"),
    [
        ("data.csv", b"b.jpg,y,z\n", "broken row", "the row has 3 fields where the header has 2"),
        ("data.csv", b"b.jpg\n", "broken row", "the row has 1 fields where the header has 2"),
        ("data.csv", b'b.jpg,"y" z\n', "broken row", "not valid CSV: "),
        ("data.tsv", b"b.jpg\ty\tz\n", "broken row", "the row has 3 fields where the header has 2"),
        ("data.jsonl", b'{"image": "b.jpg", \n', "broken row", "not valid JSON: Expecting property name"),
        ("data.jsonl", b"[" * 100_000 + b"\n", "broken row", "not valid JSON: maximum recursion"),
        ("data.jsonl", b'["b.jpg", "y"]\n', "broken row", 'must be a JSON object, in braces. Received: ["b.jpg"'),
        ("data.jsonl", b'{"image": "b.jpg", "text": "y"}\n', "broken row", "there is no `caption`. Found: image, text"),
        (
            "data.jsonl",
            b'{"image": "b.jpg", "caption": null}\n',
            "broken row",
            "`caption` must be a text. Received: null",
        ),
        ("data.jsonl", b'{"image": "b.jpg", "caption": "\\ud800"}\n', "broken row", "half of a surrogate pair"),
        ("data.jsonl", b'{"image": "b\\u0000.jpg", "caption": "y"}\n', "broken row", "`image` has a NUL character"),
        *[(name, b"b.jpg\xe9\n", "encoding", "the line is not UTF-8 (byte 0xe9 at 6)") for name in GOOD],
        *[(name, b"b.jpg\0\n", "encoding", "the line has a NUL character") for name in GOOD],
        *[(name, b"x" * 2_500_000 + b"\n", "encoding", "the line is longer than 1,000,000 bytes") for name in GOOD],
    ],
)
def test_a_bad_row_is_reported_and_the_others_come(tmp_path, name, line, kind, message):
    good = GOOD[name].encode()
    path = write(tmp_path / name, HEADER.get(name, GOOD[name]).encode() + good + line + good)
    rows, problems = read(path)
    assert [row.line for row in rows][-2:] == [2, 4]
    assert [(problem.kind, problem.file, problem.line) for problem in problems] == [(kind, path, 3)]
    assert message in problems[0].message
    with pytest.raises(ValueError, match=rf"^{path}, line 3: "):
        list(Manifest(path, COLUMNS).rows())


def test_a_bad_line_inside_a_quoted_field_takes_the_whole_row(tmp_path):
    path = write(tmp_path / "data.csv", b'image,caption\na.jpg,"one\n\xff\nthree"\nb.jpg,y\n')
    rows, problems = read(path)
    assert pairs(rows) == [(5, "b.jpg", "y")]
    assert [problem.line for problem in problems] == [3]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("data.csv", "", "is empty; its first line must name the columns"),
        ("data.csv", "image,title\na,b\n", "has no column `caption`. Columns found: image, title"),
        ("data.tsv", "image,caption\na,b\n", "has no column `image`. Columns found: image,caption"),
        ("data.csv", "image,caption,image\n", "has several columns `image`. Columns found: image, caption, image"),
        ("data.csv", b"\x89PNG\r\n\x1a\n\0\0", "is not a text file in UTF-8: in line 1, the line is not UTF-8"),
        ("data.jsonl", b"PK\0\0", "is not a text file in UTF-8: in line 1, the line has a NUL character"),
        ("data.csv", "image,caption".encode("utf-16"), "is UTF-16 text; save it as UTF-8"),
        ("data.csv", "image,caption".encode("utf-32"), "is UTF-32 text; save it as UTF-8"),
        (
            "data.csv",
            'image,caption\na,"b\nc,d\ne,f\n',
            "a quoted field that begins in line 2 does not end as it should",
        ),
        ("data.xlsx", "x", "the name of a manifest must end in .csv, .tsv or .jsonl, with or without .gz"),
    ],
)
def test_a_file_that_cannot_be_read_at_all_is_an_error(tmp_path, name, content, message):
    path = write(tmp_path / name, content)
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        read(path)
    assert str(path) in str(error.value)


def test_broken_gzip_is_an_error(tmp_path):
    path = write(tmp_path / "data.csv.gz", "image,caption\n" + "".join(f"{i}.jpg,{i**9}\n" for i in range(9999)))
    path.write_bytes(path.read_bytes()[:30_000])
    with pytest.raises(ValueError, match=rf"^{path}, after line \d+: the gzip data is broken: Compressed file ended"):
        read(path)
    path.write_bytes(b"image,caption\n")
    with pytest.raises(ValueError, match="after line 0: the gzip data is broken: Not a gzipped file"):
        read(path)


@pytest.mark.parametrize("content", [b"a,b\n" + b"\n" * 5_000_000, b"a,b\n" + b"x" * 20_000_000], ids=["lines", "line"])
def test_a_gzip_file_that_unpacks_to_far_more_is_an_error(tmp_path, content):
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress(content))
    with pytest.raises(ValueError, match=r"rows\.csv\.gz unpacks to more than 200 times its size"):
        list(Manifest(path, {"a": "a", "b": "b"}).rows([].append))


def test_a_thousand_columns_make_no_long_message(tmp_path):
    columns = {f"column{number}": "x" for number in range(20_000)}
    (tmp_path / "rows.csv").write_text(",".join(columns) + "\n")
    (tmp_path / "rows.jsonl").write_text(json.dumps(columns) + "\n")
    for name in ("rows.csv", "rows.jsonl"):
        with pytest.raises(ValueError, match="column1") as caught:
            list(Manifest(tmp_path / name, {"a": "a"}).rows())
        assert len(str(caught.value)) < 1000


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=rf"There is no file {tmp_path}/none\.csv"):
        read(tmp_path / "none.csv")


def test_an_endless_quoted_field_stops_at_a_limit(tmp_path):
    path = write(tmp_path / "data.csv", 'image,caption\na.jpg,"' + "words and no end\n" * 100_000)
    with pytest.raises(ValueError, match=r"a quoted field that begins in line 2 does not end .*field larger than"):
        read(path)


def test_memory_is_bounded(tmp_path):
    path = write(tmp_path / "data.jsonl.gz", GOOD["data.jsonl"] * 10_000)
    tracemalloc.start()
    count = sum(1 for _ in Manifest(path, COLUMNS).rows())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 10_000
    assert peak < 500_000  # bytes; all rows together take ten times as many


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("captions.csv", "image,caption\na.jpg,One\na.jpg,Two\n"),
        ("captions.tsv", "image\tcaption\na.jpg\tOne\na.jpg\tTwo\n"),
        ("captions.txt", "image,caption\na.jpg,One\na.jpg,Two\n"),
        ("captions.txt", "a.jpg#0\tOne\na.jpg#1\tTwo\n"),
        ("captions.txt.gz", "a.jpg\tOne\na.jpg\tTwo\n"),
        ("Flickr8k.token.txt", "a.jpg#0\tOne\na.jpg#1\tTwo\n"),
    ],
)
@pytest.mark.parametrize("place", ["", "images", "Images"])
def test_a_folder_of_images_with_captions_is_a_manifest(tmp_path, name, content, place):
    write(tmp_path / name, content)
    (tmp_path / place).mkdir(exist_ok=True)
    image = write(tmp_path / place / "a.jpg", "")
    rows, problems = read(tmp_path, paths=("image",))
    assert [(row["image"], row["caption"]) for row in rows] == [(str(image), "One"), (str(image), "Two")]
    assert not problems


def test_a_line_without_a_caption_in_a_folder_is_reported(tmp_path):
    write(tmp_path / "captions.txt", "a.jpg\tOne\nb.jpg\nc.jpg\tThree\n")
    rows, problems = read(tmp_path)
    assert len(rows) == 2
    assert str(problems[0]) == (
        f"{tmp_path}/captions.txt, line 2: must be an image, a tab and a caption. Received: 1 fields"
    )


def test_a_folder_needs_exactly_one_captions_file(tmp_path):
    with pytest.raises(
        ValueError, match=rf"The folder {tmp_path} has no captions file\. It needs one of: captions\.csv"
    ):
        read(tmp_path)
    write(tmp_path / "captions.csv", "")
    write(tmp_path / "captions.tsv", "")
    with pytest.raises(ValueError, match=r"has several captions files \(captions\.csv, captions\.tsv\)"):
        read(tmp_path)


def test_rows_of_a_source_are_grouped_in_the_order_they_come(tmp_path):
    rows = [Row({"image": image, "caption": str(i)}, tmp_path, i) for i, image in enumerate("cabacc")]
    groups = group_rows(rows, "image")
    captions = {image: [row["caption"] for row in group] for image, group in groups.items()}
    assert list(captions.items()) == [("c", ["0", "4", "5"]), ("a", ["1", "3"]), ("b", ["2"])]


def test_all_rows_of_a_source_are_held_out_together():
    rows = [Row({"image": image, "caption": str(number)}, Path("f"), number) for number, image in enumerate("abcabcab")]
    kept, held_out = hold_out(rows, "image", 1, seed=3)
    assert len({row["image"] for row in held_out}) == 1
    assert {row["image"] for row in kept}.isdisjoint(row["image"] for row in held_out)
    assert sorted([*kept, *held_out], key=lambda row: row.line) == rows
    assert hold_out(rows, "image", 1, seed=3) == (kept, held_out)
    assert any(hold_out(rows, "image", 1, seed) != (kept, held_out) for seed in range(9))
