import pytest

from attention_apps.applications.recognition.config import GroupShare, RecognizerConfig, SpeechDecodingOptions
from attention_apps.constants import END, SPECIAL_TOKENS
from attention_apps.training.config import read_config, to_dict, to_toml
from tests.applications.recognizers import LETTERS, make_config, make_recognizer


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_seconds": 0.5}, "`max_seconds` must be between 1 and 120. Received: max_seconds=0.5"),
        ({"short_epochs": -1}, "`short_epochs` must be at least 0"),
        ({"language_model_order": 0}, "`language_model_order` must be between 1 and 12"),
        ({"encoder": {"units": 0}}, r"\[encoder\] `units` must be between 1 and 4096. Received: units=0"),
        ({"encoder": {"dropout": 1.0}}, "`dropout` must be at least 0 and less than 1"),
        (
            {"augmentation": {"tempos": []}},
            "`tempos` must be one or more factors between 0.5 and 2. Received: tempos=()",
        ),
        ({"augmentation": {"noise_alone": -1}}, "`noise_alone` must be at least 0"),
        ({"mixture": [{"group": "a", "count": 0}]}, "`count` must be at least 1"),
        ({"decoding": {"ctc_weight": 1.0}}, "`ctc_weight` must be at least 0 and less than 1"),
        ({"decoding": {"language_model_weight": -1.0}}, "`language_model_weight` must be at least 0"),
        ({"decoding": {"min_confidence": 0.5}}, "Unknown key `decoding.min_confidence`"),
        ({"output": {"min_confidence": 1.5}}, "`min_confidence` must be between 0 and 1"),
        ({"ctc": {"weight": 2.0}}, "`weight` must be between 0 and 1"),
        ({"confidence": {"threshold": -1.0}}, "`threshold` must be between 0 and 1"),
        ({"case": "title"}, '`case` must be one of "upper", "lower", "keep"'),
    ],
)
def test_values_out_of_range_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        read_config(RecognizerConfig, changes)


def test_a_configuration_survives_being_written(tmp_path):
    config = RecognizerConfig(mixture=(GroupShare("a", 3), GroupShare("b", None, 1, 4)))
    assert read_config(RecognizerConfig, to_dict(config)) == config
    (tmp_path / "config.toml").write_text(to_toml(config))
    assert read_config(RecognizerConfig, tmp_path / "config.toml") == config


def test_only_letters_and_the_end_are_spelled():
    assert set(SpeechDecodingOptions().banned_tokens) == set(range(len(SPECIAL_TOKENS))) - {END}


@pytest.mark.parametrize("front_end", ["convolutional", "pyramidal"])
def test_no_model_has_fewer_parameters_than_its_configuration_says(front_end):
    encoder = {"units": 10, "num_layers": 1, "front_end": front_end, "filters": 64}
    fewest = make_config(encoder=encoder).min_parameters(4 + len(LETTERS))
    assert 0 < fewest <= make_recognizer(encoder=encoder).model.count_params()
