import csv
import multiprocessing
import time

import numpy as np
import pytest

from attention_apps.training.checkpoint import CheckpointFolder
from attention_apps.training.config import ScheduledSamplingConfig
from attention_apps.training.objectives import TeacherForcing
from attention_apps.training.trainer import Trainer
from tests.training.tiny_training import make_batches, make_config, make_model, teacher_forced_accuracy, weights_of

# Children come from a process that has imported TensorFlow and done nothing with it yet.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.training.tiny_training", "attention_apps.training.trainer"])

KILLS = 4
STEPS = 24


class SlowTeacherForcing(TeacherForcing):
    """Takes its time, so that there is something to interrupt."""

    def prepare(self, parts, rows, position):
        time.sleep(0.02)
        return parts


def run(folder, seed):
    """All that has a state: dropout, normalization, accumulation, sampling, averages, a schedule, validations."""
    config = make_config(
        epochs=6,
        accumulate=2,
        schedule="cosine",
        warmup_steps=5,
        ema=0.9,
        average_checkpoints=2,
        scheduled_sampling=ScheduledSamplingConfig(probability=0.3, ramp_steps=10),
        log_every=3,
        checkpoint_minutes=1e-3,
        deterministic=True,
    )
    model = make_model(dropout=0.3, seed=seed)
    objective = SlowTeacherForcing(model, config)
    batches = make_batches(batch_size=4)
    Trainer(model, batches, config, folder, objective, teacher_forced_accuracy, quiet=True).fit()


def start(folder, seed):
    process = PROCESSES.Process(target=run, args=(folder, seed), daemon=True)
    process.start()
    return process


def time_of(path):
    """When a file was written, or `None` if there is none at the moment."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return None


def wait_for_a_new(path, process):
    before = time_of(path)
    end = time.monotonic() + 120
    while process.is_alive() and time_of(path) in (before, None):
        assert time.monotonic() < end
        time.sleep(0.002)


def run_to_the_end(folder, seed):
    process = start(folder, seed)
    process.join(timeout=240)
    assert process.exitcode == 0


def kill_at_a_random_moment(folder, seed, random):
    """Kills the run some time after it has made its first steps; returns the step that it can go on from."""
    checkpoints = CheckpointFolder(folder / "checkpoints")
    process = start(folder, seed)
    if not checkpoints.path("last").exists():
        wait_for_a_new(checkpoints.path("last"), process)  # that of step 0
    wait_for_a_new(checkpoints.path("last"), process)
    time.sleep(random.uniform(0.0, 0.3))
    process.kill()
    process.join(timeout=60)
    return checkpoints.load_last().state["position"]["step"]


@pytest.mark.slow
def test_a_run_that_was_killed_ends_with_the_weights_of_one_that_was_not(tmp_path):
    random = np.random.default_rng()
    run_to_the_end(tmp_path / "whole", seed=1)
    # Only the first process has the first weights of the other run; those that go on must not need them.
    reached = [kill_at_a_random_moment(tmp_path / "killed", seed, random) for seed in range(1, KILLS + 1)]
    run_to_the_end(tmp_path / "killed", seed=KILLS + 1)
    assert sorted(reached) == reached
    assert reached[0] < STEPS
    for name in ("last", "best"):
        whole, killed = (CheckpointFolder(tmp_path / run / "checkpoints").load(name) for run in ("whole", "killed"))
        assert whole.arrays.keys() == killed.arrays.keys()
        for key, array in whole.arrays.items():
            np.testing.assert_array_equal(killed.arrays[key], array, err_msg=f"{name}: {key}")
    assert steps_of(tmp_path / "killed") == steps_of(tmp_path / "whole") == [3 * row for row in range(1, 9)]


def steps_of(folder):
    with (folder / "training.csv").open() as file:
        return [int(row["step"]) for row in csv.DictReader(file)]


class InterruptedTeacherForcing(TeacherForcing):
    """Fails at one of the batches, as a full disk or a broken file would."""

    def prepare(self, parts, rows, position):
        if position == (1, 2):
            raise OSError("the disk is gone")
        return parts


def test_after_an_error_and_with_a_damaged_checkpoint_the_run_goes_on_from_the_one_before(tmp_path):
    config = make_config(checkpoint_minutes=1e-9)

    def fit(folder, objective):
        model = make_model()
        Trainer(model, make_batches(), config, folder, objective(model, config), quiet=True).fit()
        return weights_of(model)

    with pytest.raises(OSError, match="the disk is gone"):
        fit(tmp_path / "broken", InterruptedTeacherForcing)
    last = CheckpointFolder(tmp_path / "broken" / "checkpoints").path("last")
    last.write_bytes(last.read_bytes()[:-100])
    with pytest.warns(UserWarning, match="going back to the checkpoint before it"):
        resumed = fit(tmp_path / "broken", TeacherForcing)
    for a, b in zip(resumed, fit(tmp_path / "whole", TeacherForcing), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
