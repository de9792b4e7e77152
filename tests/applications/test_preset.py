"""A preset on disk: what comes back, what is refused, and what is left after a crash."""

import hashlib
import json
import os
import pickle
import shutil

import numpy as np
import pytest
from safetensors.numpy import save

import attention_apps
from attention_apps.applications import SpeechRecognizer
from attention_apps.applications import preset as presets
from attention_apps.applications.preset import (
    Preset,
    download_preset,
    find_preset,
    pack_weights,
    preset_names,
    quantize,
    read_preset,
    read_task,
    unpack_weights,
    write_preset,
)
from attention_apps.files import recover_folder
from tests.applications.recognizers import GREEDY, SMALL_DECODER, make_recognizer
from tests.fault_injection import every_error, every_kill, leftovers
from tests.hub_server import running_hub

PRESET = Preset(
    "test",
    {"units": 3},
    {"vocabulary.txt": "<pad>\nWörter\n"},
    {"decoder/kernel": np.arange(6, dtype="float32").reshape(2, 3), "decoder/bias": np.ones(3, "float32")},
)


@pytest.fixture
def folder(tmp_path):
    write_preset(tmp_path / "mine", PRESET, "# A card\n")
    return tmp_path / "mine"


def rewrite(folder, name, data):
    """Changes a file together with its hash, as somebody would who means harm."""
    (folder / name).write_bytes(data)
    lines = [line for line in (folder / "SHA256SUMS").read_text().splitlines() if not line.endswith(f"  {name}")]
    lines.append(f"{hashlib.sha256(data).hexdigest()}  {name}")
    (folder / "SHA256SUMS").write_text("\n".join(lines) + "\n")


def test_what_is_written_comes_back(folder):
    preset = read_preset(folder)
    assert (preset.task, preset.config, preset.texts) == (PRESET.task, PRESET.config, PRESET.texts)
    assert preset.weights.keys() == PRESET.weights.keys()
    for name, array in PRESET.weights.items():
        assert preset.weights[name].dtype == array.dtype
        np.testing.assert_array_equal(preset.weights[name], array)
    assert (folder / "README.md").read_text() == "# A card\n"
    assert read_task(folder) == "test"


def test_the_sums_are_those_of_sha256sum(folder):
    for line in (folder / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest


def test_writing_again_replaces_the_folder_as_a_whole(folder):
    write_preset(folder, Preset("test", {}, {}, {"a": np.zeros(1, "float32")}), "new")
    assert sorted(os.listdir(folder)) == ["README.md", "SHA256SUMS", "config.json", "weights.safetensors"]
    assert os.listdir(folder.parent) == ["mine"]


def test_a_folder_with_other_things_in_it_is_not_replaced(tmp_path):
    (tmp_path / "photo.jpg").write_bytes(b"dear to me")
    with pytest.raises(ValueError, match=r"`folder` must be new, empty, or hold a preset"):
        write_preset(tmp_path, PRESET, "")
    assert (tmp_path / "photo.jpg").exists()


@pytest.mark.parametrize("faults", [every_error, every_kill])
def test_a_write_that_fails_leaves_the_old_preset_or_the_new_one(tmp_path, monkeypatch, faults):
    folder, found = tmp_path / "mine", set()

    def prepare():
        for path in tmp_path.iterdir():
            shutil.rmtree(path)
        write_preset(folder, PRESET, "old")

    new = Preset("test", {"units": 4}, {}, PRESET.weights)
    for _ in faults(monkeypatch, lambda: write_preset(folder, new, "new"), prepare):
        recover_folder(folder)
        found.add((read_preset(folder).config["units"], (folder / "README.md").read_text()))
        assert faults is every_kill or leftovers(tmp_path) == []
    assert found == {(3, "old"), (4, "new")}


@pytest.mark.parametrize("name", ["config.json", "vocabulary.txt", "weights.safetensors", "README.md"])
def test_a_changed_file_is_refused(folder, name):
    data = bytearray((folder / name).read_bytes())
    data[-1] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(ValueError, match=rf"{name}: its sha256 is not the one in SHA256SUMS"):
        read_preset(folder)


@pytest.mark.parametrize("name", ["config.json", "vocabulary.txt", "weights.safetensors", "SHA256SUMS"])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(ValueError, match=rf"{name}.*missing"):
        read_preset(folder)


def test_an_extra_file_is_refused(folder):
    (folder / "model.py").write_text("print('hello')")
    with pytest.raises(ValueError, match="has files that SHA256SUMS does not list: model.py"):
        read_preset(folder)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/b", ".hidden", "..", "a b"])
def test_a_name_that_leads_elsewhere_is_refused(folder, name):
    with open(folder / "SHA256SUMS", "a") as file:
        file.write(f"{'0' * 64}  {name}\n")
    with pytest.raises(ValueError, match="must be a sha256 and the plain name of a file"):
        read_preset(folder)


@pytest.mark.parametrize("name", ["weights.pickle", "model.keras", "model.py", "weights.h5", "SHA256SUMS"])
def test_a_file_of_another_kind_is_refused_though_it_is_listed(folder, name):
    rewrite(folder, name, (folder / name).read_bytes() if name == "SHA256SUMS" else b"anything")
    with pytest.raises(ValueError, match=f"{name} is not a file of a preset"):
        read_preset(folder)


def test_no_more_files_than_the_limit(folder):
    for number in range(presets.MAX_FILES):
        rewrite(folder, f"{number}.txt", b"")
    with pytest.raises(ValueError, match=f"more than {presets.MAX_FILES} files"):
        read_preset(folder)


def test_a_file_named_twice_is_refused(folder):
    lines = (folder / "SHA256SUMS").read_text().splitlines()
    (folder / "SHA256SUMS").write_text("\n".join([*lines, lines[0]]) + "\n")
    with pytest.raises(ValueError, match="must be a sha256 and the plain name of a file"):
        read_preset(folder)


@pytest.mark.parametrize("name", ["config.json", "vocabulary.txt", "SHA256SUMS"])
def test_a_folder_in_place_of_a_file_is_refused(folder, name):
    (folder / name).unlink()
    (folder / name).mkdir()
    with pytest.raises(ValueError, match=rf"{name}.*missing"):
        read_preset(folder)


def test_a_link_is_refused(folder, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_bytes((folder / "vocabulary.txt").read_bytes())
    (folder / "vocabulary.txt").unlink()
    (folder / "vocabulary.txt").symlink_to(secret)
    with pytest.raises(ValueError, match="vocabulary.txt: missing, or not a plain file"):
        read_preset(folder)


def test_a_pickle_in_place_of_the_weights_is_refused_and_not_run(folder, tmp_path):
    class Harm:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "harm"),))

    rewrite(folder, "weights.safetensors", pickle.dumps(Harm()))
    with pytest.raises(ValueError, match="not a file of arrays"):
        read_preset(folder)
    assert not (tmp_path / "harm").exists()


