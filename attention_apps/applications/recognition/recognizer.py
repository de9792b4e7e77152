"""Speech recognition by Moonshine, or by Listen, Attend and Spell."""

from collections.abc import Iterable, Sequence
from os import PathLike
from typing import Any, Self, overload

import numpy as np

from attention_apps.applications.application import Application
from attention_apps.applications.parts import Parts
from attention_apps.applications.recognition.codec import LetterCodec, SubWordCodec
from attention_apps.applications.recognition.config import RecognizerConfig
from attention_apps.applications.recognition.examples import SpeechExamples, SubWordExamples
from attention_apps.applications.recognition.reader import AudioReader
from attention_apps.applications.recognition.transcript import Transcript
from attention_apps.models import Listener, MoonshineDecoder, MoonshineEncoder, Seq2Seq
from attention_apps.models.decoder_config import make_decoder
from attention_apps.preprocessing.vocabulary import Vocabulary

Recording = str | PathLike | bytes | tuple[np.ndarray, float]


class SpeechRecognizer(Application):
    """Writes down what is said in a recording, and when each word was said.

    The configuration chooses between two kinds of models. Moonshine, the default preset, reads the waveform and writes
    sub-words, with case and punctuation. Listen, Attend and Spell reads log-mel features and spells; attention and CTC
    share its listener, and the search finds the text that both agree on.

    A recording longer than `max_seconds` of the configuration is cut at pauses. Silence, noise and recordings of less
    than a tenth of a second have an empty text; see `TranscriptOptions.min_confidence`.

    Example:
        recognizer = SpeechRecognizer.from_preset()
        transcript = recognizer.transcribe("call.wav")
        transcript.text, transcript.words   # ("Go.", [SpokenWord("Go.", 0.31, 0.62, 0.97)])

    Reference:
        Jeffries et al. 2024, "Moonshine: Speech Recognition for Live Transcription and Voice Commands".
        Chan et al. 2016, "Listen, Attend and Spell"; Chorowski et al. 2015, "Attention-Based Models for Speech
        Recognition"; Hori et al. 2017, "Joint CTC/Attention Decoding for End-to-End Speech Recognition".
    """

    task = "speech_recognition"
    config_class = RecognizerConfig
    default_preset = "moonshine_tiny_english"

    def __init__(self, config: RecognizerConfig | None = None, vocabulary: Vocabulary | None = None):
        is_moonshine = config is not None and config.moonshine is not None
        super().__init__(config, vocabulary, MOONSHINE if is_moonshine else LISTEN_ATTEND_SPELL)

    @classmethod
    def from_keras_hub(cls, model: Any, config: RecognizerConfig | None = None) -> Self:
        """Make a recognizer from a Moonshine of KerasHub, with our search, word times, training and export.

        The weights are copied, so that `save` writes a preset of this package, which loads without KerasHub.

        Args:
            model: a `MoonshineAudioToText` with its preprocessor, or the name or folder of its preset, such as
                `"moonshine_base_en"`.
            config: by default texts keep case and punctuation, and the confidence is not calibrated. The sizes in
                `config.moonshine` are replaced by those of the model. `alignment_heads` are known for Moonshine-tiny
                only; without them, times of words come from all heads of the last layer.
        """
        from attention_apps.applications.recognition.keras_hub import HubMoonshine

        hub = HubMoonshine(model)
        recognizer = cls(hub.config(config), hub.vocabulary)
        hub.copy_weights(recognizer.model.encoder, recognizer.model.decoder)
        return recognizer

    @overload
    def transcribe(self, recordings: Recording, quiet: bool = False, **options: Any) -> Transcript: ...

    @overload
    def transcribe(self, recordings: Sequence[Recording], quiet: bool = False, **options: Any) -> list[Transcript]: ...

    def transcribe(
        self, recordings: Recording | Sequence[Recording], quiet: bool = False, **options: Any
    ) -> Transcript | list[Transcript]:
        """Transcribe one recording, or each of a list: paths, the bytes of files, or pairs `(samples, rate)`.

        A single recording that cannot be read raises an error; in a list it gets a transcript with its `error`.

        Args:
            quiet: whether a long recording shows no progress bar.
            options: of the search and the output, as keywords: `beam_size=3, min_confidence=0`.
        """
        is_pair = isinstance(recordings, tuple) and len(recordings) == 2 and isinstance(recordings[0], np.ndarray)
        is_one = is_pair or not isinstance(recordings, list | tuple)
        return self.answer(recordings, options, quiet, is_one)

    def fit_language_model(self, texts: Iterable[str], order: int = 6) -> None:
        """Count the n-grams of letters of texts; searches with a `language_model_weight` use them.

        The model knows the letters of the recognizer, and is saved with it.
        """
        self._check_trained()
        self.codec.fit_language_model(texts, order)
        self._pipelines = {}


def make_listener_and_speller(config: RecognizerConfig, vocabulary: Vocabulary) -> Seq2Seq:
    """Build Listen, Attend and Spell."""
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


def make_moonshine(config: RecognizerConfig, vocabulary: Vocabulary) -> Seq2Seq:
    """Build Moonshine."""
    sizes = config.moonshine
    assert sizes is not None
    shared = {
        "dim": sizes.dim,
        "num_heads": sizes.num_heads,
        "hidden_dim": sizes.hidden_dim,
        "rotary_dim": sizes.rotary_dim,
        "dropout": sizes.dropout,
    }
    decoder = MoonshineDecoder(
        len(vocabulary),
        num_layers=sizes.decoder_layers,
        max_length=sizes.max_length,
        max_tokens_per_frame=sizes.tokens_per_second * SubWordCodec.frame_seconds,
        alignment_heads=sizes.alignment_heads,
        name="decoder",
        **shared,
    )
    model = Seq2Seq(MoonshineEncoder(num_layers=sizes.encoder_layers, name="encoder", **shared), decoder)
    model.build({"source": {"waveform": (None, None), "lengths": (None,)}, "tokens": (None, None)})
    return model


LISTEN_ATTEND_SPELL = Parts(
    reader=AudioReader,
    codec=LetterCodec,
    model=make_listener_and_speller,
    examples=SpeechExamples,
    extra_loss=lambda config: config.ctc,
)
MOONSHINE = Parts(reader=AudioReader, codec=SubWordCodec, model=make_moonshine, examples=SubWordExamples)
