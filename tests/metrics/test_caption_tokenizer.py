import pytest

from attention_apps.metrics import caption_words, tokenize_captions


# The words are those that Stanford's PTBTokenizer and coco-caption's list of punctuation gave.
@pytest.mark.parametrize(
    ("caption", "words"),
    [
        ("A man's T-shirt doesn't fit; he can't go!", "a man 's t-shirt does n't fit he ca n't go"),
        ("He cannot, won't: I'm, we've, they'll, she'd", "he can not wo n't i 'm we 've they 'll she 'd"),
        ("\"Hello\" said the cat... it's 5 o'clock -- 10:30", "hello said the cat it 's 5 o'clock 10:30"),
        ("\u201cquoted\u201d it\u2019s \u2013 dash \u2014 em \u2026", "quoted it 's dash em"),
        ("dogs' toys and/or cats & mice, 50% for $5.00", "dogs toys and/or cats & mice 50 % for $ 5.00"),
        ("the U.S. flag at 3 a.m. by Mr. Smith", "the u.s. flag at 3 a.m. by mr. smith"),
        (
            "black-and-white two - tone (really) [so]",
            "black-and-white two tone -lrb- really -rrb- -lsb- so -rsb-",
        ),
        ("A dog 's toy .", "a dog 's toy"),
        ("I'm gonna go, rock 'n' roll", "i 'm gon na go rock 'n' roll"),
        ("你好 日本 émigré", "你好 日本 émigré"),
        ("Wow!! Really?!", "wow !! really ?!"),
    ],
)
def test_words_are_those_of_coco_caption(caption, words):
    assert caption_words(caption) == words.split()


@pytest.mark.parametrize("caption", ["", "  \n", ".", "...", "?!.,;"[2:], "\" ' `"])
def test_nothing_is_left_of_punctuation(caption):
    assert caption_words(caption) == []


def test_captions_are_joined_by_single_spaces():
    assert tokenize_captions(["A  dog,\nrunning.", ""]) == ["a dog running", ""]
