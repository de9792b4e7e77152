"""Beam search in PyTorch as one would write it by hand: batched over items and beams, all bookkeeping vectorized."""

from typing import NamedTuple

import torch
from workloads import END, START


class Beams(NamedTuple):
    """Hypotheses of each item: tokens `(batch, beams, length)` and sums of log-probabilities `(batch, beams)`."""

    tokens: torch.Tensor
    totals: torch.Tensor


@torch.inference_mode()
def torch_beam_search(model, source: dict, beam_size: int, max_length: int, banned: list[int]):
    """The best hypothesis of each item: tokens `(batch, max_length)` and scores `(batch,)`.

    A hypothesis that ends among the best `beam_size` is kept aside, the best others go on, and the search stops when
    none of them can still win: the rules of this library's search, without length penalty.

    Args:
        model: has `begin(source, copies) -> (memory, state)` and `step(token, memory, state) -> (log_probs, state)`;
            the memory has a row for each item, which its beams share.
        banned: token ids that are never written.
    """
    memory, state = model.begin(source, beam_size)
    batch = len(memory[0])
    live = Beams(
        torch.zeros(batch, beam_size, max_length, dtype=torch.long), torch.full((batch, beam_size), -torch.inf)
    )
    live.totals[:, 0] = 0.0
    ended = Beams(torch.zeros_like(live.tokens[:, :1]), torch.full((batch, 1), -torch.inf))
    last = torch.full((batch * beam_size,), START)
    for position in range(max_length):
        log_probs, state = model.step(last, memory, state)
        log_probs[:, banned] = -torch.inf
        totals, parents, tokens = best_candidates(log_probs, live.totals)
        ended = end(ended, live, totals, parents, tokens, position)
        live, parents = extend(live, totals, parents, tokens, position)
        rows = (parents + beam_size * torch.arange(batch).unsqueeze(1)).flatten()
        state = tuple(part.index_select(0, rows) for part in state)
        last = live.tokens[:, :, position].flatten()
        if not (live.totals[:, 0] > ended.totals[:, 0]).any():
            break
    is_ended = (ended.totals > -torch.inf).squeeze(1)
    tokens = torch.where(is_ended.unsqueeze(1), ended.tokens[:, 0], live.tokens[:, 0])
    return tokens, torch.where(is_ended, ended.totals[:, 0], live.totals[:, 0])


def best_candidates(log_probs: torch.Tensor, totals: torch.Tensor):
    """Totals, parents and tokens of the best continuations, twice as many as there are beams."""
    batch, beams = totals.shape
    sums = log_probs.unflatten(0, (batch, beams)) + totals.unsqueeze(2)
    totals, index = sums.flatten(1).topk(2 * beams, dim=1)
    vocabulary = log_probs.shape[1]
    return totals, index // vocabulary, index % vocabulary


def end(ended: Beams, live: Beams, totals, parents, tokens, position: int) -> Beams:
    """The best hypothesis that has ended, this step included."""
    beams = live.totals.shape[1]
    ending = torch.where(tokens[:, :beams] == END, totals[:, :beams], -torch.inf)
    best, index = ending.max(dim=1, keepdim=True)
    written = take(live.tokens, parents.gather(1, index))
    written[:, :, position] = END
    is_better = best > ended.totals
    return Beams(torch.where(is_better.unsqueeze(2), written, ended.tokens), torch.where(is_better, best, ended.totals))


def extend(live: Beams, totals, parents, tokens, position: int) -> tuple[Beams, torch.Tensor]:
    """The best continuations that do not end, and which hypotheses they continue."""
    beams = live.totals.shape[1]
    totals, index = totals.masked_fill(tokens == END, -torch.inf).topk(beams, dim=1)
    parents = parents.gather(1, index)
    written = take(live.tokens, parents)
    written[:, :, position] = tokens.gather(1, index)
    return Beams(written, totals), parents


def take(tokens: torch.Tensor, beams: torch.Tensor) -> torch.Tensor:
    return tokens.gather(1, beams.unsqueeze(2).expand(-1, -1, tokens.shape[2]))
