import keras
import numpy as np
import pytest
import tensorflow as tf

from attention_apps.training.train_step import MOST_FAILURES
from tests.training.tiny_training import (
    assert_equal_weights,
    fit,
    make_batches,
    make_config,
    make_examples,
    make_model,
    read_table,
    weights_of,
)


def test_a_step_is_adam_on_the_mean_loss_of_the_tokens(tmp_path):
    model, reference = make_model(), make_model()
    batches = make_batches()
    fit(tmp_path, make_config(epochs=1, weight_decay=0.1, clip_norm=0.5, warmup_steps=3), model, batches)
    adam = keras.optimizers.AdamW(weight_decay=0.1, global_clipnorm=0.5, beta_2=0.999)
    adam.exclude_from_weight_decay(var_list=[v for v in reference.trainable_variables if len(v.shape) < 2])
    for number, batch in enumerate(batches.batches(0)):
        adam.learning_rate = 0.01 * min(1, (number + 1) / 3)
        targets = batch["tokens"][:, 1:]
        with tf.GradientTape() as tape:
            logits = reference({"source": batch["source"], "tokens": batch["tokens"][:, :-1]}, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)
            loss = tf.reduce_mean(tf.boolean_mask(losses, targets != 0))
        weights = [v.value for v in reference.trainable_variables]
        gradients = [
            tf.zeros_like(w) if g is None else tf.convert_to_tensor(g)
            for g, w in zip(tape.gradient(loss, weights), weights, strict=True)
        ]
        adam.apply(gradients, reference.trainable_variables)
    for ours, keras_own in zip(weights_of(model), weights_of(reference), strict=True):
        np.testing.assert_allclose(ours, keras_own, atol=2e-6)


def test_accumulated_small_batches_are_one_large_batch(tmp_path):
    examples = make_examples(24)
    _, small, _ = fit(tmp_path / "a", make_config(accumulate=4), None, make_batches(examples, 2, shuffle=False))
    _, large, _ = fit(tmp_path / "b", make_config(), None, make_batches(examples, 8, shuffle=False))
    for a, b in zip(weights_of(small), weights_of(large), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_a_step_that_is_not_finite_changes_nothing(tmp_path):
    model = make_model()
    _, _, trainer = fit(tmp_path, make_config(epochs=1, ema=0.9, weight_decay=0.1), model)
    variables = [*model.variables, *trainer.optimizer.variables, *trainer.average.variables]
    trainer.optimizer.loss_scale.assign(float("inf"))
    before = [variable.numpy() for variable in variables]
    figures = trainer.train_step([(next(iter(make_batches().batches(0))),)], [(0, 0)]).numpy()
    assert figures[trainer.train_step.names.index("finite")] == 0
    for old, new in zip(before, variables, strict=True):
        np.testing.assert_array_equal(old, new)


def test_a_run_that_never_is_finite_stops_with_advice(tmp_path):
    def extra_loss(losses, **_):
        return {"cross_entropy": losses["cross_entropy"] * float("inf")}, {}

    config = make_config(epochs=MOST_FAILURES, log_every=10)
    with pytest.raises(FloatingPointError, match=f"The gradients of {MOST_FAILURES} steps in a row were not finite"):
        fit(tmp_path, config, extra_loss=extra_loss)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_counts_of_an_extra_loss_are_added_up_and_change_no_weight(tmp_path, accumulate):
    def extra_loss(batch, outputs, **_):
        short = tf.reduce_sum(tf.cast(batch["tokens"] != 0, tf.int32), axis=1) <= 4
        return {}, {"short_texts": tf.math.count_nonzero(short), "norm": tf.reduce_sum(outputs["logits"] ** 2)}

    config = make_config(epochs=2, log_every=4 // accumulate, accumulate=accumulate)
    _, plain, _ = fit(tmp_path / "plain", config)
    _, counted, _ = fit(tmp_path / "counted", config, extra_loss=extra_loss)
    expected = sum(len(example["tokens"]) <= 4 for example in make_examples())
    table = read_table(tmp_path / "counted" / "training.csv")
    assert 0 < expected < 30
    assert [float(row["short_texts"]) for row in table] == [expected, expected]
    assert [row["loss"] for row in table] == [row["loss"] for row in read_table(tmp_path / "plain" / "training.csv")]
    assert_equal_weights(plain, counted)
