"""Prints a script with which the shell completes commands, options and files."""

import argparse

_EXAMPLES = """examples:
  eval "$(attention-apps completion bash)"        # in ~/.bashrc
  eval "$(attention-apps completion zsh)"         # in ~/.zshrc
  attention-apps completion fish | source         # in ~/.config/fish/config.fish
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EXAMPLES
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="bash, zsh or fish")


def run(options: argparse.Namespace) -> int:
    import argcomplete

    print(argcomplete.shellcode(["attention-apps"], shell=options.shell))
    return 0
