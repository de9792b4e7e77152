"""The guard in front of the demo page: who may ask, which routes there are, and which files may be named.

Gradio has many routes, and some of them read files or fetch URLs. The guard answers only what the page uses.
"""

import ipaddress
import json
import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

# Large enough for any text that somebody pastes; photos and recordings are uploaded, not sent in here.
MAX_JSON_BYTES = 4 << 20
# The browser loads nothing from other sites, whatever a version of gradio asks for.
_POLICY = b"default-src 'self' data: blob: 'unsafe-inline' 'unsafe-eval'; frame-ancestors 'self'"
_API = "/gradio_api/"
_FILE_ROUTE = f"{_API}file="
# `run` is how browsers call functions without a queue: a click on a sample.
_JSON_ROUTES = re.compile(rf"{_API}(queue/join|run/\w+|reset|cancel)/?")
_UPLOAD_ROUTE = re.compile(rf"{_API}upload/?")
_READ_ROUTES = re.compile(
    rf"{_API}(info|app_id|startup-events|theme\.css|upload_progress|queue/data|queue/status|heartbeat/[\w-]+)/?"
)


class PageGuard:
    """ASGI middleware that refuses requests the demo page never sends.

    - `Host` must be a loopback name or address, or one of `hosts`. This stops DNS rebinding.
    - `Origin`, if sent, must be the same host and port as `Host`. This stops requests from other web pages.
    - Of gradio's API, only uploads, the page's functions and files inside `uploads` can be reached.
    - A request to a function may name only files inside `uploads`; URLs are refused.

    Args:
        application: the page.
        uploads: the folder for this server's uploads.
        hosts: further host names and addresses, without ports.
    """

    def __init__(self, application: Application, uploads: Path, hosts: Collection[str] = ()):
        self.application = application
        self.uploads = Path(uploads).resolve()
        self.hosts = {_plain(host) for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.application(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        else:  # gradio uses no web sockets
            await send({"type": "websocket.close", "code": 1008})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._check_sender(scope)
            self._check_route(scope)
            if _JSON_ROUTES.fullmatch(scope["path"]):
                scope, receive = await self._checked_json(scope, receive)
            await self.application(scope, receive, _with_policy(send))
        except RefusedRequestError as refusal:
            await _refuse(send, refusal)
        except ConnectionResetError:
            pass

    def _check_sender(self, scope: Scope) -> None:
        hosts, origins = _header(scope, b"host"), _header(scope, b"origin")
        name = _plain(hosts[0]) if len(hosts) == 1 else ""
        if len(hosts) != 1 or not (name == "localhost" or name in self.hosts or _is_loopback_address(name)):
            raise RefusedRequestError(403, "This Host name is not served here. `--allow-host NAME` adds one.")
        if any(_place(origin) != hosts[0].lower() for origin in origins):
            raise RefusedRequestError(403, "Requests from pages of other sites are not answered.")

    def _check_route(self, scope: Scope) -> None:
        path, method = scope["path"], scope["method"]
        if path.startswith(_FILE_ROUTE):
            self._check_upload(path.removeprefix(_FILE_ROUTE))
        is_read = method in ("GET", "HEAD")
        is_known = (
            is_read and (not path.startswith(_API) or path.startswith(_FILE_ROUTE) or _READ_ROUTES.fullmatch(path))
        ) or (method == "POST" and (_JSON_ROUTES.fullmatch(path) or _UPLOAD_ROUTE.fullmatch(path)))
        if not is_known:
            raise RefusedRequestError(404, "The page has no such route.")

    async def _checked_json(self, scope: Scope, receive: Receive) -> tuple[Scope, Receive]:
        """Check the files that a request names, and pass on exactly what was checked."""
        try:
            content = json.loads(await _read_body(receive))
            for path in _paths(content):
                self._check_upload(path)
            body = json.dumps(content).encode()
        except (ValueError, RecursionError):  # also of bytes that are no text
            raise RefusedRequestError(400, "The body must be JSON.") from None
        headers = [(name, value) for name, value in scope["headers"] if name != b"content-length"]
        scope = {**scope, "headers": [*headers, (b"content-length", str(len(body)).encode())]}
        return scope, _replay(body, receive)

    def _check_upload(self, path: Any) -> None:
        if path is None:
            return
        try:
            is_path = isinstance(path, str) and Path(path).is_absolute()
            is_upload = is_path and self.uploads in Path(path).resolve().parents
        except (OSError, ValueError):  # too long, or with a null byte
            is_upload = False
        if not is_upload:
            raise RefusedRequestError(403, "Only files that were uploaded to this page are read.")


class RefusedRequestError(Exception):
    """A request that is not passed on, with its HTTP status."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


def _plain(host: str) -> str:
    """A host name or address in lower case, without port and brackets; empty if it is none."""
    is_bare_ipv6 = host.count(":") > 1 and not host.startswith("[")
    try:
        parts = urlsplit(f"//[{host}]" if is_bare_ipv6 else f"//{host}")
        return (parts.hostname or "").rstrip(".") if "@" not in parts.netloc else ""
    except ValueError:
        return ""


def _place(origin: str) -> str:
    """The host and port of an origin in lower case; empty if it has none."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _is_loopback_address(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _header(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def _paths(content: Any) -> Iterator[Any]:
    """Every `path` in a tree of JSON: gradio treats an object that has one as a file."""
    waiting = [content]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Mapping):
            if "path" in item:
                yield item["path"]
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item


async def _read_body(receive: Receive) -> bytes:
    body, is_more = bytearray(), True
    while is_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionResetError
        body += message.get("body", b"")
        if len(body) > MAX_JSON_BYTES:
            raise RefusedRequestError(413, f"The text is too long: the limit is {MAX_JSON_BYTES:,} bytes.")
        is_more = message.get("more_body", False)
    return bytes(body)


def _replay(body: bytes, receive: Receive) -> Receive:
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> MutableMapping[str, Any]:
        return messages.pop() if messages else await receive()

    return next_message


async def _refuse(send: Send, refusal: RefusedRequestError) -> None:
    body = json.dumps({"detail": str(refusal)}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _with_policy(send: Send) -> Send:
    async def send_with_policy(event: MutableMapping[str, Any]) -> None:
        if event["type"] == "http.response.start":
            if event["status"] == 500:  # gradio fails in many places on what no browser sends
                raise RefusedRequestError(400, "The page cannot answer this request.")
            event["headers"] = [*event["headers"], (b"content-security-policy", _POLICY)]
        await send(event)

    return send_with_policy