def test_an_absurd_shape_is_refused_before_anything_is_allocated(folder):
    header = json.dumps({"a": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 4 << 40]}}).encode()
    rewrite(folder, "weights.safetensors", len(header).to_bytes(8, "little") + header + b"\0" * 16)
    with pytest.raises(ValueError, match="not a file of arrays"):
        read_preset(folder)


@pytest.mark.parametrize("data", [b"{", b"[]", b"\xff", b"[" * 100_000])
def test_a_configuration_that_is_no_object_is_refused(folder, data):
    rewrite(folder, "config.json", data)
    with pytest.raises(ValueError, match=r"config.json: (not JSON|must be a JSON object|not UTF-8)"):
        read_preset(folder)


@pytest.mark.parametrize("config", [{"cell": "\ud800"}, {"\udfff": 1}, {"words": ["a", "\ud800b"]}])
def test_half_of_a_surrogate_pair_in_a_configuration_is_refused(folder, config):
    rewrite(folder, "config.json", json.dumps({"format": 2, "task": "test", "config": config}).encode())
    with pytest.raises(ValueError, match=r"config.json: a string has half of a surrogate pair"):
        read_preset(folder)


def test_a_number_of_thousands_of_digits_in_a_configuration_is_refused(folder):
    rewrite(folder, "config.json", b'{"format": 2, "task": "test", "config": {"units": %s}}' % (b"1" * 5000))
    with pytest.raises(ValueError, match=r"config.json: not JSON: .* digits"):
        read_preset(folder)


def test_a_file_over_the_limit_is_not_read(folder, monkeypatch):
    monkeypatch.setitem(presets.MAX_BYTES, "weights.safetensors", 10)
    with pytest.raises(ValueError, match="weights.safetensors: larger than 10 bytes"):
        read_preset(folder)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no preset in .*nowhere"):
        read_preset(tmp_path / "nowhere")


@pytest.mark.parametrize("config", [{"task": "test", "config": {}}, {"format": 1, "task": "test", "config": {}}])
def test_a_preset_of_the_first_format_is_refused_with_what_changed(folder, config):
    rewrite(folder, "config.json", json.dumps(config).encode())
    with pytest.raises(
        ValueError, match=r"`format` must be 2\. Presets of version 0\.1 .* keys changed in 0\.2\. Save"
    ):
        read_preset(folder)


