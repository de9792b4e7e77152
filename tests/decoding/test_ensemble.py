import math

import numpy as np
import pytest

from attention_apps.decoding.beam_search import beam_search
from attention_apps.decoding.ensemble import ensemble_state, ensemble_step
from attention_apps.decoding.options import DecodingOptions
from tests.decoding.fake_models import FakeModel, assert_found, enumerate_all, log_softmax

MODELS = [FakeModel.random(seed) for seed in (1, 2)]


class Mixture:
    """The two models as one, for the references."""

    def __init__(self, weights, average):
        self.weights, self.average = weights, average

    def after(self, item, prefix):
        (first, coverage), (second, other_coverage) = (model.after(item, prefix) for model in MODELS)
        log_probs = np.stack([log_softmax(first), log_softmax(second)])
        weights = np.array(self.weights)[:, None]
        if self.average == "log":
            mixed = (weights * log_probs).sum(axis=0)
        else:
            mixed = np.log((weights * np.exp(log_probs)).sum(axis=0))
        return mixed, (coverage + other_coverage) / 2


@pytest.mark.parametrize("average", ["log", "probability"])
@pytest.mark.parametrize(("weights", "shares"), [(None, (0.5, 0.5)), ((3, 1), (0.75, 0.25))])
def test_an_ensemble_searches_the_mixed_distribution(average, weights, shares):
    options = DecodingOptions(beam_size=40, max_length=3, num_best=2, coverage_penalty=0.3)
    step = ensemble_step([model.step for model in MODELS], weights, average)
    state = ensemble_state([model.init_state([0, 1]) for model in MODELS])
    expected = [enumerate_all(Mixture(shares, average), item, options) for item in range(2)]
    assert_found(beam_search(step, state, options), expected)


def test_an_ensemble_of_one_is_that_model():
    step, state = ensemble_step([MODELS[0].step]), ensemble_state([MODELS[0].init_state([0, 1])])
    options = DecodingOptions(beam_size=2, max_length=4)
    alone = beam_search(MODELS[0].step, MODELS[0].init_state([0, 1]), options)
    together = beam_search(step, state, options)
    assert np.array_equal(alone.token_ids, together.token_ids)
    np.testing.assert_allclose(alone.scores, together.scores, rtol=1e-5)


def test_untouched_entries_stay_untouched_and_without_coverage_there_is_none():
    state = ensemble_state([{"keys": np.ones((2, 3))}, {"keys": np.zeros((2, 5))}])
    assert sorted(state) == ["model_0", "model_1"]
    _, after = ensemble_step([lambda token, state: (np.zeros((2, 4)), state)] * 2)(np.zeros(2), state)
    assert after["model_1"]["keys"] is state["model_1"]["keys"]


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match=r"`average` must be one of log, probability\. Received: average='mean'"):
        ensemble_step([math.log], average="mean")
    with pytest.raises(
        ValueError, match=r"`weights` must be 1 positive numbers, one for each step\. Received: weights="
    ):
        ensemble_step([math.log], weights=(1, 2))
    with pytest.raises(ValueError, match="`steps` must hold at least one step"):
        ensemble_step([])
