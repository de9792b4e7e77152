"""`attention-apps summarize`; what it shares with the other commands is in `test_predict.py`."""

import io
import json
import os
import sys
import threading

import pytest

from attention_apps.applications import Summary
from attention_apps.cli import main, predict, predict_commands
from attention_apps.cli.predict import PredictCommand
from tests.applications.summarizers import CONFIGS, make_rows, make_summarizer, write_jsonl

TEXT = "Yesterday in the morning, Alice likes Qwert in the old town. It was reported by the police."
LONG = " ".join([TEXT, "Bob sees Paris by night.", "Nobody finds London now, it seems.", TEXT])


@pytest.fixture(scope="module")
def summarizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("summarizer")
    data = write_jsonl(folder / "train.jsonl", make_rows("generate", 16))
    summarizer = make_summarizer(CONFIGS["generate"], ["training.epochs=4"])
    summarizer.fit(data, quiet=True)
    return summarizer


@pytest.fixture
def run(summarizer, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(PredictCommand, "load", lambda command, options: summarizer)
    (tmp_path / "short.txt").write_text(TEXT, encoding="utf-8")
    (tmp_path / "long.txt").write_text(LONG, encoding="utf-8")
    (tmp_path / "lines.txt").write_bytes(TEXT.encode() + b"\n\nOne word\nbroken \xff bytes are here\n")

    def run(*arguments):
        names = [str(tmp_path / name) if name.endswith(".txt") else name for name in arguments]
        code = main(["summarize", *names])
        printed = capsys.readouterr()
        return code, printed.out.splitlines(), printed.err

    return run


def test_a_file_gives_a_line(run):
    code, lines, errors = run("short.txt")
    assert (code, len(lines), errors) == (0, 1, "")
    assert lines[0]


def test_standard_input_is_read_as_a_file_is(run, monkeypatch):
    expected = run("short.txt")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    assert run("-") == expected


def test_the_words_of_a_summary_are_bounded(run):
    assert len(run("short.txt", "--max-words", "1")[1][0].split()) == 1
    assert len(run("short.txt", "--min-words", "6")[1][0].split()) >= 6


def test_a_line_for_each_sentence_asked_for(run):
    code, lines, _ = run("long.txt", "--sentences", "3")
    assert (code, len(lines)) == (0, 3)


def test_what_was_not_read_of_a_long_text_is_told(run):
    _, lines, errors = run("long.txt")
    assert len(lines) == 1
    assert "26 of 54 words and marks were read; --sentences N reads from all over" in errors
    assert run("long.txt", "--quiet")[2] == ""
    (entry,) = (json.loads(line) for line in run("long.txt", "--json")[1])
    assert entry["read_whole"] is False
    assert entry["passages"][0][0] == 0
    assert len(entry["copied"]) == len(entry["tokens"])


def test_every_line_is_a_text_of_its_own(run, tmp_path):
    code, lines, _ = run("--lines", "lines.txt", "missing.txt")
    entries = [json.loads(line) for line in lines]
    assert code == 1
    assert [entry["source"].removeprefix(str(tmp_path)) for entry in entries] == [
        *(f"/lines.txt:{number}" for number in (1, 2, 3, 4)),
        "/missing.txt",
    ]
    assert entries[0]["text"] == run("short.txt")[1][0]
    assert (entries[1]["text"], entries[1]["score"]) == ("", None)
    assert entries[2]["text"] == "One word"
    assert entries[3]["text"]
    assert "missing.txt" in entries[4]["error"]


def test_a_file_that_cannot_be_opened_does_not_end_the_others(run, tmp_path):
    (tmp_path / "folder.txt").mkdir()
    code, lines, _ = run("--lines", "folder.txt", "lines.txt")
    entries = [json.loads(line) for line in lines]
    assert (code, len(entries)) == (1, 5)
    assert "folder.txt" in entries[0]["error"]
    assert entries[3]["text"] == "One word"


def test_lines_of_a_pipe(run, tmp_path):
    pipe = tmp_path / "pipe.txt"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=[b"One word\nTwo\n"])
    writer.start()
    entries = [json.loads(line) for line in run("--lines", "pipe.txt")[1]]
    writer.join()
    assert [entry["text"] for entry in entries] == ["One word", "Two"]


def test_a_pipe_in_a_folder_is_not_waited_for(run, tmp_path):
    os.mkfifo(tmp_path / "pipe.txt")
    code, lines, _ = run(str(tmp_path), "--json")
    assert (code, len(lines)) == (0, 3)


@pytest.mark.parametrize("options", [[], ["--lines"]])
def test_a_device_without_end_is_refused(run, monkeypatch, options):
    for module in (predict, predict_commands):
        monkeypatch.setattr(module, "MAX_INPUT", 5000)
    code, lines, errors = run("/dev/zero", *options)
    assert code == 1
    assert "/dev/zero is too large: it has more than the limit of 5,000 bytes" in "".join([*lines, errors])


