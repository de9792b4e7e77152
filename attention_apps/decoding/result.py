"""The result of beam search and sampling."""

import math
from typing import NamedTuple

from keras import ops

from attention_apps.decoding.state import Tensor


class DecodingResult(NamedTuple):
    """The hypotheses of each item of a batch, as tensors. A named tuple, so that a compiled function can return it.

    Beam search returns the best hypothesis first, and finished ones before unfinished ones. Samples are in the order
    in which they were drawn. If there are fewer hypotheses than requested, the rest have length 0 and score -inf.

    Attributes:
        token_ids: int32 `(batch, num_best, max_length)`. Excludes the start token, includes the end token, and is
            padded with 0.
        scores: float32 `(batch, num_best)`. The ranking is by these; see `DecodingOptions`.
        log_probs: float32 `(batch, num_best)`. The sum of the tokens' log-probabilities under the model's
            `softmax(logits / temperature)`, without penalties, bans and scorers.
        lengths: int32 `(batch, num_best)`. Includes the end token.
        finished: bool `(batch, num_best)`. False if the maximum length was reached before the end token.
    """

    token_ids: Tensor
    scores: Tensor
    log_probs: Tensor
    lengths: Tensor
    finished: Tensor


def make_result(
    token_ids: Tensor, scores: Tensor, log_probs: Tensor, lengths: Tensor, finished: Tensor
) -> DecodingResult:
    """Build a result in which hypotheses of score -inf, which do not exist, are empty."""
    exists = scores > -math.inf
    return DecodingResult(
        token_ids=ops.where(ops.expand_dims(exists, -1), token_ids, 0),
        scores=scores,
        log_probs=ops.where(exists, log_probs, -math.inf),
        lengths=ops.where(exists, lengths, 0),
        finished=ops.logical_and(finished, exists),
    )
