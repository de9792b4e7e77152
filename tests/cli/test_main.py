"""What holds for every command."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import warnings

import pytest

from attention_apps.cli import COMMANDS, main, make_parser

CODE = """
import sys
from attention_apps.cli import demo, main

def run(self, options):
    for _ in range(100_000):
        print("a line that nobody reads")
    return 0

demo.DemoCommand.run = run
sys.exit(main(["demo"]))
"""


def test_a_reader_that_goes_away_ends_the_command_without_a_word():
    with subprocess.Popen([sys.executable, "-c", CODE], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as command:
        command.stdout.readline()
        command.stdout.close()
        assert command.stderr.read() == b""
        assert command.wait(60) == 1


@pytest.mark.parametrize("command", [None, *COMMANDS])
def test_the_examples_of_the_help_are_right(command, capsys):
    with pytest.raises(SystemExit):
        main(["--help"] if command is None else [command, "--help"])
    shown = capsys.readouterr().out.partition("examples:\n")[2]
    lines = re.findall(r"attention-apps [^\n)]*", shown)
    assert lines
    for line in lines:
        words = shlex.split(line, comments=True)
        end = next((place for place, word in enumerate(words) if word in "<>|"), len(words))
        assert make_parser().parse_args(words[1:end]).run
        assert command is None or words[1] == command


def test_the_exit_codes_are_told(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "exit codes: 0 all right, 1 some of the inputs failed, 2 wrong usage" in capsys.readouterr().out


HOSTILE = "x\x1b[2J\nattention-apps: forged"


def hostile_preset(folder):
    content = {"format": 2, "task": "sentence_compression", "config": {}}
    (folder / "config.json").write_text(json.dumps(content))
    (folder / "SHA256SUMS").touch()
    (folder / HOSTILE).touch()
    return ["compress", "--text", "a", "--preset", str(folder)]


def hostile_configuration(folder):
    (folder / "c.toml").write_text(f"{json.dumps(HOSTILE)} = 1")
    return ["check-data", "text_summarization", "--data", "no.csv", "--config", str(folder / "c.toml")]


def hostile_manifest(folder):
    rows = [{"image": HOSTILE, "caption": "a dog"}, {HOSTILE: "no caption"}]
    (folder / "m.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return ["check-data", "image_captioning", "--data", str(folder / "m.jsonl"), "--quiet"]


@pytest.mark.parametrize(
    "prepare",
    [
        hostile_preset,
        hostile_configuration,
        hostile_manifest,
        lambda folder: ["presets", f"--{HOSTILE.replace(' ', '')}"],
        lambda folder: ["train", HOSTILE, "--data", "x", "--output", "x"],
    ],
    ids=["preset", "configuration", "manifest", "argument", "choice"],
)
def test_names_from_outside_cannot_forge_output(prepare, tmp_path, capsys):
    try:
        code = main(prepare(tmp_path))
    except SystemExit as error:
        code = error.code
    printed = capsys.readouterr()
    shown = printed.out + printed.err
    assert code in (1, 2)
    assert "x\\x1b[2J" in shown
    assert "\x1b" not in shown
    assert "\nattention-apps: forged" not in shown


def test_warnings_cannot_forge_output(capsys, monkeypatch):
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    main(["completion", "bash"])
    shown = warnings.formatwarning(UserWarning(f"{HOSTILE} is damaged"), UserWarning, "file.py", 1)
    assert shown == "attention-apps: x\\x1b[2J\\nattention-apps: forged is damaged\n"


def complete(line, tmp_path):
    """What the program offers for the last word of a command line, asked as a shell asks."""
    found = tmp_path / "found"
    environment = {
        **os.environ,
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(found),
        "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "COMP_TYPE": "9",
    }
    code = "from attention_apps.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {word.strip() for word in found.read_text().split("\n")}


def test_commands_and_options_are_completed(tmp_path):
    assert set(COMMANDS) <= complete("attention-apps ", tmp_path)
    assert complete("attention-apps exp", tmp_path) == {"export"}
    assert complete("attention-apps export --n", tmp_path) == {"--num-best"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_a_script_that_names_the_command(shell, capsys):
    assert main(["completion", shell]) == 0
    assert "attention-apps" in capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_a_shell_accepts_its_script(shell, capsys):
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    main(["completion", shell])
    done = subprocess.run([shell, "-n"], input=capsys.readouterr().out, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
