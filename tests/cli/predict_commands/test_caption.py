"""`attention-apps caption` with an untrained model, as a user would call it."""

import functools
import io
import json
import sys

import pytest

from attention_apps.cli import main, predict
from tests.applications.captioners import as_bytes, bad_photos, make_captioner, odd_photos


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    make_captioner().save(folder / "preset")
    for name, contents in {"good.png": as_bytes("PNG"), **odd_photos()}.items():
        (folder / name).write_bytes(contents)
    for name, (contents, _) in bad_photos().items():
        (folder / name).write_bytes(contents)
    return folder


@pytest.fixture(scope="module", autouse=True)
def loaded_once():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(predict, "load", functools.cache(predict.load))
        yield


def caption(folder, *arguments):
    return main(["caption", *map(str, arguments), "--preset", str(folder / "preset")])


def test_good_photos_are_captioned_and_bad_ones_named(folder, capsys):
    names = ["good.png", *odd_photos(), *bad_photos(), "missing.jpg", "good.png"]
    inputs = [*(folder / name for name in names), "https://example.org/photo.jpg"]
    assert caption(folder, *inputs, "--json") == 1
    printed = capsys.readouterr()
    assert printed.err == ""
    entries = [json.loads(line) for line in printed.out.splitlines()]
    assert [entry["source"] for entry in entries] == list(map(str, inputs))
    by_name = {entry["source"].rsplit("/", 1)[-1]: entry for entry in entries}
    for name, (_, message) in bad_photos().items():
        assert message in by_name[name]["error"]
        assert name in by_name[name]["error"]
        assert by_name[name]["text"] is None
    assert "Image file not found:" in by_name["missing.jpg"]["error"]
    assert "URLs are not supported; download the image" in by_name["photo.jpg"]["error"]
    for name in ("good.png", *odd_photos()):
        assert by_name[name]["text"].split() == by_name[name]["tokens"]
        assert len(by_name[name]["alternatives"]) == 2
    assert entries[0]["text"] == entries[-2]["text"]


def test_a_photo_from_standard_input(folder, capsys, monkeypatch):
    assert caption(folder, folder / "good.png") == 0
    expected = capsys.readouterr().out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(as_bytes("PNG"))))
    assert caption(folder, "-") == 0
    assert capsys.readouterr().out == expected != "\n"


def test_pictures_and_pages_are_written(folder, tmp_path, capsys):
    inputs = folder / "good.png", folder / "text.jpg"
    assert caption(folder, *inputs, "--plot", tmp_path / "pictures", "--html", tmp_path / "pages") == 1
    assert [path.name for path in (tmp_path / "pictures").iterdir()] == ["good_attention.png"]
    assert (tmp_path / "pictures" / "good_attention.png").read_bytes().startswith(b"\x89PNG")
    assert "data:image/jpeg" in (tmp_path / "pages" / "good_attention.html").read_text(encoding="utf-8")
    assert "Traceback" not in capsys.readouterr().err


def test_a_wrong_option_is_named_without_a_traceback(folder, capsys):
    assert caption(folder, folder / "good.png", "--beam-size", 0) == 2
    error = capsys.readouterr().err
    assert error == "attention-apps: `beam_size` must be at least 1. Received: beam_size=0\n"
