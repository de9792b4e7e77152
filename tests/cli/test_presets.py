"""`attention-apps presets` on folders made up here."""

import json

import pytest

from attention_apps.applications import preset
from attention_apps.cli import main

CARDS = {
    "plain": "# A captioner\n\n- Score: CIDEr 0.55 (published: 0.49)\n- License: CC BY 4.0\n"
    "- For: photos of everyday life, most of all of people and of their dogs and cats\n- Not for: charts\n",
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


def test_every_preset_says_what_it_is_for(presets, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["presets"]) == 0
    bold, plain, silent, _ = capsys.readouterr().out.split("\n\n")
    assert plain.splitlines() == [
        "plain, image_captioning, 1.5 MB",
        "  for      photos of everyday life, most of all of people",
        "           and of their dogs and cats",
        "  not for  charts",
        "  score    CIDEr 0.55 (published: 0.49)",
        "  license  CC BY 4.0",
    ]
    assert bold.splitlines() == ["bold, image_captioning, 1.5 MB", "  score    WER 8.1 %", "  license  AN4's own"]
    assert silent == "silent, image_captioning, 1.5 MB"


def test_the_presets_of_the_package_fit_the_terminal_and_say_what_they_are_for(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["presets"]) == 0
    for one in capsys.readouterr().out.strip().split("\n\n"):
        assert "\n  for  " in one
        assert "\n  not for  " in one
        assert max(map(len, one.splitlines())) <= 80


def test_quiet_changes_nothing(presets, capsys):
    main(["presets"])
    listed = capsys.readouterr().out
    assert main(["presets", "--quiet"]) == 0
    assert capsys.readouterr().out == listed


def test_json_has_what_the_cards_say(presets, capsys):
    assert main(["presets", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert (listed[1]["not_for"], listed[2]["for"]) == ("charts", None)
    found = {one["name"]: (one["score"], one["license"]) for one in listed}
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
