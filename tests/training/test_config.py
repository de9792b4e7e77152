import dataclasses
import tomllib

import pytest

from attention_apps.training.config import (
    ScheduledSamplingConfig,
    SelfCriticalConfig,
    TrainingConfig,
    read_config,
    to_toml,
)


def test_an_empty_file_gives_the_defaults():
    assert read_config(TrainingConfig, {}) == TrainingConfig()


def test_the_resolved_configuration_reads_back_equal():
    config = read_config(
        TrainingConfig, {"ema": 0.99, "freeze": ["encoder/*"]}, ["clip_norm=none", "self_critical.epochs=2"]
    )
    assert config.clip_norm is None
    assert config.freeze == ("encoder/*",)
    assert config.self_critical == SelfCriticalConfig(epochs=2)
    assert read_config(TrainingConfig, tomllib.loads(to_toml(config))) == config


def test_a_configuration_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TrainingConfig().epochs = 3


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("epochs", 0, "at least 1"),
        ("max_steps", 0, "at least 1"),
        ("batch_size", 0, "at least 1"),
        ("max_batch_length", 0.0, "more than 0"),
        ("accumulate", 0, "at least 1"),
        ("short_first_epochs", -1, "at least 0"),
        ("learning_rate", 0.0, "more than 0"),
        ("warmup_steps", -1, "at least 0"),
        ("schedule", "steps", 'one of "constant", "cosine", "inverse_sqrt", "linear"'),
        ("final_learning_rate", 1.5, "between 0 and 1"),
        ("weight_decay", -0.1, "at least 0"),
        ("clip_norm", 0.0, "more than 0"),
        ("label_smoothing", 1.0, "at least 0 and less than 1"),
        ("doubly_stochastic", -1.0, "at least 0"),
        ("coverage", -1.0, "at least 0"),
        ("guided", -1.0, "at least 0"),
        ("ema", 1.0, "at least 0 and less than 1"),
        ("average_checkpoints", 0, "at least 1"),
        ("validate_every", 0, "at least 1"),
        ("validate_unit", "minutes", 'one of "epochs", "steps"'),
        ("patience", 0, "at least 1"),
        ("checkpoint_minutes", 0.0, "more than 0"),
        ("seed", -1, "at least 0"),
    ],
)
def test_a_value_out_of_range_is_an_error(name, value, expected):
    with pytest.raises(ValueError, match=f"^`{name}` must be {expected}. Received: {name}={value!r}$"):
        TrainingConfig(**{name: value})


def test_the_sections_check_their_values_too():
    with pytest.raises(ValueError, match=r"\[scheduled_sampling\] `probability` must be between 0 and 1"):
        read_config(TrainingConfig, {}, ["scheduled_sampling.probability=2"])
    with pytest.raises(ValueError, match="`ramp_steps` must be at least 0"):
        ScheduledSamplingConfig(ramp_steps=-1)
    with pytest.raises(ValueError, match=r"`samples` must be at least 2\. Received: samples=1"):
        SelfCriticalConfig(samples=1)
    assert SelfCriticalConfig(samples=1, baseline="greedy").samples == 1
    with pytest.raises(ValueError, match='`baseline` must be one of "greedy", "mean"'):
        SelfCriticalConfig(baseline="median")


def test_an_unknown_key_lists_the_known_ones():
    with pytest.raises(
        ValueError, match=r"Unknown key `learningrate`\. Did you mean `learning_rate`\? Known keys: epochs, "
    ):
        read_config(TrainingConfig, {"learningrate": 1.0})
