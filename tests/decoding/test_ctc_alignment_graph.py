"""The alignment of a batch in the graph is that of each item outside of it."""

import numpy as np
import tensorflow as tf

from attention_apps.decoding.ctc_alignment import align_ctc
from attention_apps.decoding.ctc_alignment_graph import align_ctc_in_graph

align = tf.function(align_ctc_in_graph, autograph=False, reduce_retracing=True)
B, S, T, V = 40, 17, 7, 6


def make_batch(seed):
    random = np.random.default_rng(seed)
    log_probs = np.log(random.dirichlet(np.full(V, 0.3), (B, S)) + 1e-9).astype(np.float32)
    token_ids = random.integers(1, V, (B, T)).astype(np.int32)
    token_ids[:, 1::3] = token_ids[:, ::3][:, : token_ids[:, 1::3].shape[1]]  # letters that are doubled
    frames, letters = random.integers(1, S + 1, B), random.integers(0, T + 1, B)
    token_ids[np.arange(T) >= letters[:, np.newaxis]] = 0
    return log_probs, frames.astype(np.int32), token_ids, letters.astype(np.int32)


def test_each_item_is_aligned_as_alone():
    fits = []
    for seed in range(4):
        log_probs, frames, token_ids, letters = make_batch(seed)
        spans, is_aligned = (array.numpy() for array in align(log_probs, frames, token_ids, letters))
        for row in range(B):
            expected = align_ctc(log_probs[row, : frames[row]], token_ids[row, : letters[row]])
            fits.append(expected is not None)
            assert is_aligned[row] == fits[-1]
            if expected is not None:
                np.testing.assert_array_equal(spans[row, : letters[row]], expected)
    assert 20 < sum(fits) < 140


def test_frames_after_the_end_do_not_count():
    log_probs, frames, token_ids, letters = make_batch(9)
    other = log_probs.copy()
    other[np.arange(S) >= frames[:, np.newaxis]] = -3.0
    for one, two in zip(align(log_probs, frames, token_ids, letters), align(other, frames, token_ids, letters)):
        np.testing.assert_array_equal(one, two)
