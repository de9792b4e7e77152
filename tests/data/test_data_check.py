import json
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attention_apps.data.data_check import MAX_LISTED, DataCheck, DataReport, Histogram
from attention_apps.data.manifest import Manifest, Problem

TEXT = {"document": "document", "summary": "summary"}
AUDIO = {"audio": "audio", "transcript": "transcript"}


def texts(tmp_path, *rows, name="train"):
    path = tmp_path / f"{name}.jsonl"
    path.write_text("".join(json.dumps(dict(zip(TEXT, row))) + "\n" for row in rows))
    return Manifest(path, TEXT)


def recordings(tmp_path, *rows, name="train"):
    """Each file holds its length as text; a file whose text is no number cannot be decoded."""
    path = tmp_path / f"{name}.tsv"
    path.write_text("audio\ttranscript\n" + "".join(f"{audio}\t{transcript}\n" for audio, transcript in rows))
    return Manifest(path, AUDIO, paths=("audio",))


def probe(path):
    with open(path) as file:
        return float(file.read())


def found(report):
    return [(problem.kind, problem.line, problem.message) for problem in report.problems]


def check_text(manifest, **options):
    return DataCheck("document", "summary", **options).run({"training": manifest}, quiet=True)


def test_good_data_has_no_problems(tmp_path):
    manifest = texts(tmp_path, ("one two three", "four"), ("five", "six seven"))
    report = check_text(manifest)
    assert report.problems == []
    assert report.rows == report.used == {"training": 2}
    assert [row.line for row in report.good_rows(manifest)] == [1, 2]


def test_empty_texts_are_skipped(tmp_path):
    manifest = texts(tmp_path, ("", "x"), ("x", " \t "), ("good", "row"))
    report = check_text(manifest)
    assert found(report) == [("empty text", 1, "`document` is empty"), ("empty text", 2, "`summary` is empty")]
    assert (report.rows, report.used) == ({"training": 3}, {"training": 1})
    assert [row["document"] for row in report.good_rows(manifest)] == ["good"]


def test_over_long_texts_are_skipped(tmp_path):
    manifest = texts(tmp_path, ("a b c", "d"), ("a", "b c d"), ("a b", "c d"))
    report = check_text(manifest, max_source_length=2, max_target_length=2)
    assert found(report) == [
        ("too long", 1, "the length of `document` is 3, more than 2"),
        ("too long", 2, "`summary` has 3 tokens, more than 2"),
    ]
    assert [row.line for row in report.good_rows(manifest)] == [3]


def test_rows_that_cannot_be_read_are_skipped_with_the_others(tmp_path):
    manifest = texts(tmp_path, ("a", "b"))
    with open(manifest.path, "ab") as file:
        file.write(b'{"document": \n\xff\n{"document": "c"}\n{"document": "c", "summary": "d"}\n')
    report = check_text(manifest)
    assert [(kind, line) for kind, line, _ in found(report)] == [("broken row", 2), ("encoding", 3), ("broken row", 4)]
    assert [row.line for row in report.good_rows(manifest)] == [1, 5]


def test_missing_and_broken_files_are_skipped(tmp_path):
    (tmp_path / "good.wav").write_text("2.5")
    (tmp_path / "text.wav").write_text("not a recording")
    (tmp_path / "endless.wav").write_text("inf")
    (tmp_path / "folder.wav").mkdir()
    names = ["none.wav", "text.wav", "endless.wav", "folder.wav", "", "good.wav"]
    manifest = recordings(tmp_path, *[(name, "yes") for name in names])
    report = DataCheck("audio", "transcript", probe).run({"training": manifest}, quiet=True)
    assert found(report) == [
        ("missing file", 2, f"there is no file {tmp_path}/none.wav"),
        ("undecodable", 3, f"{tmp_path}/text.wav: could not convert string to float: 'not a recording'"),
        ("undecodable", 4, f"{tmp_path}/endless.wav: its length is inf"),
        ("missing file", 5, f"there is no file {tmp_path}/folder.wav"),
        ("missing file", 6, "`audio` is empty"),
    ]
    assert [row.line for row in report.good_rows(manifest)] == [7]
    assert report.lengths["training"]["audio"].median == 2.5


def test_an_exception_without_a_message_is_named(tmp_path):
    def fail(path):
        raise MemoryError

    (tmp_path / "a.wav").write_text("1")
    with pytest.raises(ValueError, match=r"There is not one usable row of training in .*\n.*a\.wav: MemoryError"):
        DataCheck("audio", "transcript", fail).run({"training": recordings(tmp_path, ("a.wav", "x"))}, quiet=True)


