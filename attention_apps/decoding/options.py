"""The options of beam search and sampling, and their result."""

import dataclasses
import math
from typing import Literal, NamedTuple, get_args

from keras import ops

from attention_apps.checks import require, require_at_least
from attention_apps.constants import END, START
from attention_apps.decoding.scorers import Tensor

# No task needs more. A preset that asked for more could exhaust the memory.
MAX_BEAM_SIZE, MAX_LENGTH = 1000, 10_000

LengthPenaltyKind = Literal["gnmt", "average"]


@dataclasses.dataclass(frozen=True)
class DecodingOptions:
    """Options of `beam_search` and `sample`. Lengths count the end token but not the start token.

    A hypothesis is ranked by its score: `sum / penalty(length) + coverage_penalty · Σ_s log(min(coverage_s, 1))`.
    The sum runs over its tokens. Each token adds its log-probability under `softmax(logits / temperature)`, multiplied
    by the repetition penalty if the hypothesis already contains the token, plus the weighted scores of the scorers.
    Banning a token does not change the scores of the others.

    Args:
        beam_size: number of live hypotheses, at most 1,000. 1 is greedy search.
        max_length: maximum length of a hypothesis, at most 10,000.
        min_length: minimum length. The end token is banned before it.
        num_best: number of hypotheses to return per item, at most `beam_size`.
        length_penalty: α. 0 ranks by plain sums; larger values favor longer hypotheses.
        length_penalty_kind: `"gnmt"` for `((5 + length) / 6)^α`, `"average"` for `length^α`.
        coverage_penalty: β of GNMT. Needs `state["coverage"]`, the summed attention weights, `(batch, source)`.
            Source positions with a coverage of exactly 0 count as padding.
        temperature: divides the logits.
        repetition_penalty: multiplies the log-probability of tokens that the hypothesis already contains. Values
            above 1 make repetitions less likely, as in CTRL.
        no_repeat_ngram_size: no n-gram of this size occurs twice. 0 turns this off.
        forced_prefix: token ids that every hypothesis starts with. They count in lengths and scores, and may be
            banned tokens. For a different prefix per item, use the argument `prefix` of the search.
        banned_tokens: token ids that are never generated.
        start_token: input of the first step. It is not part of the output.
        end_token: ends a hypothesis. It cannot be 0, which is padding.

    Reference:
        Wu et al., Google's Neural Machine Translation System (2016), equation 14, for both penalties;
        Keskar et al., CTRL (2019), section 4.1.
    """

    beam_size: int = 5
    max_length: int = 20
    min_length: int = 1
    num_best: int = 1
    length_penalty: float = 0.0
    length_penalty_kind: LengthPenaltyKind = "gnmt"
    coverage_penalty: float = 0.0
    temperature: float = 1.0
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    forced_prefix: tuple[int, ...] = ()
    banned_tokens: tuple[int, ...] = ()
    start_token: int = START
    end_token: int = END

    def __post_init__(self) -> None:
        for name in ("forced_prefix", "banned_tokens"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        require_at_least(self, 1, "beam_size", "max_length")
        self._check("beam_size", f"at most {MAX_BEAM_SIZE}", self.beam_size <= MAX_BEAM_SIZE)
        self._check("max_length", f"at most {MAX_LENGTH}", self.max_length <= MAX_LENGTH)
        fits = 0 <= self.min_length <= self.max_length
        self._check("min_length", f"between 0 and {self.max_length}, `max_length`", fits)
        self._check("num_best", f"between 1 and {self.beam_size}, `beam_size`", 1 <= self.num_best <= self.beam_size)
        require_at_least(self, 0, "no_repeat_ngram_size")
        kinds = get_args(LengthPenaltyKind)
        names = " or ".join(f'"{kind}"' for kind in kinds)
        self._check("length_penalty_kind", names, self.length_penalty_kind in kinds)
        self._check("length_penalty", "a finite number", math.isfinite(self.length_penalty))
        self._check("coverage_penalty", "a finite number of at least 0", 0 <= self.coverage_penalty < math.inf)
        self._check("temperature", "a finite number above 0", 0 < self.temperature < math.inf)
        self._check("repetition_penalty", "a finite number above 0", 0 < self.repetition_penalty < math.inf)
        self._check("start_token", "a token id of at least 0", self.start_token >= 0)
        self._check("end_token", "a token id of at least 1", self.end_token >= 1)
        self._check("banned_tokens", "token ids of at least 0", all(token >= 0 for token in self.banned_tokens))
        self._check("forced_prefix", "token ids of at least 1", all(token >= 1 for token in self.forced_prefix))
        fits = len(self.forced_prefix) <= self.max_length
        self._check("forced_prefix", f"no longer than {self.max_length}, `max_length`", fits)

    def _check(self, name: str, expected: str, is_valid: bool) -> None:
        require(is_valid, name, expected, getattr(self, name))


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
