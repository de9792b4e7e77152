"""The `attention-apps` lines of a page, and a folder in which they can be run."""

import contextlib
import glob
import io
import json
import os
import re
import shlex
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import soundfile
from PIL import Image

from attention_apps.applications import preset
from attention_apps.cli import COMMANDS, main, make_parser
from tests.tiny_applications import PHOTO, RECORDING, TEXT, make_application

_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
_KINDS = ("captioner", "recognizer", "summarizer", "compressor", "translator")
_COMMANDS = {"caption": "captioner", "transcribe": "recognizer", "summarize": "summarizer", "compress": "compressor"}
_COMMANDS |= {"translate": "translator"}
# Whose stand-in a folder gets, by a part of its path.
_STAND_INS = {"caption": "captioner", "compress": "compressor", "headline": "summarizer", "summar": "summarizer"}
_STAND_INS |= {"recogn": "recognizer", "listen": "recognizer", "speech": "recognizer", "mine": "captioner"}
_STAND_INS |= {"show_attend": "captioner", "translat": "translator"}
# What makes the training of a documented line take seconds.
_SMALL = {
    "image_captioning": (
        *("encoder.backbone=efficientnet_lite0", "encoder.image_size=32", "encoder.units=4"),
        *("decoder.embedding_dim=6", "decoder.units=6"),
    ),
    "speech_recognition": ("encoder.units=4", "encoder.num_layers=1", "encoder.filters=2", "decoder.units=6"),
    "text_summarization": ("encoder.units=4", "encoder.embedding_dim=6", "decoder.embedding_dim=6", "decoder.units=6"),
    # A section that is given in part has the defaults of its class for the rest, not those of the task.
    "sentence_compression": ("encoder.units=4", "decoder.units=6", "training.label_smoothing=0.0"),
    "machine_translation": ("vocabulary_size=330", "encoder.embedding_dim=8", "decoder.embedding_dim=8"),
}
_SMALL_FOR_ALL = ("training.epochs=1", "training.max_steps=1", "decoding.beam_size=1", "decoding.max_length=5")
_SECONDS = 300


def blocks(page, *languages):
    """The contents of the page's fenced blocks in some languages; without any, of those that are not Python."""
    found = _FENCE.findall(page.read_text(encoding="utf-8"))
    return [text for language, text in found if (language in languages if languages else language != "python")]


def command_lines(page, program="attention-apps"):
    """The lines of the page's blocks that begin with a program, continued ones joined."""
    lines = "\n".join(blocks(page)).replace("\\\n", " ").splitlines()
    lines = [line.strip().removeprefix("$ ") for line in lines]
    inside = [part for line in lines for part in re.findall(r"\$\((.*?)\)", line)]
    return [line for line in lines + inside if line.startswith(f"{program} ")]


def inline_commands(page):
    """What stands between backticks in the page's sentences and begins with `attention-apps`."""
    prose = _FENCE.sub("", page.read_text(encoding="utf-8"))
    return [" ".join(code.split()) for code in re.findall(r"`(attention-apps [^`]+)`", prose)]


def parse(line):
    """The options of a line, by the command's own parser; what is after `>`, `<` and `|` is the shell's."""
    words = shlex.split(line, comments=True)
    end = next((place for place, word in enumerate(words) if word in (">", "<", "|")), len(words))
    arguments = words[1:end]
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            return arguments, make_parser().parse_args(arguments)
    except SystemExit:
        raise AssertionError(f"{line}\n{errors.getvalue()}") from None


def check_inline(code):
    """A command with its arguments is parsed; one that is only named must be there."""
    words = code.split()
    if len(words) == 2:
        assert words[1] in COMMANDS, code
    else:
        parse(code)


