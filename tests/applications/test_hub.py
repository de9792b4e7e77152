"""Presets of a hub that runs here: loaded, pinned to a revision, checked, cached and pushed."""

import pytest

import attention_apps
from attention_apps.applications import SpeechRecognizer
from attention_apps.applications.hub import download_preset
from attention_apps.applications.preset import find_preset
from tests.applications.recognizers import GREEDY, SMALL_DECODER, make_recognizer
from tests.hub_server import running_hub

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
