import numpy as np
import pytest
import tensorflow as tf

from attention_apps.applications.compression.codec import keep_limit
from attention_apps.applications.compression.config import CompressionDecodingOptions
from attention_apps.applications.summarization.config import SummaryOptions
from attention_apps.constants import END, START
from attention_apps.models.copying import DELETE, KEEP
from attention_apps.preprocessing.word_forms import UNKNOWN_CLASSES
from tests.applications.summarizers import LONG_TEXT, TEXT, WORDS, make_compressor

TEXTS = [
    TEXT,
    "",
    "Bob sees Paris by night.",
    LONG_TEXT,
    "One word",
    "😀 ...",
    "word " * 70,
    "这是一个测试句子。我们在这里。",
    b"\xff\xfe abc def ghi \xc3\x28 jkl",
    "a word " * 20_000,
]
STATUSES = ["ok", "blank", "ok", "ok", "short", "short", "ok", "short", "ok", "text too long"]


@pytest.fixture(scope="module")
def compressor():
    return make_compressor(words=WORDS, overrides=["decoding.num_best=2", "confidence.threshold=0.5"])


@pytest.fixture(scope="module")
def compressions(compressor):
    return compressor.compress(TEXTS)


@pytest.fixture(scope="module")
def serve(compressor, tmp_path_factory):
    version = compressor.export(tmp_path_factory.mktemp("export") / "compressor")
    loaded = tf.saved_model.load(str(version))
    return lambda texts: {
        name: tensor.numpy()
        for name, tensor in loaded.signatures["serving_default"](text=tf.constant(texts, tf.string)).items()
    }


@pytest.fixture(scope="module")
def served(serve):
    return serve([text if isinstance(text, bytes) else text.encode() for text in TEXTS])


def test_an_export_answers_as_the_application_does(served, compressions):
    for row, compression in enumerate(compressions[:-1]):
        for rank, (text, score) in enumerate(compression.alternatives):
            assert served["text"][row, rank].decode() == text
            np.testing.assert_allclose(served["score"][row, rank], score, rtol=1e-4)
        np.testing.assert_allclose(served["confidence"][row], compression.confidence, rtol=1e-4)
        assert served["unsure"][row] == compression.unsure


def test_an_export_says_what_became_of_a_text(served):
    assert [status.decode() for status in served["status"]] == STATUSES
    assert served["text"][-1].tolist() == [b"", b""]


def test_an_export_says_which_words_were_kept(served, compressions):
    for row, compression in enumerate(compressions[:-1]):
        count = len(compression.source_tokens)
        assert [token.decode() for token in served["source_tokens"][row, :count]] == compression.source_tokens
        if STATUSES[row] == "ok":
            assert served["kept"][row, :count].tolist() == compression.kept
        assert not served["kept"][row, count:].any()


@pytest.mark.parametrize("texts", [[], [""], ["", " "]])
def test_an_export_answers_batches_without_any_word(serve, texts):
    assert serve(texts)["text"].tolist() == [[b"", b""]] * len(texts)


def test_an_export_compresses_every_sentence(compressor):
    with pytest.raises(ValueError, match="`sentences` must be None in an export. Received: sentences=2"):
        compressor.codec.serve({}, {}, SummaryOptions(sentences=2))


def test_kept_words_are_spelled_as_typed(compressor):
    source = {"tokens": tf.constant([["ALICE", "likes", "Bob", "￭.", ""]])}
    tags = tf.constant([[[KEEP, DELETE, KEEP, KEEP, END], [DELETE, DELETE, DELETE, DELETE, END]]])
    assert compressor.codec.texts(tags, source).numpy().tolist() == [[b"ALICE Bob.", b""]]


def test_a_compression_starts_with_a_capital_and_keeps_a_result_whole(compressor):
    source = {"tokens": tf.constant([["Today", "they", "won", "3", "￭-", "￭2"]])}
    tags = tf.constant([[[DELETE, KEEP, KEEP, KEEP, DELETE, KEEP, END], [KEEP, KEEP, KEEP, DELETE, KEEP, KEEP, END]]])
    assert compressor.codec.texts(tags, source).numpy().tolist() == [[b"They won 3-2", b"Today they won"]]


def test_out_of_vocabulary_words_are_read_by_class(compressor):
    codec = compressor.codec
    ids = codec.prepare({"tokens": tf.constant([["Alice", "Qwerting", "the"]])})["token_ids"].numpy()[0]
    names = [codec.model_vocabulary.tokens[index] for index in ids]
    assert names == ["alice", "<-ing>", "the"]
    assert names[1] in UNKNOWN_CLASSES


def test_options_that_have_no_meaning_for_tags_are_overridden(compressor):
    given = CompressionDecodingOptions(max_length=3, no_repeat_ngram_size=2, banned_tokens=(KEEP,))
    options = compressor.codec.search_options(given)
    assert (options.max_length, options.no_repeat_ngram_size, options.banned_tokens) == (31, 0, ())


def test_words_are_counted_only_if_something_is_asked_of_them(compressor):
    memory = {"mask": tf.constant([[True, True]])}
    assert compressor.codec.scorers(memory, CompressionDecodingOptions()) == ()
    for options in ({"keep_bias": 0.1}, {"min_words": 1}, {"max_words": 1}):
        assert len(compressor.codec.scorers(memory, CompressionDecodingOptions(**options))) == 1


MASK = tf.constant([[True] * 4, [True, True, False, False]])


def scores_along(tags, **options):
    """The scores of deleting and keeping, before each of the tags and after the last."""
    scorer = keep_limit(MASK, CompressionDecodingOptions(**options))
    state, scores = scorer.state, []
    for tag in [START, *tags]:
        found, state = scorer.call(tf.constant([tag, tag]), state)
        scores.append(found.numpy()[:, [DELETE, KEEP]])
    return scores


def test_the_bias_is_added_to_keeping():
    assert scores_along([], keep_bias=0.5)[0].tolist() == [[0.0, 0.5], [0.0, 0.5]]


def test_no_more_words_are_kept_than_the_most():
    before, after = scores_along([KEEP], max_words=1)
    assert before.tolist() == [[0.0, 0.0]] * 2
    assert (after[:, 1] < -1e8).all()
    assert (after[:, 0] == 0).all()


def test_words_are_kept_while_the_fewest_need_them():
    first, second, third = scores_along([DELETE, KEEP], min_words=2)
    assert first[0].tolist() == [0.0, 0.0]
    assert first[1][0] < -1e8  # both of two words are needed
    assert second[0].tolist() == [0.0, 0.0]
    assert third[0].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("bias", "bound"), [(0.5, 0.5), (-0.5, 0.0)])
def test_the_search_knows_the_most_a_word_can_gain(bias, bound):
    assert keep_limit(MASK, CompressionDecodingOptions(keep_bias=bias)).upper_bound == bound
