"""Translates each text sentence by sentence, and shows which words it read for each word it wrote."""

from collections.abc import Mapping
from typing import Any

from attention_apps.cli.summarize import TextCommand


class TranslateCommand(TextCommand):
    task = "machine_translation"
    examples = (
        "attention-apps translate letter.txt",
        "attention-apps translate letter.txt --html pages --plot pictures",
        "attention-apps translate --text 'Two dogs are playing in the snow.'",
        "attention-apps translate --lines sentences.txt > translations.jsonl",
        "attention-apps translate - < letter.txt",
    )

    def entry(self, result: Any) -> Mapping[str, Any]:
        return {"tokens": result.tokens, "source_tokens": result.source_tokens}


COMMAND = TranslateCommand()
add_arguments = COMMAND.add_arguments
run = COMMAND.run
