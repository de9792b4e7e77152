"""Clients that keep the server waiting, over real connections on loopback."""

import contextlib
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

from tests.serving.fake_model import FakeModel, running
from tests.serving.test_server import PREDICT, ask

HALF_A_BODY = f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{{".encode()
GOOD = (200, {"predictions": [{"text": ["ba"], "rows": 1}]})


@contextlib.contextmanager
def connections(url, number, data=b""):
    """Connections that send `data` and then nothing."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(connect(url, data)) for _ in range(number)]


def connect(url, data=b""):
    host, port = urlsplit(url).netloc.split(":")
    connection = socket.create_connection((host, int(port)), timeout=10)
    connection.sendall(data)
    return connection


def is_closed_within(connection, seconds):
    connection.settimeout(seconds)
    try:
        while connection.recv(1000):
            pass
        return True
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


@pytest.mark.parametrize("data", [b"", b"GET /health HTTP/1.1\r\nHo", HALF_A_BODY], ids=["idle", "headers", "body"])
def test_idle_connections_starve_nobody(data):
    with running({"fake": FakeModel()}, max_connections=32) as (url, server), connections(url, 100, data):
        for _ in range(5):
            assert ask(url, "/health")[0] == 200
            assert ask(url, PREDICT, {"instances": ["ab"]}) == GOOD
        assert len(server.server_state.connections) <= 32


def test_a_thousand_idle_connections_starve_nobody():
    with running({"fake": FakeModel()}, max_connections=500) as (url, server), connections(url, 1000):
        start = time.monotonic()
        assert ask(url, "/health")[0] == 200
        assert ask(url, PREDICT, {"instances": ["ab"]}) == GOOD
        assert time.monotonic() - start < 5
        assert len(server.server_state.connections) <= 500


def test_a_request_that_has_arrived_keeps_its_connection():
    with running({"fake": FakeModel(seconds=1.0)}, max_connections=8) as (url, _), ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(ask, url, PREDICT, {"instances": ["ab"]}) for _ in range(4)]
        time.sleep(0.5)
        with connections(url, 50):
            assert [future.result()[0] for future in futures] == [200] * 4


def test_a_connection_that_makes_room_is_told_so():
    with running({"fake": FakeModel()}, max_connections=2) as (url, _), connections(url, 3) as (first, *_):
        answer = first.recv(1000)
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"\r\nRetry-After: 1\r\n" in answer
    head, _, body = answer.partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head


def test_headers_must_come_in_time():
    with running({"fake": FakeModel()}, header_timeout=0.5) as (url, server):
        with connect(url) as silent, connect(url, b"GET /health HTTP/1.1\r\n") as slow:
            with contextlib.suppress(OSError):
                for _ in range(30):
                    slow.sendall(b"x")
                    time.sleep(0.05)
            assert is_closed_within(silent, 5)
            assert is_closed_within(slow, 5)
        assert not server.server_state.connections


def test_headers_of_a_second_request_must_come_in_time():
    first = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    with running({"fake": FakeModel()}, header_timeout=0.5) as (url, _), connect(url, first) as connection:
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        connection.sendall(b"GET /health HTTP/1.1\r\n")
        assert is_closed_within(connection, 4)


def test_an_answer_that_nobody_reads_is_dropped():
    body = b'{"instances": ["%s"]}' % (b"a" * 8_000_000)
    request = f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    with running({"fake": FakeModel()}, timeout=1.0) as (url, server), connect(url, request):
        deadline = time.monotonic() + 20
        while server.server_state.connections and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not server.server_state.connections


def test_a_peer_may_have_a_limit_of_its_own():
    with running({"fake": FakeModel()}, max_connections_per_peer=2) as (url, _):
        with connections(url, 3) as (*_, third):
            assert third.recv(1000).startswith(b"HTTP/1.1 503 ")
        time.sleep(0.2)
        assert ask(url, "/health")[0] == 200
