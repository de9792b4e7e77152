"""The server over real connections on loopback, with a model that needs no TensorFlow."""

import asyncio
import contextlib
import gc
import http.client
import json
import math
import os
import random
import socket
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

import pytest

from attention_apps.serving import server as server_module
from attention_apps.serving.rest import Client, ServerError, TensorInfo
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


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


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
        (b'{"instances": ' + b"[" * 60 + b'"a"' + b"]" * 60 + b"}", "nested too deeply"),
        ({"instances": [[[]] * 10_000]}, "nested too deeply"),
        ({"instances": [[]] * 10_000}, "at most 8 rows. Received: 10000"),
        ({"inputs": [[]] * 10_000}, "at most 8 rows. Received: 10000"),
        ({"instances": [{"b64": "not base64!"}]}, "broken base64"),
        ({"instances": [{"photo": "a"}]}, "must have `image_bytes`. Received: `photo`"),
        ({"instances": [{"image_bytes": "a"}, "b"]}, "`instances[1]` must be an object"),
        ({"instances": ["a"] * 9}, "at most 8 rows. Received: 9"),
        ({"signature_name": "numbers", "inputs": [1]}, "must be an object with `waveform`, `length`"),
        ({"signature_name": "numbers", "inputs": {"waveform": [[1]], "length": [1, 2]}}, "one batch size"),
        ({"signature_name": "numbers", "inputs": {"waveform": [[1], [2, 3]], "length": [1, 2]}}, "as float32"),
        ({"signature_name": "numbers", "inputs": {"waveform": [["x"]], "length": [1]}}, "as float32"),
        ({"signature_name": "numbers", "inputs": {"waveform": [[1]], "length": [10**30]}}, "as int32"),
        ({"signature_name": "numbers", "inputs": {"waveform": [["1.5"]], "length": [1]}}, "it holds strings"),
        ({"signature_name": "numbers", "inputs": {"waveform": [[1.5, True]], "length": [1]}}, "it holds booleans"),
        ({"signature_name": "numbers", "inputs": {"waveform": [[None]], "length": [1]}}, "it holds null"),
        ({"signature_name": "numbers", "inputs": {"waveform": [[1]], "length": [1.7]}}, "it holds fractions"),
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
        ("/v1/models/nothing:predict", {"instances": ["a"]}, 404, "No model 'nothing'. Available: fake, other"),
        ("/v1/models/fake/versions/9:predict", {"instances": ["a"]}, 404, "No version 9"),
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


def test_of_a_thousand_requests_at_once_those_admitted_are_answered_and_the_others_refused():
    body = b'{"instances": ["ab"]}'
    request = f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"

    async def ask_at_once(port, barrier):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await barrier.wait()
        writer.write(request.encode() + body)
        answer = await reader.read()
        writer.close()
        return answer

    async def ask_all(port):
        barrier = asyncio.Barrier(1000)
        return await asyncio.wait_for(asyncio.gather(*(ask_at_once(port, barrier) for _ in range(1000))), 60)

    with running({"fake": FakeModel(seconds=0.2)}, max_waiting=100) as (url, _):
        answers = asyncio.run(ask_all(urlsplit(url).port))
    refused = [answer for answer in answers if answer.startswith(b"HTTP/1.1 503 ")]
    assert all(b"\r\nretry-after: 1\r\n" in answer for answer in refused)
    answered = [answer for answer in answers if answer.startswith(b"HTTP/1.1 200 ")]
    assert len(answered) >= 100
    assert len(answered) + len(refused) == 1000


