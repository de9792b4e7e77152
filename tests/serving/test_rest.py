"""The client against the server, and what `test_server.py` does not show of the format of requests."""

import json
import socket
import subprocess
import sys

import numpy as np
import pytest

from attention_apps.serving.rest import MAX_VALUES, Client, RequestError, ServerError, TensorInfo, read_request

INFOS = {"x": TensorInfo("string", (None,))}


@pytest.fixture(scope="module")
def client():
    from tests.serving.fake_model import FakeModel, running

    with running({"fake": FakeModel(), "a name, with: more": FakeModel()}) as (url, _):
        yield Client(url + "/")


def test_bytes_go_as_base64_and_texts_come_back(client):
    contents = bytes(range(128))
    answers = client.predict("fake", ({"image_bytes": one} for one in (contents, bytearray(b"ab"))))
    assert [answer["text"] for answer in answers] == [[contents[::-1].decode()], ["ba"]]


def test_strings_and_arrays(client):
    assert client.predict("fake", [{"image_bytes": "äb"}], version=3)[0]["rows"] == 1
    rows = [{"waveform": np.array([1.5, 2]), "length": np.int32(2)}, {"waveform": (1, 2.0), "length": 1}]
    assert client.predict("fake", rows, signature="numbers") == [5.5, 4.0]


def test_status_and_metadata(client):
    assert [one["version"] for one in client.status("fake")] == ["3"]
    assert set(client.metadata("fake")) == {"serving_default", "numbers"}


def test_a_name_is_part_of_the_address_and_nothing_else(client):
    with pytest.raises(ServerError, match="no model|nothing here"):
        client.status("../../health")


def test_no_server_is_said_plainly():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(ServerError, match=f"No answer from http://127.0.0.1:{port}: .*refused") as caught:
        Client(f"http://127.0.0.1:{port}").status("fake")
    assert caught.value.status is None


@pytest.mark.parametrize("url", ["localhost:8501", "file:///etc/passwd", "", "http://"])
def test_an_address_of_another_kind_is_refused(url):
    with pytest.raises(ValueError, match="`url` must be of the form http://host:port"):
        Client(url)


def test_the_client_needs_no_tensorflow():
    code = "import sys; from attention_apps.serving import Client; print('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


def test_half_characters_of_json_are_bytes_that_no_utf8_has():
    request = read_request(b'{"instances": ["\\ud800"]}')
    assert request.to_inputs(INFOS)["x"].tolist() == [b"\xed\xa0\x80"]


def test_outputs_called_bytes_are_base64_and_others_text():
    request = read_request(b'{"inputs": ["a"]}')
    outputs = {"sound_bytes": np.array([b"\xff\x00"], object), "text": np.array([b"\xc3\xa4\xff"], object)}
    expected = {"sound_bytes": [{"b64": "/wA="}], "text": ["ä\ufffd"]}
    assert json.loads(request.to_response(outputs)) == {"outputs": expected}


def test_a_row_may_be_a_list():
    request = read_request(b'{"instances": [["a", "b"], ["c", "d"]]}')
    assert request.to_inputs({"x": TensorInfo("string", (None, 2))})["x"].tolist() == [[b"a", b"b"], [b"c", b"d"]]


def test_an_empty_signature_name_is_the_default():
    assert read_request(b'{"instances": ["a"], "signature_name": ""}').signature == "serving_default"


def test_long_names_make_no_long_messages():
    name = "x" * 1_000_000
    for request in ({"instances": ["a"], name: 1}, {"instances": [{name: 1}]}, {"inputs": {name: 1}}):
        with pytest.raises(RequestError, match="xxx") as caught:
            read_request(json.dumps(request).encode()).to_inputs(INFOS)
        assert len(caught.value.message) < 500


@pytest.mark.parametrize("unit", [b"[],", b"{},", b"[{}],", b'"",'])
def test_millions_of_lists_are_not_parsed(monkeypatch, unit):
    body = b'{"instances": [' + unit * (MAX_VALUES + 1) + b"0]}"
    monkeypatch.setattr(json, "loads", lambda _: pytest.fail("it was parsed"))
    with pytest.raises(RequestError, match="at most 100,000 lists, objects and strings"):
        read_request(body)
