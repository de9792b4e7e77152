"""What the commands that answer inputs share, with an application that needs no model."""

import argparse
import io
import json
import sys
from types import SimpleNamespace
from typing import ClassVar

import pytest

from attention_apps.applications import tasks
from attention_apps.cli import predict
from attention_apps.cli.predict import OutputFiles, PredictCommand
from tests.cli import fake_application


class ReverseCommand(PredictCommand):
    task = "reversal"
    metavar = "WORD"
    suffixes = (".txt", ".md")
    examples = ("attention-apps reverse word",)
    output_options = ("temperature",)
    columns: ClassVar = {"letters": lambda result: len(result.text)}

    def read(self, name):
        if name == "unreadable":
            raise FileNotFoundError("There is no file unreadable")
        return super().read(name)

    def add_options(self, parser):
        parser.add_argument("--temperature", type=float)


COMMAND = ReverseCommand()


@pytest.fixture
def run(monkeypatch, capsys):
    monkeypatch.setitem(tasks.TASKS, "reversal", ("tests.cli.fake_application", "Reverser", "reverse"))
    monkeypatch.setattr(predict, "import_tensorflow_quietly", lambda quiet: None)

    def run(*arguments):
        parser = argparse.ArgumentParser(prog="reverse")
        COMMAND.add_arguments(parser)
        code = COMMAND.run(parser.parse_args(arguments))
        printed = capsys.readouterr()
        return code, printed.out.splitlines(), printed.err

    return run


def test_one_input_gives_its_text_alone(run):
    assert run("word") == (0, ["drow"], "")


def test_several_inputs_give_a_line_each_with_their_names(run):
    assert run("one", "two") == (0, ["one: eno", "two: owt"], "")


def test_a_failure_is_told_on_stderr_and_the_others_are_answered(run):
    code, lines, errors = run("one", "unreadable", "a bad one", "unreadable", "two", "unreadable")
    assert code == 1
    assert lines == ["one: eno", "two: owt"]
    assert errors.splitlines() == [
        "attention-apps: There is no file unreadable",
        "attention-apps: a bad one: It is bad",
        "attention-apps: There is no file unreadable",
        "attention-apps: There is no file unreadable",
    ]


def test_json_has_a_line_for_each_input_in_order(run):
    code, lines, errors = run("one", "unreadable", "bad", "blank", "--json")
    assert (code, errors) == (1, "")
    first, second, third, fourth = map(json.loads, lines)
    assert first == {
        "source": "one",
        "text": "eno",
        "score": -0.5,
        "confidence": 0.75,
        "unsure": False,
        "alternatives": [{"text": "eno", "score": -0.5}, {"text": "ENO", "score": -1.5}],
        "letters": 3,
    }
    failed = {"text": None, "score": None, "alternatives": []}
    assert second == {"source": "unreadable", **failed, "error": "There is no file unreadable"}
    assert third == {"source": "bad", **failed, "error": "It is bad"}
    assert fourth["score"] is None


def test_all_failing_is_no_trouble(run):
    assert run("unreadable", "unreadable", "--json")[0] == 1


def test_the_best_are_printed_with_their_scores(run):
    assert run("one", "--num-best", "2")[1] == ["-0.500 eno", "-1.500 ENO"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), {"beam_size": 4, "num_best": 2, "max_length": 9, "min_length": 3, "temperature": 1.0}),
        (("--num-best", "7"), {"beam_size": 7, "num_best": 7}),
        (("--num-best", "3"), {"beam_size": 4, "num_best": 3}),
        (("--beam-size", "1"), {"beam_size": 1, "num_best": 1}),
        (("--max-length", "2"), {"max_length": 2, "min_length": 2}),
        (("--temperature", "2"), {"temperature": 2.0}),
    ],
)
def test_options_of_the_preset_hold_unless_others_are_given(run, arguments, expected):
    run("word", *arguments)
    options = fake_application.seen["options"]
    assert {name: getattr(options, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--beam-size", "0"), "`beam_size` must be at least 1"),
        (("--num-best", "3", "--beam-size", "2"), "`num_best` must be between 1 and 2"),
        (("--num-best", "0"), "`num_best` must be"),
        (("--max-length", "0"), "`max_length` must be at least 1"),
        (("--preset", "other"), "A preset must be a folder or one of"),
        (("--preset", "sentence_compression_google"), "`task` must be 'reversal'"),
        (("-", "-"), "`-` may be given once"),
    ],
)
def test_a_wrong_option_is_an_error_of_usage(run, arguments, message):
    with pytest.raises(ValueError, match=message):
        run("word", *arguments)


def test_standard_input_is_read_as_bytes(run, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"drow")))
    code, lines, _ = run("one", "-", "--json")
    assert code == 0
    assert [json.loads(line)["text"] for line in lines] == ["eno", "word"]
    assert json.loads(lines[1])["source"] == "-"


def test_what_is_piped_is_read_if_nothing_is_named(run, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"drow")))
    assert run() == (0, ["word"], "")


def test_nothing_named_and_nothing_piped_is_wrong_usage(run, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"drow")))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    with pytest.raises(ValueError, match="Give at least one WORD: files, folders, or - for standard input"):
        run()


def test_a_folder_is_walked(run, tmp_path):
    for name in ("b.txt", "a/c.MD", "a/.hidden.txt", ".git/d.txt", "photo.jpg", "a.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    code, lines, _ = run(str(tmp_path), "word", "--json")
    names = [json.loads(line)["source"] for line in lines]
    assert code == 0
    assert names == [*(str(tmp_path / name) for name in ("a.txt", "b.txt", "a/c.MD")), "word"]


def test_a_folder_with_nothing_to_read_is_the_failure_of_that_input_alone(run, tmp_path):
    code, lines, errors = run(str(tmp_path), "word")
    assert (code, lines) == (1, ["word: drow"])
    assert f"{tmp_path} is a folder without any file that ends in .txt, .md" in errors


def test_standard_input_without_end_is_refused(run, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"drow")))
    monkeypatch.setattr(predict, "MAX_INPUT", 3)
    code, _, errors = run("-")
    assert code == 1
    assert "more than the limit of 3 bytes" in errors


