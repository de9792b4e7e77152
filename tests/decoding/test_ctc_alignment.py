import itertools

import numpy as np

from attention_apps.decoding.ctc_alignment import align_ctc


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
        assert align_ctc(log_probs, np.array(text)).tolist() == spans_of(best)


def test_a_text_without_letters_has_no_spans():
    assert align_ctc(np.zeros((4, 3)), np.zeros(0, int)).shape == (0, 2)


def test_too_few_frames_are_no_alignment():
    log_probs = np.log(np.full((3, 3), 1 / 3))
    assert align_ctc(log_probs, np.array([1, 1])) is not None
    assert align_ctc(log_probs[:2], np.array([1, 1])) is None
    assert align_ctc(log_probs[:1], np.array([1, 2])) is None


def test_many_letters_are_aligned():
    text = np.tile([1, 2], 150)
    log_probs = np.log(np.eye(3)[text] + 1e-3)
    assert align_ctc(log_probs, text).tolist() == [[frame, frame + 1] for frame in range(300)]
