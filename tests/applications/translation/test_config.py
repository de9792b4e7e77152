import pytest

from attention_apps.applications import TranslatorConfig
from attention_apps.training import read_config
from tests.applications.translators import CONFIGS, PIECES, make_translator


@pytest.mark.parametrize("kind", CONFIGS)
def test_both_kinds_of_model_are_made(kind):
    model = make_translator(CONFIGS[kind], pieces=PIECES).model
    assert type(model.decoder).__name__ == f"{kind.title()}Decoder"
    assert model.encoder.embedding is model.decoder.embedding


@pytest.mark.parametrize("attention", ["none", "additive", "luong"])
def test_the_attention_of_a_recurrent_decoder_is_chosen(attention):
    config = read_config(TranslatorConfig, CONFIGS["recurrent"], [f"decoder.attention.kind={attention}"])
    assert config.encoder_kind == "recurrent"
    layer = make_translator(
        CONFIGS["recurrent"], [f"decoder.attention.kind={attention}"], PIECES
    ).model.decoder.attention
    assert (layer is None) == (attention == "none")


def test_the_default_is_the_transformer_tiny():
    config = TranslatorConfig()
    assert config.encoder_kind == "transformer"
    assert (config.encoder.num_layers, config.decoder.num_layers, config.decoder.embedding_dim) == (4, 4, 128)


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_model_has_at_least_as_many_parameters_as_expected(kind):
    translator = make_translator(CONFIGS[kind], pieces=PIECES)
    least = translator.config.min_parameters(len(translator.vocabulary))
    assert 0 < least <= translator.model.count_params()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("vocabulary_size=100", "`vocabulary_size` must be between 270 and"),
        ("max_sentence_length=3", "`max_sentence_length` must be between 64 and"),
        ("encoder.embedding_dim=32", "`embedding_dim` must be the same for encoder and decoder"),
    ],
)
def test_what_cannot_work_is_an_error(change, message):
    with pytest.raises(ValueError, match=message):
        read_config(TranslatorConfig, CONFIGS["transformer"], [change])


def test_the_embeddings_may_differ_if_they_are_not_shared():
    changes = ["encoder.embedding_dim=32", "shared_embedding=false"]
    assert read_config(TranslatorConfig, CONFIGS["transformer"], changes).encoder.embedding_dim == 32
