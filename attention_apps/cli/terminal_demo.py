"""Attention at work in the terminal: a small model learns to write words backwards, and the presets write sentences."""

from collections.abc import Sequence

from attention_apps.cli.quiet import import_tensorflow_quietly
from attention_apps.cli.samples import PHOTOS, TEXTS, sample_photos, sample_recordings

LETTERS = "abcdefghijklmnopqrstuvwxyz"
FIRST_LETTER = 4  # after padding, start, end and unknown
WORDS = ("attention", "keras", "reversed")
_SHADES = " ░▒▓█"


def show_in_terminal(words: Sequence[str], steps: int, quiet: bool = False) -> None:
    """Trains a model, writes the words backwards, and draws where it looked for each letter."""
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
        console.print(_draw(weights, word, written))
    console.print("\nEach row is a letter written, each column a letter read: the darker, the more it was looked at.")
    _show_presets(console)


def _show_presets(console):
    """The applications on samples, as far as presets for them came with the package."""
    from attention_apps.applications import ImageCaptioner, SpeechRecognizer, TextSummarizer
    from attention_apps.applications.preset import preset_names

    if TextSummarizer.default_preset in preset_names():
        console.print("\n[bold]Paragraphs and the headlines written for them[/bold]")
        summarizer = TextSummarizer.from_preset()
        for text, summary in zip(TEXTS, summarizer.summarize(list(TEXTS)), strict=True):
            console.print(f"\n{text}\n-> [bold]{summary.text}[/bold]")
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


def _model():
    from attention_apps.layers import AdditiveAttention
    from attention_apps.models import RecurrentDecoder, Seq2Seq, TextEncoder

    size = FIRST_LETTER + len(LETTERS)
    decoder = RecurrentDecoder(size, 32, 64, attention=AdditiveAttention(64), initial_state="last")
    return Seq2Seq(TextEncoder(size, 32, 48), decoder)


def _train(steps, quiet):
    """A Seq2Seq is a Keras model: `compile` and `fit` train it like any other."""
    import keras
    import numpy as np
    from rich.progress import Progress

    keras.utils.set_random_seed(1)
    rng = np.random.default_rng(1)
    model = _model()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
    schedule = keras.optimizers.schedules.CosineDecay(5e-3, steps)
    model.compile(keras.optimizers.Adam(schedule, clipnorm=1.0), loss)

    with Progress(transient=True, disable=quiet) as progress:
        task = progress.add_task("training", total=steps)

        def batches():
            for _ in range(steps):
                yield _batch([_random_word(rng) for _ in range(64)])
                progress.advance(task)

        model.fit(batches(), steps_per_epoch=steps, epochs=1, shuffle=False, verbose=0)
    return model


def _random_word(rng):
    return "".join(rng.choice(list(LETTERS), size=rng.integers(1, 13)))


def _batch(words):
    import numpy as np

    source = np.zeros((len(words), 12), "int32")
    tokens = np.zeros((len(words), 14), "int32")
    for row, word in enumerate(words):
        ids = [FIRST_LETTER + LETTERS.index(letter) for letter in word]
        source[row, : len(ids)] = ids
        tokens[row, : len(ids) + 2] = [1, *ids[::-1], 2]
    return {"source": {"token_ids": source}, "tokens": tokens[:, :-1]}, tokens[:, 1:]


def _reverse(model, word):
    """The word that beam search writes, and the attention of one teacher-forced pass over it."""
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


def _draw(weights, read, written):
    """An alignment as lines of text."""
    lines = ["    " + "  ".join(read)]
    for letter, row in zip(written, weights, strict=True):
        shades = [_SHADES[min(int(weight * len(_SHADES)), len(_SHADES) - 1)] * 2 for weight in row]
        lines.append(f"  {letter} {' '.join(shades)}")
    return "\n".join(lines)
