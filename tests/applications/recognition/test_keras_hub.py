from dataclasses import replace
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from attention_apps import SpeechRecognizer
from attention_apps.applications.recognition.recognizer import HubMoonshine
from attention_apps.preprocessing.audio import SAMPLE_RATE
from tests.applications.recognizers import say, wav_bytes, write_corpus
from tests.models.keras_hub_models import TEXTS, make_moonshine

SPEECH = say("ABCAB")
TOKENS = np.array([[1, 270, 12, 300, 261], [1, 280, 259, 4, 2]], "int32")


@pytest.fixture(scope="module")
def hub_model():
    return make_moonshine()


@pytest.fixture(scope="module")
def recognizer(hub_model):
    """A recognizer that is quick to trace, and whose texts are not withheld."""
    config = SpeechRecognizer.from_keras_hub(hub_model).config
    decoding, output = replace(config.decoding, beam_size=1), replace(config.output, min_confidence=0)
    return SpeechRecognizer.from_keras_hub(hub_model, replace(config, decoding=decoding, output=output))


def test_encoder_and_decoder_compute_what_those_of_keras_hub_do(recognizer, hub_model):
    waveform = 0.1 * np.random.default_rng(0).normal(size=(2, 9000)).astype("float32")
    inputs = {
        "encoder_input_values": waveform[..., np.newaxis],
        "encoder_padding_mask": np.ones(waveform.shape, bool),
        "decoder_token_ids": TOKENS,
        "decoder_padding_mask": np.ones(TOKENS.shape, bool),
    }
    hidden = hub_model.backbone(inputs)
    expected = hub_model.backbone.token_embedding(hidden["decoder_sequence_output"], reverse=True)
    memory = recognizer.model.encode({"waveform": waveform})
    np.testing.assert_allclose(memory["values"], hidden["encoder_sequence_output"], atol=1e-4)
    logits = recognizer.model.decoder(TOKENS, memory)
    assert logits.shape[-1] == len(recognizer.vocabulary) == expected.shape[-1] - 5
    np.testing.assert_allclose(logits, expected[..., :-5], rtol=1e-3, atol=1e-3)


def test_a_greedy_search_writes_the_tokens_of_keras_hub(recognizer, hub_model):
    """Its preprocessor is left out: it begins with two start tokens."""
    model = type(hub_model)(hub_model.backbone, preprocessor=None)
    model.compile(sampler="greedy")
    inputs = {
        "encoder_input_values": SPEECH[np.newaxis, :, np.newaxis],
        "encoder_padding_mask": np.ones((1, len(SPEECH)), bool),
        "decoder_token_ids": np.eye(1, 9, dtype="int32"),
        "decoder_padding_mask": np.eye(1, 9, dtype=bool),
    }
    written = model.generate(inputs, stop_token_ids=None)["decoder_token_ids"][0, 1:].tolist()
    end = written.index(2) if 2 in written else len(written)
    spelled = recognizer.codec.tokens(tf.constant(written[:end])).numpy()
    transcript = recognizer.transcribe((SPEECH, SAMPLE_RATE), max_length=8, min_length=0)
    assert len(set(spelled)) > 1
    assert transcript.tokens == [piece.decode("utf-8", "replace") for piece in spelled]


def test_ids_and_sub_words_are_those_of_the_tokenizer(recognizer, hub_model):
    tokenizer = hub_model.preprocessor.tokenizer
    for text in (*TEXTS, "Zoë ran, 7 times"):
        ids = recognizer.codec.encode(text)
        assert ids == list(tokenizer(text))
        assert recognizer.codec.write(tf.constant([ids])).numpy()[0].decode() == text


def test_a_tokenizer_without_bytes_keeps_all_of_its_sub_words():
    hub = HubMoonshine(make_moonshine(byte_fallback=False))
    tokenizer = hub.tokenizer
    pieces = [tokenizer.id_to_token(index) for index in range(3, tokenizer.vocabulary_size())]
    assert hub.vocabulary.tokens == ("<pad>", "<start>", "<end>", "<unk>", *pieces)
    recognizer = SpeechRecognizer(hub.config(None), hub.vocabulary)
    hub.copy_weights(recognizer.model.encoder, recognizer.model.decoder)
    embeddings = keras.ops.convert_to_numpy(hub.backbone.token_embedding.embeddings)
    np.testing.assert_array_equal(recognizer.model.decoder.embedding[:, 4], embeddings[3])


def test_words_have_times(recognizer):
    transcript = recognizer.transcribe((SPEECH, SAMPLE_RATE))
    assert transcript.words
    assert all(0 <= word.start <= word.end <= transcript.seconds for word in transcript.words)
    assert transcript.attention.shape[0] == len(transcript.tokens)


def test_a_saved_recognizer_is_a_preset_of_ours(recognizer, tmp_path):
    recognizer.save(tmp_path / "mine")
    loaded = SpeechRecognizer.from_preset(tmp_path / "mine")
    expected, found = (one.transcribe((SPEECH, SAMPLE_RATE)) for one in (recognizer, loaded))
    assert (found.text, found.words) == (expected.text, expected.words)


def test_it_is_measured_and_trained(recognizer, tmp_path):
    data = write_corpus(tmp_path / "data", 3)
    assert set(recognizer.evaluate(data, quiet=True).metrics) == {"wer", "cer"}
    trained = recognizer.with_config(
        replace(recognizer.config, training=replace(recognizer.config.training, epochs=1, warmup_steps=0))
    )
    trained.fit(data, quiet=True)
    before, after = (one.model.decoder.embedding.numpy() for one in (recognizer, trained))
    assert np.abs(after - before).max() > 0


@pytest.mark.slow
def test_an_export_answers_as_the_recognizer_does(recognizer, tmp_path):
    version = recognizer.export(tmp_path / "moonshine")
    answer = tf.saved_model.load(str(version)).signatures["serving_default"]
    found = answer(audio_bytes=tf.constant([wav_bytes(SPEECH)]))
    assert found["text"].numpy()[0, 0].decode() == recognizer.transcribe(wav_bytes(SPEECH)).text


def test_sizes_of_moonshine_tiny_get_its_alignment_heads(hub_model):
    hub = HubMoonshine(hub_model)
    assert hub.config(None).moonshine.alignment_heads == ()
    assert hub.config(None).moonshine.max_length == 20
    tiny = {"hidden_dim": 288, "encoder_num_heads": 8, "encoder_num_layers": 6, "decoder_num_layers": 6}
    rotary = SimpleNamespace(inv_freq=np.zeros(16))
    tiny |= {"feedforward_expansion_factor": 4, "max_position_embeddings": 194, "decoder_rotary_embedding": rotary}
    hub.backbone = SimpleNamespace(**tiny)
    assert len(hub.config(None).moonshine.alignment_heads) == 4


@pytest.mark.parametrize(
    "options",
    [
        {"pad_head_dim_to_multiple_of": 5},
        {"rope_theta": 500.0},
        {"attention_bias": True},
        {"encoder_use_swiglu_activation": True},
    ],
    ids=lambda options: next(iter(options)),
)
def test_what_ours_cannot_compute_is_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        HubMoonshine(make_moonshine(**options))


def test_other_objects_are_refused(hub_model):
    with pytest.raises(TypeError, match="`model` must be a `MoonshineAudioToText`"):
        SpeechRecognizer.from_keras_hub(hub_model.backbone)
    with pytest.raises(ValueError, match="preprocessor"):
        SpeechRecognizer.from_keras_hub(type(hub_model)(hub_model.backbone))
