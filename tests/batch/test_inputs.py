import gzip
import importlib
import json
import random
from types import SimpleNamespace

import fsspec
import pytest

from attention_apps.batch.inputs import Item, Place, Selection, find_files, local_name, places, read_rows
from attention_apps.cli.predict import PredictCommand
from attention_apps.data.manifest import MAX_LINE_BYTES

pyarrow = pytest.importorskip("pyarrow", reason="Parquet needs the extra `ray`")
parquet = importlib.import_module("pyarrow.parquet")
TEXTS = Selection("document", is_path=False)
PHOTOS = Selection("image", is_path=True)
CONTENTS = {
    "rows.csv": 'id,document\n1,"One, or\ntwo"\n\n2,Three\n3\n4,"Four ""five"""\n5,Six\n',
    "rows.tsv": 'id\tdocument\n1\tOne "two\n\n2\tThree\n3\n4\tFour\n5\tSix',
    "rows.jsonl": '{"document": "One"}\n\n{"document": "Zwölf"}\n{"document": 3}\n[]\n{"document": "Six"}\n',
}


def write(folder, name, contents):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(contents.encode()) if name.endswith(".gz") else contents.encode())
    return str(path)


def write_parquet(path, column, values, row_group_size=3):
    parquet.write_table(pyarrow.table({"id": range(len(values)), column: values}), path, row_group_size)
    return str(path)


def shown(items):
    return [(str(item), item.contents, item.error is not None) for item in items]


def read_all(path, selection):
    return list(read_rows(path, selection, Place(), 1000))


@pytest.mark.parametrize("zipped", ["", ".gz"])
@pytest.mark.parametrize("name", CONTENTS)
def test_rows_can_be_read_from_every_place(tmp_path, name, zipped):
    path = write(tmp_path, name + zipped, CONTENTS[name])
    every = shown(read_all(path, TEXTS))
    found = list(places(path, TEXTS))
    assert len(found) == len(every) == 5
    for start, place in enumerate(found):
        for count in range(1, len(every) - start + 1):
            assert shown(read_rows(path, TEXTS, place, count)) == every[start : start + count]


def test_a_csv_row_is_named_after_its_line_and_a_broken_one_has_an_error(tmp_path):
    path = write(tmp_path, "rows.csv", CONTENTS["rows.csv"])
    assert shown(read_all(path, TEXTS)) == [
        (f"{path}:2", b"One, or\ntwo", False),
        (f"{path}:5", b"Three", False),
        (f"{path}:6", None, True),
        (f"{path}:7", b'Four "five"', False),
        (f"{path}:8", b"Six", False),
    ]


def test_errors_of_rows_say_what_is_wrong(tmp_path):
    path = write(tmp_path, "rows.jsonl", CONTENTS["rows.jsonl"] + '{"text": "other"}\n')
    errors = [item.error for item in read_all(path, TEXTS) if item.error]
    assert errors == [
        f"{path}:4: `document` must be a text. Received: 3",
        f"{path}, line 5: must be a JSON object, in braces. Received: []",
        f"{path}, line 7: no `document`. Found: text",
    ]


def test_a_missing_column_is_an_error_of_the_whole_file(tmp_path):
    table = write_parquet(tmp_path / "rows.parquet", "text", ["One"])
    for path in (write(tmp_path, "rows.csv", "a,b\n1,2\n"), table):
        with pytest.raises(ValueError, match="has no column `document`. Columns found: "):
            list(places(path, TEXTS))


def test_lines_are_those_of_the_command_for_lines(tmp_path):
    path = write(tmp_path, "texts.txt", "One\n\nZwölf\r\nFour")
    lines = Selection("document", is_path=False, lines=True)
    every = [
        (f"{path}:{number}", line, False)
        for number, line in enumerate([b"One\n", b"\n", "Zwölf\r\n".encode(), b"Four"], 1)
    ]
    for start, place in enumerate(places(path, lines)):
        assert shown(read_rows(path, lines, place, 2)) == every[start : start + 2]


def test_parquet_rows_can_be_read_from_every_place(tmp_path):
    path = write_parquet(tmp_path / "rows.parquet", "document", ["a", "b", None, "d", "e", "f", "g"], row_group_size=3)
    every = [(f"{path}:{number}", text, text is None) for number, text in enumerate([b"a", b"b", None, *b"defg"], 1)]
    every = [(name, bytes([text]) if isinstance(text, int) else text, failed) for name, text, failed in every]
    assert [place.number for place in places(path, TEXTS)] == list(range(7))
    for start, place in enumerate(places(path, TEXTS)):
        for count in range(1, 8 - start):
            assert shown(read_rows(path, TEXTS, place, count)) == every[start : start + count]


def test_a_column_of_bytes_holds_the_files_themselves(tmp_path):
    path = write_parquet(tmp_path / "photos.parquet", "image", [b"\xff\xd8", b"GIF8"])
    assert shown(read_all(path, PHOTOS)) == [(f"{path}:1", b"\xff\xd8", False), (f"{path}:2", b"GIF8", False)]


def test_paths_are_relative_to_their_manifest(tmp_path):
    rows = ["a.jpg", " sub/b.jpg ", "/c/d.jpg", "file:///c/e.jpg", "", "g\0.jpg"]
    path = write(tmp_path, "photos.jsonl", "".join(json.dumps({"image": row}) + "\n" for row in rows))
    items = read_all(path, PHOTOS)
    expected = [f"{tmp_path}/a.jpg", f"{tmp_path}/sub/b.jpg", "/c/d.jpg", "/c/e.jpg"]
    assert shown(items[:4]) == [(name, None, False) for name in expected]
    assert [item.error is not None for item in items[4:]] == [True, True]
    assert PHOTOS.item("s3://bucket/photos/rows.csv", 2, "a.jpg") == "s3://bucket/photos/a.jpg"
    assert PHOTOS.item("s3://bucket/photos/rows.csv", 2, "s3://other/a.jpg") == "s3://other/a.jpg"


