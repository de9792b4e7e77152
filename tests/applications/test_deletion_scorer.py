import pytest
import tensorflow as tf

from attention_apps.applications.deletion_scorer import deletion_scorer
from attention_apps.applications.summarizer_config import SummaryOptions
from attention_apps.models.tag_decoder import DELETE, KEEP
from attention_apps.models.tokens import START

MASK = tf.constant([[True] * 4, [True, True, False, False]])


def scores_along(tags, **options):
    """The scores of deleting and keeping, before each of the tags and after the last."""
    scorer = deletion_scorer(MASK, SummaryOptions(**options))
    state, scores = scorer.state, []
    for tag in [START, *tags]:
        found, state = scorer.call(tf.constant([tag, tag]), state)
        scores.append(found.numpy()[:, [DELETE, KEEP]])
    return scores


def test_a_bias_is_added_to_what_is_kept():
    assert scores_along([], keep_bias=0.5)[0].tolist() == [[0.0, 0.5], [0.0, 0.5]]


def test_no_more_words_are_kept_than_the_most():
    before, after = scores_along([KEEP], max_words=1)
    assert before.tolist() == [[0.0, 0.0]] * 2
    assert (after[:, 1] < -1e8).all()
    assert (after[:, 0] == 0).all()


def test_words_are_kept_while_the_fewest_need_them():
    first, second, third = scores_along([DELETE, KEEP], min_words=2)
    assert first[0].tolist() == [0.0, 0.0]
    assert first[1][0] < -1e8  # both of two words are needed
    assert second[0].tolist() == [0.0, 0.0]
    assert third[0].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("bias", "bound"), [(0.5, 0.5), (-0.5, 0.0)])
def test_the_search_knows_the_most_a_word_can_gain(bias, bound):
    assert deletion_scorer(MASK, SummaryOptions(keep_bias=bias)).upper_bound == bound