@pytest.mark.parametrize("config", [None, "/etc/hostname", [1]])
def test_a_configuration_that_is_no_section_is_refused(folder, config):
    rewrite(folder, "config.json", json.dumps({"format": 2, "task": "test", "config": config}).encode())
    with pytest.raises(ValueError, match="mine: `config` must be a JSON object"):
        read_preset(folder)


# Weights in fewer bits


def make_weights():
    random = np.random.default_rng(0)
    scales = np.geomspace(0.01, 10, 40)
    return {
        "dense": (random.normal(size=(50, 40)) * scales).astype(np.float32),
        "embedding": (random.normal(size=(50, 40)) * np.geomspace(0.01, 10, 50)[:, np.newaxis]).astype(np.float32),
        "bias": random.normal(size=40).astype(np.float32),
        "small": random.normal(size=(2, 3)).astype(np.float32),
        "zeros": np.zeros((30, 20), np.float32),
        "empty": np.zeros((0, 3), np.float32),
    }


@pytest.mark.parametrize(("bits", "error"), [(32, 0.0), (16, 1e-3), (8, 0.02)])
def test_weights_in_fewer_bits_are_about_the_same(bits, error):
    weights = make_weights()
    found = unpack_weights(pack_weights(weights, bits))
    assert found.keys() == weights.keys()
    for name, array in weights.items():
        assert found[name].dtype == np.float32
        assert found[name].shape == array.shape
        largest = np.abs(array).max(initial=0)
        np.testing.assert_allclose(found[name], array, atol=error * largest)


def test_eight_bits_need_a_quarter_of_the_space():
    weights = {name: make_weights()[name] for name in ("dense", "embedding")}
    size = [sum(array.nbytes for array in pack_weights(weights, bits).values()) for bits in (32, 8)]
    assert size[1] < 0.3 * size[0]


def test_each_channel_has_the_scale_that_suits_it():
    """One scale for all would round the small channels, a thousandth of the large ones, to nothing."""
    weights = make_weights()
    for name, axis in (("dense", 0), ("embedding", 1)):
        integers, scale = quantize(weights[name])
        assert integers.dtype == np.int8
        difference = integers * scale - weights[name]
        errors = np.linalg.norm(difference, axis=axis) / np.linalg.norm(weights[name], axis=axis)
        assert errors.max() < 0.02


def test_other_bits_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"`bits` must be 32, 16 or 8. Received: bits=4"):
        write_preset(tmp_path / "mine", PRESET, "", bits=4)
    assert not (tmp_path / "mine").exists()


@pytest.mark.parametrize(
    "packed",
    [
        {"a": np.ones((40_000, 1), np.int8), "a:scale": np.ones((1, 40_000), np.float32)},
        {"a": np.ones((2, 2), np.int8)},
        {"a": np.ones((2, 2), np.int8), "a:scale": np.ones(3, np.float32)},
    ],
    ids=["scales that make a huge array", "no scales", "scales of another shape"],
)
def test_scales_that_do_not_fit_are_refused(folder, packed):
    rewrite(folder, "weights.safetensors", save(packed))
    with pytest.raises(ValueError, match="weights.safetensors: not a file of arrays"):
        read_preset(folder)


def test_a_configuration_larger_than_the_weights_is_refused():
    PRESET.check_size(9)
    with pytest.raises(ValueError, match="needs at least 10 parameters; weights.safetensors has 9"):
        PRESET.check_size(10)


@pytest.mark.parametrize("array", [np.float32([1, np.nan]), np.float32([np.inf]), np.array([1, 2]), np.array([True])])
def test_weights_that_are_no_finite_numbers_are_refused(array):
    with pytest.raises(ValueError, match="the weights 'a' are not all finite numbers"):
        Preset("test", {}, {}, {"a": array}).check_size(0)


# Finding a preset


@pytest.mark.parametrize("name", ["nothing", "UPPER", "..x"])
def test_an_unknown_preset_lists_the_known_ones(name):
    with pytest.raises(ValueError, match=rf"must be a folder or one of: .*listen_.*Received: '{name}'"):
        find_preset(name)


def test_a_path_that_leads_nowhere_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"There is no preset in '.*/nowhere'"):
        find_preset(tmp_path / "nowhere")


def test_a_folder_that_a_crash_left_aside_is_found(folder):
    folder.rename(folder.with_name(".mine.old"))
    assert read_preset(find_preset(folder)).config == PRESET.config


