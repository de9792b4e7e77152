"""The server over real connections on loopback, with a model that needs no TensorFlow."""

import http.client
import json
import math
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

from attention_apps.serving.client import Client, ServerError
from attention_apps.serving.server import ServingLimits
from tests.serving.fake_model import FakeModel, running

PREDICT = "/v1/models/fake:predict"


@pytest.fixture(scope="module")
def url():
    with running({"fake": FakeModel(), "other": FakeModel()}, max_body=50_000, max_batch=8) as (url, _):
        yield url


def ask(url, path, body=None):
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    data = json.dumps(body) if isinstance(body, dict | list) else body
    connection.request("GET" if body is None else "POST", path, data)
    response = connection.getresponse()
    content = json.loads(response.read())
    connection.close()
    return response.status, content


def test_rows_and_columns(url):
    b64 = {"b64": "YWJj"}
    expected = [{"text": ["cba"], "rows": 2}] * 2
    for row in (b64, {"image_bytes": b64}, "abc"):
        assert ask(url, PREDICT, {"instances": [row, row]}) == (200, {"predictions": expected})
    for columns in ([b64, b64], {"image_bytes": [b64, "abc"]}):
        expected = {"outputs": {"text": [["cba"]] * 2, "rows": [2, 2]}}
        assert ask(url, PREDICT, {"inputs": columns}) == (200, expected)


def test_another_signature_with_two_inputs_and_one_output(url):
    rows = [{"waveform": [1, 2, 3], "length": 3}, {"waveform": [4, 5, 6], "length": 2}]
    assert ask(url, PREDICT, {"signature_name": "numbers", "instances": rows}) == (200, {"predictions": [9.0, 17.0]})


def test_status_metadata_and_health(url):
    assert ask(url, "/v1/models/fake")[1]["model_version_status"][0]["state"] == "AVAILABLE"
    assert ask(url, "/v1/models/fake/versions/3")[0] == 200
    assert ask(url, "/v1/models/fake/versions/3:predict", {"instances": ["ab"]})[0] == 200
    metadata = ask(url, "/v1/models/fake/metadata")[1]["metadata"]["signature_def"]["signature_def"]
    assert metadata["numbers"]["inputs"]["waveform"]["dtype"] == "DT_FLOAT"
    sizes = metadata["serving_default"]["outputs"]["text"]["tensor_shape"]["dim"]
    assert [size["size"] for size in sizes] == ["-1", "1"]
    assert ask(url, "/health") == (200, {"status": "ok", "models": ["fake", "other"]})


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{broken", "must be JSON"),
        (b"\xff\xfe", "must be JSON"),
        (b"[" * 40_000, "must be JSON"),
        (b"1" * 40_000, "must be JSON"),
        (b"", "must be JSON"),
        ([1], "either `instances` or `inputs`"),
        ({}, "either `instances` or `inputs`"),
        ({"instances": [], "inputs": []}, "either `instances` or `inputs`"),
        ({"instances": ["a"], "model": "x"}, "Unknown keys: 'model'"),
        ({"instances": ["a"], "signature_name": 3}, "must be a string"),
        ({"instances": ["a"], "signature_name": "none"}, "has no signature 'none'; it has numbers, serving_default"),
        ({"instances": "a"}, "`instances` must be a list"),
        ({"instances": []}, "batch size of at least 1"),
        ({"instances": [3]}, "must hold strings"),
        ({"instances": [["a"]]}, "must be of shape (any). Received: (1, 1)"),
        ({"instances": [["a"], ["b", "c"]]}, "the lists differ in length"),
        ({"instances": [{"b64": "not base64!"}]}, "broken base64"),
        ({"instances": [{"photo": "a"}]}, "must have `image_bytes`. Received: `photo`"),
        ({"instances": [{"image_bytes": "a"}, "b"]}, "`instances[1]` must be an object"),
        ({"instances": ["a"] * 9}, "at most 8 rows. Received: 9"),
        ({"signature_name": "numbers", "inputs": [1]}, "must be an object with `waveform`, `length`"),
        ({"signature_name": "numbers", "inputs": {"waveform": [[1]], "length": [1, 2]}}, "one batch size"),
        ({"signature_name": "numbers", "inputs": {"waveform": [[1], [2, 3]], "length": [1, 2]}}, "as float32"),
        ({"signature_name": "numbers", "inputs": {"waveform": [["x"]], "length": [1]}}, "as float32"),
        ({"signature_name": "numbers", "inputs": {"waveform": [[1]], "length": [10**30]}}, "as int32"),
    ],
)
def test_bad_requests_get_400_and_a_message(url, body, message):
    status, content = ask(url, PREDICT, body)
    assert status == 400
    assert message in content["error"]
    assert "Traceback" not in content["error"]


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/v1/models/nothing:predict", {"instances": ["a"]}, 404, "no model 'nothing' here; there is fake, other"),
        ("/v1/models/fake/versions/9:predict", {"instances": ["a"]}, 404, "no version 9"),
        ("/v1/models/fake:classify", {"instances": ["a"]}, 404, "nothing here"),
        ("/../etc/passwd", None, 404, "nothing here"),
        (PREDICT, None, 405, "This takes POST. Received: GET"),
        ("/v1/models/fake", {"instances": ["a"]}, 405, "This takes GET. Received: POST"),
    ],
)
def test_wrong_addresses_and_methods(url, path, body, status, message):
    found, content = ask(url, path, body)
    assert found == status
    assert message in content["error"]


