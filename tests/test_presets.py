"""The presets that come with the package: small, described, whole, and at work."""

import io
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from attention_apps.applications.preset_folder import preset_names, presets_root
from attention_apps.cli.presets import describe
from attention_apps.cli.samples import PHOTOS, TEXTS
from attention_apps.cli.tasks import TASKS, application_class, load_application
from attention_apps.preprocessing.audio import SAMPLE_RATE, read_audio
from attention_apps.preprocessing.audio_augmentation import coloured_noise
from attention_apps.preprocessing.vocabulary import END, PADDING
from tests.applications.recognizers import wav_bytes
from tests.serving.fresh_process import call_in_fresh_process


def of_task(task):
    return [name for name in preset_names() if describe(presets_root() / name)["task"] == task]


def test_the_presets_are_there():
    names = {
        "show_attend_tell_flickr8k",
        "show_attend_tell_hard_flickr8k",
        "listen_attend_spell_an4",
        "pointer_generator_headlines",
        "sentence_compression_google",
    }
    assert names <= set(preset_names())


@pytest.mark.parametrize("task", TASKS)
def test_the_default_preset_of_an_application_is_there_and_of_its_task(task):
    assert application_class(task).default_preset in of_task(task)


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


def photos():
    from PIL import Image
    from skimage import data

    for name in PHOTOS:
        file = io.BytesIO()
        Image.fromarray(getattr(data, name)()).save(file, "JPEG")
        yield file.getvalue()


def hums():
    """Something to spell, if not to understand."""
    time = np.arange(2 * SAMPLE_RATE) / SAMPLE_RATE
    for pitch in (110, 190):
        voiced = sum(np.sin(2 * np.pi * pitch * harmonic * time) / harmonic for harmonic in range(1, 30))
        syllables = np.clip(np.sin(2 * np.pi * 1.7 * time + pitch), 0, 1)
        yield wav_bytes(0.2 * voiced * syllables, subtype="PCM_16")


def stand_for(token_ids, tokens, vocabulary):
    """Whether ids mean these tokens, marks and capitals aside; one beyond the vocabulary is a copy of any word."""
    ids = [token for token in token_ids if token not in (PADDING, END)]
    pairs = [(vocabulary.tokens[one], token) for one, token in zip(ids, tokens, strict=True) if one < len(vocabulary)]
    return bool(pairs) and all(letters(meant) == letters(token) for meant, token in pairs)


def letters(token):
    return "".join(filter(str.isalnum, token)).lower()


@pytest.mark.slow
@pytest.mark.parametrize("name", preset_names())
def test_an_export_says_what_the_preset_says_where_this_package_cannot_be_imported(name, tmp_path):
    application = load_application(name)
    key, answer, inputs = {
        "image_captioning": ("image_bytes", "caption", photos),
        "speech_recognition": ("audio_bytes", "transcribe", hums),
        "text_summarization": ("text", "summarize", lambda: TEXTS),
    }[application.task]
    inputs, sure_or_not = (
        list(inputs()),
        {"min_confidence": 0.0, "min_length": 5} if application.task == "speech_recognition" else {},
    )
    options = replace(application.config.decoding, num_best=2, **sure_or_not)
    (outputs,) = call_in_fresh_process(
        application.export(tmp_path / "model", options), [("serving_default", {key: inputs})], tmp_path
    )
    live = getattr(application, answer)(inputs, options=options)
    assert all(result.text for result in live)
    for row, result in enumerate(live):
        assert outputs["status"][row] == b"ok"
        assert [text.decode() for text in outputs["text"][row]] == [text for text, _ in result.alternatives]
        if "tokens" in outputs:  # those of a compressed sentence are its words
            assert [token.decode() for token in outputs["tokens"][row] if token] == list(result.tokens)
            assert stand_for(outputs["token_ids"][row], result.tokens, application.vocabulary)
        np.testing.assert_allclose(outputs["score"][row, 0], result.score, rtol=1e-3)


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


# Each of unit power, from its number of samples and a generator of random numbers.
NOISES = {
    "white": lambda size, random: coloured_noise(size, 0.0, random),
    "pink": lambda size, random: coloured_noise(size, 1.0, random),
    "brown": lambda size, random: coloured_noise(size, 2.0, random),
    "bursts": lambda size, random: (
        coloured_noise(size, 1.0, random)
        * (np.sin(2 * np.pi * 1.7 * np.arange(size) / SAMPLE_RATE + random.uniform(0, 6)) > 0)
    ),
}


@pytest.mark.parametrize("make", NOISES.values(), ids=NOISES)
def test_nothing_is_heard_in_noise_of_any_kind(recognizer, make):
    random = np.random.default_rng(5)
    lengths, levels = (1.3, 3.1, 5.7), (1e-3, 1e-2, 0.1)
    recordings = [level * make(round(seconds * SAMPLE_RATE), random) for seconds in lengths for level in levels]
    transcripts = recognizer.transcribe(recordings, sample_rate=SAMPLE_RATE, quiet=True)
    assert [transcript.text for transcript in transcripts] == [""] * len(recordings)


@pytest.fixture
def speak(tmp_path):
    if not shutil.which("flite"):
        pytest.skip("flite is not installed: there is nobody to speak")

    def speak(text):
        path = tmp_path / "spoken.wav"
        subprocess.run(["flite", "-voice", "rms", "-t", text, "-o", path], check=True)
        return path

    return speak


def test_a_synthetic_voice_is_understood(recognizer, speak):
    transcript = recognizer.transcribe(speak("four, seven, one, nine"), quiet=True)
    assert transcript.text == "FOUR SEVEN ONE NINE"
    assert [word.word for word in transcript.words] == transcript.text.split()
    assert all(word.start < word.end for word in transcript.words)


def test_a_clipped_voice_is_understood(recognizer, speak):
    clipped = np.clip(5 * read_audio(speak("four, seven, one, nine")), -1, 1)
    assert np.mean(np.abs(clipped) == 1) > 0.04
    assert recognizer.transcribe(clipped, sample_rate=SAMPLE_RATE, quiet=True).text == "FOUR SEVEN ONE NINE"


def test_words_are_at_the_times_at_which_they_were_said(recognizer, speak):
    words, pauses = ("four", "seven", "one", "nine", "two"), (0.4, 0.3, 0.7, 0.5, 0.35)
    recording, times = np.zeros(0, np.float32), []
    for word, pause in zip(words, pauses, strict=True):
        waveform = read_audio(speak(word))
        loud = np.flatnonzero(np.abs(waveform) > 0.02 * np.abs(waveform).max())
        start = len(recording) + round(pause * SAMPLE_RATE)
        recording = np.concatenate([recording, np.zeros(start - len(recording)), waveform[loud[0] : loud[-1]]])
        times.append((start / SAMPLE_RATE, len(recording) / SAMPLE_RATE))
    recording = np.append(recording, np.zeros(SAMPLE_RATE // 3))
    heard = recognizer.transcribe(recording, sample_rate=SAMPLE_RATE, quiet=True).words
    assert [word.word for word in heard] == [word.upper() for word in words]
    assert np.median(np.abs(np.subtract([word[1:3] for word in heard], times))) <= 0.08
