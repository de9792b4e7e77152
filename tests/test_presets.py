"""The presets that come with the package: small, described, whole, and at work."""

import shutil
import subprocess

import numpy as np
import pytest

from attention_apps.applications.preset_folder import preset_names, presets_root
from attention_apps.cli.presets import describe
from attention_apps.cli.samples import PHOTOS, TEXTS


def of_task(task):
    return [name for name in preset_names() if describe(presets_root() / name)["task"] == task]


def test_the_presets_of_recognizer_and_summarizers_are_there():
    names = {"listen_attend_spell_an4", "pointer_generator_headlines", "sentence_compression_google"}
    assert names <= set(preset_names())


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_is_small_and_its_card_names_score_and_licence(name):
    described = describe(presets_root() / name)
    assert described["bytes"] <= 20e6
    assert described["score"]
    assert described["licence"]


def test_all_presets_together_fit_into_the_wheel():
    assert sum(describe(presets_root() / name)["bytes"] for name in preset_names()) <= 90e6


@pytest.mark.parametrize("name", of_task("text_summarization"))
def test_a_headline_is_shorter_than_its_text_and_copies_names_never_seen(name):
    from attention_apps import TextSummarizer

    summarizer = TextSummarizer.from_preset(name)
    summaries = summarizer.summarize(list(TEXTS))
    for text, summary in zip(TEXTS, summaries, strict=True):
        assert 3 <= len(summary.text.split()) < len(text.split())
    assert "larkhill" not in summarizer.vocabulary.tokens
    assert any(word in summaries[1].text for word in ("Pebble", "Larkhill"))


@pytest.mark.parametrize("name", of_task("image_captioning"))
def test_photos_get_captions_of_several_words(name):
    from skimage import data

    from attention_apps import ImageCaptioner

    captions = ImageCaptioner.from_preset(name).caption([getattr(data, photo)() for photo in PHOTOS])
    assert all(len(caption.tokens) >= 4 for caption in captions)
    assert len({caption.text for caption in captions}) > 1


@pytest.fixture(scope="module")
def recognizer():
    from attention_apps import SpeechRecognizer

    return SpeechRecognizer.from_preset(SpeechRecognizer.default_preset)


def test_nothing_is_heard_in_silence_and_in_noise(recognizer):
    random = np.random.default_rng(0)
    recordings = [np.zeros(16_000, np.float32)]
    recordings += [level * random.normal(size=seconds * 8_000) for seconds in (2, 5) for level in (1e-3, 1e-2, 0.2)]
    transcripts = recognizer.transcribe(recordings, sample_rate=16_000, quiet=True)
    assert [transcript.text for transcript in transcripts] == [""] * len(recordings)


@pytest.mark.skipif(not shutil.which("flite"), reason="flite is not installed: there is nobody to speak")
def test_a_synthetic_voice_is_understood(recognizer, tmp_path):
    path = tmp_path / "digits.wav"
    subprocess.run(["flite", "-voice", "rms", "-t", "four, seven, one, nine", "-o", path], check=True)
    transcript = recognizer.transcribe(path, quiet=True)
    assert transcript.text == "FOUR SEVEN ONE NINE"
    assert [word.word for word in transcript.words] == transcript.text.split()
    assert all(word.start < word.end for word in transcript.words)
