"""What a training says before its first step and in the card."""

import pytest

from attention_apps.applications.training_notes import TrainingNotes
from attention_apps.training.config import TrainingConfig, read_config
from attention_apps.training.trainer import History
from tests.training.tiny_training import make_batches

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
