"""What a search may write, how long, and how it ranks what it wrote."""

import dataclasses
import math

MAX_BEAM_SIZE, MAX_LENGTH = 1000, 10_000
LENGTH_PENALTY_KINDS = ("gnmt", "average")


@dataclasses.dataclass(frozen=True)
class DecodingOptions:
    """Options of `beam_search` and `sample`. All lengths count the end token and not the start token.

    The score of a hypothesis is the sum over its tokens, divided by a length penalty, plus a coverage penalty:
    `sum / penalty(length) + coverage_penalty · Σ_s log(min(coverage_s, 1))`. What is summed is the log-probability
    of each token under `softmax(logits / temperature)`, times the repetition penalty where the token was written
    before, plus the weighted scores of the scorers. Banning a token takes it away and leaves the others' scores alone.

    Args:
        beam_size: number of live hypotheses, at most 1,000; 1 is greedy search.
        max_length: the longest that may be written, at most 10,000.
        min_length: the end token is banned before this length.
        num_best: number of hypotheses returned for each item, at most `beam_size`.
        length_penalty: α; 0 compares plain sums, larger values favour longer hypotheses.
        length_penalty_kind: `"gnmt"` for `((5 + length) / 6)^α`, `"average"` for `length^α`.
        coverage_penalty: β of GNMT; needs `state["coverage"]`, the summed attention weights, `(batch, source)`.
            Source positions at exactly 0 count as padding.
        temperature: divides the logits.
        repetition_penalty: multiplies the log-probability of tokens that the hypothesis already holds; above 1
            makes them less likely (after CTRL).
        no_repeat_ngram_size: no n-gram of this size is written twice; 0 for no limit.
        forced_prefix: token ids every hypothesis begins with; they count in lengths and scores, and no ban holds
            for them. A prefix for each item is the argument `prefix` of the search.
        banned_tokens: token ids that are never written.
        start_token: fed to the first step, and no part of what is written.
        end_token: ends a hypothesis; not 0, which is padding.

    Reference:
        Wu et al., Google's Neural Machine Translation System (2016), equation 14, for both penalties;
        Keskar et al., CTRL (2019), section 4.1.
    """

    beam_size: int = 5
    max_length: int = 20
    min_length: int = 1
    num_best: int = 1
    length_penalty: float = 0.0
    length_penalty_kind: str = "gnmt"
    coverage_penalty: float = 0.0
    temperature: float = 1.0
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    forced_prefix: tuple[int, ...] = ()
    banned_tokens: tuple[int, ...] = ()
    start_token: int = 1
    end_token: int = 2

    def __post_init__(self) -> None:
        for name in ("forced_prefix", "banned_tokens"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        self._check_sizes()
        self._check_penalties()
        self._check_tokens()

    def _check_sizes(self) -> None:
        self._require(self.beam_size >= 1, "beam_size", "at least 1")
        self._require(self.max_length >= 1, "max_length", "at least 1")
        # Nobody needs as many, and a preset that asks for more would take all memory.
        self._require(self.beam_size <= MAX_BEAM_SIZE, "beam_size", f"at most {MAX_BEAM_SIZE}")
        self._require(self.max_length <= MAX_LENGTH, "max_length", f"at most {MAX_LENGTH}")
        self._require(
            0 <= self.min_length <= self.max_length, "min_length", f"between 0 and {self.max_length}, `max_length`"
        )
        self._require(1 <= self.num_best <= self.beam_size, "num_best", f"between 1 and {self.beam_size}, `beam_size`")
        self._require(self.no_repeat_ngram_size >= 0, "no_repeat_ngram_size", "at least 0")

    def _check_penalties(self) -> None:
        kinds = " or ".join(f'"{kind}"' for kind in LENGTH_PENALTY_KINDS)
        self._require(self.length_penalty_kind in LENGTH_PENALTY_KINDS, "length_penalty_kind", kinds)
        self._require(math.isfinite(self.length_penalty), "length_penalty", "a finite number")
        self._require(0 <= self.coverage_penalty < math.inf, "coverage_penalty", "a finite number of at least 0")
        self._require(0 < self.temperature < math.inf, "temperature", "a finite number above 0")
        self._require(0 < self.repetition_penalty < math.inf, "repetition_penalty", "a finite number above 0")

    def _check_tokens(self) -> None:
        self._require(self.start_token >= 0, "start_token", "a token id of at least 0")
        self._require(self.end_token >= 1, "end_token", "a token id of at least 1")
        self._require(all(token >= 0 for token in self.banned_tokens), "banned_tokens", "token ids of at least 0")
        self._require(all(token >= 1 for token in self.forced_prefix), "forced_prefix", "token ids of at least 1")
        fits = len(self.forced_prefix) <= self.max_length
        self._require(fits, "forced_prefix", f"no longer than {self.max_length}, `max_length`")

    def _require(self, holds: bool, name: str, demand: str) -> None:
        if not holds:
            raise ValueError(f"`{name}` must be {demand}. Received: {name}={getattr(self, name)!r}")
