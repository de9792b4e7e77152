import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from attention_apps.data.caches import FILE_NAME, FeatureCache, ProbeCache
from tests.fault_injection import every_error, every_kill


class Probe:
    """Reads a length from a file, and remembers which files it has read."""

    def __init__(self):
        self.read = []

    def __call__(self, path):
        self.read.append(os.path.basename(path))
        with open(path) as file:
            return float(file.read())


@pytest.fixture
def sources(tmp_path):
    for name, text in (("a", "1.5"), ("b", "broken"), ("c", "nan")):
        (tmp_path / name).write_text(text)
    return [str(tmp_path / name) for name in "abc"]


def ask(cache, sources, probe):
    answers = []
    for source in sources:
        try:
            answers.append(cache.probe(source, probe))
        except ValueError as error:
            answers.append(str(error))
    return answers


ANSWERS = [1.5, "could not convert string to float: 'broken'", "its length is nan"]


def test_lengths_and_errors_are_read_back_by_another_process(tmp_path, sources):
    first, second = Probe(), Probe()
    cache = ProbeCache(tmp_path / "cache", "seconds")
    assert ask(cache, sources, first) == ask(cache, sources, first) == ANSWERS
    cache.save()
    assert ask(ProbeCache(tmp_path / "cache", "seconds"), sources, second) == ANSWERS
    assert (first.read, second.read) == (["a", "b", "c"], [])


def test_a_changed_file_and_another_probe_are_computed(tmp_path, sources):
    cache = ProbeCache(tmp_path / "cache", "seconds")
    ask(cache, sources, Probe())
    cache.save()
    with open(sources[1], "w") as file:
        file.write("2")
    status = os.stat(sources[0])
    os.utime(sources[0], ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    probe = Probe()
    assert ask(ProbeCache(tmp_path / "cache", "seconds"), sources, probe)[1] == 2.0
    assert probe.read == ["a", "b"]
    other = Probe()
    ask(ProbeCache(tmp_path / "cache", "frames"), sources, other)
    assert other.read == ["a", "b", "c"]


def test_only_value_errors_are_kept(tmp_path, sources):
    def fail(path):
        raise OSError("the disk hums")

    cache = ProbeCache(tmp_path / "cache", "seconds")
    with pytest.raises(OSError, match="the disk hums"):
        cache.probe(sources[0], fail)
    assert cache.probe(sources[0], Probe()) == 1.5


def entry(**changes):
    values = {"probe": "seconds", "path": "/a", "size": 1, "time": 2, "length": 3.0, "message": None} | changes
    return json.dumps(list(values.values())).encode()


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"format": "something else", "version": 1}\n',
        entry(size="1"),
        entry(length="long"),
        entry(message=5),
        b"[1, 2]",
        b"{}",
        b'["seconds", "/a", 1,',
    ],
)
def test_a_damaged_or_foreign_file_is_ignored_and_replaced(tmp_path, sources, damage):
    cache = ProbeCache(tmp_path / "cache", "seconds")
    ask(cache, sources, Probe())
    cache.save()
    header = (tmp_path / "cache" / FILE_NAME).read_bytes().splitlines()[0]
    is_entry = damage.startswith((b'["', b"[1", b"{}"))
    (tmp_path / "cache" / FILE_NAME).write_bytes(header + b"\n" + damage + b"\n" if is_entry else damage)
    probe = Probe()
    cache = ProbeCache(tmp_path / "cache", "seconds")
    assert ask(cache, sources, probe) == ANSWERS
    assert probe.read == ["a", "b", "c"]
    cache.save()
    assert len(ProbeCache(tmp_path / "cache", "seconds")._results) == 3


def test_an_oversized_file_is_ignored(tmp_path, sources, monkeypatch):
    cache = ProbeCache(tmp_path / "cache", "seconds")
    ask(cache, sources, Probe())
    cache.save()
    monkeypatch.setattr("attention_apps.data.caches.MAX_FILE_BYTES", 10)
    probe = Probe()
    ask(ProbeCache(tmp_path / "cache", "seconds"), sources, probe)
    assert probe.read == ["a", "b", "c"]


def test_results_are_saved_now_and_then(tmp_path, sources, monkeypatch):
    monkeypatch.setattr("attention_apps.data.caches.SAVE_EVERY", 2)
    ask(ProbeCache(tmp_path / "cache", "seconds"), sources, Probe())
    probe = Probe()
    ask(ProbeCache(tmp_path / "cache", "seconds"), sources, probe)
    assert probe.read == ["c"]


def test_several_threads_may_ask(tmp_path, monkeypatch):
    monkeypatch.setattr("attention_apps.data.caches.SAVE_EVERY", 5)
    cache = ProbeCache(tmp_path / "cache", "seconds")
    paths = [tmp_path / f"{number}.txt" for number in range(40)]
    for path in paths:
        path.write_text("1")
    threads = [threading.Thread(target=ask, args=(cache, paths[start::4], Probe())) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ProbeCache(tmp_path / "cache", "seconds")._results) == 40


