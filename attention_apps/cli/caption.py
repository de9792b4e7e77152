"""Writes a caption for each photo and, where asked to, shows where it looked for each word."""

from attention_apps.cli.answers import AnswerCommand

COMMAND = AnswerCommand(
    task="image_captioning",
    method="captions",
    metavar="PHOTO",
    examples=(
        "attention-apps caption photo.jpg",
        "attention-apps caption photos/*.jpg --json > captions.jsonl",
        "attention-apps caption photo.jpg --n-best 3 --html pages",
        "attention-apps caption photo.jpg --preset runs/mine/preset --plot pictures",
        "attention-apps caption - < photo.jpg",
    ),
    extra=lambda caption: {"tokens": caption.tokens},
)
add_arguments = COMMAND.add_arguments
run = COMMAND.run
