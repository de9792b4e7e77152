"""The table of what fine-tuning gains: what is drawn, what is resumed, what is printed."""

import importlib
import json
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
REFERENCES = [["the bridge was closed"], ["rain fell on monday"], ["the city voted"]]


@pytest.fixture
def fine_tuning(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("fine_tuning")


def write_result(path, texts, seconds=60.0):
    path.parent.mkdir(exist_ok=True)
    content = {"texts": texts, "references": REFERENCES, "sources": ["a", "b", "c"], "history": {"seconds": seconds}}
    path.write_text(json.dumps(content))


def test_all_rows_of_a_drawn_source_are_there(fine_tuning):
    rows = [{"image": image, "caption": str(number)} for number, image in enumerate("abcabc")]
    drawn = fine_tuning._draw(rows, "image", 2, seed=1)
    assert len(drawn) == 4
    assert len({row["image"] for row in drawn}) == 2
    assert fine_tuning._draw(rows, "image", 9, seed=1) == rows


def test_no_sentence_of_the_test_is_trained_on(fine_tuning, tmp_path):
    lines = ["audio\ttranscript\tspeaker\tsplit", "a.wav\tyes\tx\ttrain", "b.wav\tno\tx\ttrain", "c.wav\tno\tx\tdev"]
    (tmp_path / "manifest.tsv").write_text("\n".join(lines))
    rows = fine_tuning.read_speech(type("Options", (), {"speech": tmp_path}))
    assert [row["transcript"] for row in rows["train"]] == ["yes"]
    assert [row["transcript"] for row in rows["test"]] == ["no"]


def test_the_table_has_the_mean_and_the_least_gain_with_its_interval(fine_tuning, tmp_path):
    folder = tmp_path / "summaries_3"
    write_result(folder / "preset.json", ["nothing"] * 3)
    write_result(folder / "50_0.json", ["the bridge was closed", "nothing", "nothing"])
    write_result(folder / "50_1.json", [texts[0] for texts in REFERENCES], seconds=180.0)
    lines = list(fine_tuning.table({"summaries": folder}))
    assert len(lines) == 3
    cells = [cell.strip() for cell in lines[2].split("|")]
    assert cells[2:5] == ["0.0", "50", "66.7 (33.3, 100.0)"]
    assert cells[5].startswith("+33.3 (+0.0 to +")
    assert cells[6] == "2.0"


def test_a_cell_that_has_a_result_is_not_run_again(fine_tuning, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("attention_apps.load", None)
    for name in ("preset", "50_0"):
        write_result(tmp_path / "summaries_3" / f"{name}.json", [texts[0] for texts in REFERENCES])
    sentence = {"document": "a b", "summary": "a"}
    rows = {"train": [sentence], "test": [sentence]}
    monkeypatch.setitem(
        fine_tuning.TASKS,
        "summaries",
        fine_tuning.Task("text_summarization", "x", ("rouge_2",), lambda options: rows, ("sentences",)),
    )
    options = ["--sentences", str(tmp_path), "--items", "50", "--seeds", "0", "--test-items", "3"]
    fine_tuning.main(["--output", str(tmp_path), *options])
    assert "| 100.0 (100.0) | +0.0 (+0.0 to +0.0) | 1.0 |" in capsys.readouterr().out
