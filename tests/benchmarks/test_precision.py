import importlib
import json
from pathlib import Path

import pytest

from tests.applications.summarizers import TEXT, WORDS, make_compressor

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def precision(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("precision")


def test_a_preset_is_scored_in_each_precision(precision, tmp_path):
    make_compressor(words=WORDS).save(tmp_path / "preset")
    data = tmp_path / "data.jsonl"
    data.write_text(json.dumps({"document": TEXT, "summary": TEXT}) + "\n")
    as_it_is, in_8_bits = precision.score_precisions(str(tmp_path / "preset"), data, [8])
    assert as_it_is["bits"] == "as it is"
    assert in_8_bits["megabytes"] < 1
    assert set(in_8_bits) - {"megabytes"} == set(as_it_is)