def test_a_body_that_is_too_large_is_refused_before_it_is_read(url):
    host, port = urlsplit(url).netloc.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\nContent-Length: 50001\r\n\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 413")


def test_a_body_that_grows_too_large_is_refused(url):
    chunks = iter([b"x" * 10_000] * 6)
    status, content = ask(url, PREDICT, chunks)
    assert (status, content["error"]) == (413, "The body must have at most 50,000 bytes")


def test_a_model_that_fails_is_a_500_that_tells_nothing_of_the_inside(url):
    assert ask(url, PREDICT, {"instances": ["poison"]}) == (500, {"error": "The model failed: RuntimeError"})


def test_nothing_is_lost_with_sixteen_clients_at_once():
    model = FakeModel(seconds=0.02)
    with running({"fake": model}, max_batch=8) as (url, _), ThreadPoolExecutor(16) as pool:
        client = Client(url)
        rows = [[{"image_bytes": f"{number}.{row}".encode()} for row in range(number % 3 + 1)] for number in range(160)]
        answers = list(pool.map(lambda one: client.predict("fake", one), rows))
    for asked, answered in zip(rows, answers, strict=True):
        assert [row["text"][0] for row in answered] == [row["image_bytes"][::-1].decode() for row in asked]
    assert max(call["image_bytes"] for call in model.calls) <= 8
    assert len(model.calls) < 160 / 2


def test_one_poisoned_request_does_not_fail_those_batched_with_it():
    with running({"fake": FakeModel()}, batch_delay=0.2) as (url, _), ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(ask, url, PREDICT, {"instances": [text]}) for text in ("ab", "poison", "cd")]
        assert [future.result()[0] for future in futures] == [200, 500, 200]


def test_a_request_that_takes_too_long_gets_504():
    with running({"fake": FakeModel(seconds=1.0)}, timeout=0.2) as (url, _):
        status, content = ask(url, PREDICT, {"instances": ["ab"]})
    assert (status, content) == (504, {"error": "The request took more than 0.2 seconds"})


def test_a_body_that_never_comes_gets_504():
    with running({"fake": FakeModel()}, timeout=0.2) as (url, _):
        host, port = urlsplit(url).netloc.split(":")
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            connection.sendall(f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{{".encode())
            assert connection.recv(100).startswith(b"HTTP/1.1 504")


def test_more_requests_than_may_wait_get_503():
    limits = {"max_waiting": 1, "max_batch": 1, "batch_delay": 0.0}
    with running({"fake": FakeModel(seconds=0.5)}, **limits) as (url, _), ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(ask, url, PREDICT, {"instances": ["ab"]}) for _ in range(8)]
        statuses = [future.result()[0] for future in futures]
    assert set(statuses) == {200, 503}
    assert statuses.count(200) >= 2


def test_what_was_asked_before_the_end_is_answered():
    with running({"fake": FakeModel(seconds=0.6)}) as (url, server):
        answers = []
        thread = threading.Thread(target=lambda: answers.append(ask(url, PREDICT, {"instances": ["ab"]})))
        thread.start()
        time.sleep(0.3)
        server.should_exit = True
        thread.join(30)
    assert answers == [(200, {"predictions": [{"text": ["ba"], "rows": 1}]})]


def test_a_client_is_told_what_was_wrong(url):
    with pytest.raises(ServerError, match="no model 'nothing'") as caught:
        Client(url).predict("nothing", [{"image_bytes": b"a"}])
    assert caught.value.status == 404


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_body", 0), ("max_batch", 0), ("max_waiting", 0), ("timeout", 0), ("timeout", math.inf), ("batch_delay", -1)],
)
def test_limits_that_make_no_sense_are_refused(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must be .* Received: {name}={value}"):
        ServingLimits(**{name: value})
