import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from attention_apps.applications.summarization.codec import jump_scorer, word_limit
from attention_apps.applications.summarization.config import SummaryDecodingOptions, SummaryOptions
from attention_apps.constants import UNKNOWN
from attention_apps.decoding import DecodingOptions, beam_search
from attention_apps.preprocessing.text import detokenize
from attention_apps.preprocessing.vocabulary import Vocabulary
from attention_apps.preprocessing.word_forms import UNKNOWN_CLASS_IDS
from tests.applications.summarizers import LONG_TEXT, TEXT, WORDS, make_summarizer

TEXTS = [
    TEXT,
    "",
    "Bob sees Paris by night.",
    LONG_TEXT,
    "One word",
    "😀 ...",
    "word " * 70,
    "这是一个测试句子。我们在这里。",
    "a\x00b \x07c d e f\x1b[31m",
    b"\xff\xfe abc def ghi \xc3\x28 jkl",
    "a word " * 20_000,
]
STATUSES = ["ok", "blank", "ok", "cut", "short", "short", "cut", "ok", "ok", "ok", "text too long"]


@pytest.fixture(scope="module")
def summarizer():
    keras.utils.set_random_seed(2)  # of other weights two alternatives may be equally good
    return make_summarizer(words=WORDS, overrides=["confidence.threshold=0.9"])


@pytest.fixture(scope="module")
def summaries(summarizer):
    return summarizer.summarize(TEXTS)


@pytest.fixture(scope="module")
def serve(summarizer, tmp_path_factory):
    version = summarizer.export(tmp_path_factory.mktemp("export") / "summarizer")
    loaded = tf.saved_model.load(str(version))
    return lambda texts: {
        name: tensor.numpy()
        for name, tensor in loaded.signatures["serving_default"](text=tf.constant(texts, tf.string)).items()
    }


@pytest.fixture(scope="module")
def served(serve):
    return serve([text if isinstance(text, bytes) else text.encode() for text in TEXTS])


def test_an_export_answers_as_the_application_does(served, summaries):
    for row, summary in enumerate(summaries[:-1]):
        assert served["text"][row, 0].decode() == summary.text
        for rank, (text, score) in enumerate(summary.alternatives):
            assert served["text"][row, rank].decode() == text
            np.testing.assert_allclose(served["score"][row, rank], score, rtol=1e-4)
        np.testing.assert_allclose(served["confidence"][row], summary.confidence, rtol=1e-4)
        assert served["unsure"][row] == summary.unsure
    assert any(summary.unsure for summary in summaries)


def test_an_export_says_what_became_of_a_text(served):
    assert [status.decode() for status in served["status"]] == STATUSES
    assert served["text"][-1].tolist() == [b"", b""]
    assert (served["score"][-1] < -1e38).all()


def test_an_export_shows_where_the_application_looked(served, summaries):
    for row, summary in enumerate(summaries):
        if STATUSES[row] not in ("ok", "cut"):
            assert not served["attention"][row].any()
            assert not served["tokens"][row].any()
            continue
        end = summary.passages[0][1]
        assert [token.decode() for token in served["tokens"][row] if token] == summary.tokens
        assert [token.decode() for token in served["source_tokens"][row] if token] == summary.source_tokens[:end]
        assert served["copied"][row][served["tokens"][row] != b""].tolist() == summary.copied
        attention = served["attention"][row][served["tokens"][row] != b""]
        np.testing.assert_allclose(attention[:, :end], summary.lines[0].attention, atol=1e-5)


@pytest.mark.parametrize("texts", [[], [""], ["", " "]])
def test_an_export_answers_batches_without_any_word(serve, texts):
    assert serve(texts)["text"].tolist() == [[b"", b""]] * len(texts)


def test_an_export_writes_one_line_only(summarizer):
    with pytest.raises(ValueError, match="`sentences` must be None in an export. Received: sentences=2"):
        summarizer.codec.serve({}, {}, SummaryOptions(sentences=2))


def test_out_of_vocabulary_words_are_read_by_class_and_can_be_copied(summarizer):
    codec = summarizer.codec
    prepared = codec.prepare({"tokens": tf.constant([["Alice", "Qwert", "qwert", "Qwert", "￭."]])})
    size = len(codec.vocabulary)
    first, *_, stop = prepared["source_ids"].numpy()[0].tolist()
    assert codec.vocabulary.tokens[first] == "Alice"
    assert codec.vocabulary.tokens[stop] == "￭."
    assert prepared["source_ids"].numpy()[0, 1:4].tolist() == [size + 1] * 3
    assert prepared["token_ids"].numpy()[0, 1] in UNKNOWN_CLASS_IDS
    assert prepared["token_ids"].numpy()[0, 2] == UNKNOWN


