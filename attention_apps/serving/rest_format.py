"""TensorFlow Serving's JSON for predict requests, in rows and in columns."""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

_ROWS, _COLUMNS = "instances", "inputs"


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


_SHORT_NAMES = {"float32": "FLOAT", "float64": "DOUBLE"}


@dataclass(frozen=True)
class PredictRequest:
    """A parsed request. `values` holds rows or columns, still as JSON."""

    signature: str
    in_rows: bool
    values: Any

    def to_inputs(self, infos: Mapping[str, TensorInfo]) -> dict[str, np.ndarray]:
        """Convert the values to one array per input, all with the same batch size."""
        columns = _columns_of_rows(self.values, infos) if self.in_rows else _columns(self.values, infos)
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
            return _dump({"outputs": columns if len(columns) > 1 else next(iter(columns.values()))})
        rows = [dict(zip(columns, values)) for values in zip(*columns.values())]
        return _dump({"predictions": rows if len(columns) > 1 else [next(iter(row.values())) for row in rows]})


def read_request(body: bytes | bytearray) -> PredictRequest:
    """Parse the body of a predict request."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestError(400, f"The body must be JSON: {error}") from None
    if not isinstance(content, dict) or (_ROWS in content) == (_COLUMNS in content):
        raise RequestError(400, f"The body must be a JSON object with either `{_ROWS}` or `{_COLUMNS}`")
    unknown = sorted(content.keys() - {_ROWS, _COLUMNS, "signature_name"})
    if unknown:
        raise RequestError(400, f"Unknown keys: {', '.join(map(repr, unknown))}")
    signature = content.get("signature_name") or "serving_default"
    if not isinstance(signature, str):
        raise RequestError(400, "`signature_name` must be a string")
    in_rows = _ROWS in content
    return PredictRequest(signature, in_rows, content[_ROWS if in_rows else _COLUMNS])


def error_body(message: str) -> bytes:
    """Return the JSON of an error."""
    return _dump({"error": message})


def _columns_of_rows(rows, infos):
    """Accept objects that hold every input or, if there is only one input, its values."""
    if not isinstance(rows, list):
        raise RequestError(400, f"`{_ROWS}` must be a list")
    names = list(infos)
    if len(names) == 1 and not any(_is_object(row) for row in rows):
        return {names[0]: rows}
    for number, row in enumerate(rows):
        if not _is_object(row):
            raise RequestError(400, f"`{_ROWS}[{number}]` must be an object with {_list(names)}")
        _check_names(row, names, f"`{_ROWS}[{number}]`")
    return {name: [row[name] for row in rows] for name in names}


def _columns(columns, infos):
    """Accept an object with a list for each input or, if there is only one input, its list."""
    if _is_object(columns):
        _check_names(columns, list(infos), f"`{_COLUMNS}`")
        return columns
    if len(infos) > 1:
        raise RequestError(400, f"`{_COLUMNS}` must be an object with {_list(infos)}")
    return dict.fromkeys(infos, columns)


def _is_object(value):
    return isinstance(value, dict) and value.keys() != {"b64"}


def _check_names(given, names, where):
    if given.keys() != set(names):
        raise RequestError(400, f"{where} must have {_list(names)}. Received: {_list(given) or 'nothing'}")


def _list(names):
    return ", ".join(f"`{name}`" for name in names)


def _to_array(name, value, info):
    try:
        array = _string_array(value) if info.dtype == "string" else _number_array(value, info.dtype)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise RequestError(400, f"`{name}` cannot be read as {info.dtype}: {error}") from None
    if array.ndim != len(info.shape) or any(
        size not in (None, found) for size, found in zip(info.shape, array.shape, strict=True)
    ):
        shape = ", ".join("any" if size is None else str(size) for size in info.shape)
        raise RequestError(400, f"`{name}` must be of shape ({shape}). Received: {tuple(array.shape)}")
    return array


def _string_array(value):
    array = np.array(_to_bytes(value), dtype=object)
    if not all(isinstance(item, bytes) for item in array.flat):
        raise ValueError("the lists differ in length")
    return array


def _number_array(value, dtype):
    """NumPy alone would also take "1.5" as a float and 1.7 as an integer."""
    kind = np.dtype(dtype).kind
    allowed = {"f": {int, float}, "b": {bool}}.get(kind, {int})
    wrong = _types(value) - allowed
    if wrong:
        raise ValueError(f"it holds {', '.join(sorted(_JSON_NAMES[one] for one in wrong))}")
    return np.array(value, dtype)


_JSON_NAMES = {
    str: "strings",
    float: "fractions",
    int: "numbers",
    bool: "booleans",
    dict: "objects",
    type(None): "null",
}


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


def _dump(content):
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
