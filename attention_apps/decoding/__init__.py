"""Writing a sequence token by token: beam search, greedy search and sampling, over any `step(token, state)`.

Nothing here knows a model. Each public name is in the module that is called after it: `beam_search.beam_search`,
`sampling.sample`, `options.DecodingOptions`, `result.DecodingResult`, `scorers.Scorer`, `ensemble.ensemble_step`.
"""
