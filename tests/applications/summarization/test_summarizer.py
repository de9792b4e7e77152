import json
import tracemalloc
from dataclasses import replace

import keras
import numpy as np
import pytest

from attention_apps import TextSummarizer
from attention_apps.applications import Pipeline, SummarizerConfig, SummaryOptions
from attention_apps.constants import START
from attention_apps.training import read_config, to_dict
from tests.applications.summarizers import (
    CONFIGS,
    LONG_TEXT,
    TEXT,
    TRANSFORMER,
    WORDS,
    make_rows,
    make_summarizer,
    write_jsonl,
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("summarizer")
    data = write_jsonl(folder / "train.jsonl", make_rows("generate"))
    summarizer = make_summarizer()
    summarizer.fit(data, data, output=folder / "run", quiet=True)
    return summarizer, folder


@pytest.fixture(scope="module")
def summarizer(trained):
    return trained[0]


# Training


def test_it_learns_its_task(trained):
    summarizer, folder = trained
    evaluation = summarizer.evaluate(folder / "train.jsonl", quiet=True)
    assert evaluation.metrics["rouge_1"].score > 0.6
    assert evaluation.sources[0] == make_rows("generate")[0]["document"]
    assert evaluation.references[0] == [make_rows("generate")[0]["summary"]]
    assert evaluation.texts[0] == summarizer.summarize(evaluation.sources[0]).text


@pytest.mark.parametrize("options", [{}, {"sentences": 3}])
def test_evaluate_scores_what_summarize_writes(summarizer, options, tmp_path):
    documents = [LONG_TEXT, TEXT, "Bob sees."]
    data = write_jsonl(tmp_path / "data.jsonl", [{"document": text, "summary": "Bob"} for text in documents])
    texts = summarizer.evaluate(data, quiet=True, **options).texts
    assert texts == [summary.text for summary in summarizer.summarize(documents, **options)]


def test_the_same_call_resumes(trained):
    summarizer, folder = trained
    again = make_summarizer()
    (history,) = again.fit(folder / "train.jsonl", folder / "train.jsonl", output=folder / "run", quiet=True)
    assert history.stopped_by == "epochs"
    assert again.summarize(TEXT).text == summarizer.summarize(TEXT).text


def test_a_saved_summarizer_writes_the_same(trained):
    summarizer, folder = trained
    summarizer.save(folder / "model")
    loaded = TextSummarizer.from_preset(folder / "model")
    assert replace(loaded.config, training=summarizer.config.training) == summarizer.config
    assert loaded.vocabulary == summarizer.vocabulary
    first, second = summarizer.summarize(TEXT), loaded.summarize(TEXT)
    assert (first.text, first.tokens) == (second.text, second.tokens)
    assert first.score == pytest.approx(second.score, abs=1e-4)


@pytest.mark.slow
def test_fine_tuning_adds_new_words(trained, tmp_path):
    summarizer, folder = trained
    summarizer.save(folder / "before")
    tuned = TextSummarizer.from_preset(folder / "before")
    rows = [json.loads(json.dumps(row).replace("Alice", "Gloria")) for row in make_rows("generate")]
    once = next(number for number, row in enumerate(rows) if "Gloria" in row["document"])
    rows[once] = json.loads(json.dumps(rows[once]).replace("Gloria", "Zenobia"))
    tuned.summarize(TEXT)  # the graphs of the smaller model must not outlive it
    tuned.config = replace(tuned.config, vocabulary_size=60, training=replace(tuned.config.training, epochs=1))
    tuned.fit(write_jsonl(tmp_path / "new.jsonl", rows), quiet=True)
    assert tuned.vocabulary.tokens[: len(summarizer.vocabulary)] == summarizer.vocabulary.tokens
    assert "Gloria" in tuned.vocabulary.tokens
    assert "Zenobia" not in tuned.vocabulary.tokens  # what is seen once is copied
    tuned.save(tmp_path / "after")
    summary, again = tuned.summarize(TEXT), TextSummarizer.from_preset(tmp_path / "after").summarize(TEXT)
    assert summary.tokens == again.tokens
    np.testing.assert_allclose(summary.attention, again.attention, atol=1e-5)


@pytest.mark.slow
def test_it_can_be_trained_on_the_metric_itself(trained, tmp_path):
    _, folder = trained
    changes = ["training.epochs=1", "training.self_critical.epochs=1", "training.self_critical.samples=2"]
    critical = make_summarizer(overrides=changes)
    histories = critical.fit(folder / "train.jsonl", output=tmp_path / "run", quiet=True)
    assert len(histories) == 2


@pytest.mark.parametrize("metric", ["rouge_2", "wer", "none"])
def test_the_reward_is_a_metric_of_ones_choice(trained, metric, tmp_path):
    summarizer, folder = trained
    changes = ["training.self_critical.epochs=1", f"training.self_critical.metric={metric}"]
    critical = summarizer.with_config(read_config(SummarizerConfig, to_dict(summarizer.config), changes))
    rows = list(critical.manifest(folder / "train.jsonl").rows())
    examples = critical.parts.examples(rows, critical.config)
    examples.bind(critical.codec, critical.model, tmp_path, training=True, quiet=True)
    right = examples[1]["tokens"].tolist()[1:-1]
    good, bad = critical._rewarded(examples).reward([right, right[:1]], [1, 1])
    assert good > bad
    assert good == pytest.approx(0 if metric == "wer" else 1)


def test_broken_rows_are_counted_and_the_others_are_used(trained, tmp_path):
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
    assert 0 < summary.confidence <= 1
    assert len(summary.copied) == len(summary.tokens)
    assert summary.attention.shape == (len(summary.tokens), len(summary.source_tokens))
    np.testing.assert_allclose(summary.attention.sum(axis=1), 1, atol=1e-4)
    assert summary.passages == [(0, len(summary.source_tokens))]
    assert summary.was_read_whole


def test_a_list_is_answered_in_its_order(summarizer):
    texts = [TEXT, "", "Alice sees Bob in the old town.", TEXT]
    summaries = summarizer.summarize(texts)
    assert [summary.source for summary in summaries] == texts
    assert [summary.text for summary in summaries] == [summarizer.summarize(text).text for text in texts]


def test_a_stream_is_answered_item_by_item(summarizer):
    summaries = summarizer.run(iter([TEXT, "", "Too short"]))
    assert [summary.text for summary in summaries] == [summarizer.summarize(TEXT).text, "", "Too short"]


def test_the_first_passage_of_a_long_text_is_summarized(summarizer):
    summary = summarizer.summarize(LONG_TEXT)
    assert len(summary.lines) == 1
    assert summary.passages[0][0] == 0
    assert not summary.was_read_whole


@pytest.mark.parametrize("sentences", [1, 2, 3])
def test_a_line_for_each_sentence_asked_for(summarizer, sentences):
    summary = summarizer.summarize(LONG_TEXT, sentences=sentences)
    assert len(summary.text.split("\n")) == len(summary.lines) == sentences
    assert summary.passages == sorted(summary.passages)
    assert summary.attention.shape == (len(summary.tokens), len(summary.source_tokens))


def test_no_more_words_than_asked_for(summarizer):
    assert len(summarizer.summarize(TEXT, max_words=2).text.split()) <= 2


def test_no_fewer_words_than_asked_for(summarizer):
    assert len(summarizer.summarize(TEXT, min_words=6).text.split()) >= 6


def check_the_search(summarizer):
    """The score of cached steps is that of one teacher-forced pass."""
    codec = summarizer.codec
    readings = [summarizer.reader.read(text, SummaryOptions()) for text in (TEXT, "Alice sees Bob in the old town.")]
    tokens = [next(iter(reading.sources)).tensors["tokens"].tolist() for reading in readings]
    width = max(map(len, tokens))
    source = codec.prepare({"tokens": np.array([row + [b""] * (width - len(row)) for row in tokens], object)})
    memory = summarizer.model.encode(source)
    pipeline = Pipeline(summarizer.model, summarizer.reader, codec, summarizer.config.decoding)
    decoder = summarizer.model.decoder
    result = pipeline.search(decoder.step, decoder.init_state(memory), pipeline.options)
    written = result.token_ids[:, 0].numpy()
    fed = np.pad(written, ((0, 0), (1, 0)), constant_values=START)[:, :-1]
    log_probs = keras.ops.log_softmax(decoder(fed, memory)).numpy()
    of_tokens = np.take_along_axis(log_probs, written[..., None], axis=-1)[..., 0]
    is_written = np.arange(written.shape[1]) < result.lengths[:, :1].numpy()
    np.testing.assert_allclose(result.log_probs[:, 0], (of_tokens * is_written).sum(axis=1), rtol=1e-3, atol=1e-3)


def test_the_search_scores_as_teacher_forcing_does(summarizer):
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


def test_a_model_without_attention_looks_nowhere():
    summarizer = make_summarizer(overrides=["decoder.attention.kind=none", "decoder.copying=false"], words=WORDS)
    summary = summarizer.summarize(TEXT)
    assert summary.tokens
    assert summary.attention.shape == (len(summary.tokens), len(summary.source_tokens))
    assert not summary.attention.any()


@pytest.mark.slow
def test_the_coverage_penalty_lowers_the_score_of_what_was_not_read():
    summarizer = make_summarizer(overrides=["decoder.attention.kind=coverage"], words=WORDS)
    plain, penalized = (summarizer.summarize(TEXT, beam_size=1, coverage_penalty=penalty) for penalty in (0.0, 0.7))
    coverage = penalized.attention.sum(axis=0)  # without the end token, which looks at the text, too
    assert penalized.text == plain.text  # with one hypothesis there is no choice
    assert penalized.score < plain.score
    assert penalized.score - plain.score >= 0.7 * np.log(np.minimum(coverage, 1)).sum() - 1e-3


@pytest.mark.slow
def test_half_precision_learns_as_well(tmp_path):
    data = write_jsonl(tmp_path / "train.jsonl", make_rows("generate"))
    summarizer = make_summarizer(overrides=["training.mixed_precision=true"])
    (history,) = summarizer.fit(data, quiet=True)
    assert history.skipped_steps < history.steps / 2
    assert keras.config.dtype_policy().name == "float32"
    parts = (summarizer.model.encoder, summarizer.model.decoder, summarizer.model.decoder.attention)
    assert {part.compute_dtype for part in parts} == {"float16"}
    assert {variable.dtype for variable in summarizer.model.trainable_variables} == {"float32"}
    assert summarizer.evaluate(data, quiet=True).metrics["rouge_1"].score > 0.6
    summarizer.save(tmp_path / "model")
    loaded = TextSummarizer.from_preset(tmp_path / "model")
    assert loaded.model.decoder.compute_dtype == "float32"
    assert loaded.summarize(TEXT).score == pytest.approx(summarizer.summarize(TEXT).score, abs=0.05)
    tuned = loaded.with_config(read_config(SummarizerConfig, to_dict(summarizer.config), ["training.max_steps=2"]))
    tuned.fit(data, quiet=True)
    assert tuned.model.decoder.compute_dtype == "float16"


# Bad input


@pytest.mark.parametrize("text", ["", "   \n\t ", "\u200b", b""])
def test_nothing_is_invented_from_a_blank_text(summarizer, text):
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
    assert summary.confidence == 1


def test_a_text_of_200_000_apostrophes_needs_little_memory(summarizer):
    tracemalloc.start()
    summary = summarizer.summarize("'" * 200_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert summary.text == "'" * 200_000
    assert peak < 200e6  # a matrix over all pairs of tokens has 160e9 bytes


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


def test_sentences_of_a_very_long_text_are_chosen(summarizer):
    summary = summarizer.summarize("Another word comes here now. " * 5_000, sentences=2)
    assert summary.passages == [(0, 6), (15_000, 15_006)]
    assert not summary.was_read_whole


def test_what_is_not_a_text_is_an_error(summarizer):
    with pytest.raises(TypeError, match="must be a string or bytes. Received: int"):
        summarizer.summarize(5)
    first, second = summarizer.summarize([None, TEXT])
    assert (first.text, first.source) == ("", None)
    assert first.error == "A text must be a string or bytes. Received: NoneType"
    assert second.error is None
    assert second.text


def test_an_unknown_option_is_named(summarizer):
    with pytest.raises(TypeError, match="`beams` is not an option. Options: .*beam_size"):
        summarizer.summarize(TEXT, beams=3)


def test_without_a_model_the_error_says_what_to_do():
    with pytest.raises(ValueError, match="has no model yet"):
        make_summarizer(CONFIGS["generate"]).summarize(TEXT)
