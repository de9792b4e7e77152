import itertools
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

from attention_apps.data.batches import Batches
from attention_apps.decoding import DecodingOptions, beam_search
from attention_apps.layers import AdditiveAttention, HardAttention
from attention_apps.metrics import rouge, token_f1
from attention_apps.training.config import ScheduledSamplingConfig, SelfCriticalConfig
from attention_apps.training.objectives import SelfCritical, TeacherForcing, make_reward, sampling_probability
from attention_apps.training.trainer import Trainer
from tests.training.tiny_training import (
    VOCABULARY,
    TinyAttention,
    fit,
    make_batches,
    make_config,
    make_examples,
    make_model,
    read_table,
    weights_of,
)


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
    Trainer(model, make_batches(), make_config(epochs=8), tmp_path, objective, quiet=True).fit()
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


def test_an_extra_loss_sees_the_epoch_and_may_replace_what_is_there(tmp_path):
    def extra_loss(model, batch, outputs, losses, epoch):
        assert outputs["memory"]["values"].shape[-1] == 5
        tokens = tf.reduce_sum(tf.cast(batch["tokens"][:, 1:] != 0, tf.float32))
        return {"cross_entropy": 0.0 * losses["cross_entropy"], "epoch": tokens * tf.cast(epoch, tf.float32)}, {}

    fit(tmp_path, make_config(log_every=4), extra_loss=extra_loss)
    table = read_table(tmp_path / "training.csv")
    assert [float(row["loss"]) for row in table] == [0, 1, 2]


def test_hard_attention_is_trained_by_its_estimator(tmp_path):
    model = make_model(attention=HardAttention(TinyAttention(name="inner"), seed=3))
    fit(tmp_path, make_config(log_every=4), model)
    row = read_table(tmp_path / "training.csv")[-1]
    assert float(row["hard_attention"]) != 0
    assert float(model.decoder.attention.baseline) < 0


def test_targets_that_are_padding_do_not_move_the_baseline_of_hard_attention():
    model = make_model(attention=HardAttention(TinyAttention(name="inner"), baseline_momentum=0.6, seed=3))
    source = {"token_ids": tf.constant([[5, 6, 7, 8], [4, 5, 0, 0], [6, 0, 0, 0]])}
    tokens = tf.constant([[1, 5, 2], [1, 2, 0], [0, 0, 0]])
    losses, _, _ = TeacherForcing(model, make_config()).losses({"source": source, "tokens": tokens}, (0, 0), 0)
    np.testing.assert_allclose(model.decoder.attention.baseline, 0.4 * -losses["cross_entropy"] / 2, rtol=1e-5)


