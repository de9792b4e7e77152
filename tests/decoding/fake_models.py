"""Small random models with the contract of a decoder, and the same searches written as plain Python loops.

A fake model's distribution depends on everything written so far, through a code in its state, so a state that is
reordered wrongly shows. The references walk over tuples of tokens; they share no code with the package.
"""

import dataclasses
import math

import numpy as np
from keras import ops

START, END = 1, 2
CODES = 211


@dataclasses.dataclass(frozen=True)
class FakeModel:
    """Random logits and attention for each of `CODES` hashes of (item, history)."""

    logits: np.ndarray  # (CODES, V)
    attention: np.ndarray  # (CODES, S)

    @classmethod
    def random(cls, seed, vocabulary=4, source=3, spread=1.5):
        generator = np.random.default_rng(seed)
        attention = generator.dirichlet(np.ones(source), CODES).astype("float32")
        return cls(generator.normal(0, spread, (CODES, vocabulary)).astype("float32"), attention)

    def init_state(self, items):
        items = np.asarray(items, "int32")
        coverage = np.zeros((len(items), self.attention.shape[1]), "float32")
        return {"item": items, "memory": {"code": items * 0}, "coverage": coverage}

    def step(self, token, state):
        code = _next_code(state["memory"]["code"], state["item"], token)
        coverage = state["coverage"] + ops.take(ops.convert_to_tensor(self.attention), code, axis=0)
        logits = ops.take(ops.convert_to_tensor(self.logits), code, axis=0)
        return logits, {"item": state["item"], "memory": {"code": code}, "coverage": coverage}

    def after(self, item, prefix):
        """Logits after `prefix` and the coverage at that moment, in float64."""
        code, coverage = 0, np.zeros(self.attention.shape[1])
        for token in (START, *prefix):
            code = _next_code(code, item, token)
            coverage = coverage + self.attention[code]
        return self.logits[code].astype("float64"), coverage


def _next_code(code, item, token):
    return (code * 31 + item * 17 + token * 7 + 3) % CODES


def log_softmax(logits):
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


@dataclasses.dataclass(frozen=True)
class Hypothesis:
    tokens: tuple = ()
    total: float = 0.0
    log_prob: float = 0.0
    score: float = -math.inf

    @property
    def finished(self):
        return bool(self.tokens) and self.tokens[-1] == END


def expand(model, item, hypothesis, options, scorers=(), prefix=()):
    """All continuations of a hypothesis, scored as `DecodingOptions` says."""
    logits, coverage = model.after(item, hypothesis.tokens)
    log_probs = log_softmax(logits / options.temperature)
    scores = log_probs.copy()
    written = hypothesis.tokens
    for token in set(written):
        scores[token] *= options.repetition_penalty
    for score, weight in scorers:
        scores = scores + weight * score(item, written)
    prefix = prefix or options.forced_prefix
    forced = prefix[len(written)] if len(written) < len(prefix) else None
    for token in range(len(log_probs)):
        if (forced is None and is_banned(token, written, options)) or forced not in (None, token):
            continue
        tokens = (*written, token)
        total = hypothesis.total + scores[token]
        score = total / penalty(len(tokens), options)
        score += options.coverage_penalty * np.log(np.minimum(coverage, 1)).sum()
        if total > -math.inf:
            yield Hypothesis(tokens, total, hypothesis.log_prob + log_probs[token], score)


def is_banned(token, written, options):
    if token in options.banned_tokens or (token == END and len(written) + 1 < options.min_length):
        return True
    size, tokens = options.no_repeat_ngram_size, (*written, token)
    if not size or len(tokens) < size:
        return False
    ngrams = [tokens[i : i + size] for i in range(len(tokens) - size + 1)]
    return ngrams[-1] in ngrams[:-1]


def penalty(length, options):
    base = (5 + length) / 6 if options.length_penalty_kind == "gnmt" else length
    return base**options.length_penalty


def ranked(finished, unfinished, number):
    """Finished before unfinished, the best first."""
    parts = (sorted(part, key=lambda h: -h.score) for part in (finished, unfinished))
    return [hypothesis for part in parts for hypothesis in part][:number]


def enumerate_all(model, item, options, scorers=(), prefix=()):
    """The best of all hypotheses there are."""
    open_ones, finished = [Hypothesis()], []
    for _ in range(options.max_length):
        longer = [c for h in open_ones for c in expand(model, item, h, options, scorers, prefix)]
        finished += [h for h in longer if h.finished]
        open_ones = [h for h in longer if not h.finished]
    return ranked(finished, open_ones, options.num_best)


def narrow_search(model, item, options, scorers=(), prefix=()):
    """Beam search without an early stop."""
    live, finished = [Hypothesis()], []
    for _ in range(options.max_length):
        longer = [c for h in live for c in expand(model, item, h, options, scorers, prefix)]
        longer.sort(key=lambda h: -h.total)
        finished += [h for h in longer[: options.beam_size] if h.finished]
        live = [h for h in longer if not h.finished][: options.beam_size]
    return ranked(finished, live, options.num_best)


def greedy_search(model, item, options, scorers=(), prefix=()):
    """The best token, until it is the end."""
    hypothesis = Hypothesis()
    while not hypothesis.finished and len(hypothesis.tokens) < options.max_length:
        longer = list(expand(model, item, hypothesis, options, scorers, prefix))
        if not longer:
            return []
        hypothesis = max(longer, key=lambda h: h.total)
    return [hypothesis]


def assert_found(result, expected, tolerance=2e-4):
    """`result` holds, item by item, the expected lists of hypotheses, and nothing more."""
    token_ids, scores, log_probs, lengths, finished = (np.array(part) for part in result)
    for item, hypotheses in enumerate(expected):
        for rank in range(token_ids.shape[1]):
            if rank >= len(hypotheses):
                assert (lengths[item, rank], scores[item, rank], finished[item, rank]) == (0, -math.inf, False)
                assert not token_ids[item, rank].any()
                continue
            hypothesis = hypotheses[rank]
            padding = [0] * (token_ids.shape[2] - len(hypothesis.tokens))
            assert token_ids[item, rank].tolist() == [*hypothesis.tokens, *padding]
            assert lengths[item, rank] == len(hypothesis.tokens)
            assert finished[item, rank] == hypothesis.finished
            np.testing.assert_allclose(scores[item, rank], hypothesis.score, rtol=tolerance, atol=tolerance)
            np.testing.assert_allclose(log_probs[item, rank], hypothesis.log_prob, rtol=tolerance, atol=tolerance)
