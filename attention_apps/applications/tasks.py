"""The tasks and their applications: the one place where an application is registered."""

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attention_apps.applications.application import Application

_PACKAGE = "attention_apps.applications"
TASKS = {
    "image_captioning": (f"{_PACKAGE}.captioning.captioner", "ImageCaptioner", "caption"),
    "speech_recognition": (f"{_PACKAGE}.recognition.recognizer", "SpeechRecognizer", "transcribe"),
    "text_summarization": (f"{_PACKAGE}.summarization.summarizer", "TextSummarizer", "summarize"),
    "machine_translation": (f"{_PACKAGE}.translation.translator", "TextTranslator", "translate"),
    "sentence_compression": (f"{_PACKAGE}.compression.compressor", "SentenceCompressor", "compress"),
}


def application_class(task: str) -> "type[Application[Any]]":
    """Import and return the application class of a task."""
    module, name, _ = TASKS[task]
    return getattr(importlib.import_module(module), name)


def load(name_or_folder: str | os.PathLike) -> Any:
    """Load a preset of any task.

    Args:
        name_or_folder: the name of a preset in the package, a folder that `save` wrote, or `hf://user/model`,
            optionally with `@revision`.

    Returns:
        An `ImageCaptioner`, `SpeechRecognizer`, `TextSummarizer`, `SentenceCompressor` or `TextTranslator`.
    """
    from attention_apps.applications.preset import find_preset, read_task

    folder = find_preset(name_or_folder)
    task = read_task(folder)
    if task not in TASKS:
        raise ValueError(f"{folder}: `task` must be one of {', '.join(sorted(TASKS))}. Received: task={task[:100]!r}")
    is_path = isinstance(name_or_folder, os.PathLike)
    return application_class(task).from_preset(folder if is_path else name_or_folder)
