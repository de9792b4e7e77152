"""The command `demo`: a page in the browser, or attention at work in the terminal."""

import argparse
import webbrowser
from collections.abc import Sequence
from typing import Any

from attention_apps.applications.tasks import application_class
from attention_apps.cli.demo_content import DESCRIPTIONS, PHOTOS, TEXTS, sample_photos, sample_recordings
from attention_apps.cli.serving_commands import is_loopback, say
from attention_apps.cli.web_page import TABS, import_gradio, run_page
from attention_apps.terminal import import_tensorflow_quietly, only_python_on_stderr

LETTERS = "abcdefghijklmnopqrstuvwxyz"
FIRST_LETTER = 4  # after padding, start, end and unknown
WORDS = ("attention", "keras", "reversed")
_SHADES = " ░▒▓█"


class DemoCommand:
    """Open a page on which the presets caption photos, write down recordings, summarize and translate texts, and show
    where they looked for each word.
    """

    examples = (
        "attention-apps demo",
        "attention-apps demo --captioner runs/mine/preset --port 8080",
        "attention-apps demo --terminal",
        "attention-apps demo --terminal attention listen",
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        for tab in TABS.values():
            shown = f"trained model of the tab {tab.title} (default: the task's own)"
            parser.add_argument(f"--{tab.option}", metavar="NAME|FOLDER", help=shown)
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
        parser.add_argument("--port", type=int, default=7860, help="0 is any free one (default: %(default)s)")
        parser.add_argument(
            "--allow-host",
            action="append",
            default=[],
            metavar="NAME",
            help="further host name or address under which browsers reach the page; may be repeated",
        )
        parser.add_argument("--no-browser", action="store_true", help="do not open the page, only say where it is")
        parser.add_argument(
            "--terminal",
            nargs="*",
            metavar="WORD",
            help="no page: a small model learns to write words backwards, these or others, and the presets write "
            "sentences",
        )
        parser.add_argument(
            "--steps", type=int, default=600, help="training steps for --terminal (default: %(default)s)"
        )
        parser.add_argument("--quiet", action="store_true", help="no progress bar, and nothing but errors said")

    def run(self, options: argparse.Namespace) -> int:
        if options.terminal is not None:
            if options.steps < 1:
                raise ValueError(f"`--steps` must be at least 1. Received: {options.steps}")
            _show_in_terminal(options.terminal, options.steps, options.quiet)
        else:
            _show_page(options)
        return 0


def _show_page(options: argparse.Namespace) -> None:
    import_gradio()
    import_tensorflow_quietly(options.quiet)
    from attention_apps.applications.preset import preset_names

    def announce(url: str) -> None:
        if not options.quiet:
            say(f"the page is at {url}")
            if not is_loopback(options.host):
                say("anyone who can reach this address can use it; there are no passwords here")
                say("other host names than this one are refused; `--allow-host NAME` adds one")
                say("browsers give a camera and a microphone to pages of their own computer, or to such with https")
            say("Ctrl-C ends")
        if not options.no_browser:
            webbrowser.open(url)

    names = {task: getattr(options, tab.option) for task, tab in TABS.items()}
    applications: dict[str, Any] = {}
    for task, name in names.items():
        cls = application_class(task)
        # A tab has no model if the user chose none and the default is not installed.
        is_missing = name is None and cls.default_preset not in preset_names()
        applications[task] = None if is_missing else cls.from_preset(name)
    with only_python_on_stderr():
        run_page(applications, options.host, options.port, announce, options.allow_host, names)


def _show_in_terminal(words: Sequence[str], steps: int, quiet: bool = False) -> None:
    """Train a model, write the words backwards, and draw where the model looked for each letter."""
    from rich.console import Console

    console = Console(highlight=False)
    words = [word.lower() for word in words] or list(WORDS)
    wrong = [word for word in words if not word or len(word) > 12 or set(word) - set(LETTERS)]
    if wrong:
        raise ValueError(f"`--terminal` takes words of 1 to 12 letters a to z. Received: {wrong[0]!r}")
    import_tensorflow_quietly(quiet)
    console.print("[bold]Additive attention learns to write words backwards[/bold]")
    model = _train(steps, quiet)
    for word in words:
        written, weights = _reverse(model, word)
        console.print(f"\n{word} -> [bold]{written}[/bold]  {'right' if written == word[::-1] else 'wrong'}")
        console.print("    " + "  ".join(word))
        for letter, row in zip(written, weights, strict=True):
            shades = [_SHADES[min(int(weight * len(_SHADES)), len(_SHADES) - 1)] * 2 for weight in row]
            console.print(f"  {letter} {' '.join(shades)}")
    console.print("\nEach row is a letter written, each column a letter read: the darker, the more it was looked at.")
    _show_presets(console)


def _show_presets(console):
    """Run the applications whose default presets are installed on samples."""
    from attention_apps.applications import ImageCaptioner, SpeechRecognizer, TextSummarizer, TextTranslator
    from attention_apps.applications.preset import preset_names

    if TextSummarizer.default_preset in preset_names():
        console.print("\n[bold]Paragraphs and the headlines written for them[/bold]")
        summarizer = TextSummarizer.from_preset()
        for text, summary in zip(TEXTS, summarizer.summarize(list(TEXTS)), strict=True):
            console.print(f"\n{text}\n-> [bold]{summary.text}[/bold]")
    if TextTranslator.default_preset in preset_names():
        console.print("\n[bold]Sentences and their German translations[/bold]\n")
        for text, translation in zip(DESCRIPTIONS, TextTranslator.from_preset().translate(DESCRIPTIONS), strict=True):
            console.print(f"{text} -> [bold]{translation.text}[/bold]")
    if ImageCaptioner.default_preset in preset_names():
        console.print("\n[bold]Photos of scikit-image and their captions[/bold]")
        captioner = ImageCaptioner.from_preset()
        for name, caption in zip(PHOTOS, captioner.caption(sample_photos()), strict=True):
            console.print(f"{name} -> [bold]{caption.text}[/bold]")
    if SpeechRecognizer.default_preset in preset_names():
        console.print("\n[bold]Synthesized recordings, what was heard, and when[/bold]")
        paths = sample_recordings()
        for path, transcript in zip(paths, SpeechRecognizer.from_preset().transcribe(paths, quiet=True), strict=True):
            console.print(f"\n{path.name} -> [bold]{transcript.text}[/bold]")
            console.print("  ".join(f"{word.start:.2f} {word.word}" for word in transcript.words))


def _train(steps, quiet):
    """Train a model on random words. A Seq2Seq is a Keras model: `compile` and `fit` train it like any other."""
    import keras
    import numpy as np
    from rich.progress import Progress

    from attention_apps.layers import AdditiveAttention
    from attention_apps.models import RecurrentDecoder, Seq2Seq, TextEncoder

    keras.utils.set_random_seed(1)
    rng = np.random.default_rng(1)
    size = FIRST_LETTER + len(LETTERS)
    decoder = RecurrentDecoder(size, 32, 64, attention=AdditiveAttention(64), initial_state="last")
    model = Seq2Seq(TextEncoder(size, 32, 48), decoder)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
    schedule = keras.optimizers.schedules.CosineDecay(5e-3, steps)
    model.compile(keras.optimizers.Adam(schedule, clipnorm=1.0), loss)

    with Progress(transient=True, disable=quiet) as progress:
        task = progress.add_task("training", total=steps)

        def batches():
            for _ in range(steps):
                source, tokens = np.zeros((64, 12), "int32"), np.zeros((64, 14), "int32")
                for row in range(64):
                    ids = FIRST_LETTER + rng.choice(len(LETTERS), size=rng.integers(1, 13))
                    source[row, : len(ids)] = ids
                    tokens[row, : len(ids) + 2] = [1, *ids[::-1], 2]
                yield {"source": {"token_ids": source}, "tokens": tokens[:, :-1]}, tokens[:, 1:]
                progress.advance(task)

        model.fit(batches(), steps_per_epoch=steps, epochs=1, shuffle=False, verbose=0)
    return model


def _reverse(model, word):
    """Return the word that beam search writes, and the attention of one teacher-forced pass over it."""
    import numpy as np
    from keras import ops

    from attention_apps.decoding import DecodingOptions, beam_search

    source = {"token_ids": np.array([[FIRST_LETTER + LETTERS.index(letter) for letter in word]], "int32")}
    memory = model.encode(source)
    options = DecodingOptions(beam_size=3, max_length=14)
    result = beam_search(model.decoder.step, model.decoder.init_state(memory), options)
    ids = [int(i) for i in ops.convert_to_numpy(result.token_ids)[0, 0] if i >= FIRST_LETTER]
    weights = model.decoder(np.array([[1, *ids[:-1]]], "int32"), memory, return_dict=True)["attention"]
    return "".join(LETTERS[i - FIRST_LETTER] for i in ids), ops.convert_to_numpy(weights)[0, : len(ids)]
