"""`attention-apps demo`, run as a user would."""

import subprocess
import sys

import pytest

from attention_apps.cli import main
from attention_apps.cli.demo_content import TEXTS


def run_command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "attention_apps", *arguments], capture_output=True, text=True, timeout=300
    )


@pytest.mark.slow
def test_the_demo_learns_to_write_words_backwards_and_draws_the_alignment():
    done = run_command("demo", "--quiet", "--terminal", "attention", "listen")
    assert done.returncode == 0, done.stderr
    assert "attention -> noitnetta  right" in done.stdout
    assert "listen -> netsil  right" in done.stdout
    assert "█" in done.stdout
    assert TEXTS[0].split(". ")[0] in " ".join(done.stdout.split())
    assert "\n-> " in done.stdout


def test_a_word_it_cannot_read_is_named(capsys):
    assert main(["demo", "--terminal", "42"]) == 2
    errors = capsys.readouterr().err
    assert "Received: '42'" in errors
    assert "Traceback" not in errors


def test_training_for_no_steps_is_refused(capsys):
    assert main(["demo", "--terminal", "--steps", "0"]) == 2
    assert "`--steps` must be at least 1. Received: 0" in capsys.readouterr().err


def test_no_command_is_wrong_usage():
    done = run_command()
    assert done.returncode == 2
    assert "usage: attention-apps" in done.stderr


def test_the_version_is_printed():
    import attention_apps

    assert run_command("--version").stdout.split() == ["attention-apps", attention_apps.__version__]
