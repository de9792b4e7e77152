"""From the outputs of the pipeline to a result: what the codecs and results of all applications share."""

import html
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from attention_apps.checks import require_between
from attention_apps.training.losses import token_losses

Tensors = dict[str, tf.Tensor]

# Keeps logits finite.
_TINY = 1e-6
# The number of letters of a text that the `repr` of its result shows, and the height of a page in a notebook.
_MAX_SHOWN = 60
_NOTEBOOK_HEIGHT = "22em"


def token_probabilities(forced: Tensors) -> tf.Tensor:
    """Graph code: return the probability of each token of the best text, `(batch, target)`, 1 at padding."""
    return tf.exp(-token_losses(forced, forced["token_ids"]))


def geometric_mean(probabilities: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
    """Graph code: return the geometric mean of `(batch, items)`, weighted by `counts`. 0 if all counts are 0."""
    counts = tf.cast(counts, probabilities.dtype)
    total = tf.reduce_sum(counts, axis=1)
    logs = tf.math.log(tf.maximum(probabilities, 1e-9)) * counts
    return tf.where(total > 0, tf.exp(tf.reduce_sum(logs, axis=1) / tf.maximum(total, 1)), 0.0)


@dataclass(frozen=True)
class ConfidenceConfig:
    """The calibration of a preset's confidence.

    The raw confidence p of an answer is a geometric mean of probabilities. The calibrated confidence is
    `sigmoid(slope · logit(p) + offset)`. With a slope of 1 and an offset of 0 it equals p.

    Args:
        slope, offset: fitted on data that was not used for training.
        threshold: an answer with a lower confidence is `unsure`. With 0, no answer is.
    """

    slope: float = 1.0
    offset: float = 0.0
    threshold: float = 0.0

    def __post_init__(self) -> None:
        require_between(self, 0, 100, "slope")
        require_between(self, -100, 100, "offset")
        require_between(self, 0, 1, "threshold")


def calibrated(raw: tf.Tensor, config: ConfidenceConfig) -> Tensors:
    """Graph code: return `confidence` and `unsure` `(batch,)`, given raw confidences."""
    clipped = tf.clip_by_value(raw, _TINY, 1 - _TINY)
    logit = tf.math.log(clipped) - tf.math.log1p(-clipped)
    is_identity = config.slope == 1 and config.offset == 0
    confidence = raw if is_identity else tf.sigmoid(config.slope * logit + config.offset)
    return {"confidence": confidence, "unsure": confidence < config.threshold}


def clear_rows(outputs: Tensors, rows: tf.Tensor) -> Tensors:
    """Graph code: clear some rows of the outputs: empty strings, zeros, and scores of -infinity."""
    cleared = {}
    for name, tensor in outputs.items():
        nothing = "" if tensor.dtype == tf.string else tf.zeros([], tensor.dtype)
        shape = tf.concat([tf.shape(rows), tf.ones([tf.rank(tensor) - 1], tf.int32)], axis=0)
        cleared[name] = tf.where(tf.reshape(rows, shape), float("-inf") if name == "score" else nothing, tensor)
    return cleared


def ranked(outputs: dict[str, np.ndarray]) -> list[tuple[str, float]]:
    """Return text and score of each hypothesis, best first."""
    return [(text.decode(), score) for text, score in zip(outputs["text"], outputs["score"].tolist(), strict=True)]


def best_tokens(outputs: dict[str, np.ndarray]) -> tuple[list[str], np.ndarray]:
    """Return the tokens of the best text and the attention of each. Sub-words may be single bytes of a character."""
    written = np.flatnonzero(outputs["tokens"] != b"")
    return [token.decode(errors="replace") for token in outputs["tokens"][written]], outputs["attention"][written]


class Result:
    """A text with `score`, `confidence`, `unsure` and `error`, `plot(path=None)` and `to_html(path=None)`.

    Each task has a subclass, a dataclass made with `repr=False`.
    """

    def __repr__(self: Any) -> str:
        name = type(self).__name__
        text = self.text if self.error is None else self.error
        shown = repr(text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…")
        if self.error is not None:
            return f"{name}(error={shown})"
        unsure = ", unsure" if self.unsure else ""
        return f"{name}({shown}, score={self.score:.3g}, confidence={self.confidence:.2f}{unsure})"

    def _repr_html_(self: Any) -> str | None:
        """Return the HTML that a notebook shows: the page in its own frame, so that their styles do not mix."""
        if self.error is not None:
            return None
        page = html.escape(self.to_html())
        return f'<iframe srcdoc="{page}" style="width: 100%; height: {_NOTEBOOK_HEIGHT}; border: 0"></iframe>'
