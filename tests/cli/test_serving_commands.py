"""`export`, `serve` and `evaluate` on a small summarizer, as a user would call them."""

import io
import json
import signal
import socket
import subprocess
import sys
import threading

import PIL.Image
import pytest

from attention_apps.cli import main
from attention_apps.cli.serving_commands import _decoded_pixels, _text_cost
from attention_apps.serving import Client, LoadedModel
from tests.applications.summarizers import CONFIGS, make_rows, make_summarizer, write_jsonl

pytestmark = pytest.mark.slow

TEXT = "Yesterday in the morning, Alice likes Bob in the old town. It was reported by the police."


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_jsonl(tmp_path_factory.mktemp("data") / "data.jsonl", make_rows("generate", 16))


@pytest.fixture(scope="module")
def preset(data, tmp_path_factory):
    summarizer = make_summarizer(CONFIGS["generate"], ["training.epochs=2"])
    summarizer.fit(data, quiet=True)
    folder = tmp_path_factory.mktemp("preset") / "headlines"
    summarizer.save(folder)
    return folder


@pytest.fixture(scope="module")
def exported(preset, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "mine"
    assert main(["export", str(preset), str(folder), "--num-best", "3", "--quiet"]) == 0
    return folder


def test_an_export_has_the_options_of_the_command(exported):
    assert LoadedModel(exported).predict({"text": [TEXT]})["text"].shape == (1, 3)
    assert "num_best 3" in (exported / "1" / "README.md").read_text(encoding="utf-8")


def test_evaluate_prints_figures_with_their_intervals(preset, data, capsys):
    assert main(["evaluate", str(preset), str(data), "--quiet", "--beam-size", "1", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["items"] == 16
    for figure in report["metrics"].values():
        low, high = figure["interval"]
        assert low <= figure["score"] <= high
    assert main(["evaluate", str(preset), str(data), "--quiet", "--beam-size", "1"]) == 0
    header, *lines, last = capsys.readouterr().out.splitlines()
    assert header.split() == ["metric", "score", "95", "%", "interval"]
    assert [line.split()[0] for line in lines] == list(report["metrics"])
    assert last == "16 items"


def test_evaluate_says_which_rows_it_could_not_use(preset, data, tmp_path, capsys):
    path = tmp_path / "broken.jsonl"
    path.write_text(data.read_text(encoding="utf-8") + '{"document": "half a line\n{"document": "no summary"}\n')
    assert main(["evaluate", str(preset), str(path), "--beam-size", "1"]) == 1
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1] == "16 items; 2 rows could not be used"
    assert "broken.jsonl, line 17" in printed.err
    assert "broken.jsonl, line 18" in printed.err
    assert main(["evaluate", str(preset), str(path), "--beam-size", "1", "--quiet", "--json"]) == 1
    printed = capsys.readouterr()
    assert (json.loads(printed.out)["skipped"], printed.err) == (2, "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["export", "nothing", "models/x"], "A preset must be a folder or one of"),
        (["export", "{preset}", "{preset}"], "`folder` must be new, empty, or hold exported versions"),
        (["export", "{preset}", "{scratch}/x", "--beam-size", "0"], "`beam_size` must be at least 1"),
        (["evaluate", "nothing", "data.csv"], "A preset must be a folder or one of"),
        (["evaluate", "{preset}", "nowhere.csv"], "nowhere.csv"),
        (["serve", "nothing"], "A preset must be a folder or one of"),
        (["serve", "{scratch}"], "holds no exported model"),
        (["serve", "{preset}", "elsewhere/headlines"], "must differ in their last names"),
        (["serve", "{preset}", "--timeout", "0"], "`timeout` must be above 0"),
        (["serve", "{preset}", "--timeout", "inf"], "`timeout` must be above 0 and finite"),
        (["serve", "{preset}", "--max-body", "inf"], "`--max-body` must be a finite number"),
        (["serve", "{preset}", "--max-pixels", "nan"], "`--max-pixels` must be a finite number"),
        (["serve", "{preset}", "--max-text", "0"], "`max_text` must be at least 1"),
        (["serve", "{preset}", "--max-connections", "0"], "`max_connections` must be at least 1"),
    ],
)
def test_wrong_usage_is_said_without_a_traceback(preset, tmp_path, capsys, arguments, message):
    places = {"preset": preset, "scratch": tmp_path}
    assert main([argument.format(**places) for argument in arguments]) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert "Traceback" not in errors


def test_serve_says_what_it_needs_before_it_loads_anything(monkeypatch, capsys):
    for name in ("attention_apps.serving.server", "attention_apps.serving.connections"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["serve", "anything"]) == 2
    assert "pip install 'attention_apps[serve]'" in capsys.readouterr().err


def test_pixels_are_counted_from_the_header():
    contents = io.BytesIO()
    PIL.Image.new("L", (300, 200)).save(contents, "PNG")
    assert _decoded_pixels(contents.getvalue()[:60]) == 60_000
    assert _decoded_pixels(b"not an image") == 0
    bomb = contents.getvalue()[:16] + b"\x00\x01\x00\x00" * 2 + contents.getvalue()[24:]
    assert _decoded_pixels(bomb) == 0


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        ("", 0),
        ("no end", 6),
        ("One. Two!\n", 3 * 256),
        ("\u3002" * 9, 9 * 256),
        ("x" * 99_999, 16_384),
        ("." * 99, 2**14),
    ],
)
def test_a_text_costs_its_bytes_and_more_if_its_sentences_are_short(text, cost):
    assert _text_cost(text.encode()) == cost


def test_a_port_that_is_taken_is_named(exported, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", str(exported), "--port", str(port)]) == 2
    assert f"Cannot listen on 127.0.0.1, port {port}" in capsys.readouterr().err


def test_serve_answers_and_ends_with_ctrl_c(exported, preset):
    pytest.importorskip("uvicorn", reason="the server needs the extra `serve`")
    command = [sys.executable, "-m", "attention_apps", "serve", str(exported), str(preset), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    watchdog = threading.Timer(400, process.kill)
    watchdog.start()
    try:
        lines = [process.stderr.readline() for _ in range(3)]
        assert lines[0].startswith("attention-apps: serving mine at http://127.0.0.1:"), lines
        client = Client(lines[0].split(" at ")[1].partition("/v1/")[0], timeout=200)
        (ours,), (theirs,) = (client.predict(name, [{"text": TEXT}]) for name in ("mine", "headlines"))
        assert ours["status"] == theirs["status"] == "ok"
        assert ours["text"][0] == theirs["text"][0]
        assert len(ours["text"]) == 3
        (short,) = client.predict("headlines", [{"text": TEXT}], signature="text")
        assert short == {name: theirs[name] for name in ("text", "score", "confidence", "unsure", "status")}
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
        assert (process.returncode, errors) == (0, "")
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
