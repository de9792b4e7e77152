"""A client of the REST interface."""

import base64
import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping
from typing import Any


class ServerError(RuntimeError):
    """A server's error response, or no response at all.

    Attributes:
        status: the HTTP status; `None` without a response.
    """

    def __init__(self, message: str, status: int | None = None):
        super().__init__(message)
        self.status = status


class Client:
    """Calls exported models on TensorFlow Serving or `attention-apps serve`. Needs no TensorFlow.

    Args:
        url: address of the server, `"http://localhost:8501"`. Ignores proxies set in the environment.
        timeout: seconds to wait for a response.

    Example:
        client = Client("http://localhost:8501")
        (answer,) = client.predict("captioner", [{"image_bytes": open("photo.jpg", "rb").read()}])
        answer["text"][0], answer["status"]   # ("a dog runs ...", "ok")
    """

    def __init__(self, url: str, timeout: float = 60.0):
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"`url` must be of the form http://host:port. Received: url={url!r}")
        if not timeout > 0:
            raise ValueError(f"`timeout` must be above 0. Received: timeout={timeout}")
        self.url = url.rstrip("/")
        self.timeout = timeout
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def predict(
        self,
        model: str,
        rows: Iterable[Mapping[str, Any]],
        signature: str | None = None,
        version: int | None = None,
    ) -> list[dict[str, Any]]:
        """Return one prediction per row.

        Args:
            model: name of the model on the server.
            rows: for each item, its inputs by name: bytes, strings, numbers, or arrays of them.
            signature: a signature other than the default, such as `"text"`.
            version: a version other than the newest.
        """
        request: dict[str, Any] = {
            "instances": [{name: _to_json(value) for name, value in row.items()} for row in rows]
        }
        if signature is not None:
            request["signature_name"] = signature
        return self._call(f"{_path(model, version)}:predict", request)["predictions"]

    def status(self, model: str) -> list[dict[str, Any]]:
        """Return the state of each version, as `{"version": "1", "state": "AVAILABLE", ...}`."""
        return self._call(_path(model))["model_version_status"]

    def metadata(self, model: str) -> dict[str, Any]:
        """Return the inputs and outputs of each signature."""
        return self._call(f"{_path(model)}/metadata")["metadata"]["signature_def"]["signature_def"]

    def _call(self, path, content=None):
        data = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        try:
            with self._opener.open(request, timeout=self.timeout) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                raise ServerError(_message(error), error.code) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ServerError(f"No answer from {self.url}: {getattr(error, 'reason', error)}") from None


def _path(model, version=None):
    name = urllib.parse.quote(model, safe="")
    return f"/v1/models/{name}" + ("" if version is None else f"/versions/{version}")


def _message(error):
    try:
        return f"{json.load(error)['error']} (HTTP {error.code})"
    except (ValueError, KeyError, TypeError, OSError, http.client.HTTPException):
        return f"HTTP {error.code}: {error.reason}"


def _to_json(value):
    """Convert bytes to base64 and NumPy arrays to lists."""
    if isinstance(value, bytes | bytearray | memoryview):
        return {"b64": base64.b64encode(value).decode()}
    if isinstance(value, list | tuple):
        return [_to_json(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value
