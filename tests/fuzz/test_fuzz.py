"""Spoilt inputs of every kind get an answer or a message: no crash, no hang, no traceback.

A few hundred cases by default; `--fuzz-cases 10000` runs as many, `--fuzz-seed` others. A case that fails is told by
its kind and number, and `--fuzz-only NUMBER` runs it again, with those that it was tried together with. Should the
process itself die, `-s` shows which cases these were.
"""

import contextlib
import faulthandler
import random
import signal
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from attention_apps.applications.tasks import load
from attention_apps.cli import predict, train
from attention_apps.training.config import read_config, to_dict
from tests.fuzz.checks import KINDS
from tests.fuzz.lab import Lab, seal
from tests.fuzz.mutations import mutate_bytes, mutate_text, mutate_tree, to_toml

pytestmark = pytest.mark.slow

_LIMIT = 10  # seconds of computing; by the clock, other processes may slow us down so many times
_BUSY = 6
_MEMORY = 2 << 30  # bytes that a batch of cases may add to the process
_WARM_UPS = 6


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """Whose presets are not loaded on the command line, but for the spoilt ones: it has the applications already."""
    lab = Lab(tmp_path_factory.mktemp("fuzz"))

    def at_hand(load):
        def load_or_take(*arguments):
            folder = Path(arguments[-1])
            return getattr(lab, folder.name) if folder.parent == lab.folder / "presets" else load(*arguments)

        return load_or_take

    with pytest.MonkeyPatch.context() as patch:
        for command in (predict, train):
            patch.setattr(command, "load", at_hand(load))
        yield lab
        lab.close()


@pytest.mark.parametrize("check", KINDS, ids=lambda check: check.__name__)
def test_spoilt_inputs_get_an_answer_or_a_message(check, lab, request):
    seed, only = (request.config.getoption(name) for name in ("--fuzz-seed", "--fuzz-only"))
    share, together = KINDS[check]
    count = max(1, request.config.getoption("--fuzz-cases") * share // 100)
    batches = range(-(-count // together)) if only is None else [only // together]
    failures = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(_WARM_UPS):  # graphs are made, which takes its time
            _try(check, lab, "warm-up", number, [2 * number, 2 * number + 1])
        for batch in batches:
            end = together * (batch + 1) if only is not None else min(together * (batch + 1), count)
            failures += _failures(check, lab, seed, batch, list(range(together * batch, end)))
    assert not failures, "\n".join(f"{check.__name__} {numbers}: {error!r}" for numbers, error in failures[:20])


def _failures(check, lab, seed, batch, numbers):
    """The numbers of the cases that fail, with their errors; a batch that fails is tried again case by case."""
    print(check.__name__, *numbers, flush=True)
    try:
        with _in_time(), _in_memory():
            _try(check, lab, seed, batch, numbers)
    except Exception as error:
        if len(numbers) == 1:
            return [(numbers, error)]
        alone = [failure for number in numbers for failure in _failures(check, lab, seed, batch, [number])]
        return alone or [(numbers, error)]
    return []


def _try(check, lab, seed, batch, numbers):
    """A case is the same in its batch and alone."""
    way = random.Random(f"{check.__name__} {seed} batch {batch}")
    check(lab, [random.Random(f"{check.__name__} {seed} {number}") for number in numbers], way)


@contextlib.contextmanager
def _in_time():
    """Ends what takes longer: Python code with an error, and what hangs in C++ with the whole process."""

    def give_up(*_):
        raise AssertionError(f"it took more than {_LIMIT} s of computing, or {_BUSY * _LIMIT} s by the clock")

    before = {name: signal.signal(name, give_up) for name in (signal.SIGPROF, signal.SIGALRM)}
    signal.setitimer(signal.ITIMER_PROF, _LIMIT)
    signal.setitimer(signal.ITIMER_REAL, _BUSY * _LIMIT)
    faulthandler.dump_traceback_later(2 * _BUSY * _LIMIT, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        for name, handler in before.items():
            signal.signal(name, handler)


@contextlib.contextmanager
def _in_memory():
    """Where the system tells the most memory that the process ever had: Linux."""
    status, clear = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    if not clear.exists():
        yield
        return

    def kilobytes(name):
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith(name))

    clear.write_text("5")  # the highest is the present one from now on
    before = kilobytes("VmRSS")
    yield
    added = 1024 * (kilobytes("VmHWM") - before)
    assert added < _MEMORY, f"it took {added:,} bytes of memory"


def test_what_is_not_spoilt_is_taken(lab):
    """Or all that comes after would be refused for one and the same reason."""
    for application in (lab.captioner, lab.recognizer, lab.summarizer, lab.compressor, lab.translator):
        path = lab.write(to_toml(to_dict(application.config)), ".toml")
        assert read_config(application.config_class, path) == application.config
    for task, name in (("image_captioning", "captioner"), ("speech_recognition", "recognizer")):
        for ending in ("csv", "tsv", "jsonl", "txt"):
            path = lab.write(lab.data[task][ending], f".{ending}", folder=lab.folder / "data")
            assert getattr(lab, name).check_data(path, quiet=True).used["training"] > 1
    folder = lab.copy_preset("compressor")
    seal(folder)
    loaded, expected = type(lab.compressor).from_preset(folder).config, lab.compressor.config
    assert replace(loaded, training=expected.training) == expected  # training is set anew for fine-tuning
    for caption in lab.captioner.caption(list(lab.photos.values())):
        assert caption.error is None
    for transcript in lab.recognizer.transcribe(list(lab.recordings.values())):
        assert transcript.error is None


def test_a_case_is_the_same_again_by_its_number():
    def case(number):
        chance = random.Random(f"anything 0 {number}")
        tree = {"a": [1, 2.5, None], "b": {"c": "text"}}
        return mutate_bytes(b"some bytes", chance), mutate_text("some words", chance), mutate_tree(tree, chance)

    cases = [case(number) for number in range(50)]
    assert repr(cases) == repr([case(number) for number in range(50)])
    assert len(set(map(repr, cases))) > 40
