import dataclasses
import html
import re

import numpy as np

from attention_apps.applications import Caption, SpokenWord, Summary, SummaryLine, Transcript, TranscriptPart
from attention_apps.cli.demo_content import caption_answer, message, text_answer, transcript_answer

WEIGHTS = np.array([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]], np.float32)


def make_summary(source=("one", "<i>", "three"), text="<b> ${1+1}"):
    alternatives = [(text, -0.25), ("other & more", -1.5)]
    line = SummaryLine(-0.25, ["<b>", "${1+1}"], alternatives, WEIGHTS, [False, True], (0, 3))
    return Summary([line], list(source))


def make_transcript(text="GO ON"):
    words = [SpokenWord("GO", 0.125, 0.5, 0.75), SpokenWord("ON", 0.5, 1.0, 0.25)] if text else []
    envelope = np.random.default_rng(0).normal(size=(125, 2))
    attention = np.full((len(text), 31), 1 / 31)
    part = TranscriptPart(0.0, 1.25, -2.0, list(text), [(text, -2.0), ("NO", -3.0)], attention, words, 0.5, envelope)
    return Transcript([part])


def frames(page):
    return [html.unescape(one) for one in re.findall(r'<iframe [^>]*srcdoc="([^"]*)"', page)]


def alternatives(page):
    return [
        (html.unescape(text), score)
        for score, text in re.findall(r'class="score">(.*?)</span> <span class="alternative"[^>]*>(.*?)</span>', page)
    ]


def test_a_summary_is_escaped_and_has_alternatives_and_its_own_page_in_a_frame():
    page = text_answer(make_summary())
    assert '<p class="text" dir="auto">&lt;b&gt; ${1+1}</p>' in page
    assert alternatives(page) == [("<b> ${1+1}", "-0.250"), ("other & more", "-1.500")]
    (frame,) = frames(page)
    assert "[[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]]" in frame
    assert "<b>" not in page + frame
    assert "<script" not in page
    assert "were read" not in page


def test_a_text_that_was_not_read_whole_is_said_to_be_long():
    page = text_answer(make_summary(["word"] * 2000))
    assert "3 of its 2,000 words and marks were read" in page


def test_a_caption_shows_the_photo_with_a_mask_for_each_word():
    weights = np.eye(6, dtype=np.float32)[:2].reshape(2, 2, 3)
    shown = [("a <dog>", -1.0), ("a cat", -2.0)]
    page = caption_answer(
        Caption("a <dog>", -1.0, ["a", "<dog>"], shown, weights, pixels=np.zeros((4, 6, 3), np.uint8))
    )
    assert '<p class="text" dir="auto">a &lt;dog&gt;</p>' in page
    assert alternatives(page) == [("a <dog>", "-1.000"), ("a cat", "-2.000")]
    (frame,) = frames(page)
    assert frame.count("data:image/png") == 2
    assert frame.count("data:image/jpeg") == 1
    assert "a cat" not in frame  # the alternatives are told once


def test_a_transcript_shows_the_waveform_and_when_each_word_was_said():
    page = transcript_answer(make_transcript())
    assert "GO ON</p>" in page
    assert '<p class="note">Confidence 50%. 1.2 s of sound.</p>' in page
    assert alternatives(page) == [("GO ON", "-2.000"), ("NO", "-3.000")]
    (frame,) = frames(page)
    assert frame.count("<polygon") == 1
    assert "<td>GO</td><td>0.12</td><td>0.50</td><td>0.75</td>" in frame


def test_where_there_is_no_answer_there_is_a_message():
    assert "Nothing was heard" in transcript_answer(make_transcript(""))
    assert "There is no text here" in text_answer(Summary([], []))


def test_what_the_model_is_not_sure_of_is_said():
    shown = Caption(
        "a dog", -1.0, ["a", "dog"], [("a dog", -1.0)], np.ones((2, 1, 1)), pixels=np.zeros((4, 6, 3), np.uint8)
    )
    assert "Confidence" in caption_answer(shown)
    assert "not sure" not in caption_answer(shown)
    assert "The model is not sure of this." in caption_answer(dataclasses.replace(shown, unsure=True))


def test_a_message_is_escaped_and_has_code_between_backticks():
    assert message("Say `demo <x>` & go") == '<div class="message ">Say <code>demo &lt;x&gt;</code> &amp; go</div>'
    assert 'role="alert"' in message("Oh", is_problem=True)
