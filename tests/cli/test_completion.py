import os
import pty
import select
import shutil
import subprocess
import time

import pytest

from attention_apps.cli import COMMANDS, main


def complete(script, *words):
    """What bash offers for the last of the words."""
    quoted = " ".join(f"'{word}'" for word in words)
    program = f'{script}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _attention_apps; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_commands_and_options_are_completed(capsys):
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert set(complete(script, "attention-apps", "")) == {*COMMANDS, "--help", "--version"}
    assert complete(script, "attention-apps", "exp") == ["export"]
    assert complete(script, "attention-apps", "export", "--n") == ["--n-best"]
    assert complete(script, "attention-apps", "export", "fol") == []


def test_zsh_gets_the_same_with_what_it_needs(capsys):
    main(["completion", "bash"])
    bash = capsys.readouterr().out
    main(["completion", "zsh"])
    assert capsys.readouterr().out == f"autoload -U +X bashcompinit && bashcompinit\n{bash}"


@pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh")
def test_zsh_completes_what_is_typed(tmp_path, capsys):
    assert main(["completion", "zsh"]) == 0
    (tmp_path / ".zshrc").write_text(f"PS1='> '\nautoload -U compinit && compinit -u -D\n{capsys.readouterr().out}")
    shell, terminal = pty.openpty()
    environment = {**os.environ, "ZDOTDIR": str(tmp_path), "TERM": "dumb"}
    with subprocess.Popen(["zsh", "-i"], stdin=terminal, stdout=terminal, stderr=terminal, env=environment) as process:
        os.close(terminal)
        read_until(shell, b"> ")
        os.write(shell, b"attention-apps exp\t--n\t")
        shown = read_until(shell, b"--n-best")
        process.kill()
    os.close(shell)
    assert b"attention-apps export " in shown
    assert b"--n-best" in shown


def read_until(file, expected, seconds=20):
    """What a terminal shows up to and with what is expected, or what it showed in that time."""
    shown, end = b"", time.monotonic() + seconds
    while expected not in shown and time.monotonic() < end:
        if select.select([file], [], [], 0.1)[0]:
            shown += os.read(file, 1000)
    return shown
