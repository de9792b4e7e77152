from dataclasses import replace

import pytest

from attention_apps.applications import CaptionerConfig, ImageCaptioner
from attention_apps.constants import UNKNOWN
from attention_apps.preprocessing.vocabulary import Vocabulary
from attention_apps.training.config import read_config, to_dict, to_toml
from tests.applications.captioners import WORDS, make_config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder": {"image_size": 31}}, r"\[encoder\] `image_size` must be between 32 and 1024"),
        ({"encoder": {"dropout": 1.0}}, "`dropout` must be at least 0 and less than 1"),
        ({"encoder": {"fit": "stretch"}}, '`encoder.fit` must be one of "squash", "crop"'),
        ({"augmented_views": -1}, "`augmented_views` must be between 0 and 100"),
        ({"confidence": {"threshold": 2.0}}, "`threshold` must be between 0 and 1"),
        ({"output": {"sentences": 2}}, "Unknown key `output.sentences`"),
    ],
)
def test_values_out_of_range_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        read_config(CaptionerConfig, changes)


def test_a_transformer_with_hard_attention_is_refused():
    lines = ["decoder.kind=transformer", "decoder.attention.hard=true"]
    with pytest.raises(ValueError, match=r"`attention.hard` must be false for a Transformer.*attention.hard=True"):
        read_config(CaptionerConfig, {}, lines)


def test_a_configuration_survives_being_written(tmp_path):
    config = make_config(encoder={"fit": "crop"}, context_gate="scalar")
    assert read_config(CaptionerConfig, to_dict(config)) == config
    (tmp_path / "config.toml").write_text(to_toml(config))
    assert read_config(CaptionerConfig, tmp_path / "config.toml") == config


def test_the_unknown_word_is_not_written():
    assert UNKNOWN in CaptionerConfig().decoding.banned_tokens


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_no_model_has_fewer_parameters_than_its_configuration_says(cell):
    config = make_config(tied_embeddings=True)
    config = replace(config, decoder=replace(config.decoder, cell=cell, num_layers=2))
    model = ImageCaptioner(config, Vocabulary(WORDS)).model
    assert 0 < config.min_parameters(4 + len(WORDS)) <= model.count_params()
