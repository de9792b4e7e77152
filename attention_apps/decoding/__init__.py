"""Writing a sequence token by token: beam search, greedy search and sampling, over any `step(token, state)`.

Nothing here knows a model.
"""

from attention_apps.decoding.beam_search import beam_search
from attention_apps.decoding.ensemble import ensemble_state, ensemble_step
from attention_apps.decoding.options import DecodingOptions
from attention_apps.decoding.result import DecodingResult
from attention_apps.decoding.sampling import sample
from attention_apps.decoding.scorers import Scorer

__all__ = ["DecodingOptions", "DecodingResult", "beam_search", "sample", "ensemble_step", "ensemble_state", "Scorer"]
