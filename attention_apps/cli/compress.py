"""Shortens each sentence of a text by deleting words; the others stay as they were typed."""

from attention_apps.cli.summarize import ShortenCommand


class CompressCommand(ShortenCommand):
    task = "sentence_compression"
    examples = (
        "attention-apps compress article.txt",
        "attention-apps compress article.txt --max-words 12",
        "attention-apps compress --lines sentences.txt > compressions.jsonl",
        "attention-apps compress - < article.txt",
    )


COMMAND = CompressCommand()
add_arguments = COMMAND.add_arguments
run = COMMAND.run
