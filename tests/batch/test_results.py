import io
import json
import pickle

import fsspec
import pytest

from attention_apps.batch.inputs import Selection
from attention_apps.batch.results import PLAN, Part, Span, Storage, make_parts, open_plan
from tests.fault_injection import every_error, every_kill

TEXTS = Selection("document", is_path=False, lines=True)
SETTINGS = {"verb": "summarize", "search": {"beam_size": 4}}
ANSWER = {
    "source": "a.txt",
    "text": 'One "error"',
    "score": -0.5,
    "confidence": 0.75,
    "unsure": False,
    "alternatives": [{"text": "One", "score": -0.5}, {"text": "Two", "score": None}],
    "tokens": ["One"],
    "copied": [True],
    "passages": [(0, 1)],
    "read_whole": True,
}
FAILED = {"source": "b\udcff.txt", "text": None, "score": None, "alternatives": [], "error": "It is bad"}
COLUMNS = ("tokens", "copied", "passages", "read_whole")


@pytest.fixture
def files(tmp_path):
    """A text of three lines, a manifest of seven rows, an empty manifest, and a file that is read as a whole."""
    (tmp_path / "lines.txt").write_text("1\n2\n3\n")
    (tmp_path / "rows.csv").write_text("document\n" + "".join(f"{number}\n" for number in range(4, 11)))
    (tmp_path / "empty.csv").write_text("document\n")
    return [str(tmp_path / name) for name in ("lines.txt", "rows.csv", "empty.csv", "whole.txt")]


@pytest.fixture
def storage(tmp_path):
    (tmp_path / "results").mkdir()
    return Storage(str(tmp_path / "results"), "jsonl")


def contents(part):
    return [item if item.contents is None else int(item.contents) for item in part.items(TEXTS)]


@pytest.mark.parametrize("size", range(1, 14))
def test_parts_hold_every_input_once_and_in_order(files, size):
    parts = list(make_parts(files, TEXTS, size, whole={files[-1]}))
    found = [contents(part) for part in parts]
    assert [item for items in found for item in items] == [*range(1, 11), files[-1]]
    assert [len(items) for items in found[:-1]] == [size] * (len(found) - 1)
    assert 1 <= len(found[-1]) <= size
    assert [part.count for part in parts] == [len(items) for items in found]
    names = [part.name for part in parts]
    assert names == [f"part-{number:07d}" for number in range(len(parts))]
    assert names == sorted(names)


def test_a_plan_is_read_again_and_not_made_anew(files, storage):
    plan = open_plan(storage, SETTINGS, lambda: make_parts(files, TEXTS, 4, {files[-1]}))
    assert open_plan(storage, SETTINGS, lambda: pytest.fail("was made again")) == plan
    assert [contents(part) for part in plan.parts][-1] == [9, 10, files[-1]]


def test_a_plan_is_json_that_lists_the_parts_and_a_hash_of_the_settings(storage):
    open_plan(storage, SETTINGS, lambda: iter([Part("part-0000000", (Span("a.jpg"), Span("\udcff.jpg")))]))
    values = json.loads(storage.read(PLAN))
    assert values["settings"] == SETTINGS
    assert len(values["settings_sha256"]) == 64
    assert values["parts"] == [{"name": "part-0000000", "spans": [["a.jpg"], ["\udcff.jpg"]]}]


def test_other_settings_are_refused(storage):
    open_plan(storage, SETTINGS, lambda: iter([Part("part-0000000", (Span("a.jpg"),))]))
    other = {**SETTINGS, "search": {"beam_size": 5}}
    message = "has results of other settings .search was {'beam_size': 4} and is {'beam_size': 5}.. Use another output"
    with pytest.raises(ValueError, match=message):
        open_plan(storage, other, lambda: iter([]))


def test_a_changed_manifest_is_refused(files, storage):
    open_plan(storage, SETTINGS, lambda: make_parts(files[:2], TEXTS, 4))
    with open(files[1], "a") as file:
        file.write("11\n")
    with pytest.raises(ValueError, match="rows.csv has changed since the first run"):
        open_plan(storage, SETTINGS, lambda: iter([]))


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": 2}'])
def test_what_is_no_plan_is_refused(storage, text):
    storage.write(PLAN, text.encode())
    with pytest.raises(ValueError, match="_plan.json is not a plan"):
        open_plan(storage, SETTINGS, lambda: iter([]))