def test_copied_words_are_written_as_they_were_read(summarizer):
    source = {"tokens": tf.constant([["Alice", "sees", "QWert", "￭."]])}
    source |= summarizer.codec.prepare(source)
    ids = tf.concat([source["source_ids"], [[2]]], axis=1)[:, tf.newaxis]
    words, copied = summarizer.codec.words(ids, source)
    assert summarizer.codec.texts(ids, source).numpy().tolist() == [[b"Alice sees QWert."]]
    assert copied.numpy().tolist() == [[[False, False, True, False, False]]]
    assert words.numpy()[0, 0, -1] == b""


def test_no_token_is_written_that_stands_for_other_words(summarizer):
    options = summarizer.codec.search_options(SummaryDecodingOptions(banned_tokens=(20,)))
    assert set(options.banned_tokens) == {20, UNKNOWN, *UNKNOWN_CLASS_IDS}


def test_the_words_are_counted_only_if_there_is_a_limit(summarizer):
    memory = {"source_ids": tf.constant([[4, 5]])}
    assert summarizer.codec.scorers(memory, SummaryDecodingOptions()) == []
    assert len(summarizer.codec.scorers(memory, SummaryDecodingOptions(max_words=3))) == 1


VOCABULARY = Vocabulary(["dog", "￭.", "￭-￭", "'￭", "cat"])
SIZE = len(VOCABULARY)


def write(preferences, min_words=0, max_words=None):
    """What greedy search writes that likes tokens in the order given, and never one it wrote before."""
    order = {token: rank for rank, token in enumerate([*preferences, "<end>"])}
    logits = [-5.0 * order.get(token, 20) for token in VOCABULARY.tokens] + [-300.0, -300.0]

    def step(token, state):
        written = ops.one_hot(token, SIZE + 2) + state["written"]
        return tf.constant([logits]) - 200.0 * written, {"written": written}

    scorer = word_limit(VOCABULARY, tf.constant([[4, SIZE + 1]]), min_words, max_words)
    options = DecodingOptions(beam_size=1, max_length=8, banned_tokens=(0, 1, 3))
    result = beam_search(step, {"written": tf.zeros((1, SIZE + 2))}, options, scorers=[scorer])
    ids = [index for index in result.token_ids.numpy()[0, 0].tolist() if 3 < index < SIZE]
    return detokenize([[VOCABULARY.tokens[index] for index in ids]]).numpy()[0].decode()


def test_without_bounds_nothing_changes():
    assert write(["dog", "￭-￭", "cat", "￭."]) == "dog-cat."


@pytest.mark.parametrize(
    ("preferences", "most", "expected"),
    [
        (["dog", "cat", "￭."], 1, "dog."),
        (["dog", "￭-￭", "cat", "￭."], 1, "dog-cat."),
        (["'￭", "dog", "cat", "￭."], 1, "'dog."),
        (["dog", "cat", "￭."], 2, "dog cat."),
    ],
)
def test_no_word_begins_beyond_the_most(preferences, most, expected):
    text = write(preferences, max_words=most)
    assert text == expected
    assert len(text.split()) <= most


def test_the_end_waits_for_the_fewest_words():
    assert write(["<end>"]) == ""
    assert len(write([], min_words=2).split()) >= 2


def test_a_jump_in_the_source_is_penalized():
    # The source: 4 5 6 7 5 8, where 8 is an out-of-vocabulary word of a vocabulary of 8.
    scorer = jump_scorer(8, tf.constant([[4, 5, 6, 7, 5, 8], [4, 4, 4, 4, 4, 4]]), 0.7)
    scores, state = scorer.call(tf.constant([4, 1]), scorer.state)
    assert scores.shape == (2, 14)
    # After 4 come 5 and 6; 7 and 8 are further away, 4 would be again. Words that are not in the source are free.
    assert scores[0].numpy().tolist() == [0, 0, 0, 0, -1, 0, 0, -1, -1, 0, 0, 0, 0, 0]
    assert not scores[1].numpy().any()  # nothing was read before the first word
    scores, _ = scorer.call(tf.constant([5, 4]), state)  # 5 occurs twice
    assert scores[0].numpy().tolist() == [0, 0, 0, 0, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0]
    assert not scores[1].numpy().any()
    assert (scorer.weight, scorer.upper_bound) == (0.7, 0.0)


def test_the_penalty_changes_what_is_written_live_and_in_a_graph(summarizer):
    texts = {penalty: summarizer.summarize(TEXT, jump_penalty=penalty).text for penalty in (0.0, 50.0)}
    assert texts[0.0] != texts[50.0]
