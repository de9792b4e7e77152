"""Recordings that a recognizer must not be sure of."""

import shutil
import sys

import numpy as np
import pytest

from attention_apps.preprocessing.audio import SAMPLE_RATE
from tests.recipes.loading import load

foreign = load("foreign", "speech_recognition")


@pytest.mark.parametrize("kind", foreign.NOISES)
def test_noises_are_finite_and_of_the_length_asked_for(kind):
    noise = foreign.NOISES[kind](SAMPLE_RATE + 7, np.random.default_rng(0))
    assert noise.shape == (SAMPLE_RATE + 7,)
    assert np.isfinite(noise).all()
    assert noise.std() > 0.05


def test_each_language_has_two_sentences():
    assert {len(text.splitlines()) for text in foreign.SENTENCES.values()} == {2}


@pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="espeak-ng is not installed")
def test_manifests_name_all_recordings(tmp_path, monkeypatch):
    monkeypatch.setattr(foreign, "SENTENCES", {"de": "Guten Tag.\nBis bald."})
    monkeypatch.setattr(sys, "argv", ["foreign.py", str(tmp_path)])
    foreign.main()
    for name, count in (("languages.tsv", 6), ("noises.tsv", 54)):
        _, *rows = (tmp_path / name).read_text().splitlines()
        assert len(rows) == count
        assert all((tmp_path / row.split("\t")[0]).stat().st_size > 1000 for row in rows)