@pytest.mark.parametrize("faults", [every_error, every_kill])
def test_a_failed_save_leaves_the_old_results_or_the_new_ones(tmp_path, sources, monkeypatch, faults):
    counts = set()

    def prepare():
        cache = ProbeCache(tmp_path / "cache", "seconds")
        cache._results.clear()
        ask(cache, sources[:1], Probe())
        cache.save()

    def save():
        cache = ProbeCache(tmp_path / "cache", "seconds")
        ask(cache, sources, Probe())
        cache.save()

    for _ in faults(monkeypatch, save, prepare):
        counts.add(len(ProbeCache(tmp_path / "cache", "seconds")._results))
    assert counts == {1, 3}


@pytest.fixture
def feature_sources(tmp_path):
    paths = [tmp_path / f"{number}.wav" for number in range(7)]
    for number, path in enumerate(paths):
        path.write_text("x" * number)
    return [str(path) for path in paths]


class Compute:
    """Ragged arrays that tell their source, and a count of what was asked for."""

    def __init__(self):
        self.asked = []

    def __call__(self, paths):
        self.asked += paths
        return [self.array(path) for path in paths]

    @staticmethod
    def array(path):
        number = int(os.path.basename(path)[0])
        return np.full((number, 3), number, np.float16)


def test_arrays_are_computed_once_and_read_back(tmp_path, feature_sources):
    compute = Compute()
    cache = FeatureCache(tmp_path / "cache", {"mels": 80})
    cache.fill(feature_sources[:4] + feature_sources[:2], compute, batch_size=3)
    cache.fill(feature_sources, compute, batch_size=3)
    assert compute.asked == feature_sources
    for again in (cache, FeatureCache(tmp_path / "cache", {"mels": 80})):
        again.fill(feature_sources, compute)
        assert len(again) == 7
        for source in feature_sources:
            array = again[source]
            np.testing.assert_array_equal(array, Compute.array(source))
            assert array.dtype == np.float16
            assert array.ndim == 2
    assert compute.asked == feature_sources


@pytest.mark.parametrize(
    "array", [np.float32(3), np.arange(5, dtype=">i2"), np.ones((2, 0)), np.eye(3, dtype=bool)[:, :2]]
)
def test_any_shape_and_type_of_numbers_is_kept(tmp_path, feature_sources, array):
    cache = FeatureCache(tmp_path / "cache", {})
    cache.fill(feature_sources[:1], lambda paths: [array])
    kept = FeatureCache(tmp_path / "cache", {})[feature_sources[0]]
    np.testing.assert_array_equal(kept, array)
    assert (kept.shape, kept.dtype) == (array.shape, array.dtype)


def test_rows_are_read_only(tmp_path, feature_sources):
    cache = FeatureCache(tmp_path / "cache", {})
    cache.fill(feature_sources, Compute())
    with pytest.raises(ValueError, match="read-only"):
        cache[feature_sources[3]][0] = 1


def test_another_key_is_another_cache(tmp_path, feature_sources):
    compute = Compute()
    FeatureCache(tmp_path / "cache", {"mels": 80, "rate": 1}).fill(feature_sources, compute)
    assert feature_sources[0] not in FeatureCache(tmp_path / "cache", {"mels": 40, "rate": 1})
    assert feature_sources[0] in FeatureCache(tmp_path / "cache", {"rate": 1, "mels": 80})


def test_a_changed_source_is_computed_again(tmp_path, feature_sources):
    compute = Compute()
    cache = FeatureCache(tmp_path / "cache", {})
    cache.fill(feature_sources, compute)
    with open(feature_sources[2], "a") as file:
        file.write("more")
    assert feature_sources[2] not in cache
    with pytest.raises(KeyError, match=r"is not in the cache .* or has changed since it was computed"):
        cache[feature_sources[2]]
    cache.fill(feature_sources, compute)
    assert compute.asked == [*feature_sources, feature_sources[2]]
    assert feature_sources[2] in cache


def test_a_missing_source_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"There is no file .*none\.wav"):
        FeatureCache(tmp_path / "cache", {}).fill([tmp_path / "none.wav"], Compute())


def test_wrong_results_are_errors(tmp_path, feature_sources):
    cache = FeatureCache(tmp_path / "cache", {})
    with pytest.raises(ValueError, match="`compute` gave 1 arrays for 7 sources"):
        cache.fill(feature_sources, lambda paths: [np.zeros(2)])
    with pytest.raises(TypeError, match=r"`compute` must give arrays of numbers\. Received: dtype=object"):
        cache.fill(feature_sources, lambda paths: [np.array([None])] * len(paths))
    assert len(cache) == 0


def test_what_was_done_before_an_error_is_kept(tmp_path, feature_sources):
    def compute(paths):
        if feature_sources[4] in paths:
            raise OSError("out of memory")
        return Compute()(paths)

    with pytest.raises(OSError, match="out of memory"):
        FeatureCache(tmp_path / "cache", {}).fill(feature_sources, compute, batch_size=2)
    rest = Compute()
    FeatureCache(tmp_path / "cache", {}).fill(feature_sources, rest, batch_size=2)
    assert rest.asked == feature_sources[4:]


