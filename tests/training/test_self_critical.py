import itertools
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

from attention_apps.decoding import DecodingOptions, beam_search
from attention_apps.layers import AdditiveAttention, HardAttention
from attention_apps.training.config import SelfCriticalConfig
from attention_apps.training.self_critical import SelfCritical
from attention_apps.training.stages import RewardedSampling, second_stage, train
from attention_apps.training.trainer import Trainer
from tests.training.tiny_training import VOCABULARY, make_batches, make_config, make_model, weights_of


def share_of_fives(hypotheses, examples):
    return [sum(token == 5 for token in ids) / (1 + len(ids)) for ids in hypotheses]


def first_batch(batch_size=3):
    batches = make_batches(batch_size=batch_size)
    return next(iter(batches.batches(0))), batches.rows(0, 0)


def prepared(config, reward, max_length=4):
    model = make_model()
    objective = SelfCritical(model, config, reward, DecodingOptions(max_length=max_length))
    batch, rows = first_batch()
    (part,) = objective.prepare((batch,), [rows], (0, 0))
    return model, objective, part, rows


def test_the_reward_gets_words_and_the_examples_they_belong_to():
    seen = []

    def reward(hypotheses, examples):
        seen.append((hypotheses, examples))
        return [float(len(ids)) for ids in hypotheses]

    _, _, part, rows = prepared(SelfCriticalConfig(samples=4), reward)
    ((hypotheses, examples),) = seen
    assert examples == np.repeat(rows, 4).tolist()
    tokens = part["tokens"].numpy().reshape(12, -1)
    assert (tokens[:, 0] == 1).all()
    for ids, row in zip(hypotheses, tokens, strict=True):
        assert not {0, 1, 2} & set(ids)
        assert row[1 : 1 + len(ids)].tolist() == ids
        assert len(ids) == 4 or row[1 + len(ids)] == 2
        assert (row[2 + len(ids) :] == 0).all()


@pytest.mark.parametrize("estimator", ["reinforce", "gumbel"])
def test_hard_attention_that_draws_its_positions_is_refused(estimator):
    model = make_model(attention=HardAttention(AdditiveAttention(5), estimator))
    with pytest.raises(ValueError, match="`estimator` of hard attention must be 'straight_through'"):
        SelfCritical(model, SelfCriticalConfig(), share_of_fives, DecodingOptions(max_length=4))


def test_samples_may_be_the_best_of_a_beam_search():
    model, options = make_model(), DecodingOptions(max_length=4, length_penalty=0.6, no_repeat_ngram_size=2)
    objective = SelfCritical(model, SelfCriticalConfig(samples=3, from_beam=True), share_of_fives, options)
    batch, rows = first_batch()
    (part,) = objective.prepare((batch,), [rows], (0, 0))
    memory = model.encode(batch["source"])
    wanted = replace(options, beam_size=3, num_best=3, banned_tokens=(0, 1))
    found = beam_search(model.decoder.step, model.decoder.init_state(memory), wanted).token_ids.numpy()
    tokens = part["tokens"].numpy()[..., 1:]
    np.testing.assert_array_equal(tokens, found[..., : tokens.shape[-1]])


def test_the_baseline_is_the_mean_of_the_other_samples():
    rewards = iter([[1.0, 2.0, 6.0, 0.0, 0.0, 3.0, 5.0, 5.0, 5.0]])
    _, _, part, _ = prepared(SelfCriticalConfig(samples=3), lambda *_: next(rewards))
    expected = [[-3, -1.5, 4.5], [-1.5, -1.5, 3], [0, 0, 0]]
    np.testing.assert_allclose(part["advantages"], expected)


