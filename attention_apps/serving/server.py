"""A local server with the REST interface of TensorFlow Serving, for trying things out."""

import asyncio
import contextlib
import math
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.convertors import StringConvertor, register_url_convertor
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route
except ImportError:
    raise ImportError("The server needs Starlette and uvicorn: `pip install 'attention_apps[serve]'`") from None

from attention_apps.checks import require, require_at_least, require_between
from attention_apps.serving.batcher import Batcher
from attention_apps.serving.connections import LimitedConnection
from attention_apps.serving.rest import PredictRequest, RequestError, dump, read_request

Cost = Callable[[bytes], int]
_OTHER_FILES = 64
# Larger bodies are parsed one at a time: their values take many times the memory of their JSON.
_LARGE_BODY = 1 << 20


@dataclass(frozen=True)
class ServingLimits:
    """How much a server takes on. What exceeds a limit is refused; the rest is answered.

    Args:
        max_body: bytes of a request's body.
        max_total_body: bytes of all bodies that are being read or answered.
        timeout: seconds that a request may take, from its headers to its answer.
        header_timeout: seconds until the headers of a request must be complete.
        max_batch: rows of a request, and of a batch of several requests.
        batch_delay: seconds that a request waits for others to form a batch.
        max_pixels: pixels of a request's images, and of a batch, according to the headers of the images.
        max_text: bytes of a request's texts, and of a batch, as the function in `costs` counts them.
        max_waiting: requests per model that wait or are being answered.
        max_connections: open connections. At the limit, a new one replaces the one that has been idle the longest.
        max_connections_per_peer: open connections from one address; no limit by default.
    """

    max_body: int = 32 << 20
    max_total_body: int = 256 << 20
    timeout: float = 60.0
    header_timeout: float = 10.0
    max_batch: int = 32
    batch_delay: float = 0.005
    max_pixels: int = 100_000_000
    max_text: int = 64 << 10
    max_waiting: int = 256
    max_connections: int = 2048
    max_connections_per_peer: int | None = None

    def __post_init__(self) -> None:
        counts = ("max_body", "max_total_body", "max_batch", "max_pixels", "max_text", "max_waiting")
        require_at_least(self, 1, *counts, "max_connections", "max_connections_per_peer")
        for name in ("timeout", "header_timeout"):
            require(0 < getattr(self, name) < math.inf, name, "above 0 and finite", getattr(self, name))
        require_between(self, 0, 10, "batch_delay")


class _Name(StringConvertor):
    regex = "[^/:]+"


register_url_convertor("model_name", _Name())


