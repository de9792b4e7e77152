import typing

import pytest

from attention_apps import layers
from attention_apps.models import PointerGenerator, RecurrentDecoder, TransformerDecoder
from attention_apps.models.decoder_config import AttentionConfig, DecoderConfig, make_attention, make_decoder

V = 13
KINDS = {
    "none": type(None),
    "additive": layers.AdditiveAttention,
    "luong": layers.LuongAttention,
    "scaled_dot_product": layers.ScaledDotProductAttention,
    "multi_head": layers.MultiHeadAttention,
    "location_sensitive": layers.LocationSensitiveAttention,
    "coverage": layers.CoverageAttention,
    "monotonic": layers.MonotonicAttention,
}
SMALL = {"embedding_dim": 8, "units": 6, "num_heads": 2, "hidden_dim": 5}


def test_every_kind_of_attention_has_its_layer():
    assert set(KINDS) == set(typing.get_args(AttentionConfig.__annotations__["kind"]))
    for kind, layer in KINDS.items():
        assert type(make_attention(AttentionConfig(kind=kind, units=4))) is layer


def test_the_options_reach_the_layer():
    attention = make_attention(AttentionConfig("location_sensitive", units=9, filters=3, kernel_size=5))
    assert (attention.units, attention.filters, attention.kernel_size) == (9, 3, 5)
    attention = make_attention(AttentionConfig("luong", units=9, score="concat", window="local-p", half_width=4))
    assert (attention.units, attention.score, attention.window, attention.half_width) == (9, "concat", "local-p", 4)
    attention = make_attention(AttentionConfig("multi_head", units=12, num_heads=3))
    assert (attention.num_heads, attention.key_dim) == (3, 4)


def test_hard_attention_wraps_the_layer():
    attention = make_attention(AttentionConfig("additive", units=9, hard=True, estimator="gumbel", temperature=0.5))
    assert type(attention) is layers.HardAttention
    assert (attention.estimator, attention.temperature, attention.attention.units) == ("gumbel", 0.5, 9)


@pytest.mark.parametrize(
    ("options", "expected"),
    [({}, RecurrentDecoder), ({"kind": "transformer"}, TransformerDecoder), ({"copying": True}, PointerGenerator)],
)
def test_the_configuration_chooses_the_decoder(options, expected):
    decoder = make_decoder(DecoderConfig(**SMALL, attention=AttentionConfig(units=4), **options), V)
    assert type(decoder) is expected
    assert decoder.vocabulary_size == V


@pytest.mark.parametrize(
    "config",
    [
        DecoderConfig(**SMALL, attention=AttentionConfig("none")),
        DecoderConfig(**SMALL, cell="gru", num_layers=2, tied_embeddings=True, attention=AttentionConfig(units=3)),
        DecoderConfig("transformer", **SMALL, num_layers=2),
    ],
)
def test_the_lower_bound_of_parameters_holds(config):
    decoder = make_decoder(config, V)
    decoder.build((None, None), {"values": (None, None, 4), "mask": (None, None)})
    assert V * config.embedding_dim < config.min_parameters(V) <= decoder.count_params()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AttentionConfig(units=0), "`units` must be between 1 and 4096. Received: units=0"),
        (lambda: DecoderConfig(units=10**6), "`units` must be between 1 and 8192. Received: units=1000000"),
        (lambda: DecoderConfig(num_layers=65), "`num_layers` must be between 1 and 64. Received: num_layers=65"),
        (lambda: DecoderConfig(dropout=1.0), "`dropout` must be at least 0 and less than 1. Received: dropout=1.0"),
        (
            lambda: DecoderConfig("transformer", attention=AttentionConfig(hard=True)),
            "`attention.hard` must be false for a Transformer",
        ),
    ],
)
def test_wrong_values_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
