"""Metrics as rewards of self-critical training: one figure for each text, more being better."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from attention_apps.metrics import CiderScorer, bleu, cer, rouge, token_f1, wer

# Texts and the references of each of them.
TextReward = Callable[[Sequence[str], Sequence[Sequence[str]]], np.ndarray]

# Stands at the end of what CIDEr and BLEU see: without it texts learn to break off early.
_LAST_WORD = "endoftext"


def make_reward(metric: str, references: Sequence[Sequence[str]]) -> TextReward:
    """The reward of a metric's name.

    An error rate is rewarded with its negative, for the reference that is nearest; "rouge" is the mean of ROUGE-1, 2
    and L. Where references are blank, as those of noise, any text at all costs 1.

    Args:
        references: those of all training data, which say how rare a phrase is.
    """
    if metric not in _REWARDS:
        raise ValueError(f"`metric` must be one of {', '.join(sorted(_REWARDS))}. Received: metric={metric!r}")
    score = _REWARDS[metric]([wanted for wanted in references if _says_something(wanted)])

    def reward(texts: Sequence[str], references: Sequence[Sequence[str]]) -> np.ndarray:
        figures = -np.array([bool(text.strip()) for text in texts], float)
        scored = [index for index, wanted in enumerate(references) if _says_something(wanted)]
        if scored:
            figures[scored] = score([texts[index] for index in scored], [references[index] for index in scored])
        return figures

    return reward


def _says_something(texts):
    return any(text.strip() for text in texts)


def _cider(references):
    scorer = CiderScorer([_ended(texts) for texts in references])
    return lambda texts, wanted: scorer.score(_ended(texts), [_ended(one) for one in wanted]).items


def _bleu(order, references):
    return lambda texts, wanted: bleu(_ended(texts), [_ended(one) for one in wanted], order).items


def _rouge(kinds, references):
    return lambda texts, wanted: np.mean([rouge(texts, wanted, kind).items for kind in kinds], axis=0)


def _token_f1(references):
    return lambda texts, wanted: token_f1(texts, wanted).items


def _least_errors(error_rate, references):
    def reward(texts, wanted):
        pairs = [(text, reference) for text, one in zip(texts, wanted, strict=True) for reference in one]
        rates = error_rate(*zip(*pairs, strict=True)).items
        firsts = np.cumsum([0, *map(len, wanted)])[:-1]
        return -np.minimum.reduceat(rates, firsts)

    return reward


def _ended(texts):
    return [f"{text} {_LAST_WORD}" for text in texts]


_REWARDS = {
    "cider": _cider,
    **{f"bleu_{order}": partial(_bleu, order) for order in (1, 2, 3, 4)},
    **{f"rouge_{kind}": partial(_rouge, (kind,)) for kind in ("1", "2", "l")},
    "rouge": partial(_rouge, ("1", "2", "l")),
    "token_f1": _token_f1,
    "wer": partial(_least_errors, wer),
    "cer": partial(_least_errors, cer),
}
