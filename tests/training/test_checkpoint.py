import contextlib
import itertools
import multiprocessing
import os
import time

import numpy as np
import pytest

from attention_apps.training.checkpoint import CheckpointFolder, DamagedCheckpointError
from tests.fault_injection import every_error, every_kill, leftovers

# Children come from a process that has imported TensorFlow and done nothing with it yet.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.training.tiny_training", "attention_apps.training.trainer"])


def arrays(value):
    return {
        "kernel": np.full((3, 5), value, "float32"),
        "half": np.full((2,), value, "float16"),
        "steps": np.array(value, "int64"),
        "seeds": np.array([value, 7], "uint32"),
        "flags": np.array([True, False]),
        "none": np.zeros((0, 4), "float32"),
    }


def assert_holds(checkpoint, value):
    assert checkpoint.state == {"step": value, "name": "ü"}
    assert set(checkpoint.arrays) == set(arrays(0))
    for name, array in arrays(value).items():
        assert checkpoint.arrays[name].dtype == array.dtype
        assert np.array_equal(checkpoint.arrays[name], array)


def save(folder, value):
    folder.save_last(arrays(value), {"step": value, "name": "ü"})


def test_the_last_one_comes_back(tmp_path):
    folder = CheckpointFolder(tmp_path / "new")
    assert folder.load_last() is None
    for value in (1, 2, 3):
        save(folder, value)
    assert_holds(folder.load_last(), 3)
    assert sorted(os.listdir(folder.folder)) == ["last.safetensors", "previous.safetensors"]


@pytest.mark.parametrize("damage", ["truncated", "flipped", "emptied", "text"])
def test_a_damaged_one_gives_way_to_the_one_before(tmp_path, damage):
    folder = CheckpointFolder(tmp_path)
    save(folder, 1)
    save(folder, 2)
    content = folder.path("last").read_bytes()
    damaged = {
        "truncated": content[:-10],
        "flipped": content[:-9] + bytes([content[-9] ^ 4]) + content[-8:],
        "emptied": b"",
        "text": b"not a checkpoint at all",
    }
    folder.path("last").write_bytes(damaged[damage])
    with pytest.warns(UserWarning, match="last.safetensors is damaged.*going back to the checkpoint before it"):
        checkpoint = folder.load_last()
    assert_holds(checkpoint, 1)


@pytest.mark.parametrize(
    ("old", "new"),
    [(b'step\\": 2', b'step\\": 9'), (b"F32", b"I32"), (b"[3,5]", b"[5,3]"), (b'"format":"2"', b'"format":"1"')],
    ids=["state", "type", "shape", "version"],
)
def test_the_checksum_covers_state_and_types_and_shapes(tmp_path, old, new):
    folder = CheckpointFolder(tmp_path)
    save(folder, 1)
    save(folder, 2)
    content = folder.path("last").read_bytes()
    assert old in content
    folder.path("last").write_bytes(content.replace(old, new))
    with pytest.warns(UserWarning, match="its checksum is wrong; going back|was written by another version"):
        assert_holds(folder.load_last(), 1)


def test_death_between_the_two_renames_leaves_the_one_before(tmp_path):
    folder = CheckpointFolder(tmp_path)
    save(folder, 1)
    os.replace(folder.path("last"), folder.path("previous"))
    assert_holds(folder.load_last(), 1)
    save(folder, 2)
    assert_holds(folder.load_last(), 2)


def test_named_ones_are_replaced_and_removed(tmp_path):
    folder = CheckpointFolder(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    folder.save("best", arrays(1), {"step": 1, "name": "ü"})
    folder.save("best", arrays(2), {"step": 2, "name": "ü"})
    assert_holds(folder.load("best"), 2)
    save(folder, 3)
    folder.keep_only(["best"], prefix="be")
    assert_holds(folder.load("best"), 2)
    folder.keep_only(["other"], prefix="be")
    with pytest.raises(FileNotFoundError, match="There is no checkpoint .*best.safetensors"):
        folder.load("best")
    folder.clear()
    assert os.listdir(tmp_path) == ["notes.txt"]


def test_a_damaged_one_that_is_asked_for_by_name_is_an_error(tmp_path):
    (tmp_path / "best.safetensors").write_bytes(b"12345678")
    with pytest.raises(DamagedCheckpointError, match="best.safetensors is damaged or no checkpoint"):
        CheckpointFolder(tmp_path).load("best")


@pytest.mark.parametrize("present", [("last",), ("previous",), ("last", "previous")])
def test_without_an_intact_checkpoint_the_run_is_refused_with_the_way_to_restart(tmp_path, present):
    folder = CheckpointFolder(tmp_path / "checkpoints")
    save(folder, 1)
    save(folder, 2)
    for name in ("last", "previous"):
        if name in present:
            folder.path(name).write_bytes(folder.path(name).read_bytes()[:-1])
        else:
            folder.path(name).unlink()
    with pytest.raises(DamagedCheckpointError, match=f"The run in {tmp_path} cannot be resumed: .*--restart"):
        folder.load_last()
    folder.clear()
    assert folder.load_last() is None


BOTH = pytest.mark.parametrize("faults", [every_error, every_kill])


@BOTH
@pytest.mark.parametrize("earlier", [0, 1, 2])
def test_a_failed_checkpoint_leaves_the_old_one_or_the_new_one(tmp_path, monkeypatch, faults, earlier):
    folder, found = CheckpointFolder(tmp_path / "checkpoints"), set()

    def prepare():
        folder.clear()
        for value in range(1, earlier + 1):
            save(folder, value)

    for _ in faults(monkeypatch, lambda: save(folder, 3), prepare):
        checkpoint = folder.load_last()
        found.add(0 if checkpoint is None else checkpoint.state["step"])
        if checkpoint is not None:
            assert_holds(checkpoint, checkpoint.state["step"])
        save(folder, 4)
        assert_holds(folder.load_last(), 4)
    assert found == {earlier, 3}


@BOTH
def test_a_failed_named_checkpoint_leaves_the_old_one_or_the_new_one(tmp_path, monkeypatch, faults):
    folder, found = CheckpointFolder(tmp_path / "checkpoints"), set()

    def write(value):
        folder.save("best", arrays(value), {"step": value, "name": "ü"})

    for _ in faults(monkeypatch, lambda: write(2), lambda: write(1)):
        checkpoint = folder.load("best")
        found.add(checkpoint.state["step"])
        assert_holds(checkpoint, checkpoint.state["step"])
    assert found == {1, 2}
    folder.clear()
    assert leftovers(folder.folder) == []


def write_for_ever(path, pipe):
    folder = CheckpointFolder(path)
    for value in itertools.count(1):
        folder.save_last({"array": np.full(200_000, value, "int64")}, {"value": value})
        pipe.send(value)


def test_a_killed_writer_never_leaves_less_than_it_had_written(tmp_path):
    random = np.random.default_rng(0)
    for attempt in range(6):
        folder = CheckpointFolder(tmp_path / str(attempt))
        values, pipe = PROCESSES.Pipe(duplex=False)
        process = PROCESSES.Process(target=write_for_ever, args=(folder.folder, pipe), daemon=True)
        process.start()
        pipe.close()
        written = values.recv()
        time.sleep(random.uniform(0, 0.05))
        process.kill()
        process.join(timeout=30)
        with contextlib.suppress(EOFError):
            while True:
                written = values.recv()
        checkpoint = folder.load_last()
        assert checkpoint.state["value"] >= written
        assert (checkpoint.arrays["array"] == checkpoint.state["value"]).all()
