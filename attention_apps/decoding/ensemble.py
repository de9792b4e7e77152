"""Several models that write one sequence together."""

from collections.abc import Mapping, Sequence

from keras import ops

from attention_apps.decoding.state import State, Step, Tensor

AVERAGES = ("log", "probability")


def ensemble_step(steps: Sequence[Step], weights: Sequence[float] | None = None, average: str = "log") -> Step:
    """One step out of several that share a vocabulary; its state is that of `ensemble_state`.

    Args:
        steps: each `step(token, state) -> (logits, state)`.
        weights: of the models, normalised to sum 1; equal by default.
        average: `"log"` for the mean of the log-probabilities, which a token must please all models to win;
            `"probability"` for the mean of the probabilities, where it is enough to please one.
    """
    weights = _normalize(weights, len(steps))
    if average not in AVERAGES:
        raise ValueError(f"`average` must be one of {', '.join(AVERAGES)}. Received: average={average!r}")

    def step(token: Tensor, state: State) -> tuple[Tensor, State]:
        outputs = [member(token, state[_name(index)]) for index, member in enumerate(steps)]
        log_probs = ops.stack([ops.log_softmax(ops.cast(logits, "float32"), axis=-1) for logits, _ in outputs])
        factors = ops.reshape(ops.convert_to_tensor(weights, "float32"), (-1, 1, 1))
        if average == "log":
            mixed = ops.sum(factors * log_probs, axis=0)
        else:
            mixed = ops.logsumexp(ops.log(factors) + log_probs, axis=0)
        return mixed, ensemble_state([new_state for _, new_state in outputs])

    return step


def ensemble_state(states: Sequence[State]) -> State:
    """The states of several models as one; its `"coverage"` is the mean of theirs, if all keep one."""
    joined = {_name(index): state for index, state in enumerate(states)}
    if all(isinstance(state, Mapping) and "coverage" in state for state in states):
        joined["coverage"] = ops.mean(ops.stack([state["coverage"] for state in states]), axis=0)
    return joined


def _name(index: int) -> str:
    return f"model_{index}"


def _normalize(weights: Sequence[float] | None, number: int) -> list[float]:
    if number < 1:
        raise ValueError("`steps` must hold at least one step. Received: steps=[]")
    weights = [1.0] * number if weights is None else [float(weight) for weight in weights]
    if len(weights) != number or min(weights) <= 0:
        raise ValueError(f"`weights` must be {number} positive numbers, one for each step. Received: weights={weights}")
    return [weight / sum(weights) for weight in weights]
