"""What holds for every command."""

import re
import shlex
import subprocess
import sys

import pytest

from attention_apps.cli import COMMANDS, main, make_parser

CODE = """
import sys
from attention_apps.cli import demo, main

def run(options):
    for _ in range(100_000):
        print("a line that nobody reads")
    return 0

demo.run = run
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