class Workplace:
    """A folder with files and presets of the names that a page uses, small ones in place of those it means.

    Args:
        folder: the working directory of the lines.
    """

    def __init__(self, folder):
        self.folder = folder
        self.presets = folder / "presets"
        for name in ("photo.jpg", "call.wav", "article.txt"):
            self._make_file(name)

    def run(self, line):
        """Runs a line as the shell would and returns its exit code."""
        arguments, options = parse(line)
        for word in shlex.split(line, comments=True):
            self._make_file(word)
        self._make_presets(arguments[0], options)
        if arguments[0] == "train":
            small = (*(() if options.preset else _SMALL[options.task]), *_SMALL_FOR_ALL)
            arguments += [word for value in small for word in ("--set", value)]
        if arguments[0] == "batch":  # its workers are other processes, which look for presets where they always are
            name = make_application(_COMMANDS[options.verb]).default_preset
            arguments += ["--preset", str(self.presets / name), "--workers", "1"]
        arguments = [name for word in arguments for name in (sorted(glob.glob(word)) if "*" in word else [word])]
        if arguments[0] == "serve" or (arguments[0] == "demo" and options.terminal is None):
            more = ["--port", "0"] if arguments[0] == "serve" else ["--port", "0", "--no-browser"]
            return _run_until_it_answers([*arguments, *more])
        source = re.search(r"<\s*(\S+)", line)
        with _standard_input(Path(source[1]).read_bytes() if source else b""):
            return main(arguments)

    def _make_file(self, name):
        """A file of a name with an ending that we know; of one with a star, one of those that it stands for."""
        path = self.folder / name.replace("*", "1")
        if path.exists() or path.suffix not in (".jpg", ".wav", ".mp3", ".flac", ".txt", ".csv", ".tsv", ".jsonl"):
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".jpg":
            Image.fromarray(PHOTO).save(path)
        elif path.suffix in (".csv", ".tsv", ".jsonl"):
            path.write_bytes(self._manifest(path.suffix, path.parent))
        elif path.suffix == ".txt":
            path.write_text(TEXT, encoding="utf-8")
        else:
            soundfile.write(path, RECORDING, 16_000)

    def _manifest(self, ending, folder):
        """One for every task: it has all columns."""
        photo, recording = (os.path.relpath(self.folder / name, folder) for name in ("photo.jpg", "call.wav"))
        rows = [
            {
                "image": photo,
                "caption": f"a {animal} runs",
                "audio": recording,
                "transcript": letters,
                "document": TEXT.replace(",", ""),
                "summary": f"Alice likes {last}",  # words of the text, so that it is a compression too
                "source": f"Alice likes {last}.",
                "target": f"Alice mag {last}.",
            }
            for animal, letters, last in zip(
                ("dog", "cat", "cow", "hen", "pig", "ox"),
                ("AB", "BA", "A", "B", "AA", "BB"),
                ("Bob", "town", "police", "Zork", "they", "old"),
            )
        ]
        if ending == ".jsonl":
            return "".join(json.dumps(row) + "\n" for row in rows).encode()
        separator = "," if ending == ".csv" else "\t"
        return "".join(separator.join(cells) + "\n" for cells in [rows[0], *(row.values() for row in rows)]).encode()

    def _make_presets(self, command, options):
        """Those that come with the package are looked for in our folder; folders lie where the line says."""
        for kind in _KINDS:
            application = make_application(kind)
            self._save(application, self.presets / application.default_preset)
        named = [getattr(options, "preset", None), *getattr(options, "models", ())]
        named += [getattr(options, name, None) for name in ("captioner", "recognizer", "summarizer", "translator")]
        for name in filter(None, named):
            where = self.folder / name if "/" in name else self.presets / name
            if where.exists():
                continue
            by_name = next((kind for part, kind in _STAND_INS.items() if part in name), None)
            kind = by_name or _COMMANDS.get(command)
            assert kind, f"tests/doc_commands.py has no stand-in for {name}"
            self._save(make_application(kind), where)

    def _save(self, application, folder):
        if not folder.exists():
            application.save(folder)


@contextlib.contextmanager
def workplace(folder, monkeypatch):
    """A `Workplace` that is the working directory, and where presets are looked for by name."""
    place = Workplace(folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))  # for the workers of a batch
    monkeypatch.setattr(preset, "presets_root", lambda: place.presets)
    yield place


@contextlib.contextmanager
def _standard_input(contents):
    before, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(contents))
    try:
        yield
    finally:
        sys.stdin = before


class _Told(io.StringIO):
    """Standard error in which an address is waited for."""

    def url(self, is_over):
        deadline = time.monotonic() + _SECONDS
        while not is_over.is_set() and time.monotonic() < deadline:
            found = re.search(r"http://[\d.]+:\d+", self.getvalue())
            if found:
                return found[0]
            time.sleep(0.05)
        return None


def _run_until_it_answers(arguments):
    """Runs a command that serves, asks it for its health, and ends it as Ctrl-C would."""
    told, answered, is_over = _Told(), [], threading.Event()

    def ask():
        url = told.url(is_over)
        if url:
            answered.append(_get(url + ("/health" if arguments[0] == "serve" else "/"), is_over))
        if url and not is_over.is_set():  # or the interrupt would be that of the tests
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        with contextlib.redirect_stderr(told):
            code = main(arguments)
    finally:
        is_over.set()
        thread.join()
    assert answered == [200], told.getvalue()
    return code


def _get(url, is_over):
    """The status of an answer; a server that has just said where it is may not listen yet."""
    deadline = time.monotonic() + 60
    while not is_over.is_set() and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=60) as response:
                return response.status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            time.sleep(0.1)
    return None