def test_the_baseline_is_the_greedy_text():
    seen = []

    def reward(hypotheses, examples):
        seen.extend(hypotheses)
        return np.arange(9.0)

    config = SelfCriticalConfig(samples=2, baseline="greedy")
    model, _, part, _ = prepared(config, reward)
    np.testing.assert_allclose(part["advantages"], [[-2, -1]] * 3)
    source = first_batch()[0]["source"]
    memory = model.encode(source)
    token, state = tf.ones(3, tf.int32), model.decoder.init_state(memory)
    for position in range(4):
        logits, state = model.decoder.step(token, state)
        logits = logits.numpy()
        logits[:, :2] = -np.inf
        token = tf.constant(logits.argmax(-1).astype("int32"))
        for row in range(3):
            if len(seen[3 * row + 2]) > position:
                assert seen[3 * row + 2][position] == token[row]


def test_the_loss_is_the_weighted_log_probability_of_the_samples():
    model, objective, part, _ = prepared(SelfCriticalConfig(samples=3), share_of_fives)
    losses, _, count = objective.losses(part, tf.constant([0, 0]), tf.constant(0))
    tokens, advantages = part["tokens"].numpy(), part["advantages"].numpy()
    logits = model({"source": part["source"], "tokens": tokens[..., :-1]}).numpy()
    logits[..., :2] = -np.inf
    log_probabilities = tf.nn.log_softmax(logits).numpy()
    total = 0.0
    for b, n, t in itertools.product(*map(range, tokens[..., 1:].shape)):
        if tokens[b, n, t + 1]:
            total -= advantages[b, n] * log_probabilities[b, n, t, tokens[b, n, t + 1]]
    np.testing.assert_allclose(losses["self_critical"], total, rtol=1e-5)
    assert count == (tokens[..., 1:] != 0).sum()


@pytest.mark.parametrize(("baseline", "temperature"), [("mean", 1.0), ("greedy", 1.0), ("mean", 0.5)])
def test_the_estimate_is_the_gradient_of_the_expected_reward(baseline, temperature):
    model = make_model()
    batch, _ = first_batch(batch_size=1)
    weight = model.decoder.output_dense.kernel.value

    def reward(hypotheses, examples):
        return [ids.count(5) + 2.0 * ids.count(7) for ids in hypotheses]

    banned = np.array([-1e9, -1e9] + [0.0] * (VOCABULARY - 2), "float32")
    texts = [(2,), *itertools.product(range(3, VOCABULARY), [2, *range(3, VOCABULARY)])]
    with tf.GradientTape() as tape:
        expected_reward = 0.0
        for text in texts:
            inputs = tf.constant([[1, *text[:-1]]])
            logits = model({"source": batch["source"], "tokens": inputs})[0]
            probabilities = tf.nn.softmax(logits / temperature + banned)
            chance = tf.reduce_prod(tf.gather(probabilities, text, batch_dims=1))
            expected_reward += chance * reward([[token for token in text if token != 2]], [0])[0]
    exact = -tape.gradient(expected_reward, weight).numpy()

    config = SelfCriticalConfig(samples=4000, baseline=baseline, temperature=temperature)
    objective = SelfCritical(model, config, reward, DecodingOptions(max_length=2))
    (part,) = objective.prepare((batch,), [np.array([0])], (0, 0))
    with tf.GradientTape() as tape:
        loss = objective.losses(part, tf.constant([0, 0]), tf.constant(0))[0]["self_critical"] / 4000
    estimate = tape.gradient(loss, weight).numpy()
    cosine = (exact * estimate).sum() / np.linalg.norm(exact) / np.linalg.norm(estimate)
    assert cosine > 0.97
    assert 0.8 < np.linalg.norm(estimate) / np.linalg.norm(exact) < 1.25


def mean_reward(model):
    objective = SelfCritical(model, SelfCriticalConfig(samples=50), share_of_fives, DecodingOptions(max_length=5))
    batch, _ = first_batch(batch_size=30)
    (ids,) = objective._sample_graph((batch["source"],))
    fives, lengths = (ids.numpy() == 5).sum(-1), (ids.numpy() > 2).sum(-1)
    return (fives / (1 + lengths)).mean()


