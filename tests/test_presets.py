"""The presets that come with the package: small, described, whole, and at work."""

import functools
import io
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr

import attention_apps
from attention_apps.applications.preset import preset_names, presets_root
from attention_apps.applications.tasks import TASKS, application_class
from attention_apps.cli.demo_content import DESCRIPTIONS, SENTENCES, TEXTS, sample_photos, sample_recordings
from attention_apps.cli.serving_commands import describe
from attention_apps.constants import END, PADDING
from attention_apps.metrics import wer
from attention_apps.preprocessing.audio import SAMPLE_RATE, read_audio
from attention_apps.preprocessing.audio_augmentation import colored_noise
from attention_apps.preprocessing.text import normalize_transcript
from tests.applications.recognizers import wav_bytes
from tests.recipes.loading import load as load_recipe
from tests.serving.fresh_process import call_in_fresh_process

RECORDINGS = Path(__file__).parent / "recordings"
# The words of `words_apart.flac`, with the seconds at which they begin and end.
WORDS_APART = {
    "FOUR": (0.400, 0.883),
    "SEVEN": (1.183, 1.730),
    "ONE": (2.430, 2.794),
    "NINE": (3.294, 3.865),
    "TWO": (4.215, 4.528),
}


# One of each preset for all tests, because its graphs take seconds to be made.
load = functools.cache(attention_apps.load)


def of_task(task):
    return [name for name in preset_names() if describe(presets_root() / name)["task"] == task]


@pytest.mark.parametrize("task", TASKS)
def test_the_default_preset_of_an_application_is_there_and_of_its_task(task):
    assert application_class(task).default_preset in of_task(task)


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_is_small_and_its_card_names_score_and_license(name):
    described = describe(presets_root() / name)
    assert described["bytes"] <= 30e6
    assert described["score"]
    assert described["license"]


def test_all_presets_together_fit_into_the_wheel():
    assert sum(describe(presets_root() / name)["bytes"] for name in preset_names()) <= 95e6


@pytest.mark.slow
@pytest.mark.parametrize("name", of_task("text_summarization"))
def test_a_headline_is_shorter_than_its_text_and_copies_out_of_vocabulary_names(name):
    summarizer = load(name)
    summaries = summarizer.summarize(list(TEXTS))
    for text, summary in zip(TEXTS, summaries, strict=True):
        assert 3 <= len(summary.text.split()) < len(text.split())
    assert "larkhill" not in summarizer.vocabulary.tokens
    assert "Larkhill" in summaries[-1].text


@pytest.mark.parametrize("name", of_task("sentence_compression"))
def test_a_compressed_sentence_is_made_of_words_of_the_sentence(name):
    for text, compression in zip(TEXTS, load(name).compress(list(TEXTS)), strict=True):
        kept = letters(compression.text)
        assert 3 <= len(compression.text.split()) < len(text.split())
        rest = iter(letters(text))
        assert all(letter in rest for letter in kept)


@pytest.mark.slow
@pytest.mark.parametrize("name", of_task("machine_translation"))
def test_a_translation_is_in_the_other_language_and_aligned(name):
    expected = {
        "translation_multi30k_en_de": ("Zwei", "Hunde", "Schnee"),
        "translation_multi30k_en_fr": ("Deux", "chiens", "neige"),
    }
    translation = load(name).translate(DESCRIPTIONS[0])
    words = expected[name]
    assert [word for word in words if word in translation.tokens] == list(words)
    # "Two dogs are playing in the snow.": each of the three words reads its source word most.
    most_read = translation.attention.argmax(axis=1)
    read = [translation.source_tokens[most_read[translation.tokens.index(word)]] for word in words]
    assert read == ["Two", "dogs", "snow"]
    assert 0 < translation.confidence < 1
    assert not translation.unsure


@pytest.mark.slow
@pytest.mark.parametrize("name", of_task("sentence_compression"))
def test_a_compressed_sentence_keeps_the_negations_and_quantities_of_its_verb(name):
    qualifiers = load_recipe("qualifiers", "sentence_compression")
    sentences = qualifiers.make_sentences()
    assert len({sentence.text for sentence in sentences}) == 200
    compressions = load(name).compress([sentence.text for sentence in sentences])
    lost = [qualifiers.is_lost(*pair) for pair in zip(sentences, compressions, strict=True)]
    assert sum(lost) <= 0.02 * len(sentences)
    verbs = [sentence.verb in compression.tokens for sentence, compression in zip(sentences, compressions, strict=True)]
    assert sum(verbs) > 0.8 * len(sentences)


