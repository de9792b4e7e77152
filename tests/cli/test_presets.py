"""`attention-apps presets` on folders made up here."""

import json

import pytest

from attention_apps.applications import preset
from attention_apps.cli import main

CARDS = {
    "plain": "# A captioner\n\n- Score: CIDEr 0.55 (published: 0.49)\n- License: CC BY 4.0\n",
    "bold": "# B\n\n**Score**: WER 8.1 %\n\n**License**: AN4's own\n",
    "table": "# C\n\n| | |\n|---|---|\n| score | ROUGE-L 0.41 |\n| license | CC0 |\n",
    "silent": "# D\n\nScores are further down.\n",
}


@pytest.fixture
def presets(tmp_path, monkeypatch):
    for name, card in CARDS.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "README.md").write_text(card)
        (tmp_path / name / "config.json").write_text(json.dumps({"format": 2, "task": "image_captioning"}))
        (tmp_path / name / "weights.safetensors").write_bytes(bytes(1_500_000))
    monkeypatch.setattr(preset, "presets_root", lambda: tmp_path)


def test_every_preset_has_a_line(presets, capsys):
    assert main(["presets"]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split() == ["name", "task", "score", "size", "license"]
    assert [line.split()[0] for line in lines] == ["bold", "plain", "silent", "table"]
    assert lines[1].split("  ")[-1].strip() == "CC BY 4.0"
    assert "1.5 MB" in lines[1]


def test_quiet_changes_nothing(presets, capsys):
    main(["presets"])
    listed = capsys.readouterr().out
    assert main(["presets", "--quiet"]) == 0
    assert capsys.readouterr().out == listed


def test_json_has_what_the_cards_say(presets, capsys):
    assert main(["presets", "--json"]) == 0
    found = {one["name"]: (one["score"], one["license"]) for one in json.loads(capsys.readouterr().out)}
    assert found == {
        "plain": ("CIDEr 0.55 (published: 0.49)", "CC BY 4.0"),
        "bold": ("WER 8.1 %", "AN4's own"),
        "table": ("ROUGE-L 0.41", "CC0"),
        "silent": (None, None),
    }


def test_none_at_all_is_an_empty_list(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(preset, "presets_root", lambda: tmp_path)
    assert main(["presets", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_a_broken_configuration_is_named(presets, tmp_path, capsys):
    (tmp_path / "plain" / "config.json").write_text("{")
    assert main(["presets"]) == 2
    assert "config.json" in capsys.readouterr().err
