"""Exports that are called again and again: nothing is traced again, and memory does not grow."""

import os
import random
from pathlib import Path

import pytest

from tests.fuzz.lab import TEXT, Lab

pytestmark = pytest.mark.slow

# `--fuzz-cases` asks for more calls, up to the second number.
CALLS, MOST_CALLS, WARM_UPS = 300, 2_000, 150
NAMES = {"captioner": "image_bytes", "recognizer": "audio_bytes", "summarizer": "text", "compressor": "text"}


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    return Lab(tmp_path_factory.mktemp("lab"))


def inputs_of(lab, name):
    """Good ones of several sizes, and bad ones."""
    if name == "captioner":
        return [*lab.photos.values(), b"", b"no photo", lab.photos["PNG"][:60]]
    if name == "recognizer":
        return [*lab.recordings.values(), b"", b"no recording", lab.recordings["WAV PCM_16"][:60]]
    return [TEXT.encode(), TEXT[:58].encode(), 3 * TEXT.encode(), b"", b"two words", b"broken \xff bytes are here"]


def resident_bytes():
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


@pytest.mark.parametrize("name", NAMES)
def test_many_calls_of_mixed_sizes_take_no_more_memory(name, lab, request):
    model, items, chance = lab.export(name), inputs_of(lab, name), random.Random(0)

    def call(times):
        for _ in range(times):
            model.predict({NAMES[name]: [chance.choice(items) for _ in range(chance.choice((1, 2, 3, 5)))]})

    call(WARM_UPS)
    before = resident_bytes()
    call(min(max(CALLS, request.config.getoption("--fuzz-cases")), MOST_CALLS))
    assert resident_bytes() - before < 24e6


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_fails_at_once_instead_of_hanging(lab):
    model = lab.export("summarizer")
    model.predict({"text": [TEXT]})
    child = os.fork()
    if child == 0:
        try:
            model.predict({"text": [TEXT]})
        except RuntimeError as error:
            os._exit(0 if "before this process was forked" in str(error) else 2)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
