"""Tiny random models of KerasHub, with tokenizers made on the spot."""

import io

import keras
import numpy as np

WORDS = ("Ġthe", "Ġcat", "Ġsat", "Ġon", "Ġmat", "Ġdog", "Ġran", "The", "A")
TEXTS = ("The cat sat on the mat.", "A dog ran on the")


def make_bart(seed=1, num_layers=2):
    import keras_hub

    keras.utils.set_random_seed(seed)  # of the initial weights, which `_shaken` changes
    vocabulary, merges = _byte_pairs()
    preprocessor = keras_hub.models.BartSeq2SeqLMPreprocessor(
        keras_hub.models.BartTokenizer(vocabulary=vocabulary, merges=merges),
        encoder_sequence_length=24,
        decoder_sequence_length=16,
    )
    backbone = keras_hub.models.BartBackbone(
        vocabulary_size=len(vocabulary),
        num_layers=num_layers,
        num_heads=3,
        hidden_dim=12,
        intermediate_dim=20,
        max_sequence_length=40,
    )
    return _shaken(keras_hub.models.BartSeq2SeqLM(backbone, preprocessor), seed)


def make_t5(seed=1):
    import keras_hub

    keras.utils.set_random_seed(seed)  # of the initial weights, which `_shaken` changes
    pieces = _sentence_pieces(pad_id=0, eos_id=1, unk_id=2, bos_id=-1, eos_piece="</s>")
    tokenizer = keras_hub.models.T5Tokenizer(pieces)
    preprocessor = keras_hub.models.T5Seq2SeqLMPreprocessor(
        tokenizer, encoder_sequence_length=24, decoder_sequence_length=16
    )
    backbone = keras_hub.models.T5Backbone(
        vocabulary_size=tokenizer.vocabulary_size(), num_layers=1, num_heads=3, hidden_dim=12, intermediate_dim=20
    )
    return _shaken(keras_hub.models.T5Seq2SeqLM(backbone, preprocessor), seed)


def make_t5gemma(seed=1):
    import keras_hub

    keras.utils.set_random_seed(seed)  # of the initial weights, which `_shaken` changes
    tokenizer = keras_hub.models.T5GemmaTokenizer(
        _sentence_pieces(pad_id=0, eos_id=1, bos_id=2, unk_id=3, bos_piece="<bos>", eos_piece="<eos>")
    )
    preprocessor = keras_hub.models.T5GemmaSeq2SeqLMPreprocessor(
        tokenizer, encoder_sequence_length=24, decoder_sequence_length=16
    )
    sizes = {
        "hidden_dim": 12,
        "intermediate_dim": 20,
        "num_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 6,
        "layer_types": ["full_attention"],
    }
    backbone = keras_hub.models.T5GemmaBackbone(
        vocabulary_size=tokenizer.vocabulary_size(),
        dropout_rate=0.0,
        rms_norm_eps=1e-6,
        query_pre_attn_scalar=6,
        attention_bias=False,
        hidden_activation="gelu_approximate",
        **{f"{part}_{name}": size for part in ("encoder", "decoder") for name, size in sizes.items()},
    )
    return _shaken(keras_hub.models.T5GemmaSeq2SeqLM(backbone, preprocessor), seed)


def make_moonshine(seed=1, byte_fallback=True, **options):
    import keras_hub

    keras.utils.set_random_seed(seed)  # of the initial weights, which `_shaken` changes
    pieces = _sentence_pieces(
        vocab_size=310 if byte_fallback else 48,
        byte_fallback=byte_fallback,
        unk_id=0,
        bos_id=1,
        eos_id=2,
        pad_id=-1,
        bos_piece="<s>",
        eos_piece="</s>",
    )
    tokenizer = keras_hub.models.MoonshineTokenizer(pieces)
    preprocessor = keras_hub.models.MoonshineAudioToTextPreprocessor(
        keras_hub.layers.MoonshineAudioConverter(), tokenizer, decoder_sequence_length=12
    )
    sizes = {
        "vocabulary_size": tokenizer.vocabulary_size() + 5,  # Moonshine has more rows than sub-words, too
        "filter_dim": 24,
        "hidden_dim": 24,
        "intermediate_dim": 48,
        "feedforward_expansion_factor": 2,
        "encoder_num_layers": 2,
        "decoder_num_layers": 3,
        "encoder_num_heads": 3,
        "decoder_num_heads": 3,
        "partial_rotary_factor": 0.9,
        "max_position_embeddings": 20,
    }
    backbone = keras_hub.models.MoonshineBackbone(**{**sizes, **options})
    model = keras_hub.models.MoonshineAudioToText(backbone, preprocessor)
    frequencies = [np.asarray(weight) for weight in backbone.non_trainable_weights]
    model = _shaken(model, seed)
    for weight, frequency in zip(backbone.non_trainable_weights, frequencies, strict=True):
        weight.assign(frequency)
    return model


MAKERS = {"bart": make_bart, "t5": make_t5, "t5gemma": make_t5gemma}


def _shaken(model, seed):
    """The model with weights large enough for it to write more than one token again and again."""
    random = np.random.default_rng(seed)
    for weight in model.backbone.weights:
        weight.assign(np.asarray(weight) + random.normal(scale=0.5, size=weight.shape))
    return model


def _byte_pairs():
    """Letters, and the words made by joining one letter after the other."""
    vocabulary = {token: index for index, token in enumerate(("<s>", "<pad>", "</s>", "<unk>"))}
    for letter in "Ġ.,-'abcdefghijklmnopqrstuvwxyzABT":
        vocabulary[letter] = len(vocabulary)
    merges = []
    for word in WORDS:
        for end in range(1, len(word)):
            merges.append(f"{word[:end]} {word[end]}")
            vocabulary.setdefault(word[: end + 1], len(vocabulary))
    return vocabulary, list(dict.fromkeys(merges))


def _sentence_pieces(vocab_size=48, **special):
    import sentencepiece

    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*TEXTS, "a b c d e f g h i j k l m n o p q r s t u v w x y z"]),
        model_writer=written,
        vocab_size=vocab_size,
        model_type="BPE",
        pad_piece="<pad>",
        unk_piece="<unk>",
        minloglevel=2,
        **special,
    )
    return written.getvalue()