@pytest.mark.parametrize(
    ("manifest", "path"),
    [
        ("rows.csv", "http://host/a.jpg"),
        ("rows.csv", "a::http://host/a.jpg"),
        ("s3://bucket/rows.csv", "http://host/a.jpg"),
        ("s3://bucket/rows.csv", "/etc/passwd"),
        ("s3://bucket/rows.csv", "file:///etc/passwd"),
    ],
)
def test_a_manifest_names_files_of_its_own_storage_only(manifest, path):
    assert "`image` must be in the same storage" in PHOTOS.item(manifest, 2, path).error


def test_urls_in_urls_are_refused():
    item = PHOTOS.item("s3://bucket/rows.csv", 2, "s3://bucket/a::http://host/a.jpg")
    with pytest.raises(ValueError, match="`::` is not allowed"):
        item.read()


def test_a_folder_is_listed_as_by_the_command_for_single_inputs(tmp_path):
    for name in ("b.jpg", "a.JPG", "c.txt", ".hidden.jpg", "sub/d.jpg", "sub/.git/e.jpg", "another/f.jpg"):
        write(tmp_path / "photos", name, "")

    class Command(PredictCommand):
        suffixes = (".jpg",)

    listed = find_files(str(tmp_path / "photos"), (".jpg",))
    assert listed == Command().inputs(SimpleNamespace(inputs=[str(tmp_path / "photos")]))
    assert [name.removeprefix(f"{tmp_path}/photos/") for name in listed] == [
        "a.JPG",
        "b.jpg",
        "another/f.jpg",
        "sub/d.jpg",
    ]
    assert find_files(f"file://{tmp_path}/photos", (".jpg",)) == listed


def test_globs_are_expanded_unless_they_are_names(tmp_path):
    for name in ("a1.jpg", "a2.jpg", "sub/a3.jpg", "b[1].jpg"):
        write(tmp_path, name, "")
    assert find_files(f"{tmp_path}/a*.jpg", ()) == [f"{tmp_path}/a1.jpg", f"{tmp_path}/a2.jpg"]
    assert find_files(f"{tmp_path}/s*", (".jpg",)) == [f"{tmp_path}/sub/a3.jpg"]
    assert find_files(f"{tmp_path}/b[1].jpg", ()) == [f"{tmp_path}/b[1].jpg"]
    assert find_files(f"{tmp_path}/z*.jpg", ()) == [f"{tmp_path}/z*.jpg"]


@pytest.fixture
def bucket():
    memory = fsspec.filesystem("memory")
    memory.pipe({"/bucket/b.jpg": b"B", "/bucket/a.jpg": b"A", "/bucket/sub/c.jpg": b"C", "/bucket/.d.jpg": b"D"})
    memory.pipe("/bucket/rows.csv", b"image\na.jpg\nmissing.jpg\n")
    yield "memory://bucket"
    memory.rm("/bucket", recursive=True)


def test_urls_are_listed_and_read(bucket):
    names = find_files(bucket, (".jpg",))
    assert names == ["memory:///bucket/a.jpg", "memory:///bucket/b.jpg", "memory:///bucket/sub/c.jpg"]
    assert find_files(f"{bucket}/*.jpg", ()) == names[:2]
    assert [Item(name).read() for name in names] == [b"A", b"B", b"C"]
    present, missing = read_all(f"{bucket}/rows.csv", PHOTOS)
    assert present.read() == b"A"
    with pytest.raises(OSError, match="missing.jpg"):
        missing.read()


def test_every_failure_of_a_file_system_is_an_error_of_its_file(bucket, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("access denied")

    monkeypatch.setattr(fsspec, "open", fail)
    with pytest.raises(OSError, match="memory://bucket/a.jpg: access denied"):
        Item(f"{bucket}/a.jpg").read()
    with pytest.raises(ValueError, match="broken"):
        Item("row", error="broken").read()


def test_a_file_url_is_a_path():
    assert local_name("file:///a/b.jpg") == "/a/b.jpg"
    assert [local_name(name) for name in ("a/b.jpg", "s3://a")] == ["a/b.jpg", "s3://a"]


@pytest.mark.parametrize("zipped", ["", ".gz"])
def test_a_long_line_is_an_error_and_the_others_are_read(tmp_path, zipped):
    noise = random.Random(0).randbytes(MAX_LINE_BYTES).hex()
    path = write(tmp_path, "texts.txt" + zipped, f"One\n{noise}\nThree\n{'x' * (MAX_LINE_BYTES - 1)}\n{noise}")
    selection = Selection("document", is_path=False, lines=True)
    items = read_all(path, selection)
    errors = [f"{path}, line {number}: the line is longer than 1,000,000 bytes" for number in (2, 5)]
    assert [item.error for item in items] == [None, errors[0], None, None, errors[1]]
    assert items[2].contents == b"Three\n"
    found = list(places(path, selection))
    assert [shown(read_rows(path, selection, place, 1)) for place in found] == [[one] for one in shown(items)]


@pytest.mark.parametrize("name", ["rows.csv.gz", "texts.txt.gz"])
@pytest.mark.parametrize("row", ["x\n", "x" * 1000])
def test_a_gzip_file_that_unpacks_to_far_more_is_an_error(tmp_path, name, row):
    path = write(tmp_path, name, "document\n" + row * (5_000_000 // len(row)))
    with pytest.raises(ValueError, match=f"{name} unpacks to more than 200 times its size"):
        list(places(path, Selection("document", is_path=False, lines=True)))
