import io
import json
import pickle

import fsspec
import pytest

from attention_apps.batch.storage import Storage
from tests.fault_injection import every_error, every_kill

pytest.importorskip("pyarrow", reason="Parquet needs the extra `ray`")
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
    import pyarrow.parquet

    storage = Storage(folder, "parquet")
    storage.write_part("part-0000000", [ANSWER, FAILED], COLUMNS)
    storage.write_part("part-0000001", [FAILED], COLUMNS)
    first, second = (
        pyarrow.parquet.read_table(io.BytesIO(storage.read(f"part-000000{number}.parquet"))) for number in (0, 1)
    )
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