def test_uploads_together_have_a_limit():
    limits = {"max_body": 50_000, "max_total_body": 100_000}
    head = f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\nContent-Length: 45000\r\n\r\n".encode()
    with running({"fake": FakeModel()}, **limits) as (url, _):
        address = ("127.0.0.1", urlsplit(url).port)
        with socket.create_connection(address) as first, socket.create_connection(address) as second:
            for connection in (first, second):
                connection.sendall(head + b" " * 44_000)
            time.sleep(0.3)
            assert ask(url, PREDICT, b"x" * 20_000) == (
                503,
                {"error": "Too many bytes are being uploaded; try again later"},
            )
            assert ask(url, PREDICT, {"instances": ["ab"]})[0] == 200
        time.sleep(0.3)
        assert ask(url, PREDICT, b"x" * 20_000)[0] == 400


def test_aborted_uploads_are_freed_without_the_garbage_collector():
    size = 4 << 20
    head = f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode()

    def abort(port):
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            connection.sendall(head + b" " * (size - 1))

    with running({"fake": FakeModel()}) as (url, server):
        abort(urlsplit(url).port)
        before = resident_bytes()
        gc.disable()
        try:
            for _ in range(50):
                abort(urlsplit(url).port)
            deadline = time.monotonic() + 30
            while server.server_state.connections and time.monotonic() < deadline:
                time.sleep(0.05)
            assert resident_bytes() - before < 60e6
        finally:
            gc.enable()


def test_what_nobody_waits_for_is_not_computed():
    model = FakeModel(seconds=0.6)
    body = b'{"instances": ["ab"]}'
    head = f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with running({"fake": model}, max_batch=1, batch_delay=0.0) as (url, _), ThreadPoolExecutor(1) as pool:
        first = pool.submit(ask, url, PREDICT, {"instances": ["ab"]})
        time.sleep(0.2)
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", urlsplit(url).port)) as connection:
                connection.sendall(head + body)
                time.sleep(0.02)
        assert first.result()[0] == 200
        assert ask(url, PREDICT, {"instances": ["ab"]})[0] == 200
    assert len(model.calls) == 2


def test_the_pixels_of_a_request_and_of_a_batch_have_a_limit():
    model, costs = FakeModel(seconds=0.2), {"image_bytes": len}
    with running({"fake": model}, costs, max_pixels=5, batch_delay=0.2) as (url, _), ThreadPoolExecutor(6) as pool:
        status, content = ask(url, PREDICT, {"instances": ["abc", "def"]})
        assert (status, content["error"]) == (
            400,
            "The images of a request must have at most 5 pixels together. Received: 6",
        )
        futures = [pool.submit(ask, url, PREDICT, {"instances": ["ab"]}) for _ in range(6)]
        assert [future.result()[0] for future in futures] == [200] * 6
        rows = {"signature_name": "numbers", "instances": [{"waveform": [1, 2], "length": 3}]}
        assert ask(url, PREDICT, rows) == (200, {"predictions": [6.0]})
    assert max(call.get("image_bytes", 0) for call in model.calls) == 2


class TextModel(FakeModel):
    """A fake model whose input is called `text`."""

    inputs: ClassVar = {"serving_default": {"text": TensorInfo("string", (None,))}}

    def predict(self, inputs, signature="serving_default"):
        return super().predict({"image_bytes": inputs["text"]}, signature)


def test_the_texts_of_a_request_and_of_a_batch_have_a_limit():
    model, limits = TextModel(seconds=0.2), {"max_text": 5, "max_pixels": 1, "batch_delay": 0.2}
    with running({"fake": model}, {"text": len}, **limits) as (url, _), ThreadPoolExecutor(6) as pool:
        status, content = ask(url, PREDICT, {"instances": ["abc", "def"]})
        assert (status, content["error"]) == (
            400,
            "The texts of a request must have at most 5 bytes together. Received: 6",
        )
        futures = [pool.submit(ask, url, PREDICT, {"instances": ["ab"]}) for _ in range(6)]
        assert [future.result()[0] for future in futures] == [200] * 6
    assert max(call["image_bytes"] for call in model.calls) == 2


