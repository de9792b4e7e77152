"""Compares `sentences=N` with the first N sentences of a text and with TextRank, by ROUGE.

python long_texts.py VALIDATION.jsonl.gz [--preset NAME] [--documents 100] [--paragraphs 6]

A document is made of the news paragraphs of consecutive rows, one below the other; its reference are their headlines.
Each summary has as many lines as the document has paragraphs. TextRank (Mihalcea and Tarau 2004) is that of sumy:
`pip install sumy`.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

import attention_apps
from attention_apps.data import Manifest
from attention_apps.metrics import rouge
from attention_apps.preprocessing import detokenize, sentence_starts, tokenize


def make_documents(rows: Sequence[dict[str, str]], paragraphs: int) -> tuple[list[str], list[str]]:
    """Return documents of several paragraphs, and their headlines, one per line."""
    groups = [rows[first : first + paragraphs] for first in range(0, len(rows) - paragraphs + 1, paragraphs)]
    documents, references = (
        [separator.join(" ".join(row[column].split()) for row in group) for group in groups]
        for column, separator in (("document", "\n\n"), ("summary", "\n"))
    )
    return documents, references


def split_sentences(document: str) -> list[str]:
    """Return the sentences of a document."""
    tokens = tokenize(document.split("\n\n"))
    starts = np.flatnonzero(sentence_starts(tokens).flat_values)
    sentences = np.split(tokens.flat_values.numpy(), starts[1:])
    return [text.decode() for text in detokenize([words.tolist() for words in sentences]).numpy()]


def text_rank(document: str, count: int) -> str:
    """Return the sentences that TextRank chooses."""
    from sumy.models.dom import ObjectDocumentModel, Paragraph, Sentence
    from sumy.summarizers.text_rank import TextRankSummarizer

    class Words:
        """Words between spaces; sumy's own tokenizer needs a download."""

        def to_words(self, text: str) -> tuple[str, ...]:
            return tuple(word.strip(".,;:!?\"'()").lower() for word in str(text).split())

    sentences = [Sentence(text, Words()) for text in split_sentences(document)]
    return "\n".join(map(str, TextRankSummarizer()(ObjectDocumentModel([Paragraph(sentences)]), count)))


def compare(
    documents: list[str], references: list[str], summarizers: dict[str, Callable[[list[str]], list[str]]]
) -> None:
    print("| | ROUGE-1 | ROUGE-2 | ROUGE-L | words a document |\n|---|---|---|---|---|")
    for name, summarize in summarizers.items():
        texts = summarize(documents)
        scores = [100 * rouge(texts, references, kind).score for kind in ("1", "2", "l")]
        words = sum(len(text.split()) for text in texts) / len(texts)
        print(f"| {name} | {' | '.join(f'{score:.1f}' for score in scores)} | {words:.0f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--preset", default="pointer_generator_headlines", metavar="NAME|FOLDER")
    parser.add_argument("--documents", type=int, default=100)
    parser.add_argument("--paragraphs", type=int, default=6)
    options = parser.parse_args()
    count = options.paragraphs
    rows = [row.values for row in Manifest(options.data, {"document": "document", "summary": "summary"}).rows()]
    documents, references = make_documents(rows[: options.documents * count], count)
    application = attention_apps.load(options.preset)
    compare(
        documents,
        references,
        {
            f"`{options.preset}`, `sentences={count}`": lambda some: [
                result.text for result in application.run(some, sentences=count)
            ],
            f"first {count} sentences": lambda some: ["\n".join(split_sentences(text)[:count]) for text in some],
            "TextRank": lambda some: [text_rank(text, count) for text in some],
        },
    )


if __name__ == "__main__":
    main()