def test_inputs_are_read_as_they_are_needed():
    ahead = []

    class Watched(ReverseCommand):
        def read(self, name):
            ahead.append(name)
            return name

    names = [str(number) for number in range(5000)]
    options = argparse.Namespace(inputs=names, beam_size=None, num_best=None, max_length=None, temperature=None)
    found = Watched().answers(fake_application.Reverser(), names, options)
    for _ in range(10):
        next(found)
    assert len(ahead) == 10
    assert [answer.source for answer in found] == names[10:]


def test_what_the_model_is_not_sure_of_is_said_on_stderr(run):
    assert run("odd") == (0, ["ddo"], "attention-apps: odd: the model is not sure of this\n")
    assert run("odd", "--quiet") == (0, ["ddo"], "")
    assert json.loads(run("odd", "--json")[1][0])["unsure"] is True


def test_pictures_and_pages_are_called_after_their_inputs(run, tmp_path):
    pictures, pages = tmp_path / "new" / "pictures", tmp_path / "pages"
    code, _, _ = run("a/one.txt", "b/one.txt", "bad", "--plot", str(pictures), "--html", str(pages))
    assert code == 1
    assert sorted(path.name for path in pictures.iterdir()) == ["one_attention.png", "one_attention_2.png"]
    assert (pictures / "one_attention_2.png").read_text() == "picture of txt.eno/b"
    assert (pages / "one_attention.html").read_text() == "page of txt.eno/a"


def test_a_file_in_place_of_the_folder_is_named(run, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="is a file, not a folder"):
        run("word", "--plot", str(tmp_path / "file"))


def test_names_that_no_terminal_can_show_are_escaped(run):
    code, lines, _ = run("\udcff\x1b[31m", "b")
    assert code == 0
    assert lines[0] == "\\udcff\\x1b[31m: m13[\\x1b\\udcff"
    assert run("bad\nattention-apps: all is well")[2].splitlines() == [
        "attention-apps: bad\\nattention-apps: all is well: It is bad"
    ]
    assert json.loads(run("\udcff", "--json")[1][0])["source"] == "\udcff"


def test_there_is_no_bar_where_none_is_wanted(run, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # which makes rich believe in a terminal
    assert run("one", "two")[2] != ""
    assert run("one", "two", "--quiet")[2] == ""
    assert run("one", "two")[1] == ["one: eno", "two: owt"]


def names(folder, inputs, ending=".png"):
    files = OutputFiles(str(folder), ending, inputs)
    return [files.path_of(name).name for name in inputs]


def test_no_two_inputs_get_the_same_file(tmp_path):
    inputs = ["a/photo.jpg", "b/photo.jpg", "PHOTO.png", "photo_attention.x", "photo.jpg"]
    found = names(tmp_path, inputs)
    assert found[:2] == ["photo_attention.png", "photo_attention_2.png"]
    assert len({name.casefold() for name in found}) == len(inputs)


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("-", "stdin"),
        ("../../etc/passwd", "passwd"),
        ("..", "input"),
        ("/", "input"),
        ("", "input"),
        ("a b:c*?.jpg", "a_b_c"),
        ("日本.jpg", "input"),
        ("\udcff\n.jpg", "input"),
        (".hidden", "hidden"),
        ("x" * 300 + ".jpg", "x" * 80),
    ],
)
def test_names_are_made_plain(tmp_path, name, stem):
    files = OutputFiles(str(tmp_path), ".html", [name])
    assert files.path_of(name) == tmp_path / f"{stem}_attention.html"


def test_an_input_is_not_written_over(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert names(tmp_path, ["photo.jpg", "photo_attention.png"]) == [
        "photo_attention_2.png",
        "photo_attention_attention.png",
    ]


class Drawing:
    def __init__(self, text):
        self.text = text

    def plot(self, path):
        with open(path, "w") as file:
            file.write(self.text)


def test_links_in_the_folder_are_replaced_and_not_followed(tmp_path):
    folder, secret = tmp_path / "plots", tmp_path / "secret"
    folder.mkdir()
    secret.write_text("mine")
    (folder / "photo_attention.png").symlink_to(secret)
    (folder / "other_attention.png").symlink_to(tmp_path)
    files = OutputFiles(str(folder), ".png", ["photo.jpg", "other.jpg"])
    for name in ("photo.jpg", "other.jpg"):
        files.write(SimpleNamespace(source=name, result=Drawing("new")))
    assert secret.read_text() == "mine"
    assert sorted(path.name for path in folder.iterdir()) == ["other_attention.png", "photo_attention.png"]
    assert all(path.read_text() == "new" and not path.is_symlink() for path in folder.iterdir())


def test_a_folder_in_the_place_of_a_picture_is_named(tmp_path):
    (tmp_path / "photo_attention.png").mkdir()
    files = OutputFiles(str(tmp_path), ".png", ["photo.jpg"])
    with pytest.raises(ValueError, match=r"photo_attention\.png is a folder"):
        files.write(SimpleNamespace(source="photo.jpg", result=Drawing("new")))


def test_a_picture_that_fails_leaves_nothing_behind(tmp_path):
    files = OutputFiles(str(tmp_path), ".png", ["photo.jpg"])
    with pytest.raises(TypeError):
        files.write(SimpleNamespace(source="photo.jpg", result=Drawing(None)))
    assert list(tmp_path.iterdir()) == []
