import json
from dataclasses import replace

import keras
import numpy as np
import pytest

from attention_apps.applications.summarizer_config import SummarizerConfig, SummaryOptions
from attention_apps.applications.text_summarizer import TextSummarizer
from attention_apps.models.tokens import START
from attention_apps.preprocessing.vocabulary import Vocabulary
from attention_apps.preprocessing.word_forms import UNKNOWN_KINDS
from attention_apps.training.config import read_config, to_dict
from tests.applications.summarizers import CONFIGS, TRANSFORMER, make_rows, make_summarizer, write_jsonl

TEXT = "Yesterday in the morning, Alice likes Qwert in the old town. It was reported by the police."
LONG = " ".join([TEXT, "Bob sees Paris by night.", "Nobody finds London now, it seems.", TEXT])


@pytest.fixture(scope="module", params=["generate", "delete"])
def trained(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    data = write_jsonl(folder / "train.jsonl", make_rows(request.param))
    summarizer = make_summarizer(CONFIGS[request.param])
    summarizer.fit(data, data, output=folder / "run", quiet=True)
    return summarizer, folder


@pytest.fixture
def summarizer(trained):
    return trained[0]


def needs(summarizer, method):
    if summarizer.config.method != method:
        pytest.skip(f"of the method {method!r} only")


# Training


def test_it_learns_its_task(trained):
    summarizer, folder = trained
    metrics = summarizer.evaluate(folder / "train.jsonl", quiet=True).metrics
    assert metrics["rouge_1" if summarizer.config.method == "generate" else "token_f1"].score > 0.6


def test_the_same_call_goes_on_where_it_stopped(trained):
    summarizer, folder = trained
    again = make_summarizer(CONFIGS[summarizer.config.method])
    (history,) = again.fit(folder / "train.jsonl", folder / "train.jsonl", output=folder / "run", quiet=True)
    assert history.stopped_by == "epochs"
    assert again.summarize(TEXT).text == summarizer.summarize(TEXT).text


def test_what_was_saved_writes_the_same(trained):
    summarizer, folder = trained
    summarizer.save(folder / "model")
    loaded = TextSummarizer.load(folder / "model")
    assert loaded.config == summarizer.config
    assert loaded.vocabulary == summarizer.vocabulary
    first, second = summarizer.summarize(TEXT), loaded.summarize(TEXT)
    assert (first.text, first.tokens) == (second.text, second.tokens)
    assert first.score == pytest.approx(second.score, abs=1e-4)


@pytest.mark.slow
def test_new_words_are_added_when_it_is_tuned(trained, tmp_path):
    summarizer, folder = trained
    summarizer.save(folder / "before")
    tuned = TextSummarizer.load(folder / "before")
    rows = [
        json.loads(json.dumps(row).replace("Alice", "Gloria").replace("alice", "gloria"))
        for row in make_rows(summarizer.config.method)
    ]
    once = next(number for number, row in enumerate(rows) if "gloria" in row["document"].lower())
    rows[once] = json.loads(json.dumps(rows[once]).replace("Gloria", "Zenobia").replace("gloria", "zenobia"))
    tuned.summarize(TEXT)  # the graphs of the smaller model must not outlive it
    tuned.config = replace(tuned.config, vocabulary_size=60, training=replace(tuned.config.training, epochs=1))
    tuned.fit(write_jsonl(tmp_path / "new.jsonl", rows), quiet=True)
    assert tuned.vocabulary.tokens[: len(summarizer.vocabulary)] == summarizer.vocabulary.tokens
    assert {"Gloria", "gloria"} & set(tuned.vocabulary.tokens)
    assert not {"Zenobia", "zenobia"} & set(tuned.vocabulary.tokens)  # what is seen once is copied
    tuned.save(tmp_path / "after")
    summary, again = tuned.summarize(TEXT), TextSummarizer.load(tmp_path / "after").summarize(TEXT)
    assert summary.tokens == again.tokens
    np.testing.assert_allclose(summary.attention, again.attention, atol=1e-5)


@pytest.mark.slow
def test_it_can_be_trained_on_the_metric_itself(trained, tmp_path):
    summarizer, folder = trained
    changes = ["training.epochs=1", "training.self_critical.epochs=1", "training.self_critical.samples=2"]
    critical = make_summarizer(CONFIGS[summarizer.config.method], changes)
    histories = critical.fit(folder / "train.jsonl", output=tmp_path / "run", quiet=True)
    assert len(histories) == 2


@pytest.mark.parametrize("metric", ["rouge_2", "wer", "none"])
def test_what_is_rewarded_is_a_metric_of_ones_choice(trained, metric):
    summarizer, folder = trained
    changes = ["training.self_critical.epochs=1", f"training.self_critical.metric={metric}"]
    critical = summarizer.with_config(make_summarizer(CONFIGS[summarizer.config.method], changes).config)
    examples = critical._examples(list(critical.manifest(folder / "train.jsonl").rows()), None, True, training=True)
    right = examples[1]["tokens"].tolist()[1:-1]
    good, bad = critical._rewarded(examples).reward([right, right[:1]], [1, 1])
    assert good > bad
    assert good == pytest.approx(0 if metric == "wer" else 1)


def test_broken_rows_are_counted_and_the_others_are_learned(trained, tmp_path):
    summarizer, folder = trained
    good = (folder / "train.jsonl").read_text()
    path = tmp_path / "broken.jsonl"
    path.write_text(good + '{"document": "half a line\n{"document": "no summary"}\n{"document": "", "summary": "x"}\n')
    report = summarizer.check_data(path, quiet=True)
    assert report.used["training"] == len(good.splitlines())
    assert report.counts.total() - report.counts["duplicate"] == 3
    assert {problem.line for problem in report.problems if problem.kind != "duplicate"} == {49, 50, 51}


# Summaries


def test_a_summary_says_how_it_came_about(summarizer):
    summary = summarizer.summarize(TEXT)
    assert summary.text
    assert summary.score == pytest.approx(summary.alternatives[0][1])
    assert len(summary.alternatives) == summarizer.config.decoding.num_best
    assert len(summary.copied) == len(summary.tokens)
    assert summary.attention.shape == (len(summary.tokens), len(summary.source_tokens))
    np.testing.assert_allclose(summary.attention.sum(axis=1), 1, atol=1e-4)
    assert summary.passages[0][0] == 0
    assert summary.was_read_whole


def test_a_summary_is_drawn(summarizer, tmp_path):
    for text in (TEXT, ""):
        summary = summarizer.summarize(text)
        summary.plot(tmp_path / "summary.png")
        summary.to_html(tmp_path / "summary.html")
        assert (tmp_path / "summary.png").stat().st_size > 500
        page = (tmp_path / "summary.html").read_text(encoding="utf-8")
        assert all(f">{token}</span>" in page for token in summary.tokens)


def test_a_list_is_answered_in_its_order(summarizer):
    texts = [TEXT, "", "Alice sees Bob in the old town.", TEXT]
    summaries = summarizer.summarize(texts)
    assert [summary.source for summary in summaries] == texts
    assert [summary.text for summary in summaries] == [summarizer.summarize(text).text for text in texts]


def test_words_that_are_kept_are_spelled_as_typed(summarizer):
    needs(summarizer, "delete")
    text = "Yesterday, ALICE likes McQwert in the Old town."
    summary = summarizer.summarize(text)
    assert set(summary.text.replace(".", "").replace(",", "").split()) <= set(
        text.replace(".", "").replace(",", "").split()
    )
    assert all(summary.copied)


def test_every_sentence_is_shortened(summarizer):
    needs(summarizer, "delete")
    summary = summarizer.summarize(LONG)
    assert len(summary.lines) == 6
    assert "\n" not in summary.text


def test_of_a_long_text_the_first_passage_is_read(summarizer):
    needs(summarizer, "generate")
    summary = summarizer.summarize(LONG)
    assert len(summary.lines) == 1
    assert summary.passages[0][0] == 0
    assert not summary.was_read_whole


@pytest.mark.parametrize("sentences", [1, 2, 3])
def test_a_line_for_each_sentence_asked_for(summarizer, sentences):
    summary = summarizer.summarize(LONG, replace(summarizer.config.decoding, sentences=sentences))
    assert len(summary.text.split("\n")) == len(summary.lines) == sentences
    assert summary.passages == sorted(summary.passages)
    assert summary.attention.shape == (len(summary.tokens), len(summary.source_tokens))


@pytest.mark.parametrize("words", [1, 2])
def test_no_more_words_than_asked_for(summarizer, words):
    summary = summarizer.summarize(TEXT, replace(summarizer.config.decoding, max_words=words, sentences=1))
    assert len(summary.text.split()) <= words


def test_no_fewer_words_than_asked_for(summarizer):
    needs(summarizer, "generate")
    summary = summarizer.summarize(TEXT, replace(summarizer.config.decoding, min_words=6))
    assert len(summary.text.split()) >= 6


def test_no_fewer_tokens_are_kept_than_asked_for(summarizer):
    needs(summarizer, "delete")
    summary = summarizer.summarize(TEXT, replace(summarizer.config.decoding, min_words=9, sentences=1))
    assert len(summary.tokens) >= 9


def test_a_bias_keeps_more_words(summarizer):
    needs(summarizer, "delete")
    options = summarizer.config.decoding
    few, many = (summarizer.summarize(TEXT, replace(options, keep_bias=bias)) for bias in (-30.0, 30.0))
    assert len(few.tokens) == 0
    assert many.text == TEXT


def check_the_search(summarizer):
    """What cached steps found is as likely as one pass over it says."""
    source = summarizer._way.source(summarizer._way.tokenize([TEXT, "Alice sees Bob in the old town."]).to_tensor(""))
    result = summarizer._search(source)
    written = result.token_ids[:, 0].numpy()
    fed = np.pad(written, ((0, 0), (1, 0)), constant_values=START)[:, :-1]
    log_probs = keras.ops.log_softmax(summarizer.model.decoder(fed, summarizer.model.encode(source))).numpy()
    of_tokens = np.take_along_axis(log_probs, written[..., None], axis=-1)[..., 0]
    is_written = np.arange(written.shape[1]) < result.lengths[:, :1].numpy()
    np.testing.assert_allclose(result.log_probs[:, 0], (of_tokens * is_written).sum(axis=1), rtol=1e-3, atol=1e-3)


def test_what_was_found_is_as_likely_when_it_is_fed_back(summarizer):
    check_the_search(summarizer)


@pytest.mark.slow
def test_a_transformer_that_copies_is_trained_by_the_configuration_alone(tmp_path):
    data = write_jsonl(tmp_path / "train.jsonl", make_rows("generate", 32))
    summarizer = make_summarizer(TRANSFORMER, ["training.epochs=16", "training.learning_rate=0.01"])
    summarizer.fit(data, quiet=True)
    assert summarizer.evaluate(data, quiet=True).metrics["rouge_1"].score > 0.4
    check_the_search(summarizer)
    summary = summarizer.summarize(TEXT)
    assert summary.attention.shape == (len(summary.tokens), len(summary.source_tokens))
    np.testing.assert_allclose(summary.attention.sum(axis=1), 1, atol=1e-4)


@pytest.mark.slow
def test_a_model_without_attention_looks_nowhere(tmp_path):
    data = write_jsonl(tmp_path / "train.jsonl", make_rows("generate", 16))
    changes = ["decoder.attention.kind=none", "decoder.copying=false", "training.epochs=1"]
    summarizer = make_summarizer(CONFIGS["generate"], changes)
    summarizer.fit(data, quiet=True)
    summary = summarizer.summarize(TEXT)
    assert summary.attention.shape == (len(summary.tokens), len(summary.source_tokens))
    assert not summary.attention.any()


@pytest.mark.slow
def test_what_was_not_read_yet_counts_where_coverage_is_kept():
    words = Vocabulary([*UNKNOWN_KINDS, "alice", "likes", "in", "the", "old", "town", "."])
    config = read_config(SummarizerConfig, CONFIGS["generate"], ["decoder.attention.kind=coverage"])
    summarizer = TextSummarizer(config, words)
    plain, penalized = (
        summarizer.summarize(TEXT, replace(config.decoding, beam_size=1, num_best=1, coverage_penalty=penalty))
        for penalty in (0.0, 0.7)
    )
    coverage = penalized.attention.sum(axis=0)  # but for the end token, which looks at the text, too
    assert penalized.text == plain.text  # of one hypothesis there is no choice
    assert penalized.score < plain.score
    assert penalized.score - plain.score >= 0.7 * np.log(np.minimum(coverage, 1)).sum() - 1e-3


@pytest.mark.slow
def test_half_precision_learns_as_well(tmp_path):
    data = write_jsonl(tmp_path / "train.jsonl", make_rows("generate"))
    summarizer = make_summarizer(CONFIGS["generate"], ["training.mixed_precision=true"])
    (history,) = summarizer.fit(data, quiet=True)
    assert history.skipped_steps < history.steps / 2
    assert keras.config.dtype_policy().name == "float32"
    parts = (summarizer.model.encoder, summarizer.model.decoder, summarizer.model.decoder.attention)
    assert {part.compute_dtype for part in parts} == {"float16"}
    assert {variable.dtype for variable in summarizer.model.trainable_variables} == {"float32"}
    assert summarizer.evaluate(data, quiet=True).metrics["rouge_1"].score > 0.6
    summarizer.save(tmp_path / "model")
    loaded = TextSummarizer.load(tmp_path / "model")
    assert loaded.model.decoder.compute_dtype == "float32"
    assert loaded.summarize(TEXT).score == pytest.approx(summarizer.summarize(TEXT).score, abs=0.05)
    tuned = loaded.with_config(read_config(SummarizerConfig, to_dict(summarizer.config), ["training.max_steps=2"]))
    tuned.fit(data, quiet=True)
    assert tuned.model.decoder.compute_dtype == "float16"


# Bad input


@pytest.mark.parametrize("text", ["", "   \n\t ", "\u200b", b""])
def test_nothing_is_invented_from_an_empty_text(summarizer, text):
    summary = summarizer.summarize(text)
    assert summary.text == ""
    assert summary.tokens == []
    assert summary.error is None
    assert summary.attention.shape == (0, 0)


@pytest.mark.parametrize("text", ["Word", "!!! ...", "😀 🎉 👍🏽", "two words", "?", "-- ... !? " * 50, "x" * 100_000])
def test_a_text_of_fewer_than_four_words_is_its_own_summary(summarizer, text):
    summary = summarizer.summarize(text)
    assert summary.text == text.strip()
    assert summary.passages == [(0, len(summary.tokens))]


@pytest.mark.parametrize(
    "text",
    [
        "שלום עולם זה מבחן קצר מאוד",
        "这是一个测试句子。我们在这里。",
        "a\x00b \x07c d e f\x1b[31m",
        b"\xff\xfe abc def ghi \xc3\x28 jkl",
        "half \ud800 of a character is here",
        "<p>Hello <b>big</b> wide world &amp; all</p>",
        "😀 one two three four 🎉",
    ],
    ids=["right-to-left", "Chinese", "control", "not UTF-8", "surrogate", "HTML", "emoji"],
)
def test_odd_texts_have_an_answer(summarizer, text):
    summary = summarizer.summarize(text)
    assert summary.error is None
    assert isinstance(summary.text, str)
    summary.text.encode("utf-8")
    assert not set(summary.text) & set("\x00\x07\x1b")


def test_a_hundred_thousand_words_are_read_by_the_rule(summarizer):
    options = replace(summarizer.config.decoding, beam_size=2, num_best=1, sentences=2)
    summary = summarizer.summarize("word. Another one comes " * 25_000, options)
    assert len(summary.lines) == 2
    assert not summary.was_read_whole


def test_what_is_no_text_is_an_error(summarizer):
    with pytest.raises(TypeError, match="must be a string or bytes. Received: int"):
        summarizer.summarize(5)
    first, second = summarizer.summarize([None, TEXT])
    assert (first.text, second.error) == ("", None)
    assert first.error
    assert second.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_words": 0}, "`max_words` must be at least 1"),
        ({"max_words": 2, "min_words": 3}, "`max_words` must be at least 3"),
        ({"min_words": -1}, "`min_words` must be at least 0"),
        ({"sentences": 0}, "`sentences` must be at least 1"),
    ],
)
def test_options_that_make_no_sense_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        SummaryOptions(**arguments)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("vocabulary_size=3", "`vocabulary_size` must be between"),
        ("max_source_length=1", "`max_source_length` must be between"),
        ("encoder.units=0", "`units` must be between"),
        ("encoder.dropout=1.5", "`dropout` must be at least 0 and less than 1"),
        ("method=guess", "`method` must be one of"),
    ],
)
def test_configurations_that_make_no_sense_are_refused(override, message):
    with pytest.raises(ValueError, match=message):
        make_summarizer(CONFIGS["generate"], [override])


def test_label_smoothing_is_refused_where_words_are_deleted():
    with pytest.raises(ValueError, match="`label_smoothing` must be 0"):
        make_summarizer(CONFIGS["delete"], ["training.label_smoothing=0.1"])


def test_without_a_model_it_says_what_to_do():
    with pytest.raises(ValueError, match="has no model yet"):
        make_summarizer(CONFIGS["generate"]).summarize(TEXT)
