import json
import os
import threading

import pytest

from attention_apps.data import probe_cache
from attention_apps.data.probe_cache import FILE_NAME, ProbeCache
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
    monkeypatch.setattr(probe_cache, "MAX_FILE_BYTES", 10)
    probe = Probe()
    ask(ProbeCache(tmp_path / "cache", "seconds"), sources, probe)
    assert probe.read == ["a", "b", "c"]


def test_results_are_saved_now_and_then(tmp_path, sources, monkeypatch):
    monkeypatch.setattr(probe_cache, "SAVE_EVERY", 2)
    ask(ProbeCache(tmp_path / "cache", "seconds"), sources, Probe())
    probe = Probe()
    ask(ProbeCache(tmp_path / "cache", "seconds"), sources, probe)
    assert probe.read == ["c"]


def test_several_threads_may_ask(tmp_path, monkeypatch):
    monkeypatch.setattr(probe_cache, "SAVE_EVERY", 5)
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
