# ruff: noqa: RUF001 (typographic marks are what is tested)
import random
import time

import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from attention_apps.metrics import caption_words
from attention_apps.preprocessing.text import (
    JOINER,
    detokenize,
    join_captions,
    normalize,
    normalize_transcript,
    split_captions,
    tokenize,
)
from attention_apps.preprocessing.vocabulary import Vocabulary

ASCII = "".join(map(chr, range(32, 127)))
COMMON = ASCII + "“”‘’–—…«»£€¥₹°±×½§©®™•éüñßøАЯشع한글漢字かなカ。、！？🙂👍🏽❤️👨‍👩‍👧\u200c\u0301\n\t\u00a0\u3000"


def tokens_of(text):
    """The tokens of one text, with `_` for the joiner mark."""
    return [token.decode().replace(JOINER, "_") for token in tokenize([text]).to_list()[0]]


def round_trip(texts):
    return [text.decode() for text in detokenize(tokenize(texts)).numpy()]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Plain words", "Plain words"),
        ("Saint-Germain's COVID-19", "Saint _-_ Germain _'s COVID-19"),
        ("don't, Trump's O'Brien's rock'n'roll", "don't _, Trump _'s O'Brien _'s rock'n'roll"),
        ('She said: "Go." \'bubble\' ("no")', 'She said _: "_ Go _. _" \'_ bubble _\' (_ "_ no _" _)'),
        ("“It’s” ‘so’ «là»", "“_ It _’s _” ‘_ so _’ «_ là _»"),
        ("$1.5 £20m 3,000 50% #1 @me", "$_ 1.5 £_ 20m 3,000 50 _% #_ 1 @_ me"),
        ("1,2,3 10:30pm 2-1 2020-21 v1.5", "1,2,3 10:30pm 2-1 2020-21 v1.5"),
        ("U.S. and U.S.A., S.H.I.E.L.D, Mr. X.", "U.S. and U.S.A. _, S.H.I.E.L.D _, Mr _. X _."),
        ("Packers' 22-year-old and/or Q&A", "Packers _' 22 _-_ year _-_ old and _/_ or Q _&_ A"),
        ("wait... no -- yes - maybe +b", "wait _... no -- yes - maybe +_ b"),
        ("<b>Hi</b> &amp;", "<_ b _>_ Hi _< _/_ b _> &_ amp _;"),
        ("中文abc かな 한국어", "中 _文 _abc か _な 한국어"),
        ("مرحبا، שלום!", "مرحبا _، שלום _!"),
        ("👍🏽❤️ 👨‍👩‍👧 ok🙂", "👍🏽 _❤️ 👨‍👩‍👧 ok _🙂"),
        ("?!", "? _!"),
        ("", ""),
        (" \n\t\u3000", ""),
    ],
)
def test_tokens(text, tokens):
    assert tokens_of(text) == tokens.split()
    assert round_trip([text]) == [" ".join(text.split())]


def test_a_word_is_the_same_token_wherever_it_stands():
    for text in ("word", "(word)", '"word"', "'word',", "word's", "sword/word.", "pre-word", "$word", "word..."):
        assert "word" in tokens_of(text)


def test_special_tokens_cannot_come_out_of_a_text():
    assert tokens_of("<pad> <end>") == ["<_", "pad", "_>", "<_", "end", "_>"]


@settings(deadline=None, max_examples=60)
@example(["1,2,3,4'a'b'c-1-2", "''\"\"''s 's’s", "a.b.c.d e.f. .g.h"])
@given(st.lists(st.text(COMMON, max_size=40), max_size=8))
def test_nothing_but_the_kind_of_white_space_is_lost(texts):
    assert round_trip(texts) == [" ".join(text.split()) for text in texts]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.text(max_size=20), max_size=8))
def test_any_unicode_comes_back_as_it_was_normalized(texts):
    assert round_trip(texts) == [text.decode() for text in normalize(texts).numpy()]


@settings(deadline=None, max_examples=40)
@given(st.lists(st.binary(max_size=20), max_size=4))
def test_any_bytes_give_valid_text(texts):
    for text in round_trip(texts):
        assert text == text.strip()


def test_normalizing():
    texts = ["a\x00b\x07c\x7f\x9d", "\ufeffso\u00adft\u200b\u202ertl\u2066", " a \r\n\x0b b\u2028c ", JOINER, "\ud800"]
    expected = ["abc", "softrtl", "a b c", "\u25a0", "\ufffd" * 3]
    assert [text.decode() for text in normalize(texts).numpy()] == expected
    assert normalize([b"caf\xc3\xa9 \xff!"]).numpy()[0].decode() == "café \ufffd!"


def test_detokenizing_what_a_model_may_write():
    tokens = [["￭,", "a", "(￭"], ["a", "", "￭￭", "b", ""], ["￭'s", "￭'s"], [], ["x￭", "￭y"]]
    expected = [b", a (", b"ab", b"'s's", b"", b"xy"]
    assert detokenize(tokens).numpy().tolist() == expected
    padded = tf.ragged.constant(tokens, tf.string).to_tensor("")
    assert detokenize(padded).numpy().tolist() == expected
    assert detokenize(tf.stack([padded, padded], axis=1)).shape == (5, 2)