def test_several_targets_of_one_source(tmp_path):
    examples = [
        {"source": example["source"], "tokens": np.stack([example["tokens"], example["tokens"]])}
        for example in make_examples()
    ]
    signature = {
        "source": {"token_ids": tf.TensorSpec((None,), tf.int32)},
        "tokens": tf.TensorSpec((2, None), tf.int32),
    }
    twice = Batches(examples, signature, batch_size=8, lengths=[e["tokens"].shape[1] for e in examples], threads=1)
    config = make_config(epochs=1, doubly_stochastic=0.1, coverage=0.1, guided=0.1)
    _, one, _ = fit(tmp_path / "one", config)
    _, two, _ = fit(tmp_path / "two", config, batches=twice)
    for a, b in zip(weights_of(one), weights_of(two), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_consistency_compares_two_passes_over_each_example(tmp_path):
    batch, _ = first_batch()
    plain, doubled = (TeacherForcing(make_model(), make_config(consistency=weight)) for weight in (0.0, 2.0))
    doubled.model.set_weights(plain.model.get_weights())
    once, _, count = plain.losses(batch, tf.constant([0, 0]), tf.constant(0))
    twice, _, counted = doubled.losses(batch, tf.constant([0, 0]), tf.constant(0))
    assert counted == 2 * count
    np.testing.assert_allclose(twice["cross_entropy"], 2 * once["cross_entropy"], rtol=1e-5)
    np.testing.assert_allclose(twice["consistency"], 0, atol=1e-5)  # without dropout both passes are the same

    fit(tmp_path, make_config(consistency=2.0, log_every=4), make_model(dropout=0.3))
    assert float(read_table(tmp_path / "training.csv")[-1]["consistency"]) > 0


def test_scheduled_sampling_rises_and_mixes(tmp_path):
    sampling = ScheduledSamplingConfig(probability=0.5, start_step=10, ramp_steps=5)
    shares = [float(sampling_probability(sampling, step)) for step in (0, 9, 10, 12, 14, 99)]
    assert shares == pytest.approx([0, 0, 0.1, 0.3, 0.5, 0.5])
    sampling = ScheduledSamplingConfig(probability=1.0)
    model = make_model()
    objective = TeacherForcing(model, make_config(scheduled_sampling=sampling))
    batch = next(iter(make_batches().batches(0)))
    inputs = batch["tokens"][:, :-1]
    mixed = objective._mix(batch["source"], inputs, tf.constant([0, 0]), tf.constant(0)).numpy()
    logits = model({"source": batch["source"], "tokens": inputs}).numpy()
    expected = np.where(inputs[:, 1:] != 0, logits.argmax(-1)[:, :-1], 0)
    np.testing.assert_array_equal(mixed[:, 1:], expected)
    np.testing.assert_array_equal(mixed[:, 0], 1)


def test_scheduled_sampling_trains(tmp_path):
    sampling = ScheduledSamplingConfig(probability=0.5, ramp_steps=4)
    config = make_config(scheduled_sampling=sampling)
    _, sampled, _ = fit(tmp_path / "sampled", config)
    _, forced, _ = fit(tmp_path / "forced")
    assert not np.allclose(weights_of(sampled)[0], weights_of(forced)[0], atol=1e-4)


REFERENCES = [["a dog runs on the grass", "a brown dog is running"], ["two men ride a wave"], ["a child plays"]]
NAMES = ("cider", "bleu_1", "bleu_4", "rouge_1", "rouge_2", "rouge_l", "rouge", "token_f1", "wer", "cer")


@pytest.mark.parametrize("name", NAMES)
def test_more_is_better_and_each_text_is_rewarded_on_its_own(name):
    reward = make_reward(name, REFERENCES)
    texts = ["a brown dog is running", "two men swim", "a child plays"]
    figures = reward(texts, REFERENCES)
    assert figures.shape == (3,)
    assert figures[1] < min(figures[0], figures[2])
    alone = [reward([text], [references])[0] for text, references in zip(texts, REFERENCES, strict=True)]
    np.testing.assert_allclose(figures, alone)
    assert reward(["zebra"], REFERENCES[:1])[0] < figures[0]


def test_error_rates_count_against_a_text_from_the_nearest_of_its_references():
    reward = make_reward("wer", REFERENCES)
    figures = reward(["a brown dog is sitting", "two men"], REFERENCES[:2])
    assert figures.tolist() == pytest.approx([-1 / 5, -3 / 5])


def test_rouge_is_the_mean_of_three_and_f1_is_what_the_metric_says():
    texts = ["a dog on grass", "two men", "a child sings"]
    mean = np.mean([rouge(texts, REFERENCES, kind).items for kind in ("1", "2", "l")], axis=0)
    np.testing.assert_allclose(make_reward("rouge", REFERENCES)(texts, REFERENCES), mean)
    np.testing.assert_allclose(
        make_reward("token_f1", REFERENCES)(texts, REFERENCES), token_f1(texts, REFERENCES).items
    )


@pytest.mark.parametrize("name", ["cider", "bleu_4"])
def test_a_text_that_breaks_off_is_worth_less_than_its_words(name):
    reference = ["a dog runs on the grass in the sun"]
    reward = make_reward(name, [reference, *REFERENCES])
    whole, broken = reward([reference[0], "a dog runs on the grass in the"], [reference, reference])
    assert whole > 1.1 * broken


@pytest.mark.parametrize("name", ["wer", "cider"])
def test_nothing_is_right_where_nothing_was_said(name):
    reward = make_reward(name, [*REFERENCES, [""]])
    figures = reward(["", "a", "a child plays"], [[""], [""], REFERENCES[2]])
    assert figures.tolist()[:2] == [0, -1]
    assert figures[2] == make_reward(name, REFERENCES)(["a child plays"], REFERENCES[2:])[0]


def test_an_unknown_name_is_told_the_known_ones():
    with pytest.raises(ValueError, match=r"`metric` must be one of bleu_1, .*wer\. Received: metric='meteo'"):
        make_reward("meteo", REFERENCES)
