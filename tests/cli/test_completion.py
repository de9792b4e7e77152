import shutil
import subprocess

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
