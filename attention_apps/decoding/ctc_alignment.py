"""Which frames CTC spends on each letter of a text."""

import numpy as np

BLANK = 0
IMPOSSIBLE = -1e30


def align_ctc(log_probs: np.ndarray, token_ids: np.ndarray) -> np.ndarray | None:
    """The likeliest way to spread a text over frames, by the Viterbi algorithm.

    Args:
        log_probs: of each token in each frame, `(source, vocabulary)`; id 0 is the blank.
        token_ids: the letters, `(target,)`, without start and end.

    Returns:
        The first frame of each letter and the one after its last, `(target, 2)`; `None` where there are too few frames.

    Example:

    >>> log_probs = np.log([[0.1, 0.8, 0.1], [0.6, 0.3, 0.1], [0.1, 0.2, 0.7]])
    >>> align_ctc(log_probs, np.array([1, 2])).tolist()
    [[0, 1], [2, 3]]

    Reference:
        Graves et al. 2006, "Connectionist Temporal Classification", section 4.1, with the maximum in place of the sum.
    """
    if not len(token_ids):
        return np.zeros((0, 2), np.int64)
    states = np.full(2 * len(token_ids) + 1, BLANK)  # blanks before, between and after the letters
    states[1::2] = token_ids
    path = _best_path(np.asarray(log_probs, np.float64)[:, states], _skippable(states))
    if path is None:
        return None
    frames = np.arange(len(path))
    of_letters = (frames[path == state] for state in range(1, len(states), 2))
    return np.array([(of_letter.min(), of_letter.max() + 1) for of_letter in of_letters])


def _skippable(states):
    """Whether a state can be reached from two before it: a letter that differs from the letter before."""
    skippable = np.zeros(len(states), bool)
    skippable[3::2] = states[3::2] != states[1:-2:2]
    return skippable


def _best_path(scores, skippable):
    """The state of each frame, or `None`; `scores` is `(source, states)`."""
    length, size = scores.shape
    total = np.full(size, IMPOSSIBLE)
    total[:2] = scores[0, :2]
    steps = np.zeros((length, size), np.int8)
    for frame in range(1, length):
        before = np.full((3, size), IMPOSSIBLE)
        before[0] = total
        before[1, 1:] = total[:-1]
        before[2, 2:] = np.where(skippable[2:], total[:-2], IMPOSSIBLE)
        steps[frame] = before.argmax(axis=0)
        total = np.maximum(before.max(axis=0) + scores[frame], IMPOSSIBLE)
    state = size - 1 if total[-1] >= total[-2] else size - 2
    if total[state] <= IMPOSSIBLE / 2:
        return None
    path = np.empty(length, np.int64)
    for frame in range(length - 1, -1, -1):
        path[frame] = state
        state -= int(steps[frame, state])
    return path
