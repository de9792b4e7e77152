"""The guard of the demo page, with an application behind it that repeats what it is sent."""

import asyncio
import json

import pytest

from attention_apps.cli.web_guard import MAX_JSON_BYTES, PageGuard

JOIN = "/gradio_api/queue/join"


async def echo(scope, receive, send):
    body = (await receive()).get("body", b"") if scope["method"] == "POST" else b""
    length = dict(scope["headers"]).get(b"content-length")
    assert length is None or int(length) == len(body)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
def ask(tmp_path):
    """Sends a request through a guard; gives its status, body and headers."""
    uploads = tmp_path / "uploads"
    uploads.mkdir()

    def ask(path, body=None, host="127.0.0.1:7860", method=None, hosts=(), headers=()):
        sent, guard = [], PageGuard(echo, uploads, hosts)
        lines = ([] if host is None else [(b"host", host.encode())]) + list(headers)
        scope = {"type": "http", "path": path, "method": method or ("GET" if body is None else "POST")}
        parts = [{"type": "http.request", "body": body or b""}]

        async def receive():
            return parts.pop() if parts else {"type": "http.disconnect"}

        async def send(event):
            sent.append(event)

        asyncio.run(guard({**scope, "headers": lines}, receive, send))
        return sent[0]["status"], sent[1]["body"], dict(sent[0]["headers"])

    ask.uploads = uploads
    return ask


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:1", "127.0.0.1:7860", "[::1]:7860", "LOCALHOST.", "127.1.2.3"]
)
def test_loopback_names_are_answered(ask, host):
    status, _, headers = ask("/", host=host)
    assert status == 200
    assert headers[b"content-security-policy"].startswith(b"default-src 'self'")


@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        "evil.example",
        "evil.example:7860",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "[::",
        "a@localhost",
    ],
)
def test_other_host_names_are_refused(ask, host):
    assert ask("/", host=host)[0] == 403


def test_names_of_the_command_line_are_answered(ask):
    assert ask("/", host="My.lan:7860", hosts=["my.LAN"])[0] == 200
    assert ask("/", host="[fd00::1]:7860", hosts=["fd00::1"])[0] == 200
    assert ask("/", host="other.lan", hosts=["my.lan"])[0] == 403


def test_two_host_headers_are_refused(ask):
    assert ask("/", headers=[(b"host", b"127.0.0.1:7860")])[0] == 403


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://127.0.0.1:7860", 200),
        ("https://127.0.0.1:7860", 200),
        ("http://127.0.0.1:3000", 403),
        ("http://localhost:7860", 403),
        ("https://evil.example", 403),
        ("null", 403),
        ("http://[", 403),
        ("http://[::1]x", 403),
        ("http://127.0.0.1:7860.evil.example", 403),
    ],
)
def test_only_the_page_itself_may_send_requests(ask, origin, status):
    assert ask(JOIN, b"{}", headers=[(b"origin", origin.encode())])[0] == status


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/config", 200),
        ("GET", "/assets/index.js", 200),
        ("GET", "/gradio_api/heartbeat/abc", 200),
        ("GET", "/gradio_api/queue/data", 200),
        ("POST", "/gradio_api/upload", 200),
        ("POST", "/gradio_api/api/predict", 404),
        ("POST", "/gradio_api/call/predict", 404),
        ("POST", "/gradio_api/call/v2/predict", 404),
        ("POST", "/gradio_api/component_server", 404),
        ("POST", "/gradio_api/process_recording", 404),
        ("POST", "/gradio_api/vibe-edit", 404),
        ("POST", "/gradio_api/stream/1", 404),
        ("POST", "/login", 404),
        ("PUT", "/gradio_api/upload", 404),
        ("GET", "/gradio_api/proxy=http://169.254.169.254/", 404),
        ("GET", "/gradio_api/file/etc/passwd", 404),
        ("GET", "/gradio_api/deep_link", 404),
        ("GET", "/gradio_api/file=/etc/passwd", 403),
        ("HEAD", "/gradio_api/file=etc/passwd", 403),
        ("GET", "/gradio_api/file=http://169.254.169.254/", 403),
    ],
)
def test_only_the_routes_of_the_page_are_there(ask, method, path, status):
    assert ask(path, b"" if method == "POST" else None, method=method)[0] == status


def test_files_of_the_upload_folder_are_served(ask):
    (ask.uploads / "link").symlink_to("/etc")
    assert ask(f"/gradio_api/file={ask.uploads}/1/mine.png")[0] == 200
    for path in ("", "/..", "/../secret.png", "/link/passwd"):
        assert ask(f"/gradio_api/file={ask.uploads}{path}")[0] == 403


@pytest.mark.parametrize("route", [JOIN, f"{JOIN}/", "/gradio_api/run/predict", "/gradio_api/reset"])
def test_a_file_in_a_request_must_be_an_upload(ask, route):
    mine = {"data": [{"path": str(ask.uploads / "1" / "mine.png")}, None, {"path": None}]}
    status, body, _ = ask(route, json.dumps(mine).encode())
    assert (status, json.loads(body)) == (200, mine)
    for path in ("/etc/passwd", "mine.png", f"{ask.uploads}/../x", "http://evil.example/x.png", 3, ["/etc"], "a\0b"):
        for data in ([{"path": path}], [{"a": [{"b": {"path": path}}]}], {"path": path}):
            assert ask(route, json.dumps({"data": data}).encode())[0] == 403


def test_what_was_checked_is_what_is_passed_on(ask):
    """Two parsers may take different ones of two equal keys."""
    good = json.dumps(str(ask.uploads / "mine.png")).encode()
    status, body, _ = ask(JOIN, b'{"path": "/etc/passwd", "path": ' + good + b"}")
    assert status == 200
    assert b"passwd" not in body


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'"\xc3"'])
def test_what_is_no_json_is_refused(ask, body):
    assert ask(JOIN, body)[0] == 400


def test_a_request_at_which_gradio_fails_is_refused(tmp_path):
    sent = []

    async def fail(scope, receive, send):
        await send({"type": "http.response.start", "status": 500, "headers": []})

    async def send(event):
        sent.append(event)

    scope = {"type": "http", "path": "/", "method": "GET", "headers": [(b"host", b"localhost")]}
    asyncio.run(PageGuard(fail, tmp_path)(scope, None, send))
    assert sent[0]["status"] == 400
    assert json.loads(sent[1]["body"]) == {"detail": "The page cannot answer this request."}


def test_a_long_body_is_refused(ask):
    assert ask(JOIN, b'"' + b"x" * MAX_JSON_BYTES + b'"')[0] == 413


def test_web_sockets_are_closed(tmp_path):
    sent = []

    async def send(event):
        sent.append(event)

    asyncio.run(PageGuard(echo, tmp_path)({"type": "websocket", "path": "/", "headers": []}, None, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]
