import pytest
import tensorflow as tf

from attention_apps.applications.compression.config import CompressionDecodingOptions
from attention_apps.applications.compression.keep_limit import keep_limit
from attention_apps.constants import START
from attention_apps.models.tag_decoder import DELETE, KEEP

MASK = tf.constant([[True] * 4, [True, True, False, False]])


def scores_along(tags, **options):
    """The scores of deleting and keeping, before each of the tags and after the last."""
    scorer = keep_limit(MASK, CompressionDecodingOptions(**options))
    state, scores = scorer.state, []
    for tag in [START, *tags]:
        found, state = scorer.call(tf.constant([tag, tag]), state)
        scores.append(found.numpy()[:, [DELETE, KEEP]])
    return scores


def test_the_bias_is_added_to_keeping():
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
    assert keep_limit(MASK, CompressionDecodingOptions(keep_bias=bias)).upper_bound == bound
