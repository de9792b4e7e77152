from dataclasses import replace

import numpy as np
import pytest

from attention_apps.decoding import DecodingOptions
from attention_apps.training.config import SelfCriticalConfig, TrainingConfig, read_config
from attention_apps.training.stages import RewardedSampling, TrainingNotes, second_stage, train
from attention_apps.training.trainer import History
from tests.training.tiny_training import make_batches, make_config, make_model, weights_of


def share_of_fives(hypotheses, examples):
    return [ids.count(5) / (1 + len(ids)) for ids in hypotheses]


def rewarded_config(**changes):
    return make_config(epochs=1, self_critical=SelfCriticalConfig(epochs=2, samples=2, learning_rate=0.01), **changes)


def test_the_second_stage_follows_the_first_and_both_are_continued(tmp_path):
    rewarded = RewardedSampling(share_of_fives, DecodingOptions(max_length=5))
    model = make_model()
    histories = train(model, make_batches(), rewarded_config(), tmp_path, rewarded=rewarded, quiet=True)
    assert [history.steps for history in histories] == [4, 8]
    other = make_model(seed=8)
    assert train(other, make_batches(), rewarded_config(), tmp_path, rewarded=rewarded, quiet=True) == histories
    for a, b in zip(weights_of(model), weights_of(other), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_model_that_has_learned_before_goes_straight_to_the_second_stage(tmp_path):
    config, rewarded = (
        replace(rewarded_config(), epochs=0),
        RewardedSampling(share_of_fives, DecodingOptions(max_length=5)),
    )
    (history,) = train(make_model(), make_batches(), config, tmp_path, rewarded=rewarded, quiet=True)
    assert history.steps == 8
    assert not (tmp_path / "cross_entropy").exists()


def test_a_second_stage_that_makes_it_worse_changes_nothing(tmp_path):
    figures = iter([0.5, 0.5, 0.4, 0.3])
    seen = []

    def validate(model):
        seen.append(weights_of(model))
        return {"metrics": {"cider": next(figures)}}

    model, rewarded = make_model(), RewardedSampling(share_of_fives, DecodingOptions(max_length=5))
    first, second = train(model, make_batches(), rewarded_config(), tmp_path, validate, rewarded=rewarded, quiet=True)
    assert (first.best_step, second.best_step) == (4, 0)
    for a, b in zip(weights_of(model), seen[0], strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_second_stage_needs_a_reward_and_time(tmp_path):
    with pytest.raises(ValueError, match=r"`rewarded` must be given where `self_critical\.epochs` is more than 0"):
        train(make_model(), make_batches(), rewarded_config(), tmp_path)
    assert second_stage(rewarded_config(max_minutes=1.0), seconds_spent=90.0) is None
    assert second_stage(make_config(), seconds_spent=0.0) is None
    assert second_stage(rewarded_config(max_minutes=2.0), seconds_spent=90.0).max_minutes == 0.5


def test_the_configuration_is_written_only_by_a_run_that_is_accepted(tmp_path):
    config = make_config(epochs=1)
    train(make_model(), make_batches(), config, tmp_path, quiet=True, run_config=config)
    written = (tmp_path / "config.toml").read_text()
    assert read_config(TrainingConfig, tmp_path / "config.toml") == config
    other = replace(config, learning_rate=0.5)
    with pytest.raises(ValueError, match="holds a run that differs from this one"):
        train(make_model(), make_batches(), other, tmp_path, quiet=True, run_config=other)
    assert (tmp_path / "config.toml").read_text() == written
    train(make_model(), make_batches(), other, tmp_path, restart=True, quiet=True, run_config=other)
    assert read_config(TrainingConfig, tmp_path / "config.toml") == other


NOTES = TrainingNotes("some_preset", "photos.csv", 160, 40)
BEFORE, AFTER = {"step": 0, "epoch": 0, "wer": 0.5, "cer": 0.3}, {"step": 12, "epoch": 2, "wer": 0.25, "cer": 0.2}


def make_history(best, best_step, *validations, metric="wer", stopped_by="epochs"):
    return History(20, 90.0, 0, list(validations), best, best_step, stopped_by, metric)


def test_the_plan_names_what_was_chosen():
    config = TrainingConfig(epochs=3, warmup_steps=2, ema=0.9167, validate_every=4, validate_unit="steps")
    assert NOTES.plan(config, make_batches(batch_size=10)) == (
        "160 training examples, 40 for validation: 3 epochs, 9 steps, warm-up of 2, averaging with decay 0.9167, "
        "a validation every 4 steps"
    )


@pytest.mark.parametrize(
    ("histories", "expected"),
    [
        ([make_history(0.25, 12, BEFORE, AFTER)], "20 steps, ended by epochs; wer 0.2500 at step 12, 0.5000 before"),
        ([make_history(0.25, 12, AFTER)], "20 steps, ended by epochs; wer 0.2500 at step 12"),
        (
            [make_history(0.5, 0, BEFORE, {**AFTER, "wer": 0.6})],
            "20 steps, ended by epochs; nothing beat the starting weights (wer 0.5000), so they were kept",
        ),
        (
            [make_history(0.25, 12, BEFORE, AFTER), make_history(0.25, 0, {**AFTER, "step": 0})],
            "20 steps, ended by epochs; wer 0.2500 at step 0, 0.5000 before",
        ),
        ([make_history(None, 20, metric=None)], "20 steps, ended by epochs"),
    ],
)
def test_the_outcome_says_whether_training_helped(histories, expected):
    assert NOTES.outcome(histories) == expected


def test_the_card_has_data_steps_scores_and_settings():
    config = TrainingConfig(epochs=3, ema=0.9)
    card = NOTES.card(config, [make_history(0.25, 12, BEFORE, AFTER)])
    assert "- 160 training examples, 40 for validation of `photos.csv`, from `some_preset`\n" in card
    assert "- 1.5 minutes; 20 steps, ended by epochs; wer 0.2500 at step 12, 0.5000 before\n" in card
    assert "| validation | step | wer | cer |\n|---|---|---|---|\n| before | 0 | 0.5000 | 0.3000 |\n" in card
    assert "| kept | 12 | 0.2500 | 0.2000 |\n" in card


def test_the_settings_of_the_card_read_back_equal(tmp_path):
    config = TrainingConfig(epochs=3, ema=0.9)
    card = TrainingNotes(None, "photos.csv", 9, 0).card(config, [make_history(None, 20, metric=None)])
    assert "9 training examples, no validation of `photos.csv`, from scratch" in card
    assert "| validation |" not in card
    (tmp_path / "config.toml").write_text(card.split("```toml\n")[1].split("```")[0])
    assert read_config(TrainingConfig, tmp_path / "config.toml") == config