def test_a_graph_gives_what_eager_calls_give():
    texts = ["He said: \"Saint-Germain's U.S. fans don't pay £20m.\"", "", "中文 \ud800"]
    graph = tf.function(tokenize, input_signature=[tf.TensorSpec([None], tf.string)])
    encoded = tf.constant([text.encode("utf-8", "surrogatepass") for text in texts])
    assert graph(encoded).to_list() == tokenize(texts).to_list() == tokenize(encoded).to_list()


def test_no_texts_give_no_tokens():
    assert tokenize([]).to_list() == []
    assert detokenize(tokenize([])).shape == (0,)


def test_a_text_of_a_hundred_thousand_words():
    text = "Someone's word, " * 50_000
    assert tokenize([text]).row_lengths().numpy().tolist() == [200_000]


@pytest.mark.slow
def test_a_hundred_thousand_short_texts_take_less_than_a_minute():
    generator = random.Random(0)
    words = ["The", "company's", "£20m", "plan", "(in", "part)", "isn't", "well-known,", '"says"', "U.S.", "COVID-19."]
    texts = [" ".join(generator.choices(words, k=30)) for _ in range(4096)]
    tokenize(texts[:10])
    start = time.process_time()
    tokenize(texts)
    assert time.process_time() - start < 60 * len(texts) / 100_000


def words_of(caption):
    return [word.decode() for word in split_captions([caption]).to_list()[0]]


@pytest.mark.parametrize(
    ("caption", "words"),
    [
        ("A dog, running on the GRASS .", "a dog running on the grass"),
        ("A man's T-shirt (red) doesn't fit!", "a man 's t-shirt red does n't fit"),
        ("A dog 's toy is n't here", "a dog 's toy is n't here"),
        ("'one' 'two' - three--four -five- \"six\"", "one two three four five six"),
        ("It\u2019s 5 o'clock; they're off & away", "it 's 5 o'clock they 're off away"),
        ("ÉCOLE Ångström 草 🙂", "école ångström 草"),
        ("", ""),
        ("...", ""),
        ("' - '", ""),
        ("\x00a\n\tb\u3000c", "a b c"),
    ],
)
def test_words_of_captions(caption, words):
    assert words_of(caption) == words.split()


def test_contractions_in_captions_are_joined_again():
    tokens = [["a", "man", "'s", "hat", "does", "n't", "fit"], ["they", "'re", "", ""], [], ["'s"]]
    expected = [b"a man's hat doesn't fit", b"they're", b"", b"'s"]
    assert join_captions(tokens).numpy().tolist() == expected
    assert join_captions(tf.ragged.constant(tokens, tf.string).to_tensor("")).numpy().tolist() == expected


caption_parts = ["A", "man", "dog 's", "dog's", "t-shirt", "Is n't", "isn't", "they're", "o'clock", ",", ".", '"', "3"]
plain_captions = st.lists(st.sampled_from(caption_parts), max_size=8).map(" ".join)


@settings(deadline=None, max_examples=50)
@given(plain_captions)
def test_words_of_captions_are_those_that_the_metrics_count(caption):
    assert words_of(caption) == caption_words(caption)


@settings(deadline=None, max_examples=50)
@given(plain_captions)
def test_a_caption_keeps_its_words_when_it_is_joined(caption):
    words = split_captions([caption])
    assert split_captions(join_captions(words)).to_list() == words.to_list()


@settings(deadline=None, max_examples=50)
@given(st.text(max_size=20))
def test_any_caption_gives_words_without_spaces(text):
    assert all(word and " " not in word for word in words_of(text))


def test_a_graph_splits_captions_as_eager_calls_do():
    captions = ["A man's dog.", ""]
    graph = tf.function(lambda texts: split_captions(texts), input_signature=[tf.TensorSpec([None], tf.string)])
    assert graph(tf.constant(captions)).to_list() == split_captions(captions).to_list()


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("  enter  Fifty\tfour ", {}, "ENTER FIFTY FOUR"),
        ("Don\u2019t stop, 'Tom' \u2013 or re-start!", {}, "DON'T STOP TOM OR RE START"),
        ("Don't stop, Tom.", {"case": "lower", "punctuation": True}, "don't stop, tom."),
        ("\u201cYes\u201d", {"case": "keep", "punctuation": True}, '"Yes"'),
        ("e\u0301te\u0301", {}, "\u00c9T\u00c9"),
        ("...", {}, ""),
    ],
)
def test_transcripts_are_made_alike(text, options, expected):
    assert normalize_transcript(text, **options) == expected
    assert normalize_transcript(expected, **options) == expected


def test_letters_go_through_a_vocabulary_and_back():
    text = "TWO B OR"
    vocabulary = Vocabulary.build([list(text)])
    assert " " in vocabulary
    assert "".join(vocabulary.decode([1, *vocabulary.encode(list(text)), 2, 0])) == text


def test_an_unknown_case_is_an_error():
    with pytest.raises(ValueError, match="`case` must be one of upper, lower, keep. Received: case='title'"):
        normalize_transcript("a", case="title")