def test_the_current_folder_is_a_preset_that_is_not_replaced(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert read_preset(find_preset(".")).config == PRESET.config
    for unnamed in (".", "..", "../mine/.."):
        with pytest.raises(ValueError, match=r"`folder` must end with a name, because .* Received: '\.'|\.\.'"):
            write_preset(unnamed, PRESET, "card")


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_that_ships_is_whole(name):
    assert read_preset(find_preset(name)).weights


constants = pytest.importorskip("huggingface_hub.constants", reason="the hub needs the extra `hub`")
NAME = "someone/speech"


@pytest.fixture(scope="module")
def recognizer():
    return make_recognizer(decoder=SMALL_DECODER, decoding=GREEDY)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    with running_hub() as (hub, url):
        monkeypatch.setattr(constants, "ENDPOINT", url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", f"{url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        # Large files go by Git LFS. The other way, Xet, is a service of its own.
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("NO_PROXY", "*")
        monkeypatch.setenv("HF_TOKEN", "hf_for_the_test")
        yield hub


@pytest.fixture
def files(recognizer, tmp_path):
    recognizer.save(tmp_path / "saved")
    return {path.name: path.read_bytes() for path in (tmp_path / "saved").iterdir()}


def test_a_preset_is_pushed_and_comes_back(recognizer, hub):
    address = recognizer.push_to_hub(NAME)
    assert address.endswith(f"{NAME}/commit/{hub.branches[NAME]['main']}")
    again = SpeechRecognizer.from_preset(f"hf://{NAME}")
    assert again.vocabulary == recognizer.vocabulary
    assert again.start == f"hf://{NAME}"
    assert type(attention_apps.load(f"hf://{NAME}")) is SpeechRecognizer
    assert not any("gitattributes" in request for request in hub.requests)
    assert any(request.startswith("PUT /large/") for request in hub.requests)


def test_weights_that_the_hub_has_are_not_uploaded_again(recognizer, hub):
    recognizer.push_to_hub(NAME)
    recognizer.push_to_hub(NAME, card="# another card\n")
    assert sum(request.startswith("PUT ") for request in hub.requests) == 1
    assert (find_preset(f"hf://{NAME}") / "README.md").read_text() == "# another card\n"


def test_a_second_push_replaces_the_first_and_a_revision_pins_it(recognizer, hub, files):
    first = hub.commit(NAME, "main", {**files, "old.txt": b"a file of an older preset"})
    hub.commit(NAME, "main", {"README.md": b"# damaged"})
    recognizer.push_to_hub(NAME, card="# new\n")
    assert set(hub.commits[hub.branches[NAME]["main"]]) == set(files)
    assert (find_preset(f"hf://{NAME}") / "README.md").read_text() == "# new\n"
    assert (find_preset(f"hf://{NAME}@{first}") / "README.md").read_bytes() == files["README.md"]
    recognizer.push_to_hub(NAME, revision="wide", card="# wide\n")
    assert (find_preset(f"hf://{NAME}@wide") / "README.md").read_text() == "# wide\n"
    assert (find_preset(f"hf://{NAME}") / "README.md").read_text() == "# new\n"


def test_the_files_are_checked_as_those_of_a_folder_are(hub, files):
    hub.commit(NAME, "main", {**files, "vocabulary.txt": files["vocabulary.txt"] + b"Z\n"})
    with pytest.raises(ValueError, match="its sha256 is not the one in SHA256SUMS"):
        SpeechRecognizer.from_preset(f"hf://{NAME}")


def test_code_in_a_repository_is_not_even_downloaded(hub, files):
    hub.commit(NAME, "main", {**files, "model.py": b"raise SystemExit", "weights.pkl": b"x"})
    assert {path.name for path in download_preset(f"hf://{NAME}").iterdir()} == set(files)
    SpeechRecognizer.from_preset(f"hf://{NAME}")


def test_without_a_connection_the_cache_answers(hub, files, monkeypatch):
    hub.commit(NAME, "main", files)
    folder = download_preset(f"hf://{NAME}")
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert download_preset(f"hf://{NAME}") == folder
    with pytest.raises(FileNotFoundError, match="hf://someone/else cannot be loaded from the hub: "):
        download_preset("hf://someone/else")


@pytest.mark.parametrize("handle", ["hf://no/thing", f"hf://{NAME}@nowhere"])
def test_what_is_not_there_is_named(hub, files, handle):
    hub.commit(NAME, "main", files)
    with pytest.raises(FileNotFoundError, match=f"{handle} cannot be loaded from the hub: "):
        SpeechRecognizer.from_preset(handle)


@pytest.mark.parametrize("handle", ["hf://", "hf://alone", "hf://a/b/c", "hf://a/b@", "hf://a/b@x y", "hf://ä/b"])
def test_a_handle_has_a_user_and_a_model(handle):
    with pytest.raises(ValueError, match="must have the form hf://user/model or hf://user/model@revision"):
        find_preset(handle)
