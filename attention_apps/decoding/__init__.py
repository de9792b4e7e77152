"""Generating sequences token by token: beam search, greedy search and sampling.

Works with any `step(token, state) -> (logits, state)` and depends on no model.
"""

from attention_apps.decoding.beam_search import beam_search
from attention_apps.decoding.options import DecodingOptions, DecodingResult
from attention_apps.decoding.sampling import sample
from attention_apps.decoding.scorers import Scorer, ensemble_state, ensemble_step

__all__ = ["DecodingOptions", "DecodingResult", "beam_search", "sample", "ensemble_step", "ensemble_state", "Scorer"]
