"""Prints a script with which the shell completes commands and options."""

import argparse

_EXAMPLES = """examples:
  eval "$(attention-apps completion bash)"        # in ~/.bashrc
  eval "$(attention-apps completion zsh)"         # in ~/.zshrc
"""
_SCRIPT = """{head}_attention_apps() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" words
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="{commands}"
    else
        case "${{COMP_WORDS[1]}}" in
{cases}        esac
    fi
    case "$current" in
        -*) COMPREPLY=($(compgen -W "$words" -- "$current")) ;;
        *) if [ "$COMP_CWORD" -eq 1 ]; then COMPREPLY=($(compgen -W "$words" -- "$current")); fi ;;
    esac
}}
complete -o default -F _attention_apps attention-apps
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EXAMPLES
    parser.add_argument("shell", choices=("bash", "zsh"), help="bash or zsh")


def run(options: argparse.Namespace) -> int:
    from attention_apps.cli import make_parser

    (commands,) = (action for action in make_parser()._actions if isinstance(action, argparse._SubParsersAction))
    cases = "".join(
        f'            {name}) words="{" ".join(_options(parser))}" ;;\n' for name, parser in commands.choices.items()
    )
    head = "autoload -U +X bashcompinit && bashcompinit\n" if options.shell == "zsh" else ""
    print(_SCRIPT.format(head=head, commands=" ".join([*commands.choices, "--help", "--version"]), cases=cases), end="")
    return 0


def _options(parser: argparse.ArgumentParser) -> list[str]:
    return [name for action in parser._actions for name in action.option_strings if name.startswith("--")]
