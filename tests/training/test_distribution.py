import csv
import json
import multiprocessing
import os
import socket
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from attention_apps.decoding import DecodingOptions
from attention_apps.training.checkpoint import CheckpointFolder
from attention_apps.training.config import SelfCriticalConfig
from attention_apps.training.distribution import chief_value, find_strategy, is_chief, local_shards
from attention_apps.training.objectives import SelfCritical, TeacherForcing
from attention_apps.training.trainer import Trainer
from tests.training.tiny_training import make_batches, make_config, make_model, teacher_forced_accuracy

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.training.tiny_training", "attention_apps.training.trainer"])

# 30 examples in batches of 7 leave a last one of 2, and with two replicas parts of unequal numbers of tokens.
BATCH_SIZE = 7
# The exit code of a worker that lost another.
LOST = 7


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
