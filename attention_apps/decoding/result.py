"""What a search found."""

from typing import Any, NamedTuple


class DecodingResult(NamedTuple):
    """Hypotheses of each item of a batch, as tensors; a named tuple, so that a compiled function can return it.

    Beam search puts the best first, finished ones before unfinished ones; samples stand in the order they were
    drawn. Where there are fewer hypotheses than were asked for, the rest has length 0 and a score of -inf.

    Attributes:
        token_ids: int32 `(batch, num_best, max_length)`, without the start token, with the end token, then 0.
        scores: float32 `(batch, num_best)`, what the ranking goes by; see `DecodingOptions`.
        log_probs: float32 `(batch, num_best)`, the sum of the tokens' log-probabilities under the model's
            `softmax(logits / temperature)`: no penalty, ban or scorer is in it.
        lengths: int32 `(batch, num_best)`, the end token included.
        finished: bool `(batch, num_best)`, false where the maximum length came before the end token.
    """

    token_ids: Any
    scores: Any
    log_probs: Any
    lengths: Any
    finished: Any
