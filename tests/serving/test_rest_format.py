"""What `test_server.py` does not show."""

import json

import numpy as np

from attention_apps.serving.rest_format import TensorInfo, read_request

INFOS = {"x": TensorInfo("string", (None,))}


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
