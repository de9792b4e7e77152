from dataclasses import replace

import pytest

from attention_apps import SentenceCompressor, load
from tests.applications.summarizers import LONG_TEXT, TEXT, make_compressor, make_rows, write_jsonl


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compressor")
    data = write_jsonl(folder / "train.jsonl", make_rows("delete"))
    compressor = make_compressor()
    compressor.fit(data, data, output=folder / "run", quiet=True)
    return compressor, folder


@pytest.fixture(scope="module")
def compressor(trained):
    return trained[0]


def words(text):
    return set(text.replace(".", "").replace(",", "").split())


def test_it_learns_its_task(trained):
    compressor, folder = trained
    metrics = compressor.evaluate(folder / "train.jsonl", quiet=True).metrics
    assert list(metrics) == ["token_f1", "compression_rate", "reference_rate"]
    assert metrics["token_f1"].score > 0.6


def test_evaluate_scores_what_compress_writes(compressor, tmp_path):
    documents = [LONG_TEXT, TEXT]
    data = write_jsonl(tmp_path / "data.jsonl", [{"document": text, "summary": text} for text in documents])
    config = replace(compressor.config, max_source_length=99)  # a row may have as many words
    compressor = compressor.with_config(config)
    assert compressor.evaluate(data, quiet=True).texts == [one.text for one in compressor.compress(documents)]


def test_a_saved_compressor_keeps_the_same_words(trained):
    compressor, folder = trained
    compressor.save(folder / "model")
    loaded = load(folder / "model")
    assert isinstance(loaded, SentenceCompressor)
    first, second = compressor.compress(TEXT), loaded.compress(TEXT)
    assert (first.text, first.kept) == (second.text, second.kept)
    assert first.score == pytest.approx(second.score, abs=1e-4)


@pytest.mark.slow
def test_it_can_be_trained_on_the_metric_itself(trained, tmp_path):
    _, folder = trained
    changes = ["training.epochs=1", "training.self_critical.epochs=1", "training.self_critical.samples=2"]
    histories = make_compressor(overrides=changes).fit(folder / "train.jsonl", output=tmp_path / "run", quiet=True)
    assert len(histories) == 2


@pytest.mark.slow
def test_fine_tuning_adds_new_words(trained, tmp_path):
    compressor, folder = trained
    compressor.save(folder / "before")
    tuned = SentenceCompressor.from_preset(folder / "before")
    tuned = tuned.with_config(make_compressor(overrides=["vocabulary_size=60", "training.epochs=1"]).config)
    data = write_jsonl(tmp_path / "new.jsonl", make_rows("delete"))
    data.write_text(data.read_text().replace("alice", "gloria"))
    tuned.fit(data, quiet=True)
    assert tuned.vocabulary.tokens[: len(compressor.vocabulary)] == compressor.vocabulary.tokens
    assert "gloria" in tuned.vocabulary.tokens


def test_a_compression_says_how_it_came_about(compressor):
    compression = compressor.compress(TEXT)
    assert compression.text
    assert compression.score == pytest.approx(compression.alternatives[0][1])
    assert 0 < compression.confidence <= 1
    assert all(compression.copied)
    assert compression.was_read_whole
    assert sum(compression.kept) == len(compression.tokens)
    kept = [token for token, is_kept in zip(compression.source_tokens, compression.kept, strict=True) if is_kept]
    assert [token.lower() for token in kept] == [token.lower() for token in compression.tokens]
    assert compression.attention.shape == (len(compression.tokens), len(compression.source_tokens))
    assert set(compression.attention.sum(axis=1)) == {1}


def test_words_are_spelled_as_typed(compressor):
    text = "Yesterday, ALICE likes McQwert in the Old town."
    assert words(compressor.compress(text).text) <= words(text)


def test_every_sentence_is_shortened(compressor):
    compression = compressor.compress(LONG_TEXT)
    assert len(compression.lines) == 6
    assert "\n" not in compression.text


@pytest.mark.parametrize("sentences", [1, 2, 3])
def test_a_line_for_each_sentence_asked_for(compressor, sentences):
    compression = compressor.compress(LONG_TEXT, sentences=sentences, min_words=1)
    assert len(compression.text.split("\n")) == len(compression.lines) == sentences
    assert compression.passages == sorted(compression.passages)
    assert compression.passages[0][0] == 0


def test_a_list_is_answered_in_its_order(compressor):
    texts = [TEXT, "", "alice sees bob in the old town.", "Too short"]
    compressions = compressor.compress(texts)
    assert [compression.source for compression in compressions] == texts
    assert [compression.text for compression in compressions] == [compressor.compress(text).text for text in texts]


def test_no_more_words_than_asked_for(compressor):
    assert len(compressor.compress(TEXT, max_words=2, sentences=1).tokens) <= 2


def test_no_fewer_words_than_asked_for(compressor):
    assert len(compressor.compress(TEXT, min_words=9, sentences=1).tokens) >= 9


def test_a_bias_keeps_more_words(compressor):
    few, many = (compressor.compress(TEXT, keep_bias=bias) for bias in (-30.0, 30.0))
    assert few.tokens == []
    assert many.text == TEXT


@pytest.mark.parametrize("text", ["", " \n", "Too short", "'" * 200_000])
def test_a_text_of_fewer_than_four_words_stays_as_it_is(compressor, text):
    compression = compressor.compress(text)
    assert compression.text == text.strip()
    assert all(compression.kept)


def test_what_is_not_a_text_is_an_error(compressor):
    with pytest.raises(TypeError, match="must be a string or bytes. Received: int"):
        compressor.compress(5)
    first, second = compressor.compress([5, TEXT])
    assert (first.text, first.error) == ("", "A text must be a string or bytes. Received: int")
    assert second.error is None
