"""Translations of texts."""

from collections.abc import Sequence
from typing import Any, overload

from attention_apps.applications.application import Application
from attention_apps.applications.parts import Parts
from attention_apps.applications.summarization.summarizer import make_model
from attention_apps.applications.translation.codec import TranslationCodec
from attention_apps.applications.translation.config import TranslatorConfig
from attention_apps.applications.translation.examples import TranslationExamples
from attention_apps.applications.translation.reader import TranslationReader
from attention_apps.applications.translation.translation import Translation


class TextTranslator(Application[TranslatorConfig]):
    """Translates texts, and shows which words it read for each word it wrote.

    A text is translated sentence by sentence, and its line breaks are kept. A sentence that is longer than
    `max_sentence_length` bytes is cut. A sentence without letters, such as a number, is its own translation, and a
    blank text has none. A text of more than 1 MiB is refused.

    Example:
        translator = TextTranslator.from_preset()
        translation = translator.translate("Two dogs play in the snow.")
        translation.text, translation.attention.shape   # ("Zwei Hunde ...", (words, source words))

    Reference:
        Bahdanau et al. 2015, "Neural Machine Translation by Jointly Learning to Align and Translate"; Vaswani et al.
        2017, "Attention Is All You Need".
    """

    task = "machine_translation"
    config_class = TranslatorConfig
    default_preset = "translation_multi30k_en_de"
    parts = Parts(reader=TranslationReader, codec=TranslationCodec, model=make_model, examples=TranslationExamples)

    @overload
    def translate(self, texts: str | bytes, **options: Any) -> Translation: ...

    @overload
    def translate(self, texts: Sequence[str | bytes], **options: Any) -> list[Translation]: ...

    def translate(self, texts: str | bytes | Sequence[str | bytes], **options: Any) -> Translation | list[Translation]:
        """Translate one text, or each of a list: strings, or bytes of UTF-8.

        A single item that is not a text raises an error; in a list it gets a translation with its `error` and no text.

        Args:
            options: of the search, as keywords: `beam_size=8, num_best=3`.
        """
        return self.answer(texts, options)
