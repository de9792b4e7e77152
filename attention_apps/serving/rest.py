"""TensorFlow Serving's REST interface: predict requests in rows and in columns, read by a server, and a client."""

import base64
import binascii
import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

_ROWS, _COLUMNS = "instances", "inputs"
_SHOWN_CHARACTERS = 200
# A request of 32 rows needs few lists, objects and strings; each takes up to a hundred times the memory of its bytes.
MAX_VALUES = 100_000
_SHORT_NAMES = {"float32": "FLOAT", "float64": "DOUBLE"}
_JSON_NAMES = {
    str: "strings",
    float: "fractions",
    int: "numbers",
    bool: "booleans",
    dict: "objects",
    type(None): "null",
}


class RequestError(Exception):
    """A request that gets an error response with this HTTP status and message."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(frozen=True)
class TensorInfo:
    """Type of an input or output, by TensorFlow's name, and its shape, with `None` for an axis of any size."""

    dtype: str
    shape: tuple[int | None, ...]

    def to_json(self, name: str) -> dict[str, Any]:
        sizes = [{"size": str(-1 if size is None else size), "name": ""} for size in self.shape]
        return {
            "dtype": f"DT_{_SHORT_NAMES.get(self.dtype, self.dtype.upper())}",
            "tensor_shape": {"dim": sizes, "unknown_rank": False},
            "name": name,
        }


@dataclass(frozen=True)
class PredictRequest:
    """A parsed request. `values` holds rows or columns, still as JSON."""

    signature: str
    in_rows: bool
    values: Any

    @property
    def rows(self) -> int:
        """How many rows there seem to be, without a look into them."""
        columns = self.values.values() if isinstance(self.values, dict) else [self.values]
        return max((len(column) for column in columns if isinstance(column, list)), default=0)

    def to_inputs(self, infos: Mapping[str, TensorInfo]) -> dict[str, np.ndarray]:
        """Convert the values to one array per input, all with the same batch size.

        If there is only one input, its values may stand alone, without its name.
        """
        if self.in_rows and not isinstance(self.values, list):
            raise RequestError(400, f"`{_ROWS}` must be a list")
        objects = self.values if self.in_rows else [self.values]
        are_named = [isinstance(one, dict) and one.keys() != {"b64"} for one in objects]
        columns = dict.fromkeys(infos, self.values)
        if len(infos) > 1 or any(are_named):
            wanted = ", ".join(f"`{name}`" for name in infos)
            for number, one in enumerate(objects):
                where = f"`{_ROWS}[{number}]`" if self.in_rows else f"`{_COLUMNS}`"
                if not are_named[number]:
                    raise RequestError(400, f"{where} must be an object with {wanted}")
                if one.keys() != infos.keys():
                    found = _shorten(", ".join(f"`{name}`" for name in one)) or "nothing"
                    raise RequestError(400, f"{where} must have {wanted}. Received: {found}")
            columns = {name: [row[name] for row in self.values] for name in infos} if self.in_rows else self.values
        inputs = {name: _to_array(name, columns[name], info) for name, info in infos.items()}
        sizes = {name: len(array) for name, array in inputs.items()}
        if len(set(sizes.values())) != 1 or 0 in sizes.values():
            raise RequestError(400, f"All inputs must have one batch size of at least 1. Received: {sizes}")
        return inputs

    def to_response(self, outputs: Mapping[str, np.ndarray]) -> bytes:
        """Return the body of the response, in rows or columns as the request was."""
        columns = {
            name: _from_bytes(array.tolist(), name.endswith("_bytes")) if array.dtype == object else array.tolist()
            for name, array in outputs.items()
        }
        if not self.in_rows:
            return dump({"outputs": columns if len(columns) > 1 else next(iter(columns.values()))})
        rows = [dict(zip(columns, values)) for values in zip(*columns.values())]
        return dump({"predictions": rows if len(columns) > 1 else [next(iter(row.values())) for row in rows]})


