import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from attention_apps.data.feature_cache import FeatureCache
from tests.fault_injection import every_error, every_kill


@pytest.fixture
def sources(tmp_path):
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


def test_arrays_are_computed_once_and_read_back(tmp_path, sources):
    compute = Compute()
    cache = FeatureCache(tmp_path / "cache", {"mels": 80})
    cache.fill(sources[:4] + sources[:2], compute, batch_size=3)
    cache.fill(sources, compute, batch_size=3)
    assert compute.asked == sources
    for again in (cache, FeatureCache(tmp_path / "cache", {"mels": 80})):
        again.fill(sources, compute)
        assert len(again) == 7
        for source in sources:
            array = again[source]
            np.testing.assert_array_equal(array, Compute.array(source))
            assert array.dtype == np.float16
            assert array.ndim == 2
    assert compute.asked == sources


@pytest.mark.parametrize(
    "array", [np.float32(3), np.arange(5, dtype=">i2"), np.ones((2, 0)), np.eye(3, dtype=bool)[:, :2]]
)
def test_any_shape_and_type_of_numbers_is_kept(tmp_path, sources, array):
    cache = FeatureCache(tmp_path / "cache", {})
    cache.fill(sources[:1], lambda paths: [array])
    kept = FeatureCache(tmp_path / "cache", {})[sources[0]]
    np.testing.assert_array_equal(kept, array)
    assert (kept.shape, kept.dtype) == (array.shape, array.dtype)


def test_rows_are_read_only(tmp_path, sources):
    cache = FeatureCache(tmp_path / "cache", {})
    cache.fill(sources, Compute())
    with pytest.raises(ValueError, match="read-only"):
        cache[sources[3]][0] = 1


def test_another_key_is_another_cache(tmp_path, sources):
    compute = Compute()
    FeatureCache(tmp_path / "cache", {"mels": 80, "rate": 1}).fill(sources, compute)
    assert sources[0] not in FeatureCache(tmp_path / "cache", {"mels": 40, "rate": 1})
    assert sources[0] in FeatureCache(tmp_path / "cache", {"rate": 1, "mels": 80})


def test_a_changed_source_is_computed_again(tmp_path, sources):
    compute = Compute()
    cache = FeatureCache(tmp_path / "cache", {})
    cache.fill(sources, compute)
    with open(sources[2], "a") as file:
        file.write("more")
    assert sources[2] not in cache
    with pytest.raises(KeyError, match=r"is not in the cache .* or has changed since it was computed"):
        cache[sources[2]]
    cache.fill(sources, compute)
    assert compute.asked == [*sources, sources[2]]
    assert sources[2] in cache


def test_a_missing_source_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"There is no file .*none\.wav"):
        FeatureCache(tmp_path / "cache", {}).fill([tmp_path / "none.wav"], Compute())


def test_wrong_results_are_errors(tmp_path, sources):
    cache = FeatureCache(tmp_path / "cache", {})
    with pytest.raises(ValueError, match="`compute` gave 1 arrays for 7 sources"):
        cache.fill(sources, lambda paths: [np.zeros(2)])
    with pytest.raises(TypeError, match=r"`compute` must give arrays of numbers\. Received: dtype=object"):
        cache.fill(sources, lambda paths: [np.array([None])] * len(paths))
    assert len(cache) == 0


def test_what_was_done_before_an_error_is_kept(tmp_path, sources):
    def compute(paths):
        if sources[4] in paths:
            raise OSError("out of memory")
        return Compute()(paths)

    with pytest.raises(OSError, match="out of memory"):
        FeatureCache(tmp_path / "cache", {}).fill(sources, compute, batch_size=2)
    rest = Compute()
    FeatureCache(tmp_path / "cache", {}).fill(sources, rest, batch_size=2)
    assert rest.asked == sources[4:]


@pytest.mark.parametrize(
    "damage", [b'["cut off', b"\xff\xfe", b"[1, 2]", b'["a", 0, [-1], "<f4"]', b'["a", 0, [1], "O"]']
)
def test_a_damaged_index_loses_only_the_damaged_lines(tmp_path, sources, damage):
    cache = FeatureCache(tmp_path / "cache", {})
    cache.fill(sources, Compute())
    index = next(cache.folder.glob("*.index"))
    lines = index.read_bytes().splitlines()
    index.write_bytes(b"\n".join([*lines[:5], damage]))
    assert [source in FeatureCache(tmp_path / "cache", {}) for source in sources] == [True] * 5 + [False] * 2


