import itertools
import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from attention_apps.decoding.beam_search import beam_search
from attention_apps.decoding.ctc import align_ctc, ctc_losses, ctc_prefix_scorer
from attention_apps.decoding.options import DecodingOptions

S, V = 5, 6  # letters 3 to 5


def random_logits(batch=3, frames=S, vocabulary=V, seed=0):
    return np.random.default_rng(seed).normal(0, 1.5, (batch, frames, vocabulary)).astype("float32")


def log_softmax(logits):
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def collapse(path):
    return tuple(token for token, _ in itertools.groupby(path) if token)


def loss_by_enumeration(logits, text):
    log_probs, frames = log_softmax(logits.astype("float64")), range(len(logits))
    paths = (path for path in itertools.product(range(V), repeat=len(logits)) if collapse(path) == text)
    return -np.log(sum(np.exp(sum(log_probs[t, path[t]] for t in frames)) for path in paths))


def test_losses_equal_the_sum_over_all_paths():
    logits, lengths = random_logits(4), [5, 4, 5, 3]
    texts = [(3, 4, 4), (5, 3), (), (4,)]
    tokens = np.zeros((4, 6), "int32")
    for row, text in zip(tokens, texts, strict=True):
        row[: len(text) + 2] = (1, *text, 2)
    mask = np.arange(S) < np.array(lengths)[:, None]
    noise = np.where(mask[..., None], logits, 100 * random_logits(4, seed=1))  # what padding holds means nothing
    losses, fits = ctc_losses(noise, mask, tokens)
    expected = [loss_by_enumeration(logits[i, : lengths[i]], texts[i]) for i in range(4)]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    assert fits.numpy().all()
    without_ends = np.where(tokens > 2, tokens, 0)[:, 1:]
    np.testing.assert_allclose(ctc_losses(noise, mask, without_ends)[0], expected, rtol=1e-5)


def test_a_text_that_cannot_fit_is_skipped_and_told():
    tokens = np.array([[1, 3, 3, 3, 2, 0], [1, 3, 3, 2, 0, 0], [1, 4, 5, 3, 4, 2], [1, 2, 0, 0, 0, 0]])
    mask = np.arange(S) < np.array([4, 3, 3, 0])[:, None]
    logits = tf.constant(random_logits(4))
    with tf.GradientTape() as tape:
        tape.watch(logits)
        losses, fits = ctc_losses(logits, mask, tokens)
    gradients = tape.gradient(losses, logits).numpy()
    np.testing.assert_array_equal(fits, [False, True, False, True])
    assert losses[1] > 0
    assert losses[0] == losses[2] == 0
    assert losses[3] == 0  # no frames and no letters
    assert np.isfinite(gradients).all()
    assert gradients[1, :3].any()
    assert not gradients[[0, 2, 3]].any()
    assert not gradients[1, 3:].any()


@pytest.mark.parametrize(
    ("tokens", "needed"), [([1, 3, 3, 3, 2, 0], 5), ([1, 3, 3, 2, 0, 0], 3), ([1, 4, 5, 3, 4, 2], 4)]
)
def test_a_text_fits_from_a_frame_per_letter_and_a_blank_between_equal_letters_on(tokens, needed):
    mask = np.arange(S) < np.array([needed - 1, needed])[:, None]
    _, fits = ctc_losses(tf.constant(random_logits(2)), mask, np.array([tokens, tokens]))
    np.testing.assert_array_equal(fits, [False, True])


def test_gradients_are_those_of_finite_differences():
    logits, tokens, mask = random_logits(1), np.array([[1, 3, 4, 2]]), np.ones((1, S), bool)
    variable = tf.Variable(logits)
    with tf.GradientTape() as tape:
        loss = ctc_losses(variable, mask, tokens)[0]
    gradient = tape.gradient(loss, variable).numpy()
    for frame, token in ((0, 0), (2, 3), (4, 4), (1, 1)):
        step = np.zeros_like(logits)
        step[0, frame, token] = 1e-3
        change = loss_by_enumeration((logits + step)[0], (3, 4)) - loss_by_enumeration((logits - step)[0], (3, 4))
        assert gradient[0, frame, token] == pytest.approx(change / 2e-3, abs=1e-3)


def test_half_precision_logits_are_summed_in_float32():
    losses, _ = ctc_losses(tf.cast(random_logits(2), tf.float16), np.ones((2, S), bool), np.array([[3, 4], [5, 0]]))
    assert losses.dtype == tf.float32