def read_request(body: bytes | bytearray) -> PredictRequest:
    """Parse the body of a predict request."""
    if body.count(b"[") + body.count(b"{") + body.count(b'"') // 2 > MAX_VALUES:
        raise RequestError(400, f"The body must have at most {MAX_VALUES:,} lists, objects and strings")
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestError(400, f"The body must be JSON: {error}") from None
    if not isinstance(content, dict) or (_ROWS in content) == (_COLUMNS in content):
        raise RequestError(400, f"The body must be a JSON object with either `{_ROWS}` or `{_COLUMNS}`")
    unknown = sorted(content.keys() - {_ROWS, _COLUMNS, "signature_name"})
    if unknown:
        raise RequestError(400, f"Unknown keys: {_shorten(', '.join(map(repr, unknown)))}")
    signature = content.get("signature_name") or "serving_default"
    if not isinstance(signature, str):
        raise RequestError(400, "`signature_name` must be a string")
    in_rows = _ROWS in content
    return PredictRequest(signature, in_rows, content[_ROWS if in_rows else _COLUMNS])


def dump(content: Any) -> bytes:
    """Return JSON as the body of a response."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _shorten(text):
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def _to_array(name, value, info):
    try:
        _check_depth(value, len(info.shape))
        if info.dtype == "string":
            array = np.array(_to_bytes(value), dtype=object)
            if not all(isinstance(item, bytes) for item in array.flat):
                raise ValueError("the lists differ in length")
        else:
            # NumPy alone would also take "1.5" as a float and 1.7 as an integer.
            allowed = {"f": {int, float}, "b": {bool}}.get(np.dtype(info.dtype).kind, {int})
            wrong = _types(value) - allowed
            if wrong:
                raise ValueError(f"it holds {', '.join(sorted(_JSON_NAMES[one] for one in wrong))}")
            array = np.array(value, info.dtype)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise RequestError(400, f"`{name}` cannot be read as {info.dtype}: {error}") from None
    if array.ndim != len(info.shape) or any(
        size not in (None, found) for size, found in zip(info.shape, array.shape, strict=True)
    ):
        shape = ", ".join("any" if size is None else str(size) for size in info.shape)
        raise RequestError(400, f"`{name}` must be of shape ({shape}). Received: {tuple(array.shape)}")
    return array


def _check_depth(value, depth):
    """Refuse lists inside of what should be values before anything is made of them: there may be millions."""
    if isinstance(value, list):
        if depth < 0:
            raise ValueError("the lists are nested too deeply")
        for item in value:
            if isinstance(item, list):
                _check_depth(item, depth - 1)


def _types(value):
    """Return the types of all values in nested lists."""
    if not isinstance(value, list):
        return {type(value)}
    types = set(map(type, value))
    if list in types:
        types.discard(list)
        types.update(*(_types(item) for item in value if isinstance(item, list)))
    return types


def _to_bytes(value):
    """Encode strings as UTF-8 and decode `{"b64": ...}`."""
    if isinstance(value, list):
        return [_to_bytes(item) for item in value]
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if not isinstance(value, dict) or not isinstance(value.get("b64"), str):
        raise ValueError('it must hold strings or {"b64": "..."}')
    try:
        return base64.b64decode(value["b64"], validate=True)
    except binascii.Error as error:
        raise ValueError(f"broken base64: {error}") from None


def _from_bytes(value, in_base64):
    if isinstance(value, list):
        return [_from_bytes(item, in_base64) for item in value]
    return {"b64": base64.b64encode(value).decode()} if in_base64 else value.decode("utf-8", "replace")


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
        return self._call(model, ":predict", request, version)["predictions"]

    def status(self, model: str) -> list[dict[str, Any]]:
        """Return the state of each version, as `{"version": "1", "state": "AVAILABLE", ...}`."""
        return self._call(model)["model_version_status"]

    def metadata(self, model: str) -> dict[str, Any]:
        """Return the inputs and outputs of each signature."""
        return self._call(model, "/metadata")["metadata"]["signature_def"]["signature_def"]

    def _call(self, model, ending="", content=None, version=None):
        url = f"{self.url}/v1/models/{urllib.parse.quote(model, safe='')}"
        url += ending if version is None else f"/versions/{version}{ending}"
        data = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
        try:
            with self._opener.open(request, timeout=self.timeout) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                try:
                    message = f"{json.load(error)['error']} (HTTP {error.code})"
                except (ValueError, KeyError, TypeError, OSError, http.client.HTTPException):
                    message = f"HTTP {error.code}: {error.reason}"
                raise ServerError(message, error.code) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ServerError(f"No answer from {self.url}: {getattr(error, 'reason', error)}") from None


def _to_json(value):
    """Convert bytes to base64 and NumPy arrays to lists."""
    if isinstance(value, bytes | bytearray | memoryview):
        return {"b64": base64.b64encode(value).decode()}
    if isinstance(value, list | tuple):
        return [_to_json(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value
