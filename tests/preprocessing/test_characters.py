import pytest

from attention_apps.preprocessing.characters import detokenize, normalize, tokenize
from attention_apps.preprocessing.vocabulary import Vocabulary


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
    assert normalize(text, **options) == expected
    assert normalize(expected, **options) == expected


def test_letters_go_through_a_vocabulary_and_back():
    text = "TWO B OR"
    vocabulary = Vocabulary.build([tokenize(text)])
    assert " " in vocabulary
    assert detokenize(vocabulary.decode([1, *vocabulary.encode(tokenize(text)), 2, 0])) == text
    assert detokenize([" ", "A", " ", " ", "B"]) == "A B"


def test_an_unknown_case_is_an_error():
    with pytest.raises(ValueError, match="`case` must be one of upper, lower, keep. Received: case='title'"):
        normalize("a", case="title")
