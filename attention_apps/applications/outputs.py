"""What the configurations, codecs and results of all applications share: limits, confidence, and a base class."""

import html
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from attention_apps.checks import require_at_least, require_between, require_fraction
from attention_apps.training.losses import token_losses

Tensors = dict[str, tf.Tensor]

# The limits of a number that is at least 0 and less than 1, such as a dropout rate.
FRACTION = "fraction"
# Keeps logits finite.
_TINY = 1e-6
# The number of letters of a text that the `repr` of its result shows, and the height of a page in a notebook.
_MAX_SHOWN = 60
_NOTEBOOK_HEIGHT = "22em"


class Limited:
    """A configuration whose numbers have limits.

    Attributes:
        limits: the lowest and the highest value, or `FRACTION`, of fields that are named between spaces. Without a
            highest value, any larger number is valid. A field that is `None` is not checked.
    """

    limits: ClassVar[Mapping[str, tuple[float, float | None] | str]] = {}

    def __post_init__(self) -> None:
        if hasattr(super(), "__post_init__"):  # of options that check more than limits
            super().__post_init__()  # type: ignore[misc]
        for names, limits in self.limits.items():
            if isinstance(limits, str):
                require_fraction(self, *names.split())
            elif limits[1] is None:
                require_at_least(self, limits[0], *names.split())
            else:
                require_between(self, limits[0], limits[1], *names.split())


@dataclass(frozen=True)
class ConfidenceConfig(Limited):
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

    limits: ClassVar = {"slope": (0, 100), "offset": (-100, 100), "threshold": (0, 1)}


def token_probabilities(forced: Tensors) -> tf.Tensor:
    """Graph code: return the probability of each token of the best text, `(batch, target)`, 1 at padding."""
    return tf.exp(-token_losses(forced, forced["token_ids"]))


def calibrated(probabilities: tf.Tensor, counts: tf.Tensor, config: ConfidenceConfig) -> Tensors:
    """Graph code: return `confidence` and `unsure` `(batch,)`, given the probabilities of tokens `(batch, items)`.

    The raw confidence is their geometric mean, weighted by `counts`, and 0 if all counts are 0.
    """
    counts = tf.cast(counts, probabilities.dtype)
    total = tf.reduce_sum(counts, axis=1)
    logs = tf.math.log(tf.maximum(probabilities, 1e-9)) * counts
    raw = tf.where(total > 0, tf.exp(tf.reduce_sum(logs, axis=1) / tf.maximum(total, 1)), 0.0)
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


def answer_fields(outputs: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return what the results of all tasks have: `score`, `tokens`, `alternatives`, `attention` and `confidence`.

    Sub-words may be single bytes of a character.
    """
    written = np.flatnonzero(outputs["tokens"] != b"")
    scores = outputs["score"].tolist()
    return {
        "score": scores[0],
        "tokens": [token.decode(errors="replace") for token in outputs["tokens"][written]],
        "alternatives": [(text.decode(), score) for text, score in zip(outputs["text"], scores, strict=True)],
        "attention": outputs["attention"][written],
        "confidence": float(outputs["confidence"]),
    }


class Result:
    """A text with `score`, `confidence`, `unsure` and `error`, `plot(path=None)` and `to_html(path=None)`.

    Each task has a subclass, a dataclass made with `repr=False`, with a default for each field.
    """

    @property
    def text(self: Any) -> str:
        """The text of the best hypothesis. Empty if there is none."""
        return self.alternatives[0][0] if self.alternatives else ""

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