def test_a_plan_whose_settings_were_edited_is_refused(storage):
    open_plan(storage, SETTINGS, lambda: iter([]))
    storage.write(PLAN, storage.read(PLAN).replace(b'"beam_size": 4', b'"beam_size": 5'))
    with pytest.raises(ValueError, match="its format or its hash is wrong"):
        open_plan(storage, SETTINGS, lambda: iter([]))


def test_results_without_a_plan_are_refused(storage):
    storage.write("part-0000000.jsonl", b"")
    with pytest.raises(ValueError, match="has results, but no _plan.json"):
        open_plan(storage, SETTINGS, lambda: iter([]))


@pytest.fixture(params=["disk", "memory"])
def folder(request, tmp_path):
    if request.param == "disk":
        yield str(tmp_path)
        return
    yield "memory://results"
    memory = fsspec.filesystem("memory")
    if memory.exists("/results"):
        memory.rm("/results", recursive=True)


@pytest.mark.parametrize("file_format", ["jsonl", "parquet"])
def test_errors_of_a_part_are_counted_when_it_is_written_and_later(folder, file_format):
    if file_format == "parquet":
        pytest.importorskip("pyarrow", reason="Parquet needs the extra `ray`")
    storage = Storage(folder, file_format)
    assert storage.parts() == set()
    assert storage.write_part("part-0000003", iter([ANSWER, FAILED, ANSWER, FAILED]), COLUMNS) == 2
    assert storage.write_part("part-0000004", [ANSWER], COLUMNS) == 0
    assert storage.parts() == {"part-0000003", "part-0000004"}
    assert storage.count_errors("part-0000003") == 2
    assert storage.count_errors("part-0000004") == 0
    assert storage.exists(storage.part_file("part-0000003"))


def test_json_parts_have_the_lines_of_the_command(folder):
    storage = Storage(folder, "jsonl")
    storage.write_part("part-0000000", [ANSWER, FAILED], COLUMNS)
    assert storage.read("part-0000000.jsonl").decode() == f"{json.dumps(ANSWER)}\n{json.dumps(FAILED)}\n"


def test_parquet_parts_have_the_same_columns_whatever_their_rows(folder):
    parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet needs the extra `ray`")
    storage = Storage(folder, "parquet")
    storage.write_part("part-0000000", [ANSWER, FAILED], COLUMNS)
    storage.write_part("part-0000001", [FAILED], COLUMNS)
    first, second = (parquet.read_table(io.BytesIO(storage.read(f"part-000000{number}.parquet"))) for number in (0, 1))
    assert first.schema == second.schema
    rows = first.to_pylist()
    assert rows[0] == {**ANSWER, "passages": [[0, 1]], "error": None}
    assert rows[1]["source"] == "b\\udcff.txt"
    assert rows[1]["error"] == "It is bad"


def test_a_storage_can_be_sent_to_a_worker(folder):
    storage = Storage(folder, "jsonl")
    storage.write("name", b"text")
    assert pickle.loads(pickle.dumps(storage)).read("name") == b"text"


def test_a_relative_folder_is_the_same_in_another_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert Storage("results", "jsonl").folder == f"{tmp_path}/results"
    assert Storage(f"file://{tmp_path}/results/", "jsonl").folder == f"{tmp_path}/results"


@pytest.mark.parametrize("faults", [every_error, every_kill])
def test_a_part_is_there_as_a_whole_or_not_at_all(tmp_path, monkeypatch, faults):
    storage = Storage(str(tmp_path), "jsonl")
    whole = f"{json.dumps(ANSWER)}\n".encode()

    def write():
        storage.write_part("part-0000000", [ANSWER], COLUMNS)

    def remove():
        (tmp_path / "part-0000000.jsonl").unlink(missing_ok=True)

    seen = []
    for _ in faults(monkeypatch, write, remove):
        storage.clean()
        seen.append(storage.parts())
        assert [path.read_bytes() for path in tmp_path.iterdir()] == [whole] * len(seen[-1])
    assert set() in seen
