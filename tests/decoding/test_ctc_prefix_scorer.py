import itertools
import math

import keras
import numpy as np
import pytest
from keras import ops

from attention_apps.decoding.beam_search import beam_search
from attention_apps.decoding.ctc_prefix_scorer import ctc_prefix_scorer
from attention_apps.decoding.options import DecodingOptions

START, END = 1, 2
S, V = 5, 6
LENGTHS = (5, 3, 1)


def random_logits(batch=3, frames=S, vocabulary=V, seed=0):
    return np.random.default_rng(seed).normal(0, 1.5, (batch, frames, vocabulary)).astype("float32")


def make_mask(lengths=LENGTHS, frames=S):
    return np.arange(frames) < np.array(lengths)[:, None]


def text_probabilities(logits):
    """The probability of every text, by enumeration of all paths."""
    log_probs = logits.astype("float64")
    log_probs -= np.log(np.exp(log_probs).sum(axis=-1, keepdims=True))
    found = {}
    for path in itertools.product(range(logits.shape[1]), repeat=len(logits)):
        text = tuple(token for token, _ in itertools.groupby(path) if token)
        found[text] = found.get(text, 0.0) + math.exp(sum(log_probs[range(len(path)), path]))
    return found


def log(probability):
    return math.log(probability) if probability > 0 else -math.inf


def expected_scores(found, prefix):
    """log p(prefix + token, …) - log p(prefix, …) of every token."""

    def of_prefix(prefix):
        return sum(probability for text, probability in found.items() if text[: len(prefix)] == prefix)

    scores = [log(of_prefix((*prefix, token))) for token in range(V)]
    scores[END], scores[0], scores[START] = log(found.get(prefix, 0.0)), -math.inf, -math.inf
    return np.array(scores) - log(of_prefix(prefix))


def assert_scores(scores, expected):
    scores, possible = ops.convert_to_numpy(scores), np.isfinite(expected)
    np.testing.assert_allclose(scores[possible], expected[possible], atol=2e-4)
    assert (scores[~possible] < -1e6).all()


PREFIXES = [(), (3,), (4, 3), (3, 3), (5, 4, 5), (3, 3, 3)]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_scores_equal_the_sum_over_all_paths(prefix):
    logits = random_logits()
    scorer = ctc_prefix_scorer(logits, make_mask(), 1.0)
    state = scorer.state
    for token in (START, *prefix):
        scores, state = scorer.call(ops.full((len(LENGTHS),), token, "int32"), state)
    for row, length in enumerate(LENGTHS):
        found = text_probabilities(logits[row, :length])
        if any(text[: len(prefix)] == prefix for text in found):
            assert_scores(scores[row], expected_scores(found, prefix))


def test_the_scores_of_all_tokens_are_a_distribution():
    logits = random_logits(2, 40, 9)
    logits[..., [START, END]] = -50.0  # no letters, so that the head never learns to write them
    scorer = ctc_prefix_scorer(logits, make_mask((40, 17), 40), 1.0)
    state, token = scorer.state, ops.full((2,), START, "int32")
    generator = np.random.default_rng(0)
    for _ in range(8):
        scores, state = scorer.call(token, state)
        np.testing.assert_allclose(ops.logsumexp(scores, axis=1), [0, 0], atol=1e-4)
        token = ops.convert_to_tensor(generator.integers(3, 9, 2), "int32")


def test_padding_changes_nothing():
    logits, rows = random_logits(), len(LENGTHS)
    longer = np.pad(logits, ((0, 0), (0, 4), (0, 0)), constant_values=7.0)
    outcomes = []
    for given, mask in ((logits, make_mask()), (longer, make_mask(frames=S + 4))):
        scorer = ctc_prefix_scorer(given, mask, 1.0)
        state = scorer.state
        for token in (START, 4, 5):
            scores, state = scorer.call(ops.full((rows,), token, "int32"), state)
        outcomes.append(ops.convert_to_numpy(scores))
    np.testing.assert_allclose(*outcomes, atol=1e-4)


def test_what_depends_on_the_source_only_is_handed_back_as_it_is():
    scorer = ctc_prefix_scorer(random_logits(), make_mask(), 0.5)
    _, state = scorer.call(ops.full((len(LENGTHS),), START, "int32"), scorer.state)
    assert state["log_probs"] is scorer.state["log_probs"]
    assert (scorer.weight, scorer.upper_bound) == (0.5, 0.0)


@pytest.mark.parametrize("frames", [1, 2, 3, 7, 8, 9, 33])
def test_every_number_of_frames(frames):
    """The whole text's score is its CTC probability, here by the recursion written as a loop."""
    logits, text = random_logits(1, frames), (3, 3, 5)[: (frames + 1) // 2]
    scorer = ctc_prefix_scorer(logits, np.ones((1, frames), bool), 1.0)
    state, total = scorer.state, 0.0
    for token, following in itertools.pairwise((START, *text, END)):
        scores, state = scorer.call(ops.full((1,), token, "int32"), state)
        total += float(scores[0, following])
    assert total == pytest.approx(log_probability(logits[0], text), rel=1e-4)


def log_probability(logits, text):
    probs = np.exp(logits.astype("float64"))
    probs /= probs.sum(axis=-1, keepdims=True)
    states = [0, *itertools.chain.from_iterable((token, 0) for token in text)]
    forward = np.zeros(len(states))
    forward[:2] = probs[0, states[:2]]
    for frame in probs[1:]:
        new = np.zeros_like(forward)
        for i, token in enumerate(states):
            new[i] = forward[i] + (forward[i - 1] if i else 0)
            if i > 1 and token and token != states[i - 2]:
                new[i] += forward[i - 2]
            new[i] *= frame[token]
        forward = new
    return math.log(forward[-2:].sum())


@pytest.mark.parametrize("beam_size", [1, 60])
def test_a_search_by_ctc_alone_finds_the_likeliest_text(beam_size):
    logits = 2 * random_logits(seed=4)
    banned = (0, START)
    rows = len(LENGTHS)

    def no_opinion(token, state):
        return ops.zeros((ops.shape(token)[0], V)), state

    def search(logits, mask):
        scorer = ctc_prefix_scorer(logits, mask, 1.0)
        options = DecodingOptions(beam_size=beam_size, max_length=S + 1, banned_tokens=banned)
        return beam_search(no_opinion, {"nothing": np.zeros((rows, 1), "float32")}, options, [scorer])

    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        search = tf.function(
            search, input_signature=[tf.TensorSpec((rows, None, V)), tf.TensorSpec((rows, None), bool)]
        )
    result = search(logits, make_mask())
    for row, length in enumerate(LENGTHS):
        found = {
            text: p
            for text, p in text_probabilities(logits[row, :length]).items()
            if START not in text and END not in text
        }
        tokens = ops.convert_to_numpy(result.token_ids)[row, 0]
        text = tuple(int(token) for token in tokens if token > END)
        written = len(text) + 1
        assert float(result.scores[row, 0]) + written * math.log(V) == pytest.approx(log(found[text]), abs=1e-3)
        if beam_size > 1:
            # The model's own log-probability is the same for every token, so shorter texts have an advantage.
            best = max(found, key=lambda text: log(found[text]) - (len(text) + 1) * math.log(V))
            assert text == best
