import itertools

import numpy as np
import tensorflow as tf

from attention_apps.decoding.ctc_alignment import align_ctc

align = tf.function(align_ctc, autograph=False, reduce_retracing=True)
B, S, T, V = 40, 17, 7, 6


def align_one(log_probs, text):
    """The spans of one text, or `None` if it does not fit."""
    text = np.array(text, np.int32)
    lengths = np.array([len(log_probs)], np.int32), np.array([len(text)], np.int32)
    spans, is_aligned = align(log_probs[np.newaxis], lengths[0], text[np.newaxis], lengths[1])
    return spans[0].numpy().tolist() if is_aligned[0] else None


def collapse(path):
    return [token for token, _ in itertools.groupby(path) if token != 0]


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
        paths = [path for path in itertools.product(range(3), repeat=6) if collapse(path) == text]
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
    log_probs = np.log(random.dirichlet(np.full(V, 0.3), (B, S)) + 1e-9).astype(np.float32)
    token_ids = random.integers(1, V, (B, T)).astype(np.int32)
    token_ids[:, 1::3] = token_ids[:, ::3][:, : token_ids[:, 1::3].shape[1]]  # doubled tokens
    num_frames, num_tokens = random.integers(1, S + 1, B), random.integers(0, T + 1, B)
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
    other[np.arange(S) >= num_frames[:, np.newaxis]] = -3.0
    arguments = num_frames, token_ids, num_tokens
    for one, two in zip(align(log_probs, *arguments), align(other, *arguments)):
        np.testing.assert_array_equal(one, two)
