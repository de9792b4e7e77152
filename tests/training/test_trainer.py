import errno
import json
import os
import signal
import subprocess
import sys
import warnings

import numpy as np
import pytest
import tensorflow as tf

from attention_apps.training.checkpoint import DamagedCheckpointError
from attention_apps.training.trainer import Trainer, TrainingInterrupted
from tests.fault_injection import Faults
from tests.training.tiny_training import (
    assert_equal_weights,
    fit,
    given_values,
    make_batches,
    make_config,
    make_examples,
    make_model,
    read_table,
    teacher_forced_accuracy,
    weights_of,
)


def test_training_lowers_the_loss_and_logs_it(tmp_path):
    config = make_config(epochs=12, log_every=4, doubly_stochastic=0.1, coverage=0.1, guided=0.1)
    history, _, _ = fit(tmp_path, config, validate=teacher_forced_accuracy)
    table = read_table(tmp_path / "training.csv")
    losses = [float(row["cross_entropy"]) for row in table]
    assert history.steps == 48
    assert history.stopped_by == "epochs"
    assert losses[-1] < 0.9 * losses[0]
    assert list(table[0])[:3] == ["step", "epoch", "loss"]
    assert {"doubly_stochastic", "coverage", "guided", "learning_rate", "gradient_norm"} < set(table[0])
    assert [row["step"] for row in read_table(tmp_path / "validation.csv")] == [
        str(4 * epoch) for epoch in range(1, 13)
    ]
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


def test_frozen_parts_and_their_normalization_stay(tmp_path):
    model = make_model(dropout=0.2)
    before = [weight.numpy() for weight in model.encoder.weights]
    fit(tmp_path, make_config(epochs=1, freeze=("encoder/*",), weight_decay=0.1), model)
    for old, new in zip(before, model.encoder.weights, strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision_learns(tmp_path, policy):
    model = make_model(dtype=policy)
    history, _, trainer = fit(tmp_path, make_config(epochs=6, log_every=6), model)
    losses = [float(row["loss"]) for row in read_table(tmp_path / "training.csv")]
    assert history.skipped_steps == 0
    assert losses[-1] < losses[0]
    assert float(trainer.optimizer.loss_scale) == (2.0**15 if policy == "mixed_float16" else 1.0)
    assert all(weight.dtype == "float32" for weight in model.trainable_variables)


def test_float16_overflow_halves_the_scale_and_goes_on(tmp_path):
    model = make_model(dtype="mixed_float16")
    config = make_config(epochs=1, log_every=1)
    trainer = Trainer(model, make_batches(), config, tmp_path, quiet=True)
    trainer.optimizer.loss_scale.assign(2.0**30)
    trainer._start_or_resume(restart=False)
    trainer._train()
    assert trainer.state.skipped_steps == 4
    assert float(trainer.optimizer.loss_scale) == 2.0**26


def test_a_time_budget_ends_the_run_and_more_time_continues_it(tmp_path):
    config = make_config(epochs=4, max_minutes=1e-6)
    history, _, _ = fit(tmp_path, config)
    assert (history.steps, history.stopped_by) == (1, "max_minutes")
    history, model, _ = fit(tmp_path, make_config(epochs=4, max_minutes=5.0))
    assert (history.steps, history.stopped_by) == (16, "epochs")
    assert_equal_weights(model, fit(tmp_path / "plain", make_config(epochs=4))[1])


def test_a_finished_run_returns_at_once_with_its_weights(tmp_path):
    first, model, _ = fit(tmp_path)
    other = make_model(seed=9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second, _, trainer = fit(tmp_path, model=other)
    assert second == first
    assert trainer.train_step.names == []  # no step was made
    assert_equal_weights(model, other)


def test_restart_begins_anew(tmp_path):
    fit(tmp_path, make_config(log_every=4))
    history, model, _ = fit(tmp_path, make_config(epochs=1, log_every=4), restart=True)
    assert history.steps == 4
    assert_equal_weights(model, fit(tmp_path / "other", make_config(epochs=1))[1])
    assert len(read_table(tmp_path / "training.csv")) == 1


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


def test_a_refused_run_leaves_the_folder_as_it_was(tmp_path):
    accepted = []
    fit(tmp_path, on_accepted=lambda: accepted.append("first"))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match="holds a run that differs"):
        fit(tmp_path, make_config(learning_rate=0.02), on_accepted=lambda: accepted.append("refused"))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    fit(tmp_path, on_accepted=lambda: accepted.append("again"))
    assert accepted == ["first", "again"]


def test_a_second_run_in_the_folder_is_refused_while_the_first_goes_on(tmp_path):
    def validate(model):
        with pytest.raises(BlockingIOError, match=f"{tmp_path} is in use by another process"):
            fit(tmp_path, restart=True)
        return {"metrics": {"bleu": 1.0}}

    history, _, _ = fit(tmp_path, make_config(epochs=1), validate=validate)
    assert [entry["bleu"] for entry in history.validations] == [1.0]


def test_without_an_intact_checkpoint_a_run_does_not_start_again_by_itself(tmp_path):
    _, model, trainer = fit(tmp_path)
    for name in ("last", "previous"):
        trainer.checkpoints.path(name).write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"cannot be resumed: .*restart it \(--restart"):
        fit(tmp_path)
    assert_equal_weights(fit(tmp_path, restart=True)[1], model)