def test_lines_of_standard_input(run, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"One word\nTwo\n")))
    entries = [json.loads(line) for line in run("--lines", "-")[1]]
    assert [(entry["source"], entry["text"]) for entry in entries] == [("-:1", "One word"), ("-:2", "Two")]


def test_a_text_of_the_command_line(run, tmp_path):
    expected = run("short.txt")[1]
    assert run("--text", TEXT) == (0, expected, "")
    code, lines, _ = run("short.txt", "--text", TEXT, "--text", "One word", "--json", "--html", str(tmp_path / "pages"))
    entries = [json.loads(line) for line in lines]
    assert code == 0
    assert [entry["source"] for entry in entries] == [str(tmp_path / "short.txt"), "text", "text_2"]
    assert [entry["text"] for entry in entries] == [*expected, *expected, "One word"]
    assert (tmp_path / "pages" / "text_attention.html").is_file()


@pytest.mark.parametrize(
    "contents",
    [
        b"\x89PNG\r\n\x1a\n" + bytes(range(256)),
        b"%PDF-1.4\n1 0 obj << /Length 44 >> stream\n",
        b"PK\x03\x04 word",
        "in UTF-16".encode("utf-16"),
        b"\x93\xfa\x96\x7b\x8c\xea\x82\xc5\x82\xb7",
        b"\x7fELF word word word\x00",
    ],
)
@pytest.mark.parametrize("options", [(), ("--lines",)])
def test_a_file_that_is_not_text_is_refused(run, tmp_path, contents, options):
    (tmp_path / "odd.txt").write_bytes(contents)
    code, lines, errors = run("odd.txt", "short.txt", *options)
    assert code == 1
    told = errors if not options else json.loads(lines[0])["error"]
    assert f"{tmp_path / 'odd.txt'} is not a text file. Give plain text in UTF-8." in told
    assert len(lines) == 1 + len(options)


def test_standard_input_that_is_not_text_is_refused(run, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\x89PNG\r\n\x1a\n")))
    code, lines, errors = run()
    assert (code, lines) == (1, [])
    assert "standard input is not a text file" in errors


@pytest.mark.parametrize("contents", [b"", "Grüße aus Köln".encode("latin-1"), "日本語のテキスト".encode()])
def test_text_with_a_few_odd_bytes_is_read(run, tmp_path, contents):
    (tmp_path / "odd.txt").write_bytes(contents)
    assert run("odd.txt")[0] == 0


STYLES = {"headline": ["text_summarization"], "compress": ["sentence_compression"], "auto": []}


@pytest.mark.parametrize("style", STYLES)
def test_a_style_chooses_the_model(run, summarizer, monkeypatch, style):
    loaded = []

    class Recorded:
        def __init__(self, task):
            self.task = task

        def from_preset(self):
            loaded.append(self.task)
            return summarizer

    monkeypatch.setattr(predict_commands, "application_class", Recorded)
    assert run("short.txt", "--style", style)[0] == 0
    assert loaded == (STYLES[style] or ["text_summarization"])


def test_the_style_auto_compresses_single_sentences_alone(run, monkeypatch):
    class Named:
        def __init__(self, task):
            self.task = task

        def from_preset(self):
            return self

        def run(self, items, quiet, **options):
            return (Summary.verbatim(self.task, [self.task], item) for item in items)

    monkeypatch.setattr(predict_commands, "application_class", Named)
    texts = ["One sentence is here.", "Two are here. See?", "Mr. Bell left", ""]
    arguments = [word for text in texts for word in ("--text", text)]
    entries = [json.loads(line) for line in run(*arguments, "--style", "auto", "--json")[1]]
    one, several = "sentence_compression", "text_summarization"
    assert [entry["text"] for entry in entries] == [one, several, one, one]


def test_a_style_and_a_preset_are_one_too_many(run):
    code, _, errors = run("short.txt", "--style", "auto", "--preset", "mine")
    assert code == 2
    assert "`--style` and `--preset` both choose a model" in errors


def test_a_folder_is_an_error_of_its_own(run, tmp_path):
    (tmp_path / "folder.txt").mkdir()
    code, lines, errors = run("folder.txt", "short.txt")
    assert (code, len(lines)) == (1, 1)
    assert "folder.txt" in errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--max-words", "0"], "`max_words` must be at least 1"),
        (["--max-words", "2", "--min-words", "3"], "`max_words` must be at least 3"),
        (["--sentences", "0"], "`sentences` must be at least 1"),
    ],
)
def test_options_that_make_no_sense_are_wrong_usage(run, arguments, message):
    code, lines, errors = run("short.txt", *arguments)
    assert (code, lines) == (2, [])
    assert message in errors
