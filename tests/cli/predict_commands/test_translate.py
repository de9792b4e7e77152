"""`attention-apps translate`; what it shares with the other commands is in `test_predict.py`."""

import io
import json
import sys

import keras
import pytest

from attention_apps.cli import main
from attention_apps.cli.predict import PredictCommand
from tests.applications.translators import PIECES, TEXT, make_translator


@pytest.fixture(scope="module")
def translator():
    keras.utils.set_random_seed(3)  # some random weights write nothing
    return make_translator(overrides=["decoding.beam_size=1", "decoding.max_length=6"], pieces=PIECES)


@pytest.fixture
def run(translator, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(PredictCommand, "load", lambda command, options: translator)
    (tmp_path / "text.txt").write_text(f"{TEXT}\n12:30\n", encoding="utf-8")

    def run(*arguments):
        names = [str(tmp_path / name) if name.endswith(".txt") else name for name in arguments]
        code = main(["translate", *names])
        printed = capsys.readouterr()
        return code, printed.out.splitlines(), printed.err

    return run


def test_the_lines_of_a_file_are_kept(run, translator):
    code, lines, errors = run("text.txt")
    assert (code, errors) == (0, "")
    assert lines == [translator.translate(TEXT).text, "12:30"]


def test_standard_input_is_read_as_a_file_is(run, monkeypatch):
    expected = run("text.txt")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{TEXT}\n12:30\n".encode())))
    assert run("-") == expected


def test_an_entry_has_the_words_of_both_texts(run, translator):
    (entry,) = (json.loads(line) for line in run("text.txt", "--json")[1])
    assert entry["source_tokens"] == ["Anna", "likes", "the", "tree", ".", "Bob", "sees", "the", "house", ".", "12:30"]
    assert entry["tokens"] == [*translator.translate(TEXT).tokens, "12:30"]


def test_every_line_is_a_text_of_its_own(run):
    code, lines, _ = run("--lines", "text.txt", "missing.txt")
    entries = [json.loads(line) for line in lines]
    assert (code, len(entries)) == (1, 3)
    assert entries[1]["text"] == "12:30"
    assert "missing.txt" in entries[2]["error"]


def test_a_picture_and_a_page_are_written(run, tmp_path):
    assert run("text.txt", "--plot", str(tmp_path / "plots"), "--html", str(tmp_path / "pages"))[0] == 0
    assert len(list((tmp_path / "plots").iterdir())) == len(list((tmp_path / "pages").iterdir())) == 1


def test_options_of_other_commands_are_wrong_usage(capsys):
    with pytest.raises(SystemExit):
        main(["translate", "text.txt", "--max-words", "3"])
    assert "--max-words" in capsys.readouterr().err
