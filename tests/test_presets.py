"""The presets that come with the package: small, described, whole, and at work."""

import pytest

from attention_apps.applications.preset_folder import preset_names, presets_root
from attention_apps.cli.presets import describe
from attention_apps.cli.samples import PHOTOS, TEXTS


def of_task(task):
    return [name for name in preset_names() if describe(presets_root() / name)["task"] == task]


def test_the_summarizers_preset_is_there():
    from attention_apps import TextSummarizer

    assert TextSummarizer.default_preset in preset_names()


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
    assert "pebble" not in summarizer.vocabulary.tokens
    assert any(word in summaries[1].text for word in ("Pebble", "Larkhill"))


@pytest.mark.parametrize("name", of_task("image_captioning"))
def test_photos_get_captions_of_several_words(name):
    from skimage import data

    from attention_apps import ImageCaptioner

    captions = ImageCaptioner.from_preset(name).caption([getattr(data, photo)() for photo in PHOTOS])
    assert all(len(caption.tokens) >= 4 for caption in captions)
    assert len({caption.text for caption in captions}) > 1
