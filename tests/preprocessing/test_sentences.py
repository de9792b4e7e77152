import pytest
import tensorflow as tf

from attention_apps.preprocessing import text
from attention_apps.preprocessing.sentences import (
    capitalize_first,
    count_words,
    first_passage_lengths,
    join_kept,
    keep_qualifiers,
    keep_whole_numbers,
    model_form,
    piece_starts,
    sentence_starts,
    tokenize_sentence,
)
from attention_apps.preprocessing.text import JOINER, detokenize

SENTENCES = [
    ["One dog ran.", "Another sat!", "Why?"],
    ["Mr. Smith of the U.S. Army left.", "J. R. Cole stayed."],
    ['He said: "Stop it."', "Then he left."],
    ["It cost 3.5 million.", "2021 was bad."],
    ["no end at all"],
    ["The site example. com is down ... for now."],
    ["... and so on.", "Really?!", "(Yes.)", "OK"],
    [],
]


def sentences_of(tokens, starts):
    """The sentences of each text."""
    found = []
    for row, begins in zip(tokens.to_list(), starts.to_list(), strict=True):
        sentences = []
        for token, begin in zip(row, begins, strict=True):
            sentences = [*sentences, [token]] if begin else [*sentences[:-1], [*sentences[-1], token]]
        found.append([line.decode() for line in text.detokenize(sentences).numpy()] if sentences else [])
    return found


def test_sentences_are_found_in_one_text_and_in_many():
    tokens = text.tokenize([" ".join(sentences) for sentences in SENTENCES])
    assert sentences_of(tokens, sentence_starts(tokens)) == SENTENCES
    for sentences in SENTENCES:
        tokens = text.tokenize([" ".join(sentences)])
        assert sentences_of(tokens, sentence_starts(tokens)) == [sentences]


def test_sentences_of_a_compressors_tokens_are_found():
    tokens = tokenize_sentence(['He doesn\'t pay "Inc. Ltd." $3,000. She does.'])
    assert sentences_of(tokens, sentence_starts(tokens)) == [['He doesn\'t pay "Inc. Ltd." $3,000.', "She does."]]


def test_chinese_sentences_are_found():
    tokens = text.tokenize(["这是测试。 我们在。"])
    assert sentences_of(tokens, sentence_starts(tokens)) == [["这是测试。", "我们在。"]]


def test_words_have_a_letter_or_a_digit():
    tokens = tf.ragged.constant([["a", "￭.", "42", "--", "日", "😀", "_"], [], ["½"]])
    assert count_words(tokens).numpy().tolist() == [3, 0, 1]


def test_sentences_beyond_a_length_are_cut():
    tokens = text.tokenize(["One two three four five. Six.", "", "Seven eight nine."])
    pieces = piece_starts(sentence_starts(tokens), 3)
    assert [[int(start) for start in row] for row in pieces.to_list()] == [
        [1, 0, 0, 1, 0, 0, 1, 0],
        [],
        [1, 0, 0, 1],
    ]


@pytest.mark.parametrize(("max_length", "lengths"), [(3, [3, 3, 0]), (6, [4, 6, 0]), (8, [8, 6, 0]), (9, [8, 9, 0])])
def test_the_first_passage_has_the_first_whole_sentences(max_length, lengths):
    tokens = text.tokenize(["One two three. Four five six.", "One two three four five. Six seven.", ""])
    found = first_passage_lengths(sentence_starts(tokens), max_length)
    assert found.numpy().tolist() == lengths


def test_a_graph_gives_the_same():
    texts = tf.constant([" ".join(sentences) for sentences in SENTENCES])

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def graph(texts):
        return sentence_starts(text.tokenize(texts))

    assert graph(texts).to_list() == sentence_starts(text.tokenize(texts)).to_list()
    assert graph(tf.constant([], tf.string)).to_list() == []


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


def with_whole_numbers(typed, *deleted):
    tokens = tokenize_sentence([typed]).to_tensor("")
    keep = tf.constant([[token.decode().replace(JOINER, "") not in deleted for token in tokens.numpy()[0]]])
    return join_kept(tokens, keep_whole_numbers(tokens, keep)).numpy()[0].decode()


@pytest.mark.parametrize(
    ("typed", "deleted", "expected"),
    [
        ("They won 3-2 today", ["-"], "They won 3-2 today"),
        ("They won 3-2 today", ["-", "2"], "They won today"),
        ("They won 3-2 today", ["3"], "They won today"),
        ("From 2026-11-18 on", ["-", "on"], "From 2026-11-18"),
        ("From 2026-11-18 on", ["-", "18"], "From on"),
        ("A 16-year-old boy - 3 of 4", ["of", "-"], "A 16-year-old boy 3 4"),
    ],
)
def test_numbers_with_hyphens_are_kept_or_deleted_as_one(typed, deleted, expected):
    assert with_whole_numbers(typed, *deleted) == expected


@pytest.mark.parametrize(
    ("typed", "deleted", "expected"),
    [
        ("On Monday, a man left.", ["On", "Monday", ","], "A man left."),
        ("on monday, a man left.", ["on", "monday", ","], "a man left."),
        ("Now, iPhone sales rose.", ["Now", ","], "iPhone sales rose."),
        ("Now, 40 people left.", ["Now", ","], "40 people left."),
        ('Now, "we won."', ["Now", ","], '"We won."'),
        ("Heute, über Nacht", ["Heute", ","], "Über Nacht"),
        ("A man left.", ["A", "man", "left", "."], ""),
    ],
)
def test_a_sentence_starts_with_a_capital_if_it_was_typed_with_one(typed, deleted, expected):
    tokens = tokenize_sentence([typed]).to_tensor("")
    keep = tf.constant([[token.decode().replace(JOINER, "") not in deleted for token in tokens.numpy()[0]]])
    assert join_kept(capitalize_first(tokens, keep), keep).numpy()[0].decode() == expected


def test_nothing_kept_is_an_empty_text():
    assert kept("One two") == ""


@pytest.mark.parametrize(
    ("typed", "kept", "expected"),
    [
        ("He did not resign today", "He did resign", "He did not resign"),
        ("He has not yet been charged", "He has been charged", "He has not been charged"),
        ("He didn't leave", "He did leave", "He didn't leave"),
        ("He didn\u2019t leave", "He did leave", "He didn\u2019t leave"),
        ("They found no new evidence", "They found evidence", "They found no evidence"),
        ("A man allegedly stole it", "A man stole it", "A man allegedly stole it"),
        ("A man left, allegedly.", "A man left .", "A man left."),
        ("It lost 40 percent of them", "It lost", "It lost 40 percent"),
        ("It paid $3 million for it", "It paid", "It paid $3 million"),
        ("Prices rose by 5% in May", "Prices rose", "Prices rose by 5%"),
        ("It hired 250 workers", "It hired workers", "It hired 250 workers"),
        ("It hired 2 million workers", "It hired 2 workers", "It hired 2 million workers"),
        ("The man, 45, left in 2010", "The man left", "The man left"),
        ("Not now, he left", "he left", "he left"),
    ],
)
def test_qualifiers_and_quantities_stay_with_their_words(typed, kept, expected):
    tokens = tokenize_sentence([typed]).to_tensor("")
    keep = tf.constant([[token.decode().replace(JOINER, "") in kept.split() for token in tokens.numpy()[0]]])
    kept = keep_qualifiers(tf.stack([tokens, tokens], 1), tf.stack([keep, tf.zeros_like(keep)], 1))
    assert join_kept(tokens, kept[:, 0]).numpy()[0].decode() == expected
    assert not kept[:, 1].numpy().any()