def test_files_are_probed_once_in_threads_and_reported_in_order(tmp_path):
    asked, threads = [], set()

    def slow_probe(path):
        asked.append(path)
        threads.add(threading.get_ident())
        time.sleep(0.002)
        return probe(path)

    for number in range(50):
        (tmp_path / f"{number}.wav").write_text(str(number) if number % 3 else "broken")
    manifest = recordings(tmp_path, *[(f"{number % 50}.wav", f"take {number}") for number in range(100)])
    report = DataCheck("audio", "transcript", slow_probe).run({"training": manifest}, quiet=True)
    assert len(asked) == 50
    assert len(threads) > 1
    assert [problem.line for problem in report.problems][:3] == [2, 5, 8]
    assert report.counts == {"undecodable": 34}
    assert report.used == {"training": 66}


def test_a_source_and_target_that_come_again_are_duplicates_and_stay(tmp_path):
    manifest = texts(tmp_path, ("a", "b"), ("a", "c"), ("a", "b"))
    report = check_text(manifest)
    assert found(report) == [("duplicate", 3, "the same source and target as in line 1")]
    assert report.used == {"training": 3}
    assert len(list(report.good_rows(manifest))) == 3


def test_a_source_in_training_and_validation_is_a_leak(tmp_path):
    training = texts(tmp_path, ("x", "b"), ("a", "b"))
    validation = texts(tmp_path, ("c", "d"), ("a", "other"), ("a", "third"), name="validation")
    report = DataCheck("document", "summary").run({"training": training, "validation": validation}, quiet=True)
    assert found(report) == [("leak", 2, "the source is also in training (line 2)")]
    assert report.problems[0].file == tmp_path / "validation.jsonl"
    assert report.used == {"training": 2, "validation": 3}


def test_the_rate_of_unknown_tokens_is_given(tmp_path):
    manifest = texts(tmp_path, ("a b x", "a"), ("y x", "z"))
    report = check_text(manifest, vocabulary={"a", "b"})
    assert report.unknown_rate == {"training": {"document": 3 / 5, "summary": 1 / 2}}
    assert report.unknown_tokens == [("x", 2), ("y", 1), ("z", 1)]
    assert report.problems == []


def test_rows_with_unknown_letters_are_listed_where_asked(tmp_path):
    manifest = recordings(tmp_path, ("a.wav", "YES"), ("a.wav", "NÖÖ?"))
    (tmp_path / "a.wav").write_text("1")
    check = DataCheck("audio", "transcript", tokenize=list, vocabulary=set("YESNO"), list_unknown=True)
    report = check.run({"training": manifest}, quiet=True)
    assert found(report) == [("unknown", 3, "`transcript` has tokens that are not in the vocabulary: Ö ?")]
    assert report.used == {"training": 2}
    assert report.unknown_rate == {"training": {"transcript": 3 / 7}}


def test_without_a_vocabulary_the_letters_of_the_first_data_are_the_known_ones(tmp_path):
    (tmp_path / "a.wav").write_text("1")
    manifests = {"training": recordings(tmp_path, ("a.wav", "YES"))}
    (tmp_path / "held_out").mkdir()
    (tmp_path / "held_out" / "a.wav").write_text("1")
    manifests["validation"] = recordings(tmp_path / "held_out", ("a.wav", "SEY"), ("a.wav", "NEY"))
    check = DataCheck("audio", "transcript", tokenize=list, list_unknown=True)
    report = check.run(manifests, quiet=True)
    assert found(report) == [("unknown", 3, "`transcript` has tokens that are not in the vocabulary: N")]
    assert report.unknown_rate == {"training": {}, "validation": {"transcript": 1 / 6}}


def test_the_application_may_reject_rows(tmp_path):
    def reject(row, length):
        return "there are fewer frames than letters" if length < len(row["transcript"]) else None

    for name in ("3", "9"):
        (tmp_path / name).write_text(name)
    manifest = recordings(tmp_path, ("3", "SEVEN"), ("9", "SEVEN"))
    report = DataCheck("audio", "transcript", probe, reject=reject).run({"training": manifest}, quiet=True)
    assert found(report) == [("unusable", 2, "there are fewer frames than letters")]


def test_strict_stops_at_any_problem(tmp_path):
    manifest = texts(tmp_path, *[("", "x")] * 12, ("a", "b"), ("a", "b"))
    with pytest.raises(ValueError, match=r"`strict` is on, and the data has 13 problems:\n") as error:
        DataCheck("document", "summary").run({"training": manifest}, strict=True, quiet=True)
    lines = str(error.value).splitlines()
    assert lines[1] == f"{tmp_path}/train.jsonl, line 1: `document` is empty"
    assert len(lines) == 12
    assert lines[-1] == "… and 3 more"


def test_a_set_without_a_usable_row_is_an_error(tmp_path):
    training = texts(tmp_path, ("a", "b"))
    empty = texts(tmp_path, ("", "b"), name="validation")
    with pytest.raises(ValueError, match=r"not one usable row of validation in .*\n.*line 1: `document` is empty"):
        DataCheck("document", "summary").run({"training": training, "validation": empty}, quiet=True)


