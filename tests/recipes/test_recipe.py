"""What all recipes share, with stages that are not trained."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from attention_apps.applications import CaptionerConfig, CompressorConfig, SummarizerConfig, application_class
from attention_apps.training import to_dict
from tests.recipes.loading import APPS, load

module = load("recipe")
TASKS = ("image_captioning", "speech_recognition", "text_summarization", "sentence_compression")
CONFIGS = {path: path.parent.name for task in TASKS for path in sorted((APPS / task).glob("*.toml"))}
ABLATIONS = ("ablation.toml", "lengths.toml")


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    "path", [path for path in CONFIGS if path.name not in ABLATIONS], ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_every_recipe_can_be_read(path):
    stages, _ = module.read_recipe(path, application_class(CONFIGS[path]).config_class)
    assert all(stage.config.training.epochs + stage.config.training.self_critical.epochs > 0 for stage in stages)


def test_a_recipe_without_stages_has_one():
    (stage,), search = module.read_recipe(APPS / "text_summarization" / "tiny.toml", SummarizerConfig)
    assert (stage.name, stage.init_from, search) == ("training", None, {})


def test_a_stage_changes_what_it_names_and_nothing_else(tmp_path):
    text = """
captions_per_image = 2
[[stages]]
name = "one"
[[stages]]
name = "two"
[stages.encoder]
image_size = 320
[[stages]]
name = "three"
init_from = "one"
[search]
beam_size = [2, 3]
"""
    write(tmp_path / "recipe.toml", text)
    stages, search = module.read_recipe(tmp_path / "recipe.toml", CaptionerConfig)
    one, two, three = (stage.config for stage in stages)
    assert two == replace(one, encoder=replace(one.encoder, image_size=320))
    assert one == three == CaptionerConfig(captions_per_image=2)
    assert [stage.init_from for stage in stages] == [None, None, "one"]
    assert search == {"beam_size": [2, 3]}


def test_overrides_hold_for_every_stage():
    overrides = ["training.batch_size=3"]
    stages, _ = module.read_recipe(APPS / "image_captioning" / "tiny.toml", CaptionerConfig, overrides)
    assert [stage.config.training.batch_size for stage in stages] == [3, 3, 3]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[stages]]\nname = "a"\n[[stages]]\nname = "a"\n', "`stages` must have different names"),
        ('[[stages]]\nname = "../a"\n', "`stages` must have different names"),
        ("[[stages]]\nmin_count = 1\n", "`stages` must have different names"),
        ('[[stages]]\nname = "a"\n[stages.encoder]\nunit = 3\n', "encoder.unit"),
        ('[[stages]]\nname = "a"\ninit_from = "a"\n', "`init_from` must name an earlier stage"),
        ("[search]\nbeams = [3]\n", "`search` must have lists"),
        ("[search]\nbeam_size = 3\n", "`search` must have lists"),
        ("[[stages\n", "not valid TOML"),
    ],
)
def test_a_wrong_recipe_is_named(tmp_path, text, message):
    write(tmp_path / "recipe.toml", text)
    with pytest.raises(ValueError, match=rf"recipe\.toml.*{message}"):
        module.read_recipe(tmp_path / "recipe.toml", CaptionerConfig)


def test_a_missing_recipe_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no recipe .*none.toml"):
        module.read_recipe(tmp_path / "none.toml", CaptionerConfig)


class FakeApplication:
    """Scores a point more for each beam, and says where it was saved."""

    def __init__(self, folder, saved):
        self.folder, self.saved, self.config = folder, saved, CompressorConfig()

    def evaluate(self, data, cache, quiet, beam_size=1):
        return SimpleNamespace(
            metrics={"token_f1": SimpleNamespace(score=beam_size / 10)},
            sources=["a b"],
            references=[["a"]],
            texts=["b"],
        )

    def save(self, folder, **options):
        self.saved.append((self.folder, folder, self.config, options))


@pytest.fixture
def recipe(tmp_path):
    return module.Recipe(
        task="sentence_compression",
        folder=tmp_path,
        prepare=lambda options: write(options.output / "data.jsonl", "{}\n"),
        train="data.jsonl",
        validation="data.jsonl",
        evaluated=("data.jsonl", "missing.jsonl"),
    )


def test_a_stage_starts_from_the_best_before_it_or_from_the_one_it_names(recipe, monkeypatch, tmp_path):
    scores, starts, saved = {"a": 0.5, "b": 0.3, "c": 0.4, "d": 0.6}, {}, []

    def train_stage(self, stage, folder, start, options):
        starts[stage.name] = start
        write(folder / "scores.json", json.dumps({"token_f1": scores[stage.name]}))

    monkeypatch.setattr(module.Recipe, "_train_stage", train_stage)
    monkeypatch.setattr(module, "_load", lambda folder: FakeApplication(folder, saved))
    stages = "".join(f'[[stages]]\nname = "{name}"\n' + 'init_from = "b"\n' * (name == "c") for name in scores)
    write(tmp_path / "config.toml", f"{stages}[search]\nbeam_size = [2, 4, 3]\n")
    output = tmp_path / "run"
    recipe.main("", ["train", "--output", str(output), "--start", "mine"])
    models = {name: output / "stages" / name / "model" for name in scores}
    assert starts == {"a": "mine", "b": models["a"], "c": models["b"], "d": models["a"]}
    ((loaded, folder, config, _),) = saved
    assert (loaded, folder) == (models["d"], output / "model")
    assert config.decoding.beam_size == 4
    table = json.loads((output / "stages.json").read_text())
    assert [(row["stage"], row["kept"]) for row in table] == [
        ("a", True),
        ("b", False),
        ("c", False),
        ("d", True),
        ("search", True),
    ]
    assert table[-1]["beam_size"] == 4


def test_a_trained_stage_is_not_trained_again_with_the_same_configuration_only(recipe, monkeypatch, tmp_path):
    def never(*arguments):
        raise AssertionError("this stage was trained before")

    monkeypatch.setattr(module.Recipe, "_train_stage", never)
    monkeypatch.setattr(module, "_load", lambda folder: FakeApplication(folder, []))
    folder = tmp_path / "run" / "stages" / "training"
    write(tmp_path / "config.toml", "min_count = 2\n")
    write(folder / "scores.json", '{"token_f1": 0.5}')
    write(folder / "model" / "config.json", json.dumps({"config": to_dict(CompressorConfig(min_count=2))}))
    recipe.main("", ["train", "--output", str(tmp_path / "run")])
    with pytest.raises(ValueError, match="was trained with another configuration. Use --restart"):
        recipe.main("", ["train", "--output", str(tmp_path / "run"), "--set", "min_count=3"])


def test_manifests_are_prepared_evaluated_and_exported(recipe, monkeypatch, tmp_path, capsys):
    saved, output, after = [], tmp_path / "run", []
    monkeypatch.setattr(module, "_load", lambda folder: FakeApplication(folder, saved))
    recipe = replace(recipe, after_evaluate=lambda *given: after.append(given))
    write(tmp_path / "README.md", "# A card\n")
    recipe.main("", ["prepare", "--data", str(tmp_path), "--output", str(output)])
    recipe.main("", ["evaluate", "--output", str(output)])
    assert json.loads(capsys.readouterr().out) == {"data": "data", "token_f1": 0.1}
    written = json.loads((output / "data_written.jsonl").read_text())
    assert written == {"source": "a b", "references": ["a"], "written": "b"}
    assert len(after) == 1
    recipe.main("", ["export", "--output", str(output)])
    ((loaded, folder, _, options),) = saved
    assert (loaded, folder) == (output / "model", output / "preset")
    assert options == {"card": "# A card\n", "bits": 8}


def test_prepare_needs_a_corpus(recipe, tmp_path):
    with pytest.raises(SystemExit, match="`--data` must name the folder of the corpus"):
        recipe.main("", ["prepare", "--output", str(tmp_path)])


def test_lower_error_rates_are_better():
    assert module._score({"wer": 0.1, "cer": 0.5}) > module._score({"wer": 0.2, "cer": 0.0})
    assert module._score({"data": "x", "cider": 0.2}) > module._score({"cider": 0.1})


@pytest.mark.parametrize("task", TASKS)
def test_every_recipe_has_the_same_files(task):
    names = {path.name for path in (APPS / task).iterdir()}
    assert {"README.md", "config.toml", "tiny.toml", "run.py"} <= names
    recipe = load("run", task).RECIPE
    assert (recipe.task, Path(recipe.folder).name) == (task, task)
