import os
import shutil
import subprocess
import sys

import pytest

from attention_apps.cli import COMMANDS, main


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
