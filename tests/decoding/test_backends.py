"""The same search on another backend of Keras, compiled, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import jax
import numpy as np
from attention_apps.decoding.beam_search import beam_search
from attention_apps.decoding.options import DecodingOptions
from attention_apps.decoding.sampling import sample
from tests.decoding.fake_models import FakeModel, assert_found, greedy_search, narrow_search

model, state = FakeModel.random(11), FakeModel.random(11).init_state(range(3))
everything = dict(max_length=5, min_length=2, length_penalty=0.6, coverage_penalty=0.2, repetition_penalty=1.2)
everything.update(no_repeat_ngram_size=2, banned_tokens=(0,), forced_prefix=(3,), temperature=0.9)
for beam_size, reference in ((1, greedy_search), (3, narrow_search)):
    options = DecodingOptions(beam_size=beam_size, num_best=beam_size, **everything)
    result = jax.jit(lambda state: beam_search(model.step, state, options))(state)
    assert_found(result, [reference(model, item, options) for item in range(3)])
samples = jax.jit(lambda state: sample(model.step, state, DecodingOptions(max_length=4), 5, top_k=2, seed=1))(state)
assert samples.token_ids.shape == (3, 5, 4)
assert np.isfinite(np.array(samples.log_probs)).all()
"""


@pytest.mark.slow
def test_jax_finds_the_same():
    pytest.importorskip("jax")
    environment, root = {**os.environ, "KERAS_BACKEND": "jax"}, Path(__file__).parents[2]
    run = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, cwd=root, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