def test_one_trace_serves_every_size():
    signature = [
        tf.TensorSpec((None, None, V)),
        tf.TensorSpec((None, None), tf.bool),
        tf.TensorSpec((None, None), tf.int32),
    ]
    traced = tf.function(lambda *inputs: ctc_losses(*inputs)[0], input_signature=signature)
    for batch in (1, 3):
        tokens = np.tile(np.array([[1, 3, 4, 2]], "int32"), (batch, 1))
        mask = np.ones((batch, S), bool)
        np.testing.assert_allclose(
            traced(random_logits(batch), mask, tokens), ctc_losses(random_logits(batch), mask, tokens)[0], rtol=1e-6
        )


START, END = 1, 2
LENGTHS = (5, 3, 1)


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


align = tf.function(align_ctc, autograph=False, reduce_retracing=True)
B, FRAMES, T, TOKENS = 40, 17, 7, 6


def align_one(log_probs, text):
    """The spans of one text, or `None` if it does not fit."""
    text = np.array(text, np.int32)
    lengths = np.array([len(log_probs)], np.int32), np.array([len(text)], np.int32)
    spans, is_aligned = align(log_probs[np.newaxis], lengths[0], text[np.newaxis], lengths[1])
    return spans[0].numpy().tolist() if is_aligned[0] else None


def spans_of(path):
    spans, start = [], 0
    for token, group in itertools.groupby(path):
        end = start + len(list(group))
        spans += [[start, end]] if token else []
        start = end
    return spans


def test_it_is_the_best_of_all_ways_to_spread_a_text():
    random = np.random.default_rng(0)
    for text in ([1], [1, 2], [2, 2], [1, 2, 1], [1, 1, 2]):
        log_probs = np.log(random.dirichlet(np.ones(3), size=6))
        paths = [path for path in itertools.product(range(3), repeat=6) if collapse(path) == tuple(text)]
        best = max(paths, key=lambda path: sum(log_probs[frame, token] for frame, token in enumerate(path)))
        assert align_one(log_probs, text) == spans_of(best)


def test_a_text_without_tokens_has_no_spans():
    assert align_one(np.zeros((4, 3)), []) == []


def test_a_text_that_needs_more_frames_is_not_aligned():
    log_probs = np.log(np.full((3, 3), 1 / 3))
    assert align_one(log_probs, [1, 1]) == [[0, 1], [2, 3]]
    assert align_one(log_probs[:2], [1, 1]) is None
    assert align_one(log_probs[:1], [1, 2]) is None


def test_a_text_with_a_token_of_probability_0_is_not_aligned():
    log_probs = np.full((4, 3), -1.0)
    log_probs[:, 2] = -np.inf
    assert align_one(log_probs, [1, 2]) is None
    assert align_one(log_probs, [1]) is not None


def test_long_texts_are_aligned():
    text = np.tile([1, 2], 150)
    log_probs = np.log(np.eye(3)[text] + 1e-3)
    assert align_one(log_probs, text) == [[frame, frame + 1] for frame in range(300)]


def make_batch(seed):
    random = np.random.default_rng(seed)
    log_probs = np.log(random.dirichlet(np.full(TOKENS, 0.3), (B, FRAMES)) + 1e-9).astype(np.float32)
    token_ids = random.integers(1, TOKENS, (B, T)).astype(np.int32)
    token_ids[:, 1::3] = token_ids[:, ::3][:, : token_ids[:, 1::3].shape[1]]  # doubled tokens
    num_frames, num_tokens = random.integers(1, FRAMES + 1, B), random.integers(0, T + 1, B)
    token_ids[np.arange(T) >= num_tokens[:, np.newaxis]] = 0
    return log_probs, num_frames.astype(np.int32), token_ids, num_tokens.astype(np.int32)


def test_each_item_of_a_batch_is_aligned_as_alone():
    log_probs, num_frames, token_ids, num_tokens = make_batch(0)
    spans, is_aligned = (array.numpy() for array in align(log_probs, num_frames, token_ids, num_tokens))
    for row in range(B):
        alone = align_one(log_probs[row, : num_frames[row]], token_ids[row, : num_tokens[row]])
        assert is_aligned[row] == (alone is not None)
        if alone is not None:
            assert spans[row, : num_tokens[row]].tolist() == alone
    assert 5 < is_aligned.sum() < 35


def test_frames_after_the_end_do_not_count():
    log_probs, num_frames, token_ids, num_tokens = make_batch(9)
    other = log_probs.copy()
    other[np.arange(FRAMES) >= num_frames[:, np.newaxis]] = -3.0
    arguments = num_frames, token_ids, num_tokens
    for one, two in zip(align(log_probs, *arguments), align(other, *arguments)):
        np.testing.assert_array_equal(one, two)
