"""Metrics as rewards of self-critical training: one number for each text, higher is better."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from attention_apps.checks import require
from attention_apps.metrics import CiderScorer, bleu, cer, rouge, token_f1, wer

# Takes texts and the references of each text.
TextReward = Callable[[Sequence[str], Sequence[Sequence[str]]], np.ndarray]

# Appended to the texts for CIDEr and BLEU. Without it the model learns to stop too early.
_LAST_WORD = "endoftext"


def make_reward(metric: str, references: Sequence[Sequence[str]]) -> TextReward:
    """Return the reward function of a metric.

    Error rates are negated and measured against the closest reference. "rouge" is the mean of ROUGE-1, 2 and L. If all
    references are blank, as for noise, an empty text gets 0 and any other text -1.

    Args:
        references: the references of all training data, from which CIDEr computes how rare a phrase is.
    """
    require(metric in _REWARDS, "metric", f"one of {', '.join(sorted(_REWARDS))}", metric)
    score = _REWARDS[metric]([wanted for wanted in references if _has_text(wanted)])

    def reward(texts: Sequence[str], references: Sequence[Sequence[str]]) -> np.ndarray:
        scores = -np.array([bool(text.strip()) for text in texts], float)
        scored = [index for index, wanted in enumerate(references) if _has_text(wanted)]
        if scored:
            scores[scored] = score([texts[index] for index in scored], [references[index] for index in scored])
        return scores

    return reward


def _has_text(texts):
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


_REWARDS: dict[str, Callable[..., Any]] = {
    "cider": _cider,
    **{f"bleu_{order}": partial(_bleu, order) for order in (1, 2, 3, 4)},
    **{f"rouge_{kind}": partial(_rouge, (kind,)) for kind in ("1", "2", "l")},
    "rouge": partial(_rouge, ("1", "2", "l")),
    "token_f1": _token_f1,
    "wer": partial(_least_errors, wer),
    "cer": partial(_least_errors, cer),
}
