"""What holds for every command."""

import os
import re
import shlex
import shutil
import subprocess
import sys

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
