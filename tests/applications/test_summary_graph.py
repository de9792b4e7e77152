from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

from tests.applications.summarizers import CONFIGS, make_rows, make_summarizer, write_jsonl

TEXT = "Yesterday in the morning, Alice likes Qwert in the old town. It was reported by the police."
TEXTS = [
    TEXT,
    "",
    "Bob sees Paris by night.",
    " ".join([TEXT, 'He said: "Nobody finds Zürich now, it seems." ', TEXT]),
    "One word",
    "😀 ...",
    "word " * 70,
    "这是一个测试句子。我们在这里。",
    "a\x00b \x07c d e f\x1b[31m",
    b"\xff\xfe abc def ghi \xc3\x28 jkl",
]
SIGNATURE = [tf.TensorSpec([None], tf.string)]


@pytest.fixture(scope="module", params=["generate", "delete"])
def summarizer(request, tmp_path_factory):
    data = write_jsonl(tmp_path_factory.mktemp("data") / "train.jsonl", make_rows(request.param, 32))
    summarizer = make_summarizer(CONFIGS[request.param], ["training.epochs=6"])
    summarizer.fit(data, quiet=True)
    return summarizer


@pytest.fixture(scope="module")
def graph(summarizer):
    return tf.function(summarizer._serve, SIGNATURE, autograph=False)


@pytest.fixture(scope="module")
def answers(graph):
    texts = [text if isinstance(text, bytes) else text.encode() for text in TEXTS]
    return {name: tensor.numpy() for name, tensor in graph(tf.constant(texts)).items()}


def test_it_answers_as_the_application_does(summarizer, answers):
    for row, summary in enumerate(summarizer.summarize(TEXTS)):
        assert answers["text"][row].decode() == summary.text
        np.testing.assert_allclose(answers["score"][row], summary.score, rtol=1e-4)
        for rank, (text, score) in enumerate(summary.alternatives):
            assert answers["alternatives"][row, rank].decode() == text
            np.testing.assert_allclose(answers["alternative_scores"][row, rank], score, rtol=1e-4)


def test_it_says_what_became_of_a_text(summarizer, answers):
    expected = {
        "generate": ["ok", "blank", "ok", "cut", "short", "short", "cut", "ok", "ok", "ok"],
        "delete": ["ok", "blank", "ok", "ok", "short", "short", "ok", "short", "ok", "ok"],
    }
    assert [status.decode() for status in answers["status"]] == expected[summarizer.config.method]


def test_it_shows_where_the_application_looked(summarizer, answers):
    if summarizer.config.method == "delete":
        pytest.skip("where words are deleted, they are what was looked at")
    for row, summary in enumerate(summarizer.summarize(TEXTS)):
        if answers["status"][row] in (b"short", b"blank"):
            assert not answers["attention"][row].any()
            continue
        count, end = len(summary.tokens), summary.passages[0][1]
        assert [token.decode() for token in answers["tokens"][row] if token] == summary.tokens
        assert [token.decode() for token in answers["source_tokens"][row] if token] == summary.source_tokens[:end]
        np.testing.assert_allclose(answers["attention"][row, :count, :end], summary.lines[0].attention, atol=1e-5)


def test_it_says_which_words_were_kept(summarizer, answers):
    if summarizer.config.method == "generate":
        pytest.skip("of the method 'delete' only")
    for row, summary in enumerate(summarizer.summarize(TEXTS)):
        kept = [token.decode() for token in answers["source_tokens"][row][answers["kept"][row]]]
        assert kept == ([] if answers["status"][row] in (b"short", b"blank") else summary.tokens)


@pytest.mark.parametrize("texts", [[], [""], ["", " "]])
def test_batches_without_any_word_are_answered(graph, texts):
    found = graph(tf.constant(texts, tf.string))
    assert found["text"].numpy().tolist() == [b""] * len(texts)


def test_it_needs_no_python_and_nothing_but_core_ops(summarizer, graph):
    definition = graph.get_concrete_function().graph.as_graph_def()
    nodes = [*definition.node, *(node for function in definition.library.function for node in function.node_def)]
    used = {node.op for node in nodes}
    assert not {name for name in used if "PyFunc" in name or name.startswith(("Xla", "_"))} - {"_Arg", "_Retval"}
    assert "StaticRegexReplace" in used


@pytest.mark.slow
def test_it_can_be_saved_and_loaded(summarizer, graph, answers, tmp_path):
    module = tf.Module()
    module.serve = graph
    module.weights = [variable.value for variable in summarizer.model.variables]
    module.table = summarizer._way.folded.table
    tf.saved_model.save(module, str(tmp_path), signatures={"serving_default": graph})
    loaded = tf.saved_model.load(str(tmp_path)).signatures["serving_default"]
    found = loaded(tf.constant([text if isinstance(text, bytes) else text.encode() for text in TEXTS]))
    assert found["text"].numpy().tolist() == answers["text"].tolist()


def test_one_line_is_all_that_a_graph_writes(summarizer):
    with pytest.raises(ValueError, match="`sentences` must be None in a graph. Received: sentences=2"):
        summarizer._serve(tf.constant([TEXT]), replace(summarizer.config.decoding, sentences=2))
