"""`attention-apps batch` with workers in this process; tests/batch/test_cluster.py has those of a cluster."""

import json
import pickle

import fsspec
import pytest
import soundfile
from PIL import Image

from attention_apps.batch import cluster
from attention_apps.batch.cluster import Worker
from attention_apps.batch.results import Storage
from attention_apps.cli import batch, main
from tests.batch.test_cluster import approximately
from tests.tiny_applications import PHOTO, RECORDING, TEXT, make_application

pytest.importorskip("ray", reason="a cluster needs the extra `ray`")
KINDS = {
    "caption": ("captioner", ".jpg"),
    "transcribe": ("recognizer", ".wav"),
    "summarize": ("summarizer", ".txt"),
    "compress": ("compressor", ".txt"),
    "translate": ("translator", ".txt"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Presets `presets/caption`, and folders of five inputs, one of which is bad, in one of their folders."""
    folder = tmp_path_factory.mktemp("batch")
    for verb, (kind, suffix) in KINDS.items():
        make_application(kind).save(folder / "presets" / verb)
        inputs = folder / suffix[1:]
        (inputs / "more").mkdir(parents=True, exist_ok=True)
        for number, name in enumerate(("a", "b", "more/c", "more/d")):
            path = inputs / f"{name}{suffix}"
            if suffix == ".jpg":
                Image.fromarray(PHOTO[:, number:]).save(path)
            elif suffix == ".wav":
                soundfile.write(path, RECORDING[1000 * number :], 16_000)
            else:
                path.write_text(TEXT.replace("Bob", f"Bob{number}"))
        (inputs / f"bad{suffix}").write_bytes(b"%PDF-1.7 \xff\xfe\0")
    return folder


@pytest.fixture
def run(folder, monkeypatch, capsys):
    """Runs the command in the folder, with workers in this process, and returns the exit code and the rows."""
    monkeypatch.chdir(folder)
    made = []

    def run_parts(job, parts, workers, address):
        for part in parts:
            report = Worker(job).run(part)
            assert report.failure is None, report.failure
            made.append(report.part)
            yield report

    monkeypatch.setattr(cluster, "import_ray", lambda: None)
    monkeypatch.setattr(cluster, "run_parts", run_parts)

    def run(verb, *arguments, output):
        made.clear()
        code = main(["batch", verb, *arguments, "--preset", f"presets/{verb}", "--output", str(output), "--quiet"])
        files = sorted(output.glob("part-*.jsonl"))
        return code, [json.loads(line) for file in files for line in file.read_text().splitlines()]

    run.made, run.errors = made, lambda: capsys.readouterr().err
    return run


def single(verb, *arguments, capsys):
    """The rows of the command for single inputs."""
    capsys.readouterr()
    code = main([verb, *arguments, "--preset", f"presets/{verb}", "--json", "--quiet"])
    return code, [approximately(json.loads(line)) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("verb", KINDS)
def test_rows_are_those_of_the_command_for_single_inputs(run, verb, tmp_path, capsys):
    inputs = KINDS[verb][1][1:]
    found = run(verb, inputs, "no_such_file", "--part-size", "2", "--beam-size", "2", output=tmp_path)
    assert len(run.made) == 3
    assert found == single(verb, inputs, "no_such_file", "--beam-size", "2", capsys=capsys)
    code, rows = found
    assert code == 1
    assert ["error" in row for row in rows] == [False, False, True, False, False, True]
    of_every_verb = {"source", "text", "score", "confidence", "unsure", "alternatives"}
    of_this_verb = batch.VERBS[verb].command.columns  # which are columns of Parquet files
    assert set(rows[0]) == {*of_every_verb, *of_this_verb}


def test_columns_of_parquet_are_the_keys_of_the_rows(run, tmp_path):
    import pyarrow.parquet

    _, rows = run("compress", "txt", output=tmp_path / "lines")
    assert run("compress", "txt", "--format", "parquet", output=tmp_path / "tables") == (1, [])
    (table,) = (tmp_path / "tables").glob("part-*.parquet")
    read = pyarrow.parquet.read_table(table).to_pylist()
    assert [without_nulls(row) for row in read] == [without_nulls(row) for row in rows]
    assert set(read[0]) == {name for row in rows for name in row}


def without_nulls(row):
    return {name: value for name, value in row.items() if value is not None}


def test_a_rerun_makes_the_missing_parts_only(run, tmp_path):
    first = run("compress", "txt", "--part-size", "2", output=tmp_path)
    assert len(run.made) == 3
    (tmp_path / "part-0000001.jsonl").unlink()
    (tmp_path / ".part-0000001.jsonl-killed").touch()
    assert run("compress", "txt", "--part-size", "2", output=tmp_path) == first
    assert run.made == ["part-0000001"]
    assert sorted(path.name for path in tmp_path.glob(".part*")) == []
    assert run("compress", "txt", "--part-size", "2", output=tmp_path) == first  # the exit code counts old errors too
    assert run.made == []


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("txt", "--beam-size", "3"), "search"),
        (("txt", "--part-size", "1"), "part_size"),
        (("txt", "txt"), "inputs"),
        (("txt", "--lines"), "lines"),
        (("txt", "--column", "document=text"), "column"),
    ],
)
def test_a_rerun_with_other_settings_is_refused(run, tmp_path, arguments, name):
    run("compress", "txt", output=tmp_path)
    assert run("compress", *arguments, output=tmp_path)[0] == 2
    assert f"has results of other settings ({name} was " in run.errors()
    assert run.made == []


def test_another_preset_in_the_same_folder_is_refused(run, folder, tmp_path):
    run("compress", "txt", output=tmp_path)
    path = folder / "presets" / "compress"
    make_application("compressor").save(path, card="Another one")
    assert run("compress", "txt", output=tmp_path)[0] == 2
    assert "other settings (preset_sha256 was " in run.errors()


def test_manifests_and_lines(run, tmp_path, capsys):
    texts = [TEXT.replace("Bob", f"Bob{number}") for number in range(3)]
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join(texts))
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"body": text}) + "\n" for text in [*texts, None]))
    expected = single("compress", "--lines", str(lines), "txt/bad.txt", "missing", capsys=capsys)
    found = run("compress", "--lines", str(lines), "txt/bad.txt", "missing", "--part-size", "2", output=tmp_path / "1")
    assert found == expected
    arguments = (f"file://{tmp_path}/rows.jsonl", "--column", "document=body")
    code, rows = run("compress", *arguments, output=tmp_path / "2")
    assert code == 1
    assert [row["text"] for row in rows] == [*(row["text"] for row in expected[1][:3]), None]
    assert rows[0]["source"] == f"{tmp_path}/rows.jsonl:1"
    assert "`body` must be a text" in rows[3]["error"]


def test_photos_of_a_manifest_and_of_a_url(run, folder, tmp_path):
    (tmp_path / "rows.csv").write_text(f"image\n{folder}/jpg/a.jpg\nmissing.jpg\n")
    memory = fsspec.filesystem("memory")
    memory.pipe("/photos/a.jpg", (folder / "jpg" / "a.jpg").read_bytes())
    try:
        code, rows = run("caption", str(tmp_path / "rows.csv"), "memory://photos", output=tmp_path / "results")
    finally:
        memory.rm("/photos", recursive=True)
    assert code == 1
    assert [row["source"] for row in rows] == [
        f"{folder}/jpg/a.jpg",
        f"{tmp_path}/missing.jpg",
        "memory:///photos/a.jpg",
    ]
    assert rows[0]["text"] == rows[2]["text"]
    assert "missing.jpg" in rows[1]["error"]


def test_a_file_of_a_url_that_is_no_text_is_refused(run, tmp_path):
    memory = fsspec.filesystem("memory")
    memory.pipe("/texts/a.txt", b"%PDF-1.7")
    try:
        _, (row,) = run("compress", "memory://texts", output=tmp_path)
    finally:
        memory.rm("/texts", recursive=True)
    assert "is not a text file" in row["error"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("caption", "jpg", "--lines"), "`--lines` is for texts"),
        (("compress", "txt", "--part-size", "0"), "`part_size` must be at least 1"),
        (("compress", "txt", "--workers", "0"), "`workers` must be at least 1"),
        (("compress", "txt", "--beam-size", "0"), "`beam_size` must be at least 1"),
        (("compress", "txt", "--column", "summary=x"), "`--column` must name the column `document`"),
        (("compress", "missing.csv"), "missing.csv"),
    ],
)
def test_a_wrong_option_is_an_error_of_usage(run, tmp_path, arguments, message):
    assert run(*arguments, output=tmp_path)[0] == 2
    assert message in run.errors()
    assert not (tmp_path / "_plan.json").exists()


def test_a_worker_with_another_preset_or_version_makes_nothing(folder, monkeypatch):
    monkeypatch.chdir(folder)
    answer = batch.Answer("compress", "presets/compress", {})
    answer.versions = {**answer.versions, "version": "0.0.0"}
    answer = pickle.loads(pickle.dumps(answer))  # as a worker gets it
    with pytest.raises(ValueError, match="This machine has another version or preset"):
        list(answer([]))


def test_progress_is_told_where_there_is_no_terminal(run, tmp_path, capsys):
    arguments = ["batch", "compress", "txt", "--preset", "presets/compress", "--output", str(tmp_path)]
    assert main([*arguments, "--part-size", "2"]) == 1
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith("attention-apps: 2 of 5 inputs, 0 errors, ")
    assert last == f"attention-apps: 5 inputs, 1 errors: {tmp_path}"
    (tmp_path / "part-0000002.jsonl").unlink()
    assert main([*arguments, "--part-size", "2"]) == 1
    assert capsys.readouterr().err.splitlines()[0] == "attention-apps: 2 of 3 parts are there already"


def test_two_runs_do_not_share_a_folder(run, tmp_path):
    with batch.locked_folder(tmp_path):
        assert run("compress", "txt", output=tmp_path)[0] == 2
    assert "is in use by another process" in run.errors()
    assert Storage(str(tmp_path), "jsonl").parts() == set()
