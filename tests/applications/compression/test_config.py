import pytest

from attention_apps.applications.compression.config import CompressionDecodingOptions, CompressorConfig
from attention_apps.training import read_config, to_dict
from tests.applications.summarizers import CONFIGS, WORDS, make_compressor


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_words": 0}, "`max_words` must be at least 1"),
        ({"max_words": 2, "min_words": 3}, "`max_words` must be at least 3"),
        ({"min_words": -1}, "`min_words` must be at least 0"),
    ],
)
def test_impossible_search_options_are_rejected(arguments, message):
    with pytest.raises(ValueError, match=message):
        CompressionDecodingOptions(**arguments)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("vocabulary_size=3", "`vocabulary_size` must be between"),
        ("max_source_length=1", "`max_source_length` must be between"),
        ("encoder.units=0", "`units` must be between"),
        ("decoder.dropout=1.5", "`dropout` must be at least 0 and less than 1"),
        ("training.label_smoothing=0.1", "`label_smoothing` must be 0"),
        ("decoder.attention.kind=additive", "attention"),
    ],
)
def test_impossible_configurations_are_rejected(override, message):
    with pytest.raises(ValueError, match=message):
        read_config(CompressorConfig, CONFIGS["delete"], [override])


def test_a_configuration_survives_being_written_and_read():
    config = read_config(CompressorConfig, CONFIGS["delete"], ["decoding.keep_bias=0.5"])
    assert read_config(CompressorConfig, to_dict(config)) == config


def test_a_model_has_at_least_the_parameters_that_its_configuration_promises():
    compressor = make_compressor(words=WORDS)
    fewest = compressor.config.min_parameters(len(compressor.vocabulary))
    assert 0 < fewest <= compressor.model.count_params()
