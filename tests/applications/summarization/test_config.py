import pytest

from attention_apps.applications.summarization.config import (
    SummarizerConfig,
    SummaryDecodingOptions,
    SummaryOptions,
)
from attention_apps.training import read_config, to_dict
from tests.applications.summarizers import CONFIGS, TRANSFORMER, WORDS, make_summarizer


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_words": 0}, "`max_words` must be at least 1"),
        ({"max_words": 2, "min_words": 3}, "`max_words` must be at least 3"),
        ({"min_words": -1}, "`min_words` must be at least 0"),
        ({"beam_size": 0}, "`beam_size` must be at least 1"),
    ],
)
def test_impossible_search_options_are_rejected(arguments, message):
    with pytest.raises(ValueError, match=message):
        SummaryDecodingOptions(**arguments)


def test_a_summary_has_at_least_one_sentence():
    with pytest.raises(ValueError, match="`sentences` must be at least 1"):
        SummaryOptions(sentences=0)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("vocabulary_size=3", "`vocabulary_size` must be between"),
        ("max_source_length=1", "`max_source_length` must be between"),
        ("max_summary_words=0", "`max_summary_words` must be between"),
        ("encoder.units=0", "`units` must be between"),
        ("encoder.dropout=1.5", "`dropout` must be at least 0 and less than 1"),
        ("encoder.kind=guess", "`encoder.kind` must be one of"),
        ("method=delete", "method"),
    ],
)
def test_impossible_configurations_are_rejected(override, message):
    with pytest.raises(ValueError, match=message):
        read_config(SummarizerConfig, CONFIGS["generate"], [override])


def test_the_encoder_is_of_the_decoders_kind_by_default():
    assert read_config(SummarizerConfig, {}).encoder_kind == "recurrent"
    assert read_config(SummarizerConfig, {}, ["decoder.kind=transformer"]).encoder_kind == "transformer"
    both = ["decoder.kind=transformer", "encoder.kind=recurrent"]
    assert read_config(SummarizerConfig, {}, both).encoder_kind == "recurrent"


def test_a_configuration_survives_being_written_and_read():
    config = read_config(SummarizerConfig, CONFIGS["generate"], ["output.sentences=2", "confidence.slope=2"])
    assert read_config(SummarizerConfig, to_dict(config)) == config


@pytest.mark.parametrize("content", [CONFIGS["generate"], TRANSFORMER], ids=["recurrent", "transformer"])
def test_a_model_has_at_least_the_parameters_that_its_configuration_promises(content):
    summarizer = make_summarizer(content, words=WORDS)
    fewest = summarizer.config.min_parameters(len(summarizer.vocabulary))
    assert 0 < fewest <= summarizer.model.count_params()
