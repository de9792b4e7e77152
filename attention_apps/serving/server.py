"""A local server with the REST interface of TensorFlow Serving, for trying things out."""

import asyncio
import contextlib
import json
import math
import queue
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from attention_apps.serving.batcher import Batcher
from attention_apps.serving.rest_format import PredictRequest, RequestError, error_body, read_request

_MODEL_PATH = re.compile(r"/v1/models/([^/:]+)(?:/versions/([0-9]+))?(/metadata|:predict)?")
_HEALTH_PATHS = ("/", "/health")


@dataclass(frozen=True)
class ServingLimits:
    """What a server takes upon itself."""

    # Bytes of a request's body.
    max_body: int = 32 << 20
    # Seconds that a request may take, from its first byte to its answer.
    timeout: float = 60.0
    # Rows of a request, and of a batch made of several requests.
    max_batch: int = 32
    # Seconds that a request waits for others to make a batch with.
    batch_delay: float = 0.005
    # Requests that wait for each model.
    max_waiting: int = 256

    def __post_init__(self) -> None:
        for name in ("max_body", "max_batch", "max_waiting"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1. Received: {name}={getattr(self, name)}")
        if not 0 < self.timeout < math.inf:
            raise ValueError(f"`timeout` must be above 0 and finite. Received: timeout={self.timeout}")
        if not 0 <= self.batch_delay <= 10:
            raise ValueError(f"`batch_delay` must be between 0 and 10. Received: batch_delay={self.batch_delay}")


class PredictionServer:
    """An ASGI application that answers as TensorFlow Serving does.

    `POST /v1/models/NAME:predict`, `GET /v1/models/NAME`, `GET /v1/models/NAME/metadata`, all of them with
    `/versions/N` after the name too, and `GET /health`.

    Args:
        models: by name, each a `LoadedModel`, or anything with its `version`, `inputs`, `outputs` and `predict`.
        limits: see `ServingLimits`.
    """

    def __init__(self, models: Mapping[str, Any], limits: ServingLimits | None = None):
        self.models = dict(models)
        self.limits = ServingLimits() if limits is None else limits
        self._batchers = {
            (name, signature): Batcher(
                partial(model.predict, signature=signature),
                self.limits.max_batch,
                self.limits.batch_delay,
                self.limits.max_waiting,
            )
            for name, model in self.models.items()
            for signature in model.inputs
        }

    def close(self) -> None:
        """Answers what waits, and stops the threads that answer."""
        for batcher in self._batchers.values():
            batcher.close()

    async def __call__(self, scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._answer_http(scope, receive, send)

    async def _live(self, receive, send):
        while True:
            event = (await receive())["type"]
            if event == "lifespan.shutdown":
                await asyncio.to_thread(self.close)
            await send({"type": f"{event}.complete"})
            if event == "lifespan.shutdown":
                return

    async def _answer_http(self, scope, receive, send):
        try:
            body = await asyncio.wait_for(self._respond(scope, receive), self.limits.timeout)
            status = 200
        except RequestError as error:
            status, body = error.status, error_body(error.message)
        except TimeoutError:
            status, body = 504, error_body(f"The request took more than {self.limits.timeout:g} seconds")
        except ConnectionResetError:
            return
        except Exception as error:
            status, body = 500, error_body(f"The model failed: {type(error).__name__}")
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _respond(self, scope, receive):
        path, method = scope["path"], scope["method"]
        if path in _HEALTH_PATHS:
            _check_method(method, "GET")
            return _json({"status": "ok", "models": sorted(self.models)})
        match = _MODEL_PATH.fullmatch(path)
        if not match:
            raise RequestError(404, "There is nothing here; try /v1/models/NAME or /v1/models/NAME:predict")
        name, version, action = match.groups()
        model = self._find(name, version)
        _check_method(method, "POST" if action == ":predict" else "GET")
        if action == ":predict":
            return await self._predict(name, model, await self._read_body(scope, receive))
        return _json(_metadata(name, model) if action else _status(model))

    def _find(self, name, version):
        if name not in self.models:
            raise RequestError(404, f"There is no model {name!r} here; there is {', '.join(sorted(self.models))}")
        model = self.models[name]
        if version is not None and version != model.version:
            raise RequestError(404, f"There is no version {version} of {name!r} here; there is {model.version}")
        return model

    async def _read_body(self, scope, receive):
        limit = self.limits.max_body
        too_large = RequestError(413, f"The body must have at most {limit:,} bytes")
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if length.isdigit() and int(length) > limit:
            raise too_large
        body, is_more = bytearray(), True
        while is_more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ConnectionResetError
            body += message.get("body", b"")
            is_more = message.get("more_body", False)
            if len(body) > limit:
                raise too_large
        return bytes(body)

    async def _predict(self, name, model, body):
        request, inputs = await asyncio.to_thread(self._read_inputs, name, model, body)
        try:
            future = self._batchers[name, request.signature].submit(inputs)
        except queue.Full:
            raise RequestError(503, "Too many requests wait; try again later") from None
        outputs = await asyncio.wrap_future(future)
        return await asyncio.to_thread(request.to_response, outputs)

    def _read_inputs(self, name: str, model: Any, body: bytes) -> tuple[PredictRequest, dict[str, Any]]:
        request = read_request(body)
        if request.signature not in model.inputs:
            choices = ", ".join(sorted(model.inputs))
            raise RequestError(400, f"{name!r} has no signature {request.signature!r}; it has {choices}")
        inputs = request.to_inputs(model.inputs[request.signature])
        rows = len(next(iter(inputs.values())))
        if rows > self.limits.max_batch:
            raise RequestError(400, f"A request must have at most {self.limits.max_batch} rows. Received: {rows}")
        return request, inputs


def import_uvicorn() -> Any:
    """The module that speaks HTTP, which is in an extra of its own."""
    try:
        import uvicorn
    except ImportError:
        raise ValueError("The server needs the package uvicorn: `pip install 'attention_apps[serve]'`") from None
    return uvicorn


def run_server(
    models: Mapping[str, Any],
    host: str = "127.0.0.1",
    port: int = 8501,
    limits: ServingLimits | None = None,
    announce: Callable[[str], None] = print,
) -> None:
    """Serves until it is interrupted; what was asked before that is still answered.

    Args:
        models, limits: see `PredictionServer`.
        host, port: where to listen; 0 is any free port.
        announce: told the server's URL as soon as it listens.
    """
    limits = ServingLimits() if limits is None else limits
    run_asgi(
        PredictionServer(models, limits),
        host,
        port,
        announce,
        limit_concurrency=limits.max_waiting * max(len(models), 1) + 8,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=math.ceil(limits.timeout),
    )


def run_asgi(application: Any, host: str, port: int, announce: Callable[[str], None], **settings: Any) -> None:
    """Serves an ASGI application until it is interrupted; for the arguments see `run_server`.

    Args:
        settings: further ones of `uvicorn.Config`.
    """
    uvicorn = import_uvicorn()
    listening = _listen(host, port)
    # Uvicorn's own configuration of logging would close the handlers that others have made.
    config = uvicorn.Config(application, log_config=None, log_level="warning", server_header=False, **settings)
    announce(f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}")
    # The interrupt is raised once more after everything was answered.
    with listening, contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listening])


def _listen(host, port):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise ValueError(f"Cannot listen on {host}, port {port}: {error}") from None


def _check_method(method, wanted):
    if method != wanted:
        raise RequestError(405, f"This takes {wanted}. Received: {method}")


def _status(model):
    status = {"error_code": "OK", "error_message": ""}
    return {"model_version_status": [{"version": model.version, "state": "AVAILABLE", "status": status}]}


def _metadata(name, model):
    signatures = {
        signature: {
            "inputs": {one: info.to_json(f"{signature}_{one}:0") for one, info in model.inputs[signature].items()},
            "outputs": {one: info.to_json(one) for one, info in model.outputs[signature].items()},
            "method_name": "tensorflow/serving/predict",
        }
        for signature in model.inputs
    }
    return {
        "model_spec": {"name": name, "signature_name": "", "version": model.version},
        "metadata": {"signature_def": {"signature_def": signatures}},
    }


def _json(content):
    return json.dumps(content).encode()