@pytest.mark.slow
@pytest.mark.parametrize("name", of_task("image_captioning"))
def test_photos_get_captions_of_several_words(name):
    captions = load(name).caption(sample_photos())
    assert all(len(caption.tokens) >= 4 for caption in captions)
    assert len({caption.text for caption in captions}) > 1
    assert all(0 < caption.confidence < 1 for caption in captions)


# Exports


def photos():
    from PIL import Image

    for pixels in sample_photos():
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "JPEG")
        yield file.getvalue()


def recordings():
    """As WAV files, which is what an export reads."""
    for path in (RECORDINGS / "c_a_r_l.flac", RECORDINGS / "four_seven_one_nine.flac"):
        yield wav_bytes(read_audio(path), subtype="PCM_16")


def spoken_sentences():
    return [wav_bytes(read_audio(path), subtype="PCM_16") for path in sample_recordings()]


# By task, or by preset where one needs inputs of its own.
INPUTS = {
    "moonshine_tiny_english": ("audio_bytes", spoken_sentences),
    "image_captioning": ("image_bytes", photos),
    "speech_recognition": ("audio_bytes", recordings),
    "text_summarization": ("text", lambda: TEXTS),
    "sentence_compression": ("text", lambda: TEXTS),
    "machine_translation": ("text", lambda: DESCRIPTIONS),
}


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
    application = load(name)
    key, inputs = INPUTS.get(name) or INPUTS[application.task]
    inputs = list(inputs())
    num_best = max(application.config.decoding.num_best, 2)  # where it is the default, the graph is there already
    folder = application.export(tmp_path / "model", num_best=num_best)
    (outputs,) = call_in_fresh_process(folder, [("serving_default", {key: inputs})], tmp_path)
    live = list(application.run(inputs, num_best=num_best))
    assert all(result.text for result in live)
    for row, result in enumerate(live):
        assert outputs["status"][row] == b"ok"
        assert [text.decode() for text in outputs["text"][row]] == [text for text, _ in result.alternatives]
        if application.task != "sentence_compression":  # whose ids are those of words to keep
            assert [token.decode() for token in outputs["tokens"][row].ravel() if token] == list(result.tokens)
        if application.task not in ("sentence_compression", "machine_translation"):  # whose ids are those of pieces
            assert stand_for(outputs["token_ids"][row], result.tokens, application.vocabulary)
        np.testing.assert_allclose(outputs["score"][row, 0], result.score, rtol=1e-3)
        np.testing.assert_allclose(outputs["confidence"][row], result.confidence, rtol=1e-3)
        assert outputs["unsure"][row] == result.unsure


# Speech


@pytest.fixture(scope="module")
def recognizer():
    return load(application_class("speech_recognition").default_preset)


@pytest.fixture(scope="module")
def speller():
    return load("listen_attend_spell_an4")


# Each of unit power, from its number of samples and a generator of random numbers.
NOISES = {
    "white": lambda size, random: colored_noise(size, 0.0, random),
    "pink": lambda size, random: colored_noise(size, 1.0, random),
    "brown": lambda size, random: colored_noise(size, 2.0, random),
    "bursts": lambda size, random: (
        colored_noise(size, 1.0, random)
        * (np.sin(2 * np.pi * 1.7 * np.arange(size) / SAMPLE_RATE + random.uniform(0, 6)) > 0)
    ),
    "none": lambda size, random: np.zeros(size, np.float32),
}


@pytest.mark.parametrize("name", ["recognizer", "speller"])
@pytest.mark.parametrize("make", NOISES.values(), ids=NOISES)
def test_nothing_is_heard_in_silence_and_in_noise_of_any_kind(request, name, make):
    recognizer = request.getfixturevalue(name)
    random = np.random.default_rng(5)
    lengths, levels = (1.3, 3.1, 5.7), (1e-3, 1e-2, 0.1)
    noises = [level * make(round(seconds * SAMPLE_RATE), random) for seconds in lengths for level in levels]
    transcripts = recognizer.transcribe([(noise, SAMPLE_RATE) for noise in noises], quiet=True)
    assert [transcript.text for transcript in transcripts] == [""] * len(noises)


