"""Fits a model's confidence on data that it was not trained on.

The raw confidence p of an answer is the geometric mean of the probabilities of its tokens. It becomes the probability
that the answer is right: sigmoid(slope · logit(p) + offset) (Platt 1999).
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

_TINY = 1e-6
_BINS = 10


@dataclasses.dataclass(frozen=True)
class Calibration:
    """How the confidence of a task's models is fitted.

    Attributes:
        data: name of the manifest; the model was not trained on it.
        metric: an answer is right if this metric of the single item is at least `right`, or, where less is better, at
            most.
        unsure: the share of the manifest's items that may be unsure.
    """

    data: str
    metric: str
    right: float
    unsure: float


def fit(raw: Sequence[float], right: Sequence[bool], steps: int = 50) -> tuple[float, float]:
    """Return slope and offset by logistic regression (Newton's method), with a little regularization."""
    features = np.stack([logit(raw), np.ones(len(raw))], axis=1)
    labels = np.asarray(right, float)
    weights = np.zeros(2)  # from elsewhere Newton's method may diverge
    for _ in range(steps):
        predicted = sigmoid(features @ weights)
        gradient = features.T @ (predicted - labels) + 1e-3 * weights
        curvature = (features * (predicted * (1 - predicted))[:, np.newaxis]).T @ features + 1e-3 * np.eye(2)
        weights = weights - np.linalg.solve(curvature, gradient)
    return max(float(weights[0]), 0.0), float(weights[1])


def apply(raw: Sequence[float], slope: float, offset: float) -> np.ndarray:
    """Return calibrated confidences."""
    return sigmoid(slope * logit(raw) + offset)


def expected_calibration_error(confidence: Sequence[float], right: Sequence[bool]) -> float:
    """The mean distance between confidence and accuracy over ten bins of confidence (Guo et al. 2017, equation 3)."""
    return sum(share * abs(accuracy - mean) for share, mean, accuracy in reliability(confidence, right))


def reliability(confidence: Sequence[float], right: Sequence[bool]) -> list[tuple[float, float, float]]:
    """Return for each bin that is not empty its share of the items, their mean confidence and accuracy."""
    confidence, right = np.asarray(confidence), np.asarray(right, float)
    bins = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
    groups = [bins == number for number in range(_BINS)]
    return [(float(g.mean()), float(confidence[g].mean()), float(right[g].mean())) for g in groups if g.any()]


def draw_reliability(confidence: Sequence[float], right: Sequence[bool], path: Path) -> None:
    """Draw accuracy against confidence."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4, 4), layout="constrained")
    axis = figure.add_subplot()
    axis.plot([0, 1], [0, 1], color="lightgray")
    shares, means, accuracies = zip(*reliability(confidence, right), strict=True)
    axis.scatter(means, accuracies, s=[30 + 600 * share for share in shares])
    axis.set(xlabel="confidence", ylabel="share of right answers", xlim=(0, 1), ylim=(0, 1))
    figure.savefig(path)


def logit(values: Sequence[float]) -> np.ndarray:
    clipped = np.clip(np.asarray(values, float), _TINY, 1 - _TINY)
    return np.log(clipped) - np.log1p(-clipped)


def sigmoid(values: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-values))
