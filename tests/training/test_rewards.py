"""Rewards: figures of texts, by the metric's name."""

import numpy as np
import pytest

from attention_apps.metrics import rouge, token_f1
from attention_apps.training.rewards import make_reward

REFERENCES = [["a dog runs on the grass", "a brown dog is running"], ["two men ride a wave"], ["a child plays"]]
NAMES = ("cider", "bleu_1", "bleu_4", "rouge_1", "rouge_2", "rouge_l", "rouge", "token_f1", "wer", "cer")


@pytest.mark.parametrize("name", NAMES)
def test_more_is_better_and_each_text_is_rewarded_on_its_own(name):
    reward = make_reward(name, REFERENCES)
    texts = ["a brown dog is running", "two men swim", "a child plays"]
    figures = reward(texts, REFERENCES)
    assert figures.shape == (3,)
    assert figures[1] < min(figures[0], figures[2])
    alone = [reward([text], [references])[0] for text, references in zip(texts, REFERENCES, strict=True)]
    np.testing.assert_allclose(figures, alone)
    assert reward(["zebra"], REFERENCES[:1])[0] < figures[0]


def test_error_rates_count_against_a_text_from_the_nearest_of_its_references():
    reward = make_reward("wer", REFERENCES)
    figures = reward(["a brown dog is sitting", "two men"], REFERENCES[:2])
    assert figures.tolist() == pytest.approx([-1 / 5, -3 / 5])


def test_rouge_is_the_mean_of_three_and_f1_is_what_the_metric_says():
    texts = ["a dog on grass", "two men", "a child sings"]
    mean = np.mean([rouge(texts, REFERENCES, kind).items for kind in ("1", "2", "l")], axis=0)
    np.testing.assert_allclose(make_reward("rouge", REFERENCES)(texts, REFERENCES), mean)
    np.testing.assert_allclose(
        make_reward("token_f1", REFERENCES)(texts, REFERENCES), token_f1(texts, REFERENCES).items
    )


@pytest.mark.parametrize("name", ["cider", "bleu_4"])
def test_a_text_that_breaks_off_is_worth_less_than_its_words(name):
    reference = ["a dog runs on the grass in the sun"]
    reward = make_reward(name, [reference, *REFERENCES])
    whole, broken = reward([reference[0], "a dog runs on the grass in the"], [reference, reference])
    assert whole > 1.1 * broken


@pytest.mark.parametrize("name", ["wer", "cider"])
def test_nothing_is_right_where_nothing_was_said(name):
    reward = make_reward(name, [*REFERENCES, [""]])
    figures = reward(["", "a", "a child plays"], [[""], [""], REFERENCES[2]])
    assert figures.tolist()[:2] == [0, -1]
    assert figures[2] == make_reward(name, REFERENCES)(["a child plays"], REFERENCES[2:])[0]


def test_an_unknown_name_is_told_the_known_ones():
    with pytest.raises(ValueError, match=r"`metric` must be one of bleu_1, .*wer\. Received: metric='meteo'"):
        make_reward("meteo", REFERENCES)
