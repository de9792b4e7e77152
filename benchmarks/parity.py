"""How far a contender is from this library, and how far it may be before nothing is timed."""

import numpy as np

# Largest difference of a logit or score; norm of the difference of all gradients, relative to theirs.
TOLERANCE = 1e-4
# The same of each weight's gradient. Where a ReLU's input is zero but for rounding, gradients differ by more.
TOLERANCE_OF_ONE = 1e-2
# Losses after some steps, relative: the updates are the same but for where Adam adds its epsilon.
TOLERANCE_OF_LOSSES = 1e-3

Arrays = dict[str, np.ndarray]


def compare_outputs(our_logits: np.ndarray, logits: np.ndarray, ours: Arrays, gradients: Arrays) -> dict[str, float]:
    """The largest difference of a logit, and those of the gradients, all together and of the worst weight."""
    if ours.keys() != gradients.keys():
        raise ValueError(f"Gradients of different weights: {sorted(ours.keys() ^ gradients.keys())}")
    whole = np.sqrt(sum(np.square(gradient).sum() for gradient in ours.values()))
    differences = {name: np.linalg.norm(ours[name] - gradients[name]) for name in ours}
    # Gradients that vanish next to the others are nothing but rounding.
    norms = {name: max(np.linalg.norm(ours[name]), 1e-6 * whole) for name in ours}
    return {
        "logits": float(np.abs(our_logits - logits).max()),
        "gradients": float(np.sqrt(sum(np.square(difference) for difference in differences.values())) / whole),
        "worst_gradient": float(max(differences[name] / norms[name] for name in ours)),
    }


def compare_losses(ours: list[float], losses: list[float]) -> float:
    return float(np.abs(np.array(losses) / np.array(ours) - 1).max())


def compare_searches(reference: Arrays, token_ids: np.ndarray, scores: np.ndarray) -> dict[str, float]:
    """The share of items with other best tokens, and the largest difference of a score."""
    return {
        "token_ids": float((reference["token_ids"] != token_ids).any(axis=1).mean()),
        "scores": float(np.abs(reference["scores"] - scores).max()),
    }


def check(name: str, differences: dict[str, float]) -> None:
    """Stops the benchmark where a contender does not compute what this library computes."""
    tolerances = {"worst_gradient": TOLERANCE_OF_ONE, "losses": TOLERANCE_OF_LOSSES, "token_ids": 1e-9}
    for kind, difference in differences.items():
        tolerance = tolerances.get(kind, TOLERANCE)
        if not difference < tolerance:
            raise SystemExit(f"{name}: {kind} differ by {difference:.1e}, more than {tolerance:.0e}: nothing was timed")
