"""What the demonstrations show: samples to try, and results as HTML for the page."""

import dataclasses
import html
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Photos that come with scikit-image, free to show.
PHOTOS = ("camera", "astronaut", "cat", "coffee")
TEXTS = (
    "Researchers at the University of Westmere have found a new species of frog in a city park. The frog, which is "
    "smaller than a fingernail, lives under wet leaves and sings only at night.",
    "The town of Brookfield will close its old harbor bridge to cars next month after engineers warned that its steel "
    "cables had rusted faster than expected, the mayor said on Tuesday.",
    "A rare white otter that escaped from the Larkhill zoo on Sunday has been found unharmed in a farmer's pond eight "
    "miles away, keepers said on Tuesday.",
)
# English sentences like those the translator was trained on.
DESCRIPTIONS = (
    "Two dogs are playing in the snow.",
    "A man in a blue shirt is standing on a ladder cleaning a window.",
    "I am eating an apple.",
)
# Sentences spoken by Flite, by the name of the recording. recordings/README.md names voices and license.
SENTENCES = {
    "train.flac": "The train to the mountains leaves at half past nine. "
    "Please keep your ticket until the end of the journey.",
    "message.flac": "If you would like to hear this message again, stay on the line, "
    "and someone will be with you shortly.",
}
# Keeps the frame as high as its content, which changes with the width of the window.
_FIT = (
    "const page = this.contentDocument.documentElement;"
    "new ResizeObserver(() => { this.style.height = page.offsetHeight + 'px'; }).observe(page);"
)
STYLE = """.answer .text { font-size: 1.4rem; line-height: 1.3; font-weight: 600; margin: 0; white-space: pre-line; }
.answer .note { margin: .2rem 0 0; }
.answer .unsure { font-weight: 600; color: var(--body-text-color); border-bottom: 2px solid var(--error-border-color); }
.answer .note, .answer .score { color: color-mix(in srgb, var(--body-text-color) 65%, transparent); }
.answer h3 { font-size: .95rem; font-weight: 600; margin: .8rem 0 .35rem; }
.answer .looked { display: flex; border: 1px solid var(--border-color-primary); border-radius: 8px; overflow: hidden;
  background: #fff; color-scheme: light; max-height: 360px; }
.answer .frame { flex: 1; min-width: 0; overflow-y: auto; }
.answer iframe { display: block; width: 100%; border: 0; }
@media (max-width: 700px) { .answer .looked { max-height: none; } }
.answer ol { list-style: none; margin: 0; padding: 0; }
.answer li { display: flex; gap: 1rem; margin: 0; padding: .2rem 0;
  border-top: 1px solid var(--border-color-primary); }
.answer .score { font-variant-numeric: tabular-nums; min-width: 4em; text-align: right; }
.answer .alternative { white-space: pre-line; }
.about p { margin: 0; font-size: .85rem; line-height: 1.4;
  color: color-mix(in srgb, var(--body-text-color) 75%, transparent); }
.message { padding: 1rem 1.2rem; border-radius: 8px; border-left: 4px solid var(--primary-500); line-height: 1.5;
  background: var(--background-fill-secondary); }
.message.problem { border-color: var(--error-border-color); background: var(--error-background-fill); }
.message code { white-space: nowrap; }"""


def sample_recordings() -> list[Path]:
    """Return the paths of the recordings of `SENTENCES`."""
    return [Path(__file__).parent / "recordings" / name for name in SENTENCES]


def sample_photos() -> list[Any]:
    """Return the pixels of `PHOTOS`."""
    try:
        from skimage import data
    except ImportError:
        raise ValueError("The photos come with scikit-image: `pip install 'attention_apps[demo]'`") from None
    return [getattr(data, name)() for name in PHOTOS]


def caption_answer(caption: Any) -> str:
    """Show the caption; each word highlights where the model looked for it."""
    # Our page lists the alternatives already.
    alone = dataclasses.replace(caption, alternatives=caption.alternatives[:1])
    return _answer(caption, "Where the model looked", _frame(alone.to_html, "where the model looked in the photo"))


def transcript_answer(transcript: Any) -> str:
    """Show the words below the waveform, and a table of their times."""
    if not transcript.text:
        return message("Nothing was heard in this recording that the recognizer is sure of.", is_problem=True)
    frame = _frame(transcript.to_html, "waveform and times of the words")
    return _answer(transcript, "When each word was said", frame, f"{transcript.seconds:.1f} s of sound.")


def text_answer(summary: Any) -> str:
    """Show a summary or translation; each word highlights the source words that were read for it."""
    if not summary.lines:
        return message("There is no text here: paste one first.", is_problem=True)
    note = None
    if not summary.was_read_whole:
        read = sum(end - start for start, end in summary.passages)
        note = f"The text is long: {read:,} of its {len(summary.source_tokens):,} words and marks were read."
    return _answer(summary, "Which words the model read", _frame(summary.to_html, "which words the model read"), note)


def message(text: str, is_problem: bool = False) -> str:
    """Show a message in place of an answer. Text between backticks is code."""
    parts = html.escape(text).split("`")
    marked = "".join(f"<code>{part}</code>" if number % 2 else part for number, part in enumerate(parts))
    kind = 'problem" role="alert' if is_problem else ""
    return f'<div class="message {kind}">{marked}</div>'


def _answer(result: Any, title: str, looked: str, note: str | None = None) -> str:
    alternatives = "\n".join(
        f'<li><span class="score">{score:.3f}</span> '
        f'<span class="alternative" dir="auto">{html.escape(text)}</span></li>'
        for text, score in result.alternatives
    )
    unsure = '<span class="unsure">The model is not sure of this.</span> ' if result.unsure else ""
    told = "" if note is None else f" {html.escape(note)}"
    return f"""<div class="answer">
<p class="text" dir="auto">{html.escape(result.text)}</p>
<p class="note">{unsure}Confidence {result.confidence:.0%}.{told}</p>
<h3>{title}</h3>
<div class="looked">{looked}</div>
<h3>Alternatives and their scores</h3>
<ol>
{alternatives}
</ol>
</div>"""


def _frame(write: Callable[[Path], None], title: str) -> str:
    """Return a page that `write` writes to a file, as a frame."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        write(path)
        page = path.read_bytes().decode()
    attributes = f'title="{title}" scrolling="no" srcdoc="{html.escape(page)}" onload="{html.escape(_FIT)}"'
    return f'<div class="frame"><iframe {attributes}></iframe></div>'
