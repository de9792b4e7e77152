import csv
import json
import multiprocessing
import os
import socket
import sys
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

from attention_apps.decoding import DecodingOptions
from attention_apps.training.checkpoint import CheckpointFolder
from attention_apps.training.config import SelfCriticalConfig
from attention_apps.training.objectives import SelfCritical, TeacherForcing
from attention_apps.training.train_step import MOST_FAILURES, chief_value, find_strategy, is_chief, local_shards
from attention_apps.training.trainer import Trainer
from tests.training.tiny_training import (
    assert_equal_weights,
    fit,
    make_batches,
    make_config,
    make_examples,
    make_model,
    read_table,
    teacher_forced_accuracy,
    weights_of,
)

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.training.tiny_training", "attention_apps.training.trainer"])

# 30 examples in batches of 7 leave a last one of 2, and with two replicas parts of unequal numbers of tokens.
BATCH_SIZE = 7
# The exit code of a worker that lost another.
LOST = 7


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


class SlowTeacherForcing(TeacherForcing):
    def prepare(self, parts, rows, position):
        time.sleep(0.1)
        return parts


def train(folder, accumulate=1, slow=False):
    config = make_config(epochs=3, accumulate=accumulate, ema=0.9, log_every=1, checkpoint_minutes=1e-6)
    model = make_model()
    objective = SlowTeacherForcing(model, config) if slow else None
    batches = make_batches(batch_size=BATCH_SIZE)
    return Trainer(model, batches, config, folder, objective, teacher_forced_accuracy, quiet=True).fit()


def train_mirrored(folder, accumulate=1):
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        train(folder, accumulate)


def train_worker(folder, ports, index, slow=False):
    addresses = [f"127.0.0.1:{port}" for port in ports]
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}})
    strategy = find_strategy()
    assert local_shards(strategy) == range(index, index + 1)
    assert is_chief(strategy) == (index == 0)
    with strategy.scope():
        assert chief_value(strategy, 0.1 + index) == 0.1
        try:
            train(folder, slow=slow)
        except ConnectionError as error:
            sys.exit(LOST if "Another worker was lost after step" in str(error) else 1)


def train_mirrored_on_rewards(folder):
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

    def reward(hypotheses, examples):
        return [float(5 in ids) for ids in hypotheses]

    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        model = make_model(dropout=0.1)
        objective = SelfCritical(model, SelfCriticalConfig(samples=3), reward, DecodingOptions(max_length=4))
        batches = make_batches(batch_size=29)
        history = Trainer(model, batches, make_config(epochs=1), folder, objective, quiet=True).fit()
        assert history.steps == 2  # the last batch has one example: a part of it has none


def start(function, *arguments):
    process = PROCESSES.Process(target=function, args=arguments, daemon=True)
    process.start()
    return process


def finish(*processes):
    for process in processes:
        process.join(timeout=240)
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    assert codes == [0] * len(processes)


def free_ports(count):
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


def loss_curve(folder):
    with (folder / "training.csv").open() as file:
        return [float(row["loss"]) for row in csv.DictReader(file)]


def assert_same_training(folder, reference):
    np.testing.assert_allclose(loss_curve(folder), loss_curve(reference), atol=1e-4)
    ours, expected = (CheckpointFolder(path / "checkpoints").load("best").arrays for path in (folder, reference))
    for name, array in expected.items():
        np.testing.assert_allclose(ours[name], array, atol=1e-4, err_msg=name)


@pytest.fixture(scope="module")
def one_worker(tmp_path_factory):
    """What one worker gets from whole batches."""
    folder = tmp_path_factory.mktemp("one_worker")
    train(folder)
    assert len(loss_curve(folder)) == 15
    return folder


def test_without_distribution_there_is_one_shard_and_it_is_the_chief():
    strategy = find_strategy()
    assert strategy.num_replicas_in_sync == 1
    assert local_shards(strategy) == range(1)
    assert is_chief(strategy)
    assert chief_value(strategy, 3.5) == 3.5


@pytest.mark.slow
def test_two_mirrored_devices_train_as_one(tmp_path, one_worker):
    train(tmp_path / "accumulated", accumulate=2)
    processes = [
        start(train_mirrored, tmp_path / "mirrored"),
        start(train_mirrored, tmp_path / "mirrored_accumulated", 2),
        start(train_mirrored_on_rewards, tmp_path / "rewards"),
    ]
    finish(*processes)
    assert_same_training(tmp_path / "mirrored", one_worker)
    assert_same_training(tmp_path / "mirrored_accumulated", tmp_path / "accumulated")


@pytest.mark.slow
def test_two_workers_train_as_one(tmp_path, one_worker):
    ports = free_ports(2)
    finish(*(start(train_worker, tmp_path, ports, index) for index in range(2)))
    assert_same_training(tmp_path, one_worker)


@pytest.mark.slow
def test_after_the_death_of_a_worker_the_run_goes_on_from_the_last_checkpoint(tmp_path, one_worker):
    ports = free_ports(2)
    chief, other = (start(train_worker, tmp_path, ports, index, True) for index in range(2))
    checkpoints = CheckpointFolder(tmp_path / "checkpoints")
    end = time.monotonic() + 120
    while not checkpoints.path("previous").exists() or checkpoints.load_last().state["position"]["step"] < 3:
        assert time.monotonic() < end
        assert chief.is_alive()
        time.sleep(0.05)
    other.kill()
    chief.join(timeout=120)
    assert chief.exitcode == LOST  # it does not wait for ever
    reached = checkpoints.load_last().state["position"]["step"]
    assert 3 <= reached < 15
    ports = free_ports(2)
    finish(*(start(train_worker, tmp_path, ports, index) for index in range(2)))
    assert_same_training(tmp_path, one_worker)
