import csv
import json
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from attention_apps.layers.hard_attention import HardAttention
from attention_apps.training.config import ScheduledSamplingConfig
from attention_apps.training.datasets import Batches
from attention_apps.training.step_figures import MOST_FAILURES
from attention_apps.training.teacher_forcing import TeacherForcing, sampling_probability
from attention_apps.training.trainer import Trainer
from tests.training.tiny_training import (
    TinyAttention,
    make_batches,
    make_config,
    make_examples,
    make_model,
    teacher_forced_accuracy,
    weights_of,
)


def fit(folder, config=None, model=None, batches=None, restart=False, extra_loss=None, validate=None):
    model = make_model() if model is None else model
    config = make_config() if config is None else config
    objective = TeacherForcing(model, config, extra_loss)
    trainer = Trainer(model, config, folder, objective, validate, quiet=True)
    return trainer.fit(make_batches() if batches is None else batches, restart), model, trainer


def rows(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def assert_equal_weights(one, other):
    for a, b in zip(weights_of(one), weights_of(other), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def given_figures(name, figures):
    """A validation that gives these figures, one after the other, and remembers the weights it saw."""
    seen = []

    def validate(model):
        seen.append(weights_of(model))
        return {"metrics": {name: figures[len(seen) - 1]}}

    return validate, seen


def test_training_lowers_the_loss_and_logs_it(tmp_path):
    config = make_config(epochs=12, log_every=4, doubly_stochastic=0.1, coverage=0.1, guided=0.1)
    history, _, _ = fit(tmp_path, config, validate=teacher_forced_accuracy)
    table = rows(tmp_path / "training.csv")
    losses = [float(row["cross_entropy"]) for row in table]
    assert history.steps == 48
    assert history.stopped_by == "epochs"
    assert losses[-1] < 0.9 * losses[0]
    assert list(table[0])[:3] == ["step", "epoch", "loss"]
    assert {"doubly_stochastic", "coverage", "guided", "learning_rate", "gradient_norm"} < set(table[0])
    assert [row["step"] for row in rows(tmp_path / "validation.csv")] == [str(4 * epoch) for epoch in range(1, 13)]
    sample = json.loads((tmp_path / "samples.jsonl").read_text().splitlines()[0])
    assert sample == {"step": 4, "source": "a source", "reference": "a reference", "generated": "a text"}


def test_tensorboard_reads_what_was_logged(tmp_path):
    fit(tmp_path, make_config(epochs=1, log_every=2), validate=teacher_forced_accuracy)
    (file,) = (tmp_path / "tensorboard").iterdir()
    tags = {}
    for record in tf.data.TFRecordDataset(str(file)):
        event = tf.compat.v1.Event.FromString(record.numpy())
        tags |= {value.tag: value.metadata.plugin_data.plugin_name for value in event.summary.value}
    assert tags["training/loss"] == tags["validation/accuracy"] == "scalars"
    assert tags["samples/0"] == "text"


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


def test_the_best_weights_are_kept_and_training_stops_without_a_better_figure(tmp_path):
    validate, seen = given_figures("wer", [0.9, 0.4, 0.5, 0.4, 0.3])
    history, model, _ = fit(tmp_path, make_config(epochs=9, patience=2), validate=validate)
    assert history.stopped_by == "patience"
    assert [entry["wer"] for entry in history.validations] == [0.9, 0.4, 0.5, 0.4]
    assert (history.best, history.best_step) == (0.4, 8)
    for ours, best in zip(weights_of(model), seen[1], strict=True):
        np.testing.assert_array_equal(ours, best)


def test_validation_by_steps_and_by_the_chosen_metric(tmp_path):
    def validate(model):
        return {"metrics": {"bleu": 3.0, "cider": float("nan")}}

    config = make_config(epochs=2, validate_unit="steps", validate_every=3, metric="cider")
    history, _, _ = fit(tmp_path, config, validate=validate)
    assert [entry["step"] for entry in history.validations] == [3, 6, 8]
    assert history.best_step == 3
    with pytest.raises(ValueError, match=r"`metric` must be one of bleu, cider\. Received: metric='wer'"):
        fit(tmp_path / "wrong", make_config(epochs=1, metric="wer"), validate=validate)


def test_the_moving_average_takes_the_place_of_the_weights(tmp_path):
    validate, seen = given_figures("bleu", [1.0])
    _, model, trainer = fit(tmp_path, make_config(epochs=1, ema=0.5), validate=validate)
    averages = {id(v): a for v, a in zip(model.trainable_variables, trainer.average.variables, strict=True)}
    for weight, validated in zip(model.weights, seen[0], strict=True):
        np.testing.assert_array_equal(weight, validated)
        if weight.trainable:
            np.testing.assert_array_equal(weight, averages[id(weight)])
    last = trainer._checkpoints.load("last").arrays
    moved = [not np.array_equal(last[f"model/{i:04d}/{w.name}"], w) for i, w in enumerate(model.weights)]
    assert any(moved)


def test_the_best_checkpoints_are_averaged_in_the_end(tmp_path):
    validate, seen = given_figures("bleu", [5.0, 1.0, 4.0, 6.0])
    history, model, _ = fit(tmp_path, make_config(average_checkpoints=2), validate=validate)
    assert [entry["bleu"] for entry in history.validations] == [5.0, 1.0, 4.0, 6.0]
    for ours, first, third in zip(weights_of(model), seen[0], seen[2], strict=True):
        np.testing.assert_allclose(ours, (first + third) / 2, atol=1e-7)
    assert history.best == 6.0


def test_an_average_that_is_worse_than_the_best_is_dropped(tmp_path):
    validate, seen = given_figures("bleu", [5.0, 1.0, 4.0, 3.0])
    history, model, _ = fit(tmp_path, make_config(average_checkpoints=2), validate=validate)
    assert history.best == 5.0
    np.testing.assert_array_equal(weights_of(model)[0], seen[0][0])


def test_frozen_parts_and_their_normalisation_stay(tmp_path):
    model = make_model(dropout=0.2)
    before = [weight.numpy() for weight in model.encoder.weights]
    fit(tmp_path, make_config(epochs=1, freeze=("encoder/*",), weight_decay=0.1), model)
    for old, new in zip(before, model.encoder.weights, strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision_learns(tmp_path, policy):
    model = make_model(dtype=policy)
    history, _, trainer = fit(tmp_path, make_config(epochs=6, log_every=6), model)
    losses = [float(row["loss"]) for row in rows(tmp_path / "training.csv")]
    assert history.skipped_steps == 0
    assert losses[-1] < losses[0]
    assert float(trainer.optimizer.loss_scale) == (2.0**15 if policy == "mixed_float16" else 1.0)
    assert all(weight.dtype == "float32" for weight in model.trainable_variables)


def test_a_step_that_is_not_finite_changes_nothing(tmp_path):
    model = make_model()
    _, _, trainer = fit(tmp_path, make_config(epochs=1, ema=0.9, weight_decay=0.1), model)
    variables = [*model.variables, *trainer.optimizer.variables, *trainer.average.variables]
    trainer.optimizer.loss_scale.assign(float("inf"))
    before = [variable.numpy() for variable in variables]
    figures = trainer.make_step([(next(iter(make_batches().batches(0))),)], [(0, 0)]).numpy()
    assert figures[trainer.make_step.names.index("finite")] == 0
    for old, new in zip(before, variables, strict=True):
        np.testing.assert_array_equal(old, new)


def test_a_run_that_never_is_finite_stops_with_advice(tmp_path):
    def extra_loss(losses, **_):
        return {"cross_entropy": losses["cross_entropy"] * float("inf")}, {}

    config = make_config(epochs=MOST_FAILURES, log_every=10)
    with pytest.raises(FloatingPointError, match=f"The gradients of {MOST_FAILURES} steps in a row were not finite"):
        fit(tmp_path, config, extra_loss=extra_loss)


def test_float16_overflow_halves_the_scale_and_goes_on(tmp_path):
    model = make_model(dtype="mixed_float16")
    config = make_config(epochs=1, log_every=1)
    trainer = Trainer(model, config, tmp_path, quiet=True)
    trainer._set_up(make_batches())
    trainer.optimizer.loss_scale.assign(2.0**30)
    trainer._begin_or_go_on(restart=False)
    trainer._train()
    assert trainer.state.skipped_steps == 4
    assert float(trainer.optimizer.loss_scale) == 2.0**26


def test_an_extra_loss_sees_the_epoch_and_may_replace_what_is_there(tmp_path):
    def extra_loss(model, batch, outputs, losses, epoch):
        assert outputs["memory"]["values"].shape[-1] == 5
        tokens = tf.reduce_sum(tf.cast(batch["tokens"][:, 1:] != 0, tf.float32))
        return {"cross_entropy": 0.0 * losses["cross_entropy"], "epoch": tokens * tf.cast(epoch, tf.float32)}, {}

    fit(tmp_path, make_config(log_every=4), extra_loss=extra_loss)
    table = rows(tmp_path / "training.csv")
    assert [float(row["loss"]) for row in table] == [0, 1, 2]


@pytest.mark.parametrize("accumulate", [1, 2])
def test_counts_of_an_extra_loss_are_added_up_and_change_no_weight(tmp_path, accumulate):
    def extra_loss(batch, outputs, **_):
        short = tf.reduce_sum(tf.cast(batch["tokens"] != 0, tf.int32), axis=1) <= 4
        return {}, {"short_texts": tf.math.count_nonzero(short), "norm": tf.reduce_sum(outputs["logits"] ** 2)}

    config = make_config(epochs=2, log_every=4 // accumulate, accumulate=accumulate)
    _, plain, _ = fit(tmp_path / "plain", config)
    _, counted, _ = fit(tmp_path / "counted", config, extra_loss=extra_loss)
    expected = sum(len(example["tokens"]) <= 4 for example in make_examples())
    table = rows(tmp_path / "counted" / "training.csv")
    assert 0 < expected < 30
    assert [float(row["short_texts"]) for row in table] == [expected, expected]
    assert [row["loss"] for row in table] == [row["loss"] for row in rows(tmp_path / "plain" / "training.csv")]
    assert_equal_weights(plain, counted)


def test_hard_attention_is_trained_by_its_estimator(tmp_path):
    model = make_model(attention=HardAttention(TinyAttention(name="inner"), seed=3))
    fit(tmp_path, make_config(log_every=4), model)
    row = rows(tmp_path / "training.csv")[-1]
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


def test_a_time_budget_ends_the_run_and_more_time_continues_it(tmp_path):
    config = make_config(epochs=4, max_minutes=1e-6)
    history, _, _ = fit(tmp_path, config)
    assert (history.steps, history.stopped_by) == (1, "max_minutes")
    history, model, _ = fit(tmp_path, make_config(epochs=4, max_minutes=5.0))
    assert (history.steps, history.stopped_by) == (16, "epochs")
    assert_equal_weights(model, fit(tmp_path / "plain", make_config(epochs=4))[1])


def test_more_time_would_go_on_from_the_last_weights_and_not_from_their_average(tmp_path):
    validate, seen = given_figures("bleu", [1.0, 2.0, 3.0])
    _, model, trainer = fit(tmp_path, make_config(epochs=2, average_checkpoints=2), validate=validate)
    np.testing.assert_allclose(weights_of(model)[0], (seen[0][0] + seen[1][0]) / 2, atol=1e-7)
    last = trainer._checkpoints.load("last").arrays
    for place, (weight, value) in enumerate(zip(model.weights, seen[1], strict=True)):
        np.testing.assert_array_equal(last[f"model/{place:04d}/{weight.name}"], value)


def test_candidates_are_removed_after_the_checkpoint_that_does_without_them(tmp_path):
    config = make_config(epochs=4, average_checkpoints=2)
    validate, _ = given_figures("bleu", [1.0, 2.0, 3.0, 4.0, 0.0])
    _, _, trainer = fit(tmp_path, config, validate=validate)
    folder = trainer._checkpoints
    assert {name for name in folder.names() if name.startswith("candidate-")} == {"candidate-12", "candidate-16"}
    removed, remove = [], folder.remove

    def note(name):
        removed.append((name, folder.load("last").state["position"]["candidates"]))
        remove(name)

    folder.remove = note
    trainer.state.candidates = [[4.0, 16]]
    trainer._save()
    trainer.validation.forget_worse(trainer.state)
    assert removed == [("candidate-12", [[4.0, 16]])]


def test_a_finished_run_returns_at_once_with_its_weights(tmp_path):
    first, model, _ = fit(tmp_path)
    other = make_model(seed=9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second, _, trainer = fit(tmp_path, model=other)
    assert second == first
    assert trainer.make_step.names == []  # no step was made
    assert_equal_weights(model, other)


def test_restart_begins_anew(tmp_path):
    fit(tmp_path, make_config(log_every=4))
    history, model, _ = fit(tmp_path, make_config(epochs=1, log_every=4), restart=True)
    assert history.steps == 4
    assert_equal_weights(model, fit(tmp_path / "other", make_config(epochs=1))[1])
    assert len(rows(tmp_path / "training.csv")) == 1


@pytest.mark.parametrize(
    ("config", "batches", "message"),
    [
        (make_config(learning_rate=0.02), make_batches(), "`learning_rate` was 0.01, now 0.02"),
        (make_config(), make_batches(make_examples(25)), "examples was 30, now 25"),
        (make_config(), make_batches(make_examples(seed=6)), "checksum of the lengths was"),
    ],
)
def test_another_run_in_the_same_folder_is_refused(tmp_path, config, batches, message):
    fit(tmp_path, make_config(max_steps=None))
    with pytest.raises(ValueError, match=f"holds a run that differs from this one: .*{message}"):
        fit(tmp_path, config, batches=batches)


def test_another_model_in_the_same_folder_is_refused(tmp_path):
    fit(tmp_path)
    with pytest.raises(
        ValueError, match=r"The checkpoint is of another model: model/0000/embeddings has shape \(9, 5\)"
    ):
        fit(tmp_path, model=make_model(vocabulary=10))


def test_frozen_everything_is_refused(tmp_path):
    with pytest.raises(ValueError, match="`freeze` leaves nothing that learns"):
        fit(tmp_path, make_config(freeze=("*",)))
    with pytest.raises(
        ValueError, match=r"`freeze` matches nothing with 'decoder/lstm'\. Parts of the model: encoder, "
    ):
        fit(tmp_path, make_config(freeze=("decoder/lstm",)))
