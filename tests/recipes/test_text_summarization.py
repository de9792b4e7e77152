"""The recipes of text summarization and sentence compression, on a corpus of a few lines in each layout."""

import gzip
import hashlib
import json

import pytest

from attention_apps import TextSummarizer, Vocabulary
from attention_apps.applications import SummarizerConfig
from attention_apps.preprocessing.word_forms import UNKNOWN_CLASSES
from attention_apps.training import read_config
from tests.applications.summarizers import make_rows, write_jsonl
from tests.recipes.loading import APPS, load, run_recipe


@pytest.fixture(scope="module")
def dataset():
    return load("dataset", "text_summarization")


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_jsonl_is_read_and_broken_lines_are_left_out(dataset, tmp_path, capsys):
    lines = ['{"document": "a b", "summary": "a", "keep": "10", "source": "x"}', '{"document": "a', '{"document": "b"}']
    write(tmp_path / "train.jsonl", "\n".join(lines) + "\n")
    assert list(dataset.read_corpus(tmp_path, "train")) == [{"document": "a b", "summary": "a", "keep": "10"}]
    assert "line 2" in capsys.readouterr().err
    with pytest.raises(FileNotFoundError, match="no validation.jsonl"):
        list(dataset.read_corpus(tmp_path, "validation"))


def test_gzipped_jsonl_is_read(dataset, tmp_path):
    (tmp_path / "train.jsonl.gz").write_bytes(gzip.compress(b'{"document": "a b", "summary": "a"}\n'))
    assert list(dataset.read_corpus(tmp_path, "train")) == [{"document": "a b", "summary": "a"}]


def test_stories_are_read_by_their_lists(dataset, tmp_path):
    name = hashlib.sha1(b"http://example.org/1").hexdigest()
    write(
        tmp_path / "cnn" / "stories" / f"{name}.story", "One.\n\nTwo.\n\n@highlight\n\nFirst\n\n@highlight\n\nSecond\n"
    )
    write(tmp_path / "url_lists" / "all_val.txt", "http://example.org/1\nhttp://example.org/missing\n")
    assert list(dataset.read_corpus(tmp_path, "validation")) == [{"document": "One. Two.", "summary": "First. Second"}]


def test_articles_and_highlights_of_a_table_are_read(dataset, tmp_path):
    write(tmp_path / "train.csv", 'id,article,highlights\n1,"One, two",First\n')
    assert list(dataset.read_corpus(tmp_path, "train")) == [{"document": "One, two", "summary": "First"}]


def test_xsum_is_read(dataset, tmp_path):
    body = "[SN]URL[SN]\nx\n\n[SN]FIRST-SENTENCE[SN]\nA cat sat.\n\n[SN]RESTBODY[SN]\nIt was a cat.\nIt sat.\n"
    write(tmp_path / "bbc-summary-data" / "17.summary", body)
    write(tmp_path / "XSum-TRAINING-DEV-TEST-SPLIT-90-5-5.json", json.dumps({"train": ["17", "18"], "validation": []}))
    pairs = list(dataset.read_corpus(tmp_path, "train"))
    assert pairs == [{"document": "It was a cat. It sat.", "summary": "A cat sat."}]


def test_gigaword_is_read(dataset, tmp_path):
    write(tmp_path / "train.article.txt", "one two\nthree\n")
    write(tmp_path / "train.title.txt", "one\nthree\n")
    pairs = list(dataset.read_corpus(tmp_path, "train"))
    assert pairs == [{"document": "one two", "summary": "one"}, {"document": "three", "summary": "three"}]


def test_an_article_without_its_parts_is_left_out_and_told(dataset, tmp_path, capsys):
    write(tmp_path / "bbc-summary-data" / "17.summary", "[SN]URL[SN]\nx\n\n[SN]FIRST-SENTENCE[SN]\nA cat sat.\n")
    write(tmp_path / "XSum-TRAINING-DEV-TEST-SPLIT-90-5-5.json", json.dumps({"train": ["17"], "validation": []}))
    assert list(dataset.read_corpus(tmp_path, "train")) == []
    assert "17.summary has no RESTBODY" in capsys.readouterr().err


def test_articles_and_titles_of_unequal_number_are_an_error(dataset, tmp_path):
    write(tmp_path / "train.article.txt", "one two\nthree\n")
    write(tmp_path / "train.title.txt", "one\n")
    with pytest.raises(ValueError, match=r"train\.article\.txt and .*train\.title\.txt must have equally many lines"):
        list(dataset.read_corpus(tmp_path, "train"))


def test_an_unknown_layout_is_an_error(dataset, tmp_path):
    with pytest.raises(ValueError, match="none of the layouts known"):
        dataset.read_corpus(tmp_path, "train")
    with pytest.raises(FileNotFoundError, match="no folder"):
        dataset.read_corpus(tmp_path / "missing", "train")


def test_blank_pairs_are_not_written(dataset, tmp_path):
    pairs = [{"document": "a", "summary": "b"}, {"document": " ", "summary": "b"}]
    assert dataset.write_pairs(pairs, tmp_path / "out" / "train.jsonl.gz") == (1, 1)


def test_the_beginning_of_the_validation_split_is_watched(dataset, tmp_path, capsys):
    for split, count in (("train", 3), ("validation", 502)):
        lines = ['{"document": "a b", "summary": "a"}', '{"document": "a b", "summary": " "}']
        write(tmp_path / f"{split}.jsonl", "\n".join([lines[0]] * count + lines[1:]) + "\n")
    dataset.prepare(tmp_path, tmp_path / "run")
    assert "train: 3 pairs, 1 without text left out" in capsys.readouterr().out
    for name, count in (("train", 3), ("validation", 502), ("watched", 500)):
        with gzip.open(tmp_path / "run" / f"{name}.jsonl.gz") as file:
            assert len(file.readlines()) == count


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "kind", "metrics"),
    [
        ("text_summarization", "generate", {"rouge_1", "rouge_2", "rouge_l"}),
        ("sentence_compression", "delete", {"token_f1", "compression_rate", "reference_rate"}),
    ],
)
def test_every_step_of_the_recipe_runs(task, kind, metrics, tmp_path, capsys):
    recipe, corpus, output = APPS / task, tmp_path / "corpus", tmp_path / "run"
    corpus.mkdir()
    for split, count in (("train", 32), ("validation", 8)):
        write_jsonl(corpus / f"{split}.jsonl", make_rows(kind, count))

    def run(step, *arguments):
        run_recipe(task, step, "--output", output, "--quiet", *arguments)
        return capsys.readouterr().out

    assert "train: 32 pairs" in run("prepare", "--data", corpus)
    run("train", "--config", recipe / "tiny.toml", "--set", "training.epochs=1")
    scores = json.loads(run("evaluate", "--set", "decoding.beam_size=2").splitlines()[-1])
    assert set(scores) == {"data", *metrics}
    assert len((output / "validation_written.jsonl").read_text().splitlines()) == 8
    run("export")
    assert (output / "preset" / "SHA256SUMS").is_file()


def test_one_line_makes_a_transformer_of_the_pointer_generator():
    overrides = ["decoder.kind=transformer", "vocabulary_size=100"]
    config = read_config(SummarizerConfig, APPS / "text_summarization" / "config.toml", overrides)
    model = TextSummarizer(config, Vocabulary(UNKNOWN_CLASSES)).model
    assert type(model.encoder).__name__ == "TransformerEncoder"
    assert type(model.decoder.decoder).__name__ == "TransformerDecoder"