class PredictionServer:
    """An ASGI application with the REST interface of TensorFlow Serving.

    `POST /v1/models/NAME:predict`, `GET /v1/models/NAME`, `GET /v1/models/NAME/metadata`, each also with `/versions/N`
    after the name, and `GET /health`.

    Args:
        models: by name, each a `LoadedModel`, or any object with its `version`, `inputs`, `outputs` and `predict`.
        limits: see `ServingLimits`.
        costs: by input name, a function that returns an item's cost: in bytes for `text`, otherwise in pixels. It must
            be cheap, and read only the headers of images.
    """

    def __init__(
        self,
        models: Mapping[str, Any],
        limits: ServingLimits | None = None,
        costs: Mapping[str, Cost] | None = None,
    ):
        self.models = dict(models)
        self.limits = ServingLimits() if limits is None else limits
        self.costs = dict(costs or {})
        self._batchers = {
            (name, signature): Batcher(
                partial(model.predict, signature=signature),
                max_cost=self._max_cost(inputs),
                max_batch=self.limits.max_batch,
                delay=self.limits.batch_delay,
            )
            for name, model in self.models.items()
            for signature, inputs in model.inputs.items()
        }
        self._admitted: Counter[str] = Counter()
        self._parsing_large_body = asyncio.Lock()
        self._body_bytes = 0
        self._application = self._make_application()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._application(scope, receive, send)

    def close(self) -> None:
        """Answer all waiting requests, then stop the batchers' threads."""
        for batcher in self._batchers.values():
            batcher.close()

    def _make_application(self):
        @contextlib.asynccontextmanager
        async def lifespan(_):
            yield
            await asyncio.to_thread(self.close)

        routes = [Route("/", self._health), Route("/health", self._health)]
        for path in ("/v1/models/{name:model_name}", "/v1/models/{name:model_name}/versions/{version:model_name}"):
            routes.append(Route(f"{path}:predict", self._predict, methods=["POST"]))
            routes.append(Route(path, self._status))
            routes.append(Route(f"{path}/metadata", self._metadata))
        handlers = {
            RequestError: _refuse,
            HTTPException: _refuse,  # no such address, or another method
            ClientDisconnect: lambda request, error: Response(status_code=400),  # nobody reads it
        }
        application = Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan)
        application.router.redirect_slashes = False
        return application

    async def _health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok", "models": sorted(self.models)})

    async def _status(self, request: Request) -> Response:
        _, model = self._find(request)
        status = {"error_code": "OK", "error_message": ""}
        return JSONResponse(
            {"model_version_status": [{"version": model.version, "state": "AVAILABLE", "status": status}]}
        )

    async def _metadata(self, request: Request) -> Response:
        name, model = self._find(request)
        signatures = {
            signature: {
                "inputs": {one: info.to_json(f"{signature}_{one}:0") for one, info in model.inputs[signature].items()},
                "outputs": {one: info.to_json(one) for one, info in model.outputs[signature].items()},
                "method_name": "tensorflow/serving/predict",
            }
            for signature in model.inputs
        }
        return JSONResponse(
            {
                "model_spec": {"name": name, "signature_name": "", "version": model.version},
                "metadata": {"signature_def": {"signature_def": signatures}},
            }
        )

    async def _predict(self, request: Request) -> Response:
        name, model = self._find(request)
        try:
            async with asyncio.timeout(self.limits.timeout):
                # Checked before the body is read, to refuse at once, and after it: a slow upload must take no place.
                self._require_place(name)
                async with self._read_body(request) as body:
                    self._require_place(name)
                    content = await self._answer(request, name, model, body)
        except TimeoutError:
            raise RequestError(504, f"The request took more than {self.limits.timeout:g} seconds") from None
        return Response(content, media_type="application/json")

    def _find(self, request):
        name, version = request.path_params["name"], request.path_params.get("version")
        if name not in self.models:
            raise RequestError(404, f"No model {name!r}. Available: {', '.join(sorted(self.models))}")
        model = self.models[name]
        if version not in (None, model.version):
            raise RequestError(404, f"No version {version} of {name!r}. Available: {model.version}")
        return name, model

    def _require_place(self, name):
        if self._admitted[name] >= self.limits.max_waiting:
            raise RequestError(503, "Too many requests are waiting; try again later")

    @contextlib.asynccontextmanager
    async def _read_body(self, request):
        """Yield the body. Its bytes count toward `max_total_body` until the end of the block, which frees them."""
        body, size = bytearray(), 0
        try:
            length = int(request.headers.get("content-length", 0))
            self._check_size(length, self._body_bytes + length)
            async for chunk in request.stream():
                size += len(chunk)
                self._body_bytes += len(chunk)
                self._check_size(size, self._body_bytes)
                body += chunk
            yield body
        finally:
            self._body_bytes -= size
            # A traceback may keep the buffer itself until the garbage collector runs.
            body.clear()

    def _check_size(self, size, total):
        if size > self.limits.max_body:
            raise RequestError(413, f"The body must have at most {self.limits.max_body:,} bytes")
        if total > self.limits.max_total_body:
            raise RequestError(503, "Too many bytes are being uploaded; try again later")

    async def _answer(self, request, name, model, body):
        self._admitted[name] += 1
        try:
            async with self._parsing_large_body if len(body) > _LARGE_BODY else contextlib.nullcontext():
                question, future = await asyncio.to_thread(self._submit, name, model, body)
            outputs = await _wait(request, future)
            return await asyncio.to_thread(question.to_response, outputs)
        except MemoryError:
            raise RequestError(503, "Out of memory; try again later") from None
        finally:
            self._admitted[name] -= 1

    def _submit(self, name: str, model: Any, body: bytearray) -> tuple[PredictRequest, Future]:
        """Parse a request and pass its inputs to the batcher."""
        question = read_request(body)
        body.clear()
        if question.signature not in model.inputs:
            choices = ", ".join(sorted(model.inputs))
            raise RequestError(400, f"{name!r} has no signature {question.signature[:100]!r}; it has {choices}")
        if question.rows > self.limits.max_batch:
            limit = f"at most {self.limits.max_batch} rows"
            raise RequestError(400, f"A request must have {limit}. Received: {question.rows}")
        inputs = question.to_inputs(model.inputs[question.signature])
        costs = ((cost, inputs[name]) for name, cost in self.costs.items() if name in inputs)
        total = sum(cost(item) for cost, items in costs for item in items.flat)
        if total > self._max_cost(inputs):
            what, unit = ("texts", "bytes") if "text" in inputs else ("images", "pixels")
            limit = f"{self._max_cost(inputs):,} {unit}"
            raise RequestError(400, f"The {what} of a request must have at most {limit} together. Received: {total:,}")
        return replace(question, values=None), self._batchers[name, question.signature].submit(inputs, total)

    def _max_cost(self, inputs):
        return self.limits.max_text if "text" in inputs else self.limits.max_pixels