@pytest.mark.parametrize(
    "damage", [b'["cut off', b"\xff\xfe", b"[1, 2]", b'["a", 0, [-1], "<f4"]', b'["a", 0, [1], "O"]']
)
def test_a_damaged_index_loses_only_the_damaged_lines(tmp_path, feature_sources, damage):
    cache = FeatureCache(tmp_path / "cache", {})
    cache.fill(feature_sources, Compute())
    index = next(cache.folder.glob("*.index"))
    lines = index.read_bytes().splitlines()
    index.write_bytes(b"\n".join([*lines[:5], damage]))
    assert [source in FeatureCache(tmp_path / "cache", {}) for source in feature_sources] == [True] * 5 + [False] * 2


def test_a_row_whose_bytes_are_missing_is_computed_again(tmp_path, feature_sources):
    cache = FeatureCache(tmp_path / "cache", {})
    cache.fill(feature_sources, Compute())
    data = next(cache.folder.glob("*.data"))
    data.write_bytes(data.read_bytes()[:-1])
    again = FeatureCache(tmp_path / "cache", {})
    assert [source in again for source in feature_sources] == [True] * 6 + [False]


def test_two_may_fill_the_same_cache_at_a_time(tmp_path, feature_sources):
    first, second = FeatureCache(tmp_path / "cache", {}), FeatureCache(tmp_path / "cache", {})

    def compute_while_the_other_fills(paths):
        second.fill(feature_sources, Compute(), batch_size=2)
        return Compute()(paths)

    first.fill(feature_sources, compute_while_the_other_fills, batch_size=3)
    for cache in (first, second, FeatureCache(tmp_path / "cache", {})):
        for source in feature_sources:
            np.testing.assert_array_equal(cache[source], Compute.array(source))


FILLING = """
import sys, time
import numpy as np
from attention_apps.data.caches import FeatureCache

def compute(paths):
    print(len(paths), flush=True)
    time.sleep(0.02)
    return [np.full((50, 1000), len(path), np.float32) for path in paths]

FeatureCache(sys.argv[1], {"a": 1}).fill(sys.argv[2:], compute, batch_size=1)
"""


def test_a_kill_while_filling_loses_a_batch_at_most(tmp_path):
    feature_sources = [str(tmp_path / ("x" * number)) for number in range(1, 100)]
    for source in feature_sources:
        open(source, "w").close()
    process = subprocess.Popen(
        [sys.executable, "-c", FILLING, tmp_path / "cache", *feature_sources], stdout=subprocess.PIPE
    )
    for _ in range(9):
        process.stdout.readline()
    time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    begun = 9 + len(process.stdout.read().splitlines())
    process.wait()
    cache = FeatureCache(tmp_path / "cache", {"a": 1})
    assert json.loads((cache.folder / "key.json").read_text()) == {"a": 1}
    assert begun - 1 <= len(cache) <= begun < len(feature_sources)
    asked = []

    def compute(paths):
        asked.extend(paths)
        return [np.full((50, 1000), len(path), np.float32) for path in paths]

    kept = len(cache)
    cache.fill(feature_sources, compute)
    assert asked == feature_sources[kept:]
    for source in feature_sources:
        np.testing.assert_array_equal(cache[source], np.full((50, 1000), len(source), np.float32))


@pytest.mark.parametrize("faults", [every_error, every_kill])
def test_a_failed_fill_loses_only_what_was_not_computed_yet(tmp_path, feature_sources, monkeypatch, faults):
    def prepare():
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
        FeatureCache(tmp_path / "cache", {}).fill(feature_sources[:3], Compute())

    def fill():
        FeatureCache(tmp_path / "cache", {}).fill(feature_sources, Compute(), batch_size=2)

    lengths = set()
    for _ in faults(monkeypatch, fill, prepare):
        cache = FeatureCache(tmp_path / "cache", {})
        lengths.add(len(cache))
        for source in feature_sources:
            if source in cache:
                np.testing.assert_array_equal(cache[source], Compute.array(source))
        rest = Compute()
        cache.fill(feature_sources, rest)
        assert rest.asked == feature_sources[7 - len(rest.asked) :]
        np.testing.assert_array_equal(cache[feature_sources[6]], Compute.array(feature_sources[6]))
    assert lengths >= {3, 5, 7}


@pytest.mark.parametrize("faults", [every_error, every_kill])
def test_a_failed_start_leaves_no_half_of_a_key(tmp_path, monkeypatch, faults):
    def prepare():
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)

    for _ in faults(monkeypatch, lambda: FeatureCache(tmp_path / "cache", {"a": 1}), prepare):
        cache = FeatureCache(tmp_path / "cache", {"a": 1})
        assert json.loads((cache.folder / "key.json").read_text()) == {"a": 1}