def test_large_bodies_are_parsed_one_at_a_time(monkeypatch):
    running_now, most = 0, 0

    def read_slowly(body):
        nonlocal running_now, most
        running_now += 1
        most = max(most, running_now)
        time.sleep(0.1)
        running_now -= 1
        raise MemoryError

    monkeypatch.setattr(server_module, "read_request", read_slowly)
    with running({"fake": FakeModel()}) as (url, _), ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(ask, url, PREDICT, {"instances": ["a" * (1 << 20)]}) for _ in range(3)]
        assert [future.result() for future in futures] == [(503, {"error": "Out of memory; try again later"})] * 3
    assert most == 1


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
    with pytest.raises(ServerError, match="No model 'nothing'") as caught:
        Client(url).predict("nothing", [{"image_bytes": b"a"}])
    assert caught.value.status == 404


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_body", 0),
        ("max_total_body", 0),
        ("max_batch", 0),
        ("max_pixels", 0),
        ("max_text", 0),
        ("max_waiting", 0),
        ("max_connections", 0),
        ("max_connections_per_peer", 0),
        ("timeout", 0),
        ("timeout", math.inf),
        ("header_timeout", 0),
        ("batch_delay", -1),
    ],
)
def test_limits_that_make_no_sense_are_refused(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must be .* Received: {name}={value}"):
        ServingLimits(**{name: value})


def malformed_requests(number):
    """Requests that are cut, have bytes replaced, or lie about their length."""
    chance = random.Random(0)
    body = b'{"instances": [{"b64": "YWJj"}]}'
    good = f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    for index in range(number):
        request = bytearray(good)
        kind = index % 4
        if kind == 0:
            del request[chance.randrange(1, len(good)) :]
        elif kind == 1:
            for _ in range(chance.randrange(1, 9)):
                request[chance.randrange(len(request))] = chance.randrange(256)
        elif kind == 2:
            length = chance.choice([b"-1", b"1e3", b"9" * 30, b"0x20", b"", b"32, 32", b"31", b"33"])
            request = bytearray(good.replace(f"Length: {len(body)}".encode(), b"Length: " + length))
        else:
            start = chance.randrange(len(request))
            request[start:start] = chance.choice([b"\r\n\r\n", b"\0", b"\n", b"Transfer-Encoding: chunked\r\n"])
        yield bytes(request)


def test_malformed_requests_harm_nobody():
    statuses = Counter()
    with running({"fake": FakeModel()}, timeout=2.0, header_timeout=2.0) as (url, server):
        for request in malformed_requests(64):
            with socket.create_connection(("127.0.0.1", urlsplit(url).port), timeout=30) as connection:
                connection.sendall(request)
                connection.shutdown(socket.SHUT_WR)
                with contextlib.suppress(ConnectionResetError):
                    statuses[connection.recv(100)[9:12]] += 1
            assert ask(url, PREDICT, {"instances": ["ab"]})[0] == 200
        deadline = time.monotonic() + 20
        while server.server_state.connections and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not server.server_state.connections
    assert b"500" not in statuses
    assert statuses[b"400"] > 16


@pytest.mark.slow
def test_five_thousand_mixed_requests_each_get_their_answer():
    text = "ab" * 50
    cases = [
        ("/health", None, 200),
        (PREDICT, {"instances": ["ab"]}, 200),
        (PREDICT, {"instances": [text] * 8}, 200),
        (PREDICT, {"instances": ["poison"]}, 500),
        (PREDICT, {"instances": [3]}, 400),
        (PREDICT, b"{", 400),
        (PREDICT, b"x" * 60_000, 413),
        ("/v1/models/nothing", None, 404),
    ]
    chance = random.Random(0)
    chosen = [chance.choice(cases) for _ in range(5000)]
    limits = {"max_batch": 8, "max_body": 50_000}
    with running({"fake": FakeModel()}, **limits) as (url, _), ThreadPoolExecutor(16) as pool:
        statuses = list(pool.map(lambda case: ask(url, *case[:2])[0], chosen))
    assert statuses == [case[2] for case in chosen]