@pytest.mark.parametrize("change", [lambda state: state.pop("position"), lambda state: state["position"].update(odd=1)])
def test_a_checkpoint_without_the_state_of_a_run_is_refused(tmp_path, change):
    _, _, trainer = fit(tmp_path)
    checkpoint = trainer.checkpoints.load("last")
    change(checkpoint.state)
    trainer.checkpoints.save("last", checkpoint.arrays, checkpoint.state)
    with pytest.raises(DamagedCheckpointError, match=r"holds no state of a run .*(position|odd).*\. Restart it\."):
        fit(tmp_path)


@pytest.mark.parametrize("damage", ["damaged", "removed"])
@pytest.mark.parametrize("ema", [None, 0.5])
def test_the_last_weights_replace_a_lost_best_checkpoint(tmp_path, damage, ema):
    config = make_config(epochs=2, ema=ema)
    validate, seen = given_values("bleu", [3.0, 2.0, 2.0])
    _, _, trainer = fit(tmp_path, config, validate=validate)
    if damage == "removed":
        trainer.checkpoints.path("best").unlink()
    else:
        trainer.checkpoints.path("best").write_bytes(b"damaged")
    with pytest.warns(UserWarning, match="best.safetensors.*The last weights of the run, of step 8, replace the best"):
        history, model, _ = fit(tmp_path, config, make_model(seed=7), validate=validate)
    assert (history.best, history.best_step) == (2.0, 8)
    for ours, last in zip(weights_of(model), seen[1], strict=True):
        np.testing.assert_array_equal(ours, last)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fit(tmp_path, config, validate=validate)[0] == history


def test_a_damaged_log_does_not_stop_a_run_that_resumes(tmp_path):
    fit(tmp_path, make_config(log_every=1, max_minutes=1e-6))
    with (tmp_path / "training.csv").open("a") as file:
        file.write("what,is,this\n")
    with pytest.warns(UserWarning, match=r"training\.csv, line 3: dropped a damaged row"):
        fit(tmp_path, make_config(log_every=1))
    assert [row["step"] for row in read_table(tmp_path / "training.csv")] == [str(step) for step in range(1, 13)]


FULL_DISK = """
import resource, sys
from pathlib import Path
from tests.training.tiny_training import fit, make_config
folder, limit = Path(sys.argv[1]), int(sys.argv[2])
fit(folder, make_config(max_steps=2, schedule="constant"))
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    fit(folder / "other", make_config(epochs=1))
except OSError as error:
    print(error)
"""


def test_a_full_disk_is_explained(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, tmp_path, "2000"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "The disk is full: " in done.stdout
    assert "last.safetensors" in done.stdout
    assert f"repeat the same call: the run resumes from the last checkpoint in {tmp_path / 'other'}" in done.stdout


def test_a_run_whose_disk_was_full_resumes(tmp_path, monkeypatch):
    whole = fit(tmp_path / "whole", make_config(checkpoint_minutes=1e-9))[1]

    def fail():
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        Faults(30, fail).install(patch)
        with pytest.raises(OSError, match="The disk is full: .*Free some space and repeat the same call"):
            fit(tmp_path / "full", make_config(checkpoint_minutes=1e-9))
    assert_equal_weights(fit(tmp_path / "full", make_config(checkpoint_minutes=1e-9), make_model(seed=8))[1], whole)


def test_frozen_everything_is_refused(tmp_path):
    with pytest.raises(ValueError, match="`freeze` leaves nothing to train"):
        fit(tmp_path, make_config(freeze=("*",)))
    with pytest.raises(
        ValueError, match=r"`freeze` matches nothing with 'decoder/lstm'\. Parts of the model: encoder, "
    ):
        fit(tmp_path, make_config(freeze=("decoder/lstm",)))


# Signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_writes_a_checkpoint_and_the_same_call_resumes(tmp_path, number):
    config = make_config(epochs=2, validate_every=3, validate_unit="steps", checkpoint_minutes=1000.0)
    handlers = [signal.getsignal(other) for other in (signal.SIGINT, signal.SIGTERM)]

    def validate_and_stop(model):
        os.kill(os.getpid(), number)
        return {"metrics": {"accuracy": 0.5}}

    with pytest.raises(TrainingInterrupted, match=r"SIG(INT|TERM) stopped the run after step 3\.") as caught:
        fit(tmp_path / "stopped", config, validate=validate_and_stop)
    assert caught.value.signal_number == number
    assert [signal.getsignal(other) for other in (signal.SIGINT, signal.SIGTERM)] == handlers
    history, resumed, _ = fit(tmp_path / "stopped", config, validate=given_values("accuracy", [0.6, 0.7])[0])
    assert (history.steps, len(history.validations)) == (8, 3)
    _, through, _ = fit(tmp_path / "through", config, validate=given_values("accuracy", [0.1, 0.2, 0.3])[0])
    assert_equal_weights(resumed, through)


def test_the_settings_that_were_left_open_are_chosen_by_the_data(tmp_path):
    history, _, trainer = fit(
        tmp_path, make_config(epochs="auto", validate_every="auto"), validate=teacher_forced_accuracy
    )
    assert trainer.config.epochs == 30
    assert history.steps == 120
    assert [entry["step"] for entry in history.validations] == list(range(12, 121, 12))
    assert history.metric == "accuracy"
