"""Writes a caption for each photo, and shows where it looked for each word."""

from collections.abc import Mapping
from typing import Any

from attention_apps.cli.predict import PredictCommand


class CaptionCommand(PredictCommand):
    task = "image_captioning"
    metavar = "PHOTO"
    suffixes = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".avif", ".heic", ".heif")
    examples = (
        "attention-apps caption photo.jpg",
        "attention-apps caption photos/ --json > captions.jsonl",
        "attention-apps caption photo.jpg --num-best 3 --html pages",
        "attention-apps caption photo.jpg --preset runs/mine/preset --plot pictures",
        "attention-apps caption - < photo.jpg",
    )

    def entry(self, result: Any) -> Mapping[str, Any]:
        return {"tokens": result.tokens}


COMMAND = CaptionCommand()
add_arguments = COMMAND.add_arguments
run = COMMAND.run