def test_training_raises_the_reward(tmp_path):
    model = make_model()
    before = mean_reward(model)
    objective = SelfCritical(model, SelfCriticalConfig(samples=4), share_of_fives, DecodingOptions(max_length=5))
    Trainer(model, make_config(epochs=8), tmp_path, objective, quiet=True).fit(make_batches())
    assert mean_reward(model) > before + 0.2


def test_samples_depend_on_the_place_in_the_data_and_the_seed_only():
    batch, rows = first_batch()
    objective = SelfCritical(
        make_model(), SelfCriticalConfig(samples=4), share_of_fives, DecodingOptions(max_length=9), seed=7
    )
    first = objective.prepare((batch,), [rows], (2, 5))[0]["tokens"].numpy()
    other = objective.prepare((batch,), [rows], (2, 6))[0]["tokens"].numpy()
    again = objective.prepare((batch,), [rows], (2, 5))[0]["tokens"].numpy()
    np.testing.assert_array_equal(first, again)
    assert first.shape != other.shape or (first != other).any()


def test_a_part_without_examples_counts_nowhere():
    def reward(hypotheses, examples):
        raise AssertionError("there is nothing to reward")

    model = make_model()
    objective = SelfCritical(model, SelfCriticalConfig(samples=2), reward, DecodingOptions(max_length=3))
    batch = {"source": {"token_ids": tf.zeros((1, 1), tf.int32)}, "tokens": tf.zeros((1, 1), tf.int32)}
    (part,) = objective.prepare((batch,), [np.array([], int)], (0, 0))
    losses, _, count = objective.losses(part, tf.constant([0, 0]), tf.constant(0))
    assert count == 0
    assert losses["self_critical"] == 0


def rewarded_config(**changes):
    return make_config(epochs=1, self_critical=SelfCriticalConfig(epochs=2, samples=2, learning_rate=0.01), **changes)


def test_the_second_stage_follows_the_first_and_both_are_continued(tmp_path):
    rewarded = RewardedSampling(share_of_fives, DecodingOptions(max_length=5))
    model = make_model()
    histories = train(model, make_batches(), rewarded_config(), tmp_path, rewarded=rewarded, quiet=True)
    assert [history.steps for history in histories] == [4, 8]
    other = make_model(seed=8)
    assert train(other, make_batches(), rewarded_config(), tmp_path, rewarded=rewarded, quiet=True) == histories
    for a, b in zip(weights_of(model), weights_of(other), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_model_that_has_learned_before_goes_straight_to_the_second_stage(tmp_path):
    config, rewarded = (
        replace(rewarded_config(), epochs=0),
        RewardedSampling(share_of_fives, DecodingOptions(max_length=5)),
    )
    (history,) = train(make_model(), make_batches(), config, tmp_path, rewarded=rewarded, quiet=True)
    assert history.steps == 8
    assert not (tmp_path / "cross_entropy").exists()


def test_a_second_stage_that_makes_it_worse_changes_nothing(tmp_path):
    figures = iter([0.5, 0.5, 0.4, 0.3])
    seen = []

    def validate(model):
        seen.append(weights_of(model))
        return {"metrics": {"cider": next(figures)}}

    model, rewarded = make_model(), RewardedSampling(share_of_fives, DecodingOptions(max_length=5))
    first, second = train(model, make_batches(), rewarded_config(), tmp_path, validate, rewarded=rewarded, quiet=True)
    assert (first.best_step, second.best_step) == (4, 0)
    for a, b in zip(weights_of(model), seen[0], strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_second_stage_needs_a_reward_and_time(tmp_path):
    with pytest.raises(ValueError, match=r"`rewarded` must be given where `self_critical\.epochs` is more than 0"):
        train(make_model(), make_batches(), rewarded_config(), tmp_path)
    assert second_stage(rewarded_config(max_minutes=1.0), seconds_spent=90.0) is None
    assert second_stage(make_config(), seconds_spent=0.0) is None
    assert second_stage(rewarded_config(max_minutes=2.0), seconds_spent=90.0).max_minutes == 0.5
