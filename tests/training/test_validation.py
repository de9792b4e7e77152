import numpy as np
import pytest

from attention_apps.training import validation
from tests.training.tiny_training import (
    fit,
    given_values,
    make_config,
    weights_of,
)


def test_the_best_weights_are_kept_and_training_stops_without_a_better_figure(tmp_path):
    validate, seen = given_values("wer", [0.9, 0.4, 0.5, 0.4, 0.3])
    history, model, _ = fit(tmp_path, make_config(epochs=9, patience=2), validate=validate)
    assert history.stopped_by == "patience"
    assert [entry["wer"] for entry in history.validations] == [0.9, 0.4, 0.5, 0.4]
    assert (history.best, history.best_step) == (0.4, 8)
    for ours, best in zip(weights_of(model), seen[1], strict=True):
        np.testing.assert_array_equal(ours, best)


def test_validation_by_steps_and_by_the_chosen_metric(tmp_path):
    def validate(model):
        return {"metrics": {"bleu": 3.0, "cider": float("nan")}}

    config = make_config(epochs=2, validate_unit="steps", validate_every=3, metric="cider")
    history, _, _ = fit(tmp_path, config, validate=validate)
    assert [entry["step"] for entry in history.validations] == [3, 6, 8]
    assert history.best_step == 3
    with pytest.raises(ValueError, match=r"`metric` must be one of bleu, cider\. Received: metric='wer'"):
        fit(tmp_path / "wrong", make_config(epochs=1, metric="wer"), validate=validate)


def test_the_moving_average_takes_the_place_of_the_weights(tmp_path):
    validate, seen = given_values("bleu", [1.0])
    _, model, trainer = fit(tmp_path, make_config(epochs=1, ema=0.5), validate=validate)
    averages = {id(v): a for v, a in zip(model.trainable_variables, trainer.average.variables, strict=True)}
    for weight, validated in zip(model.weights, seen[0], strict=True):
        np.testing.assert_array_equal(weight, validated)
        if weight.trainable:
            np.testing.assert_array_equal(weight, averages[id(weight)])
    last = trainer.checkpoints.load("last").arrays
    moved = [not np.array_equal(last[f"model/{i:04d}/{w.name}"], w) for i, w in enumerate(model.weights)]
    assert any(moved)


def test_the_best_checkpoints_are_averaged_in_the_end(tmp_path):
    validate, seen = given_values("bleu", [5.0, 1.0, 4.0, 6.0])
    history, model, _ = fit(tmp_path, make_config(average_checkpoints=2), validate=validate)
    assert [entry["bleu"] for entry in history.validations] == [5.0, 1.0, 4.0, 6.0]
    for ours, first, third in zip(weights_of(model), seen[0], seen[2], strict=True):
        np.testing.assert_allclose(ours, (first + third) / 2, atol=1e-7)
    assert history.best == 6.0


@pytest.mark.parametrize("loss", ["damaged", "removed"])
def test_a_candidate_that_was_lost_is_left_out_of_the_average(tmp_path, loss):
    folder = tmp_path / "checkpoints"

    def validate(model):
        losing = folder / "candidate-4.safetensors"
        if loss == "removed":
            losing.unlink(missing_ok=True)
        elif losing.exists():
            losing.write_bytes(b"damaged")
        return {"metrics": {"bleu": 1.0}}

    with pytest.warns(UserWarning, match=r"candidate-4\.safetensors.*; averaging without it"):
        history, _, _ = fit(tmp_path, make_config(average_checkpoints=3), validate=validate)
    assert history.steps == 12


def test_an_average_that_is_worse_than_the_best_is_dropped(tmp_path):
    validate, seen = given_values("bleu", [5.0, 1.0, 4.0, 3.0])
    history, model, _ = fit(tmp_path, make_config(average_checkpoints=2), validate=validate)
    assert history.best == 5.0
    np.testing.assert_array_equal(weights_of(model)[0], seen[0][0])


def test_candidates_are_removed_after_the_checkpoint_that_does_without_them(tmp_path):
    config = make_config(epochs=4, average_checkpoints=2)
    validate, _ = given_values("bleu", [1.0, 2.0, 3.0, 4.0, 0.0])
    _, _, trainer = fit(tmp_path, config, validate=validate)
    folder = trainer.checkpoints

    def names():
        return {path.stem for path in folder.folder.glob("*.safetensors")}

    assert names() == {"last", "previous", "best", "candidate-12", "candidate-16"}
    in_last, keep_only = [], folder.keep_only

    def note(kept, prefix):
        in_last.append(folder.load("last").state["position"]["candidates"])
        keep_only(kept, prefix)

    folder.keep_only = note
    trainer.state.candidates = [[4.0, 16]]
    trainer._save()
    trainer.validation.remove_old_candidates(trainer.state)
    assert in_last == [[[4.0, 16]]]
    assert names() == {"last", "previous", "best", "candidate-16"}


def test_more_time_would_go_on_from_the_last_weights_and_not_from_their_average(tmp_path):
    validate, seen = given_values("bleu", [1.0, 2.0, 3.0])
    _, model, trainer = fit(tmp_path, make_config(epochs=2, average_checkpoints=2), validate=validate)
    np.testing.assert_allclose(weights_of(model)[0], (seen[0][0] + seen[1][0]) / 2, atol=1e-7)
    last = trainer.checkpoints.load("last").arrays
    for place, (weight, value) in enumerate(zip(model.weights, seen[1], strict=True)):
        np.testing.assert_array_equal(last[f"model/{place:04d}/{weight.name}"], value)


def test_a_worker_waits_until_the_chief_has_written_the_best_weights(tmp_path, monkeypatch):
    _, _, trainer = fit(tmp_path, make_config(epochs=1))
    written = tmp_path / "checkpoints" / "best.safetensors"
    late = written.rename(tmp_path / "not_yet")
    monkeypatch.setattr(validation, "chief_value", lambda strategy, value: late.rename(written))
    trainer.validation.load_best()
    assert written.exists()
