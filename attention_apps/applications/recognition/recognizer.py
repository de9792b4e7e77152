"""Listen, Attend and Spell."""

from collections.abc import Iterable, Sequence
from os import PathLike
from typing import Any, overload

import numpy as np

from attention_apps.applications.application import Application
from attention_apps.applications.parts import Parts
from attention_apps.applications.recognition.codec import LetterCodec
from attention_apps.applications.recognition.config import RecognizerConfig
from attention_apps.applications.recognition.examples import SpeechExamples
from attention_apps.applications.recognition.reader import AudioReader
from attention_apps.applications.recognition.transcript import Transcript
from attention_apps.models import Listener, Seq2Seq
from attention_apps.models.decoder_config import make_decoder
from attention_apps.preprocessing.vocabulary import Vocabulary

Recording = str | PathLike | bytes | tuple[np.ndarray, float]


class SpeechRecognizer(Application):
    """Spells what is said in a recording, and says when each word was said.

    Listens with a `Listener`, which attention and CTC share, and searches for the text that both agree on. A recording
    longer than `max_seconds` of the configuration is cut at pauses. Silence, noise and recordings of less than a tenth
    of a second have an empty text; see `TranscriptOptions.min_confidence`.

    Example:
        recognizer = SpeechRecognizer.from_preset()
        transcript = recognizer.transcribe("call.wav")
        transcript.text, transcript.words   # ("GO", [SpokenWord("GO", 0.31, 0.62, 0.97)])

    Reference:
        Chan et al. 2016, "Listen, Attend and Spell"; Chorowski et al. 2015, "Attention-Based Models for Speech
        Recognition"; Hori et al. 2017, "Joint CTC/Attention Decoding for End-to-End Speech Recognition".
    """

    task = "speech_recognition"
    config_class = RecognizerConfig
    default_preset = "listen_attend_spell_an4"

    def __init__(self, config: RecognizerConfig | None = None, vocabulary: Vocabulary | None = None):
        parts = Parts(
            reader=AudioReader,
            codec=LetterCodec,
            model=make_model,
            examples=SpeechExamples,
            extra_loss=lambda config: config.ctc,
        )
        super().__init__(config, vocabulary, parts)

    @overload
    def transcribe(self, recordings: Recording, quiet: bool = False, **options: Any) -> Transcript: ...

    @overload
    def transcribe(self, recordings: Sequence[Recording], quiet: bool = False, **options: Any) -> list[Transcript]: ...

    def transcribe(
        self, recordings: Recording | Sequence[Recording], quiet: bool = False, **options: Any
    ) -> Transcript | list[Transcript]:
        """Transcribes one recording, or each of a list: paths, the bytes of files, or pairs `(samples, rate)`.

        A single recording that cannot be read raises an error; in a list it gets a transcript with its `error`.

        Args:
            quiet: whether a long recording shows no progress bar.
            options: of the search and the output, as keywords: `beam_size=3, min_confidence=0`.
        """
        is_pair = isinstance(recordings, tuple) and len(recordings) == 2 and isinstance(recordings[0], np.ndarray)
        is_one = is_pair or not isinstance(recordings, list | tuple)
        return self.answer(recordings, options, quiet, is_one)

    def fit_language_model(self, texts: Iterable[str], order: int = 6) -> None:
        """Counts the n-grams of letters of texts; searches with a `language_model_weight` use them.

        The model knows the letters of the recognizer, and is saved with it.
        """
        self._check_trained()
        self.codec.fit_language_model(texts, order)
        self._pipelines = {}


def make_model(config: RecognizerConfig, vocabulary: Vocabulary) -> Seq2Seq:
    """Builds the listener and the speller of a recognizer."""
    size = len(vocabulary)
    encoder = Listener(
        size,
        units=config.encoder.units,
        num_layers=config.encoder.num_layers,
        front_end=config.encoder.front_end,
        filters=config.encoder.filters,
        dropout=config.encoder.dropout,
        name="encoder",
    )
    model = Seq2Seq(encoder, make_decoder(config.decoder, size))
    mels = config.features.num_mels
    model.build({"source": {"features": (None, None, mels), "mask": (None, None)}, "tokens": (None, None)})
    return model
