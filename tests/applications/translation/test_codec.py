import keras
import numpy as np
import pytest
import tensorflow as tf

from attention_apps.constants import PADDING, START, UNKNOWN
from attention_apps.decoding import DecodingOptions, DecodingResult
from tests.applications.translators import PIECES, TEXT, make_translator

TEXTS = [
    TEXT,
    "",
    "Anna likes the dog.\n\n 12 + 30 = 42! \nThe tree.",
    "2024",
    "日本語 🙂 the dog",
    b"\xff\xfe the \xc3\x28 dog",
    "the " * 60,
    "x" * 20_000,
    "Anna. " * 40,
]
STATUSES = ["ok", "blank", "ok", "ok", "ok", "ok", "ok", "text too long", "cut"]


@pytest.fixture(scope="module")
def translator():
    keras.utils.set_random_seed(3)
    return make_translator(overrides=["confidence.threshold=0.2", "decoding.num_best=2"], pieces=PIECES)


@pytest.fixture(scope="module")
def translations(translator):
    return translator.translate(TEXTS)


@pytest.fixture(scope="module")
def serve(translator, tmp_path_factory):
    version = translator.export(tmp_path_factory.mktemp("export") / "translator")
    loaded = tf.saved_model.load(str(version))
    return lambda texts: {
        name: tensor.numpy()
        for name, tensor in loaded.signatures["serving_default"](text=tf.constant(texts, tf.string)).items()
    }


@pytest.fixture(scope="module")
def served(serve):
    return serve([text if isinstance(text, bytes) else text.encode() for text in TEXTS])


def test_an_export_answers_as_the_application_does(served, translations):
    for row in range(7):
        translation = translations[row]
        for rank, (text, score) in enumerate(translation.alternatives):
            assert served["text"][row, rank].decode() == text
            np.testing.assert_allclose(served["score"][row, rank], score, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(served["confidence"][row], translation.confidence, rtol=1e-4)
        assert served["unsure"][row] == translation.unsure


def test_an_export_says_what_became_of_a_text(served):
    assert [status.decode() for status in served["status"]] == STATUSES
    assert served["text"][7].tolist() == [b"", b""]
    assert (served["score"][7] < -1e38).all()


def test_an_export_shows_where_the_application_looked(served, translations):
    for row in (0, 4, 5):
        for number, line in enumerate(translations[row].lines):
            tokens = served["tokens"][row, number]
            assert [token.decode() for token in tokens if token] == line.tokens
            start, end = line.passage
            attention = served["attention"][row, number][tokens != b""]
            np.testing.assert_allclose(attention[:, : end - start], line.attention, atol=1e-5)
            words = [word.decode() for word in served["source_tokens"][row, number] if word]
            assert words == translations[row].source_tokens[start:end]


@pytest.mark.parametrize("texts", [[], [""], ["", " "]])
def test_an_export_answers_batches_without_any_word(serve, texts):
    assert serve(texts)["text"].tolist() == [[b"", b""]] * len(texts)


def test_numbers_and_marks_are_their_own_translation(translations):
    assert translations[2].text.split("\n")[1:3] == ["", "12 + 30 = 42!"]
    assert (translations[3].text, translations[3].score, translations[3].confidence) == ("2024", 0, 1)
    assert translations[3].copied == [True]


def test_words_are_read_as_pieces_that_know_their_word(translator):
    prepared = translator.codec.prepare({"tokens": tf.constant([["Anna", "￭.", ""], ["the", "dog", "é"]])})
    tokens = translator.vocabulary.tokens
    read = [[tokens[index] for index in row if index] for row in prepared["token_ids"].numpy()]
    assert read == [["▁A", "nn", "<0x61>", "▁￭."], ["▁the", "▁d", "og", "▁", "<0xC3>", "<0xA9>"]]
    assert prepared["word_of"].numpy().tolist() == [[0, 0, 0, 1, -1, -1], [0, 1, 1, 2, 2, 2]]
    assert "source_ids" not in prepared


def test_a_decoder_that_copies_is_told_what_it_can_copy():
    codec = make_translator(overrides=["decoder.copying=true"], pieces=PIECES).codec
    prepared = codec.prepare({"tokens": tf.constant([["the", "dog"]])})
    np.testing.assert_array_equal(prepared["source_ids"], prepared["token_ids"])


def test_pieces_become_words_and_text(translator):
    ids = tf.constant(
        [translator.vocabulary.encode(["▁A", "nn", "<0x61>", "▁likes", "▁the", "▁d", "og", "▁￭.", "<end>"])]
    )
    assert translator.codec.texts(ids[:, tf.newaxis], {}).numpy().tolist() == [[b"Anna likes the dog."]]
    word_of = tf.constant([[0, 0, 0, 1, 2, 3, 3, 4, -1]])
    words = translator.codec._words(ids, word_of).numpy()[0].tolist()
    assert words == [b"Anna", b"likes", b"the", b"dog", b".", b"", b"", b"", b""]


def test_weights_are_added_up_over_what_is_read_and_averaged_over_what_is_written(translator):
    attention = tf.constant([[[0.5, 0.25, 0.25], [0.1, 0.1, 0.8], [0.0, 0.0, 1.0]]])
    source = {"tokens": tf.constant([["one", "two"]]), "word_of": tf.constant([[0, 0, 1]])}
    ids = tf.constant([translator.vocabulary.encode(["▁A", "nn", "▁likes"])])
    forced = {"token_ids": ids, "attention": attention, "logits": tf.zeros([1, 3, len(translator.vocabulary)])}
    scores, lengths = tf.zeros([1, 1]), tf.constant([[3]])
    result = DecodingResult(ids[:, tf.newaxis], scores, scores, lengths, lengths > 3)
    words = translator.codec.outputs(source, {}, result, forced)["attention"]
    np.testing.assert_allclose(words[0, :2], [[0.475, 0.525], [0.0, 1.0]], atol=1e-6)


def test_the_weights_of_a_word_add_up_to_one(translations):
    np.testing.assert_allclose(translations[0].attention.sum(axis=1), 1, atol=1e-5)


def test_a_search_writes_pieces_only(translator):
    options = translator.codec.search_options(DecodingOptions(banned_tokens=(20,)))
    assert set(options.banned_tokens) == {PADDING, START, UNKNOWN, 20}