def test_an_unchanged_file_is_probed_by_the_first_check_only(tmp_path):
    asked = []

    def counting_probe(path):
        asked.append(path)
        return probe(path)

    (tmp_path / "good.wav").write_text("2.5")
    (tmp_path / "bad.wav").write_text("broken")
    manifest = recordings(tmp_path, ("good.wav", "yes"), ("bad.wav", "no"))
    check = DataCheck("audio", "transcript", counting_probe, probe_name="seconds")
    first = check.run({"training": manifest}, quiet=True, cache=tmp_path / "cache")
    second = check.run({"training": manifest}, quiet=True, cache=tmp_path / "cache")
    assert len(asked) == 2
    assert found(first) == found(second)
    assert first.lengths == second.lengths
    check.run({"training": manifest}, quiet=True)
    assert len(asked) == 4


def test_a_probe_without_a_name_is_not_cached(tmp_path):
    (tmp_path / "good.wav").write_text("2.5")
    check = DataCheck("audio", "transcript", probe)
    check.run({"training": recordings(tmp_path, ("good.wav", "yes"))}, quiet=True, cache=tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_kept_rows_are_not_read_again(tmp_path):
    manifest = texts(tmp_path, ("one two", "three"), ("", "x"), ("five", "six"))
    check = DataCheck("document", "summary")
    kept = check.run({"training": manifest}, quiet=True, keep_rows=True)
    read = check.run({"training": manifest}, quiet=True)
    expected = list(read.good_rows(manifest))
    manifest.path.unlink()
    assert list(kept.good_rows(manifest)) == expected
    assert [row.line for row in expected] == [1, 3]


@given(st.lists(st.integers(0, 10_000) | st.floats(0, 1e4), min_size=1))
def test_a_histogram_counts_every_value(values):
    histogram = Histogram.of(values)
    assert sum(histogram.counts) == len(values)
    assert len(histogram.edges) == len(histogram.counts) + 1 <= 12
    assert histogram.edges[0] == min(values)
    assert histogram.edges[-1] >= max(values)
    assert histogram.median == np.median(values)
    assert histogram.to_text().count("\n") == len(histogram.counts) - 1


def test_whole_numbers_get_bins_of_equal_numbers():
    histogram = Histogram.of([3, 3, 4, 8, 26])
    assert histogram.edges[:3] == (3, 6, 9)
    assert histogram.counts == (3, 1, 0, 0, 0, 0, 0, 1)
    assert histogram.to_text().splitlines()[0].split() == ["3", "to", "5", "3", "█" * 40]


def test_equal_values_share_one_bin():
    assert Histogram.of([2.5, 2.5]).counts == (2,)
    assert Histogram.of([3, 3, 3]).counts == (3,)


@pytest.fixture
def report():
    report = DataReport(rows={"training": 1234}, used={"training": 1200})
    for line in range(30):
        report.add(Problem("missing file", Path("my[red].csv"), line, "there is no file [bold]x.jpg"))
    report.add(Problem("leak", Path("v.csv"), 7, "the source is also in training (line 2)"))
    report.lengths = {"training": {"caption": Histogram.of([1, 2, 2])}}
    report.unknown_rate = {"training": {"caption": 0.0123}}
    report.unknown_tokens = [("zyx", 3)]
    return report


def test_all_problems_are_counted_and_some_listed(report):
    assert report.counts == {"missing file": 30, "leak": 1}
    assert len(report.problems) == MAX_LISTED + 1
    assert report.skipped == 30  # the leak is used


def test_rows_with_unknown_tokens_are_all_listed_and_some_shown():
    report = DataReport(rows={"training": 50}, used={"training": 50})
    for line in range(2, 50):
        report.add(Problem("unknown", Path("a.csv"), line, "`transcript` has tokens that are not in the vocabulary: ?"))
    assert [problem["line"] for problem in report.to_dict()["problems"]] == [*range(2, 50)]
    assert "unknown: … and 43 more" in report.to_text()


def test_the_text_says_what_was_found(report):
    text = report.to_text()
    for part in ("1,234", "1,200", "caption 1.23%", "length of `caption`, median 2, mean 1.667"):
        assert part in text
    assert "missing file: my[red].csv, line 0: there is no file [bold]x.jpg" in text
    assert "missing file: … and 25 more" in text
    rows = [[cell.strip() for cell in line.split("│")] for line in text.splitlines()]
    assert ["", "missing file", "30", "skipped", ""] in rows
    assert ["", "leak", "1", "used", ""] in rows


def test_the_dict_is_fit_for_json(report):
    data = json.loads(json.dumps(report.to_dict()))
    assert data["rows"] == {"training": 1234}
    assert data["counts"]["missing file"] == 30
    assert data["problems"][0] == {
        "kind": "missing file",
        "file": "my[red].csv",
        "line": 0,
        "message": "there is no file [bold]x.jpg",
    }
    assert data["lengths"]["training"]["caption"]["counts"] == [1, 2]
    assert data["unknown_tokens"] == [["zyx", 3]]
