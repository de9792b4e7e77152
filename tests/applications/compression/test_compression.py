import numpy as np

from attention_apps.applications.compression.compression import Compression
from attention_apps.applications.summarization.summary import SummaryLine

SOURCE = ["Alice", "met", "Bob", ".", "Zork", "slept", "."]


def line(tokens, places, passage):
    start, end = passage
    attention = np.zeros((len(tokens), end - start), np.float32)
    attention[np.arange(len(places)), places] = 1
    return SummaryLine(-0.5, tokens, [(" ".join(tokens), -0.5)], attention, [True] * len(tokens), passage)


def test_it_says_which_words_were_kept():
    lines = [line(["Alice", "."], [0, 3], (0, 4)), line(["slept"], [1], (4, 7))]
    compression = Compression(lines, SOURCE, " ")
    assert compression.kept == [True, False, False, True, False, True, False]
    assert compression.text == "Alice . slept"


def test_sentences_that_were_not_read_are_not_kept():
    assert Compression([line(["Zork"], [0], (4, 7))], SOURCE).kept == [False] * 4 + [True, False, False]


def test_a_short_text_is_kept_as_a_whole_however_long():
    compression = Compression.verbatim("'" * 200_000, ["'"] * 200_000, None)
    assert isinstance(compression, Compression)
    assert compression.kept == [True] * 200_000


def test_a_failed_compression_keeps_nothing():
    assert Compression(error="no text", source=5).kept == []