async def _wait(request, future):
    """Return the outputs. If the client closes the connection, cancel their computation."""
    answer, closing = asyncio.wrap_future(future), asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait((answer, closing), return_when=asyncio.FIRST_COMPLETED)
        if answer.done() and answer.exception() is not None:
            raise RequestError(500, f"The model failed: {type(answer.exception()).__name__}")
        if not answer.done():
            raise ClientDisconnect
        return answer.result()
    finally:
        answer.cancel()
        closing.cancel()


def _refuse(request: Request, error: RequestError | HTTPException) -> Response:
    headers: Mapping[str, str] | None
    if isinstance(error, RequestError):
        status, message = error.status, error.message
        headers = {"Retry-After": "1"} if status == 503 else None
    else:
        status, headers = error.status_code, error.headers
        message = "There is nothing here; try /v1/models/NAME or /v1/models/NAME:predict"
        if status == 405:
            wanted = "POST" if "POST" in (headers or {})["Allow"] else "GET"
            message = f"This takes {wanted}. Received: {request.method}"
    return Response(dump({"error": message}), status, headers, "application/json")


def run_server(
    models: Mapping[str, Any],
    host: str = "127.0.0.1",
    port: int = 8501,
    limits: ServingLimits | None = None,
    announce: Callable[[str], None] = print,
    costs: Mapping[str, Cost] | None = None,
) -> None:
    """Serve until interrupted. Requests that arrived before are still answered.

    Args:
        models, limits, costs: see `PredictionServer`.
        host, port: address to listen on; port 0 stands for any free port.
        announce: called with the server's URL as soon as it listens.
    """
    limits = ServingLimits() if limits is None else limits
    run_asgi(PredictionServer(models, limits, costs), host, port, announce, **uvicorn_settings(limits))


def uvicorn_settings(limits: ServingLimits) -> dict[str, Any]:
    """Return the settings of `uvicorn.Config` that enforce the limits on connections."""
    limits = replace(limits, max_connections=_allow_connections(limits.max_connections))
    return {
        "http": partial(LimitedConnection, limits),
        "ws": "none",
        "backlog": limits.max_connections,
        "timeout_keep_alive": 5,
        "timeout_graceful_shutdown": math.ceil(limits.timeout),
    }


def _allow_connections(number):
    """Raise the limit on open files if necessary, and return how many connections it allows.

    A burst of new connections is accepted before old ones are closed, so that each needs two files at worst.
    """
    try:
        import resource
    except ImportError:  # Windows has no such limit.
        return number
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * number + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return max(min(number, (soft - _OTHER_FILES) // 2), 1)
    return number


def run_asgi(application: Any, host: str, port: int, announce: Callable[[str], None], **settings: Any) -> None:
    """Serve an ASGI application until interrupted; for the arguments see `run_server`.

    Args:
        settings: further settings of `uvicorn.Config`.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise ValueError(f"Cannot listen on {host}, port {port}: {error}") from None
    # Uvicorn's own logging configuration would close existing handlers.
    config = uvicorn.Config(application, log_config=None, log_level="warning", server_header=False, **settings)
    announce(f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}")
    # Uvicorn raises the interrupt again after everything was answered.
    with listening, contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listening])
