import hashlib
import json
import os
import pickle

import numpy as np
import pytest

from attention_apps.applications import preset_folder
from attention_apps.applications.preset_folder import (
    PresetContent,
    find_preset,
    preset_names,
    read_preset_folder,
    write_preset_folder,
)

CONTENT = PresetContent(
    {"task": "test", "config": {"units": 3}},
    {"vocabulary.txt": "<pad>\nWörter\n"},
    {"decoder/kernel": np.arange(6, dtype="float16").reshape(2, 3), "decoder/bias": np.ones(3, "float32")},
)


@pytest.fixture
def folder(tmp_path):
    write_preset_folder(tmp_path / "mine", CONTENT, "# A card\n")
    return tmp_path / "mine"


def rewrite(folder, name, data):
    """Changes a file together with its hash, as somebody would who means harm."""
    (folder / name).write_bytes(data)
    lines = [line for line in (folder / "SHA256SUMS").read_text().splitlines() if not line.endswith(f"  {name}")]
    lines.append(f"{hashlib.sha256(data).hexdigest()}  {name}")
    (folder / "SHA256SUMS").write_text("\n".join(lines) + "\n")


def test_what_is_written_comes_back(folder):
    content = read_preset_folder(folder)
    assert content.config == CONTENT.config
    assert content.texts == CONTENT.texts
    assert content.weights.keys() == CONTENT.weights.keys()
    for name, array in CONTENT.weights.items():
        assert content.weights[name].dtype == array.dtype
        np.testing.assert_array_equal(content.weights[name], array)
    assert (folder / "README.md").read_text() == "# A card\n"


def test_the_sums_are_those_of_sha256sum(folder):
    for line in (folder / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest


def test_writing_again_replaces_the_folder_as_a_whole(folder):
    write_preset_folder(folder, PresetContent({}, {}, {"a": np.zeros(1, "float32")}), "new")
    assert sorted(os.listdir(folder)) == ["README.md", "SHA256SUMS", "config.json", "weights.safetensors"]
    assert os.listdir(folder.parent) == ["mine"]


def test_a_folder_with_other_things_in_it_is_not_replaced(tmp_path):
    (tmp_path / "photo.jpg").write_bytes(b"dear to me")
    with pytest.raises(ValueError, match=r"`folder` must be new, empty, or hold a saved application"):
        write_preset_folder(tmp_path, CONTENT, "")
    assert (tmp_path / "photo.jpg").exists()


def test_a_write_that_fails_leaves_the_old_folder(folder, monkeypatch):
    def fail(path, data):
        raise OSError("no space left on device")

    monkeypatch.setattr(preset_folder, "_write_file", fail)
    with pytest.raises(OSError, match="no space left"):
        write_preset_folder(folder, CONTENT, "")
    assert read_preset_folder(folder).config == CONTENT.config
    assert os.listdir(folder.parent) == ["mine"]


@pytest.mark.parametrize("name", ["config.json", "vocabulary.txt", "weights.safetensors", "README.md"])
def test_a_changed_file_is_refused(folder, name):
    data = bytearray((folder / name).read_bytes())
    data[-1] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(ValueError, match=rf"{name}: its sha256 is not the one in SHA256SUMS"):
        read_preset_folder(folder)


@pytest.mark.parametrize("name", ["config.json", "vocabulary.txt", "weights.safetensors", "SHA256SUMS"])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(ValueError, match=rf"{name}.*missing"):
        read_preset_folder(folder)


def test_an_extra_file_is_refused(folder):
    (folder / "model.py").write_text("print('hello')")
    with pytest.raises(ValueError, match="holds what SHA256SUMS does not list: model.py"):
        read_preset_folder(folder)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/b", ".hidden", "..", "a b"])
def test_a_name_that_leads_elsewhere_is_refused(folder, name):
    with open(folder / "SHA256SUMS", "a") as file:
        file.write(f"{'0' * 64}  {name}\n")
    with pytest.raises(ValueError, match="must be a sha256 and the plain name of a file"):
        read_preset_folder(folder)


@pytest.mark.parametrize("name", ["weights.pickle", "model.keras", "model.py", "weights.h5", "SHA256SUMS"])
def test_a_file_of_another_kind_is_refused_though_it_is_listed(folder, name):
    rewrite(folder, name, (folder / name).read_bytes() if name == "SHA256SUMS" else b"anything")
    with pytest.raises(ValueError, match=f"{name} is no file of a saved application"):
        read_preset_folder(folder)


def test_no_more_files_than_the_limit(folder):
    for number in range(preset_folder.MAX_FILES):
        rewrite(folder, f"{number}.txt", b"")
    with pytest.raises(ValueError, match=f"more than {preset_folder.MAX_FILES} files"):
        read_preset_folder(folder)


def test_a_file_named_twice_is_refused(folder):
    lines = (folder / "SHA256SUMS").read_text().splitlines()
    (folder / "SHA256SUMS").write_text("\n".join([*lines, lines[0]]) + "\n")
    with pytest.raises(ValueError, match="must be a sha256 and the plain name of a file"):
        read_preset_folder(folder)


@pytest.mark.parametrize("name", ["config.json", "vocabulary.txt", "SHA256SUMS"])
def test_a_folder_in_place_of_a_file_is_refused(folder, name):
    (folder / name).unlink()
    (folder / name).mkdir()
    with pytest.raises(ValueError, match=rf"{name}.*missing"):
        read_preset_folder(folder)


def test_a_link_is_refused(folder, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_bytes((folder / "vocabulary.txt").read_bytes())
    (folder / "vocabulary.txt").unlink()
    (folder / "vocabulary.txt").symlink_to(secret)
    with pytest.raises(ValueError, match="vocabulary.txt: missing, or not a plain file"):
        read_preset_folder(folder)


def test_a_pickle_in_place_of_the_weights_is_refused_and_not_run(folder, tmp_path):
    class Harm:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "harm"),))

    rewrite(folder, "weights.safetensors", pickle.dumps(Harm()))
    with pytest.raises(ValueError, match="not a file of arrays"):
        read_preset_folder(folder)
    assert not (tmp_path / "harm").exists()


def test_an_absurd_shape_is_refused_before_anything_is_allocated(folder):
    header = json.dumps({"a": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 4 << 40]}}).encode()
    rewrite(folder, "weights.safetensors", len(header).to_bytes(8, "little") + header + b"\0" * 16)
    with pytest.raises(ValueError, match="not a file of arrays"):
        read_preset_folder(folder)


@pytest.mark.parametrize("data", [b"{", b"[]", b"\xff", b"[" * 100_000])
def test_a_configuration_that_is_no_object_is_refused(folder, data):
    rewrite(folder, "config.json", data)
    with pytest.raises(ValueError, match=r"config.json: (not JSON|must be a JSON object|not UTF-8)"):
        read_preset_folder(folder)


def test_a_file_over_the_limit_is_not_read(folder, monkeypatch):
    monkeypatch.setitem(preset_folder.MAX_BYTES, "weights.safetensors", 10)
    with pytest.raises(ValueError, match="weights.safetensors: larger than 10 bytes"):
        read_preset_folder(folder)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="No folder of a saved application at .*nowhere"):
        read_preset_folder(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["nothing", "../weights", "", ".", None, "a/b"])
def test_an_unknown_preset_lists_the_known_ones(name):
    with pytest.raises(ValueError, match=r"`name` must be the name of a preset: .*Received: name="):
        find_preset(name)


def test_every_preset_that_ships_is_whole():
    for name in preset_names():
        read_preset_folder(find_preset(name))
