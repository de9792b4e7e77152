from pathlib import Path

import pytest

from attention_apps.applications.deletion_examples import DeletionExamples
from attention_apps.models.tag_decoder import DELETE, KEEP
from attention_apps.models.tokens import END, START
from attention_apps.preprocessing.sentence_words import look
from attention_apps.preprocessing.word_forms import fold_vocabulary
from attention_apps.training.manifest import Row


def row(**values):
    return Row(values, Path("data.jsonl"), 1)


KEPT = row(document="a big dog 's tail .", summary="a dog .", keep="101001")
TYPED = row(document="The big Dog's tail, it seems, wags.", summary="the dog's tail wags.")


def make_examples(*rows):
    corpus = DeletionExamples.make_corpus(rows)
    return DeletionExamples(rows, corpus, fold_vocabulary(corpus.make_vocabulary(100), look))


def test_a_tag_for_each_word_between_spaces():
    example = make_examples(KEPT)[0]
    assert example["tokens"].tolist() == [START, KEEP, DELETE, KEEP, DELETE, DELETE, KEEP, END]
    assert example["source"]["token_ids"].shape == (6,)


def test_without_keep_the_words_of_the_summary_are_looked_for():
    examples = make_examples(TYPED, KEPT)
    words = [word.decode() for word in examples.source_tokens([0]).numpy()[0]]
    kept = [word for word, tag in zip(words, examples[0]["tokens"][1:-1], strict=True) if tag == KEEP]
    assert kept == ["The", "Dog", "￭'s", "tail", "wags", "￭."]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (row(document="a b", summary="a", keep="1"), "`keep` must be a text of 2 times 0 or 1"),
        (row(document="a b", summary="a", keep="12"), "`keep` must be a text of 2 times 0 or 1"),
        (row(document="a b", summary="a", keep=[1, 0]), "`keep` must be a text of 2 times 0 or 1"),
        (row(document="One two.", summary="two one"), "`summary` must be `document` with some of its words left out"),
    ],
)
def test_what_cannot_be_learned_from_is_said(bad, message):
    assert message in DeletionExamples.problem_with(bad)


@pytest.mark.parametrize("good", [KEPT, TYPED])
def test_good_rows_have_no_problem(good):
    assert DeletionExamples.problem_with(good) is None


def test_references_names_and_lengths_are_those_of_the_rows():
    examples = make_examples(KEPT, TYPED)
    assert examples.references(0) == ["a dog ."]
    assert examples.name(0) == KEPT["document"]
    assert examples.lengths[0] == 6
    assert len(examples) == 2
