"""A tiny Moonshine with random weights."""

import keras
import numpy as np
from keras import ops

from attention_apps.models import MoonshineDecoder, MoonshineEncoder, Seq2Seq

VOCABULARY, DIM, HEADS, LAYERS, HIDDEN, ROTARY = 19, 10, 2, 3, 7, 4
BATCH, TIME, SOURCE = 2, 3, 5
SIZES = {"dim": DIM, "num_layers": LAYERS, "num_heads": HEADS, "hidden_dim": HIDDEN, "rotary_dim": ROTARY}


def make_encoder(**options):
    keras.utils.set_random_seed(3)
    encoder = MoonshineEncoder(**{**SIZES, **options})
    encoder.build({"waveform": (None, None), "lengths": (None,)})
    encoder.group_offset.assign(np.linspace(-1, 1, DIM))
    return encoder


def make_decoder(value_dim=DIM, **options):
    keras.utils.set_random_seed(4)
    decoder = MoonshineDecoder(VOCABULARY, **{**SIZES, **options})
    decoder.build((None, None), {"values": (None, None, value_dim), "mask": (None, None)})
    decoder.embedding.assign(decoder.embedding * 20)
    return decoder


def make_model(**options):
    return Seq2Seq(make_encoder(), make_decoder(**options))


def make_source(lengths=(4000, 2500), seed=0):
    """Noise, also where there should be silence after a recording's end."""
    waveform = 0.1 * np.random.default_rng(seed).normal(size=(len(lengths), max(lengths)))
    return {"waveform": waveform.astype("float32"), "lengths": np.array(lengths, "int32")}


def make_values(*shape, seed=0):
    return ops.convert_to_tensor(np.random.default_rng(seed).normal(size=shape).astype("float32"))
