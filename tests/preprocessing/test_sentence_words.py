import pytest
import tensorflow as tf

from attention_apps.preprocessing.sentence_words import join_kept, model_form, tokenize_sentence
from attention_apps.preprocessing.text import JOINER, detokenize


def seen(sentence):
    return b" ".join(model_form(tokenize_sentence([sentence])).to_list()[0]).decode()


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("He doesn't pay $3,000.", "he does n't pay $ ## ."),
        ("The team's 2-1 win, at 10:30", "the team 's ## - ## win , at ##"),
        ("An 18-year-old from St. Mirren (U.S.)", "an ## from st. mirren ( u.s. )"),
        ('He said: "No."', "he said : `` no . ''"),
        ("“It isn\u2019t over,” he said.", "`` it is n't over , '' he said ."),
        ("Long-term AT&T deal -- 50%!", "long-term at&t deal -- ## % !"),
        ("Mr. Smith left. She stayed.", "mr. smith left . she stayed ."),
        ("the fans' 'great' O'Neil", "the fans ' ' great ' o'neil"),
        ("a `` quoted '' word .", "a `` quoted '' word ."),
        ("they 're in <unk> 's corp. , of ill. .", "they 're in <unk> 's corp. , of ill. ."),
        ('He left. "No," she said.', "he left . `` no , '' she said ."),
    ],
)
def test_the_model_sees_what_its_corpus_looks_like(typed, expected):
    assert seen(typed) == expected


@pytest.mark.parametrize("sentence", ["canada said ## <unk> 's ``", "st. mirren upset celtic ## - ## ."])
def test_a_corpus_that_looks_like_this_already_stays_as_it_is(sentence):
    assert b" ".join(model_form(tf.constant(sentence.split())).numpy().tolist()).decode() == sentence


@pytest.mark.parametrize(
    "typed", ["He doesn't pay $3,000.", "“It isn\u2019t over,” he said.", "A (b) 'c' \"d\" 2-1, e...", "日本語。", ""]
)
def test_joined_again_the_tokens_are_what_was_typed(typed):
    assert detokenize(tokenize_sentence([typed])).numpy()[0].decode() == typed


def kept(typed, *words):
    tokens = tokenize_sentence([typed]).to_tensor("")
    keep = [token.decode().replace(JOINER, "") in words for token in tokens.numpy()[0]]
    return join_kept(tokens, tf.constant([keep])).numpy()[0].decode()


def test_kept_words_are_spelled_as_typed():
    assert kept("A stranded Dog, aged 7, was rescued.", "A", "Dog", "was", "rescued", ".") == "A Dog was rescued."


def test_a_comma_joins_the_word_before_it():
    assert kept("One big, two", "One", ",", "two") == "One, two"


def test_a_word_whose_quote_is_gone_stands_on_its_own():
    assert kept('They say "Stop it" now', "They", "Stop", "now") == "They Stop now"


def test_nothing_kept_is_an_empty_text():
    assert kept("One two") == ""