@pytest.mark.parametrize("name", ["four_seven_one_nine", "two_eight_zero_six_three", "c_a_r_l"])
def test_a_synthetic_voice_is_understood(speller, name):
    transcript = speller.transcribe(RECORDINGS / f"{name}.flac", quiet=True)
    assert transcript.text == name.upper().replace("_", " ")
    assert [word.word for word in transcript.words] == transcript.text.split()
    assert all(word.start < word.end for word in transcript.words)
    assert transcript.confidence > 0.8
    assert not transcript.unsure


def test_a_clipped_voice_is_understood(speller):
    clipped = np.clip(5 * read_audio(RECORDINGS / "four_seven_one_nine.flac"), -1, 1)
    assert np.mean(np.abs(clipped) == 1) > 0.04
    assert speller.transcribe((clipped, SAMPLE_RATE), quiet=True).text == "FOUR SEVEN ONE NINE"


def test_words_are_at_the_times_at_which_they_were_said(speller):
    heard = speller.transcribe(RECORDINGS / "words_apart.flac", quiet=True).words
    assert [word.word for word in heard] == list(WORDS_APART)
    assert np.median(np.abs(np.subtract([word[1:3] for word in heard], list(WORDS_APART.values())))) <= 0.08


def plain(text):
    return normalize_transcript(text, "lower").split()


def error_rate(text, name):
    return wer([normalize_transcript(text, "lower")], [[normalize_transcript(SENTENCES[name], "lower")]]).score


def test_sentences_of_english_are_understood_with_the_times_of_their_words(recognizer):
    for path, transcript in zip(sample_recordings(), recognizer.transcribe(sample_recordings()), strict=True):
        assert error_rate(transcript.text, path.name) <= 0.15
        assert [word.word for word in transcript.words] == transcript.text.split()
        assert all(left.end <= right.start for left, right in pairwise(transcript.words))
        assert transcript.words[0].start < 0.5
        assert transcript.words[-1].end > transcript.seconds - 0.7
        assert not transcript.unsure


@pytest.mark.parametrize(("rate", "channels"), [(8_000, 1), (48_000, 2)])
def test_other_rates_and_stereo_are_understood(recognizer, rate, channels):
    samples = soxr.resample(read_audio(sample_recordings()[1]), SAMPLE_RATE, rate)
    transcript = recognizer.transcribe((np.stack([samples] * channels, axis=1), rate))
    assert error_rate(transcript.text, "message.flac") <= 0.15


def test_nothing_is_lost_or_doubled_where_a_long_recording_is_cut(recognizer):
    pause = np.zeros(int(0.6 * SAMPLE_RATE), np.float32)
    paths = [*sample_recordings(), *sample_recordings(), *sample_recordings()]
    long = np.concatenate([part for path in paths for part in (read_audio(path), pause)])
    transcript = recognizer.transcribe((long, SAMPLE_RATE), quiet=True)
    assert len(transcript.parts) > 1
    assert plain(transcript.text) == [word for path in paths for word in plain(SENTENCES[path.name])]
    assert all(left.start <= right.start for left, right in pairwise(transcript.words))


def test_a_recording_that_is_cut_is_scored_as_a_whole(recognizer, tmp_path):
    paths = 3 * [*sample_recordings()]
    soundfile.write(tmp_path / "long.wav", np.concatenate([read_audio(path) for path in paths]), SAMPLE_RATE)
    text = " ".join(SENTENCES[path.name] for path in paths)
    (tmp_path / "data.tsv").write_text(f"audio\ttranscript\nlong.wav\t{text}\n")
    evaluation = recognizer.evaluate(tmp_path / "data.tsv", quiet=True)
    assert evaluation.skipped == 0
    assert evaluation.metrics["wer"].score <= 0.05


def test_a_batch_of_recordings_has_the_texts_of_each_alone(recognizer):
    waveform = read_audio(sample_recordings()[1])
    recordings = [(waveform[: round(seconds * SAMPLE_RATE)], SAMPLE_RATE) for seconds in (0.2, 1.7, 3.0, 6.5)]
    together = [transcript.text for transcript in recognizer.transcribe(recordings)]
    assert together == [recognizer.transcribe(recording).text for recording in recordings]