def test_a_row_whose_bytes_are_missing_is_computed_again(tmp_path, sources):
    cache = FeatureCache(tmp_path / "cache", {})
    cache.fill(sources, Compute())
    data = next(cache.folder.glob("*.data"))
    data.write_bytes(data.read_bytes()[:-1])
    again = FeatureCache(tmp_path / "cache", {})
    assert [source in again for source in sources] == [True] * 6 + [False]


def test_two_may_fill_the_same_cache_at_a_time(tmp_path, sources):
    first, second = FeatureCache(tmp_path / "cache", {}), FeatureCache(tmp_path / "cache", {})

    def compute_while_the_other_fills(paths):
        second.fill(sources, Compute(), batch_size=2)
        return Compute()(paths)

    first.fill(sources, compute_while_the_other_fills, batch_size=3)
    for cache in (first, second, FeatureCache(tmp_path / "cache", {})):
        for source in sources:
            np.testing.assert_array_equal(cache[source], Compute.array(source))


FILLING = """
import sys, time
import numpy as np
from attention_apps.data.feature_cache import FeatureCache

def compute(paths):
    print(len(paths), flush=True)
    time.sleep(0.02)
    return [np.full((50, 1000), len(path), np.float32) for path in paths]

FeatureCache(sys.argv[1], {"a": 1}).fill(sys.argv[2:], compute, batch_size=1)
"""


def test_a_kill_while_filling_loses_a_batch_at_most(tmp_path):
    sources = [str(tmp_path / ("x" * number)) for number in range(1, 100)]
    for source in sources:
        open(source, "w").close()
    process = subprocess.Popen([sys.executable, "-c", FILLING, tmp_path / "cache", *sources], stdout=subprocess.PIPE)
    for _ in range(9):
        process.stdout.readline()
    time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    begun = 9 + len(process.stdout.read().splitlines())
    process.wait()
    cache = FeatureCache(tmp_path / "cache", {"a": 1})
    assert json.loads((cache.folder / "key.json").read_text()) == {"a": 1}
    assert begun - 1 <= len(cache) <= begun < len(sources)
    asked = []

    def compute(paths):
        asked.extend(paths)
        return [np.full((50, 1000), len(path), np.float32) for path in paths]

    kept = len(cache)
    cache.fill(sources, compute)
    assert asked == sources[kept:]
    for source in sources:
        np.testing.assert_array_equal(cache[source], np.full((50, 1000), len(source), np.float32))


@pytest.mark.parametrize("faults", [every_error, every_kill])
def test_a_failed_fill_loses_only_what_was_not_computed_yet(tmp_path, sources, monkeypatch, faults):
    def prepare():
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
        FeatureCache(tmp_path / "cache", {}).fill(sources[:3], Compute())

    def fill():
        FeatureCache(tmp_path / "cache", {}).fill(sources, Compute(), batch_size=2)

    lengths = set()
    for _ in faults(monkeypatch, fill, prepare):
        cache = FeatureCache(tmp_path / "cache", {})
        lengths.add(len(cache))
        for source in sources:
            if source in cache:
                np.testing.assert_array_equal(cache[source], Compute.array(source))
        rest = Compute()
        cache.fill(sources, rest)
        assert rest.asked == sources[7 - len(rest.asked) :]
        np.testing.assert_array_equal(cache[sources[6]], Compute.array(sources[6]))
    assert lengths >= {3, 5, 7}


@pytest.mark.parametrize("faults", [every_error, every_kill])
def test_a_failed_start_leaves_no_half_of_a_key(tmp_path, monkeypatch, faults):
    def prepare():
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)

    for _ in faults(monkeypatch, lambda: FeatureCache(tmp_path / "cache", {"a": 1}), prepare):
        cache = FeatureCache(tmp_path / "cache", {"a": 1})
        assert json.loads((cache.folder / "key.json").read_text()) == {"a": 1}
