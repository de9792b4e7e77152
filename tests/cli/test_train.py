"""`attention-apps train` and `check-data` on a handful of photos, as a user would call them."""

import csv
import json
import signal

import numpy as np
import pytest
from PIL import Image

from attention_apps.applications import ImageCaptioner
from attention_apps.cli import main
from attention_apps.training import TrainingInterrupted

COLORS = {"red": (220, 30, 30), "green": (30, 200, 60), "blue": (40, 60, 230)}
TINY = (
    "encoder.image_size=64",
    "decoder.embedding_dim=8",
    "decoder.units=12",
    "decoder.attention.units=6",
    "decoding.max_length=6",
    "min_count=1",
    "captions_per_image=2",
    "training.epochs=2",
    "training.batch_size=4",
    "training.checkpoint_minutes=0.01",
)


def write_photos(folder, per_color):
    folder.mkdir()
    rows = []
    for name, color in COLORS.items():
        for number in range(per_color):
            path = folder / f"{name}{number}.png"
            noise = np.random.default_rng(number).integers(0, 30, (70, 90, 3))
            Image.fromarray((np.array(color) + noise).clip(0, 255).astype("uint8")).save(path)
            rows += [(path.name, f"a {name} wall"), (path.name, f"something {name}")]
    return rows


def write_manifest(path, rows, header=("image", "caption")):
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return str(path)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "photos"
    rows = write_photos(folder, per_color=3)
    return {
        "train": write_manifest(folder / "train.csv", rows),
        "validation": write_manifest(folder / "validation.csv", rows[:6]),
        "renamed": write_manifest(folder / "renamed.csv", rows, header=("photo", "title")),
        "new words": write_manifest(folder / "new.csv", [(name, f"{text} indeed") for name, text in rows]),
        "broken": write_manifest(folder / "broken.csv", [*rows, ("missing.jpg", "a wall"), (rows[0][0], "")]),
    }


def train(data, output, *more, name="train"):
    arguments = ["train", "image_captioning", "--data", data[name], "--output", str(output), "--quiet", "--json"]
    for pair in () if "--preset" in more else TINY:
        arguments += ["--set", pair]
    return main([*arguments, *more])


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    output = tmp_path_factory.mktemp("run") / "mine"
    assert train(data, output, "--validation", data["validation"], "--set", "training.self_critical.epochs=1") == 0
    return output


def test_two_stages_are_trained_and_the_best_weights_are_saved(trained, data):
    captioner = ImageCaptioner.from_preset(trained / "preset")
    assert {"red", "green", "blue", "wall"} <= set(captioner.vocabulary.tokens)
    assert (trained / "config.toml").read_text().count("epochs = ") >= 2
    evaluation = captioner.evaluate(data["validation"], quiet=True)
    assert {"bleu_1", "bleu_4", "cider"} <= set(evaluation.metrics)
    assert len(evaluation.texts) == 3


def test_the_same_command_again_finds_the_work_done(trained, data, capsys):
    arguments = "--validation", data["validation"], "--set", "training.self_critical.epochs=1"
    assert train(data, trained, *arguments) == 0
    histories = json.loads(capsys.readouterr().out)
    assert [history["stopped_by"] for history in histories] == ["epochs", "epochs"]


def test_another_configuration_in_the_same_folder_is_refused(trained, data, capsys):
    assert train(data, trained, "--validation", data["validation"], "--set", "training.learning_rate=0.5") == 2
    message = capsys.readouterr().err
    assert "learning_rate" in message
    assert "Traceback" not in message


def test_fine_tuning_keeps_the_old_words_and_learns_the_new_ones(trained, data, tmp_path):
    old = ImageCaptioner.from_preset(trained / "preset")
    more = "--preset", str(trained / "preset"), "--set", "training.epochs=1", "--set", "training.self_critical.epochs=0"
    assert train(data, tmp_path / "tuned", *more, name="new words") == 0
    tuned = ImageCaptioner.from_preset(tmp_path / "tuned" / "preset")
    assert tuned.vocabulary.tokens[: len(old.vocabulary)] == old.vocabulary.tokens
    assert "indeed" in tuned.vocabulary


def test_an_interrupted_training_prints_the_command_that_resumes_it(data, tmp_path, capsys, monkeypatch):
    def stop(self, *given, **named):
        raise TrainingInterrupted("SIGTERM stopped the run.", signal.SIGTERM)

    monkeypatch.setattr(ImageCaptioner, "fit", stop)
    output = tmp_path / "my run"
    assert train(data, output, "--restart") == 128 + 15
    shown = capsys.readouterr().err
    assert "SIGTERM stopped the run.\n" in shown
    command = shown.partition("To resume: ")[2].strip()
    assert command.startswith("attention-apps train image_captioning --data ")
    assert f"--output '{output}'" in command
    assert "--restart" not in command


def test_what_learns_may_change_and_the_sizes_may_not(trained, data, tmp_path, capsys):
    once = "--set", "training.epochs=1", "--set", "training.self_critical.epochs=0"
    preset = "--preset", str(trained / "preset"), *once
    assert train(data, tmp_path / "wide", *preset, "--set", "decoder.units=13") == 2
    assert "`config` changes the sizes of the model" in capsys.readouterr().err
    assert train(data, tmp_path / "tuned", *preset, "--set", "encoder.trainable_from=head") == 0
    old, new = (ImageCaptioner.from_preset(folder / "preset") for folder in (trained, tmp_path / "tuned"))
    kernels = [captioner.model.encoder.network.get_layer("head_conv").get_weights()[0] for captioner in (old, new)]
    assert np.abs(kernels[0] - kernels[1]).max() > 0


def test_an_unchanged_file_is_checked_once_with_a_cache(data, tmp_path, capsys, monkeypatch):
    check = ["check-data", "image_captioning", "--data", data["train"], "--cache", str(tmp_path), "--json", "--quiet"]
    assert main(check) == 0
    monkeypatch.setattr("attention_apps.applications.captioning.examples._probe", None)  # fails if it is called
    assert main(check) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == second


def test_other_names_of_columns_are_given_on_the_command_line(data, capsys):
    columns = ["--column", "image=photo", "--column", "caption=title"]
    assert main(["check-data", "image_captioning", "--data", data["renamed"], *columns, "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["used"] == {"training": 18}


def test_the_data_check_names_file_and_line_and_says_so_by_its_exit_code(data, capsys):
    assert main(["check-data", "image_captioning", "--data", data["broken"], "--quiet"]) == 1
    report = capsys.readouterr().out
    assert "broken.csv, line 20" in report
    assert "missing.jpg" in report
    assert "broken.csv, line 21" in report


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "decoder.unit=3"], "decoder.unit"),
        (["--column", "caption"], "must have the form OURS=THEIRS"),
        (["--column", "text=title"], "`columns` must name some of image, caption"),
        (["--config", "nowhere.toml"], "nowhere.toml"),
        (["--preset", "nothing"], "A preset must be a folder or one of"),
    ],
)
def test_a_wrong_option_is_named_without_a_traceback(data, tmp_path, capsys, arguments, message):
    command = ["train", "image_captioning", "--data", data["train"], "--output", str(tmp_path), "--quiet"]
    assert main([*command, *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_a_manifest_that_is_not_there_is_named(tmp_path, capsys):
    command = ["train", "image_captioning", "--data", str(tmp_path / "no.csv"), "--output", str(tmp_path), "--quiet"]
    assert main(command) == 2
    assert "no.csv" in capsys.readouterr().err
