from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

from attention_apps import TextSummarizer
from attention_apps.applications.summarization.summarizer import HubCodec
from tests.applications.summarizers import write_jsonl
from tests.models.keras_hub_models import TEXTS, make_bart

LONG = "The cat sat on the mat. The dog ran on the mat. A cat ran on the dog. The mat sat."


@pytest.fixture(scope="module")
def language_model():
    return make_bart(num_layers=1)


@pytest.fixture(scope="module")
def summarizer(language_model):
    return TextSummarizer.from_keras_hub(language_model)


@pytest.fixture(scope="module")
def summary(summarizer):
    return summarizer.summarize(TEXTS[0])


def test_its_greedy_text_is_that_of_keras_hub(summarizer, language_model):
    language_model.compile(sampler="greedy")
    expected = language_model.generate(list(TEXTS))
    options = {"beam_size": 1, "max_length": 14, "no_repeat_ngram_size": 0}
    written = [summary.text for summary in summarizer.summarize([f"{text} " for text in TEXTS], **options)]
    assert written == [" ".join(text.split()) for text in expected]


def test_a_summary_says_how_it_came_about(summarizer, summary):
    assert isinstance(summarizer.codec, HubCodec)
    assert summary.text == summary.alternatives[0][0]
    assert summary.source_tokens == ["The", "cat", "sat", "on", "the", "mat", "."]
    assert summary.tokens
    assert "".join(summary.tokens) == summary.text.replace(" ", "")
    assert 0 < summary.confidence <= 1
    assert summary.attention.shape == (len(summary.tokens), 7)
    assert (summary.attention.sum(axis=1) <= 1 + 1e-5).all()
    assert not any(summary.copied)
    assert summary.was_read_whole


@pytest.mark.slow
def test_an_export_answers_as_the_application_does_and_says_that_it_needs_tensorflow_text(summarizer, tmp_path):
    texts = [*TEXTS, "", "A cat", LONG]
    options = {"beam_size": 1, "max_length": 4}
    version = summarizer.export(tmp_path / "bart", **options)
    assert "Before loading it, `import tensorflow_text`" in (version / "README.md").read_text(encoding="utf-8")
    loaded = tf.saved_model.load(str(version)).signatures["serving_default"]
    found = {name: tensor.numpy() for name, tensor in loaded(text=tf.constant(texts)).items()}
    live = summarizer.summarize(texts, **options)
    assert [row[0].decode() for row in found["text"]] == [summary.text for summary in live]
    np.testing.assert_allclose(found["score"][0, 0], live[0].score, rtol=1e-4)
    weights = live[0].attention
    np.testing.assert_allclose(found["attention"][0, : len(weights), : weights.shape[1]], weights, atol=1e-5)


def test_a_summary_is_drawn(summary, tmp_path):
    summary.plot(tmp_path / "summary.png")
    summary.to_html(tmp_path / "summary.html")
    assert (tmp_path / "summary.png").stat().st_size > 1000
    assert ">cat</span>" in (tmp_path / "summary.html").read_text(encoding="utf-8")


def test_it_is_measured(summarizer, tmp_path):
    data = write_jsonl(tmp_path / "data.jsonl", [{"document": TEXTS[0], "summary": "The cat sat"}])
    metrics = summarizer.evaluate(data, quiet=True).metrics
    assert set(metrics) == {"rouge_1", "rouge_2", "rouge_l"}


def test_long_texts_and_short_ones_are_read_by_the_rule(summarizer):
    options = {"beam_size": 1, "max_length": 4, "max_words": 2, "sentences": 2}
    long, short, blank = summarizer.summarize([LONG, "A cat", ""], **options)
    assert len(long.lines) == 2
    assert long.passages == sorted(long.passages)
    assert all(end - start <= summarizer.config.max_source_length for start, end in long.passages)
    assert (short.text, blank.text) == ("A cat", "")


def test_every_piece_has_a_name_of_its_own(summarizer, language_model):
    vocabulary = summarizer.vocabulary
    assert len(vocabulary) == language_model.preprocessor.tokenizer.vocabulary_size()
    assert {"cat", "￭T", "￭The", "￭."} <= set(vocabulary.tokens)


@pytest.mark.slow
def test_it_learns_and_what_it_learned_is_saved(tmp_path):
    summarizer = TextSummarizer.from_keras_hub(make_bart(num_layers=1))
    training = replace(summarizer.config.training, epochs=1, batch_size=4, label_smoothing=0.0, learning_rate=0.01)
    summarizer.config = replace(summarizer.config, training=training)
    rows = [{"document": text, "summary": f"The {text.split()[1]} sat"} for text in TEXTS] * 4
    data = write_jsonl(tmp_path / "train.jsonl", rows)
    before = [np.array(weight) for weight in summarizer.model.trainable_variables]
    (history,) = summarizer.fit(data, output=tmp_path / "run", quiet=True)
    assert history.stopped_by == "epochs"
    assert any((np.array(weight) != old).any() for weight, old in zip(summarizer.model.trainable_variables, before))
    with pytest.raises(ValueError, match="saved as it is: `card` and `bits` cannot be set"):
        summarizer.save(tmp_path / "preset", bits=8)
    summarizer.save(tmp_path / "preset")
    loaded = TextSummarizer.from_keras_hub(tmp_path / "preset")
    inputs = {"source": {"token_ids": np.array([[5, 6, 7]])}, "tokens": np.array([[1, 8, 9]])}
    np.testing.assert_allclose(loaded.model(inputs), summarizer.model(inputs), atol=1e-5)


def test_a_summary_must_fit_into_the_cache(summarizer):
    with pytest.raises(ValueError, match="`max_length` must be at most 15"):
        summarizer.summarize(LONG, max_length=16)


def test_what_is_no_model_of_keras_hub_is_refused(language_model):
    with pytest.raises(TypeError, match="must be a `Seq2SeqLM` of KerasHub"):
        TextSummarizer.from_keras_hub(5)
    import keras_hub

    with pytest.raises(ValueError, match="must have its preprocessor"):
        TextSummarizer.from_keras_hub(keras_hub.models.BartSeq2SeqLM(language_model.backbone))
