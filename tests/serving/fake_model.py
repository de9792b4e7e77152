"""A model without TensorFlow, and a server for it."""

import contextlib
import threading
import time
from typing import ClassVar

import numpy as np
import pytest

from attention_apps.serving.rest import TensorInfo

uvicorn = pytest.importorskip("uvicorn", reason="the server needs the extra `serve`")
pytest.importorskip("starlette", reason="the server needs the extra `serve`")


class FakeModel:
    """Reverses bytes, and returns how many rows were in the batch."""

    version = "3"
    inputs: ClassVar = {
        "serving_default": {"image_bytes": TensorInfo("string", (None,))},
        "numbers": {"waveform": TensorInfo("float32", (None, None)), "length": TensorInfo("int32", (None,))},
    }
    outputs: ClassVar = {
        "serving_default": {"text": TensorInfo("string", (None, 1)), "rows": TensorInfo("int32", (None,))},
        "numbers": {"total": TensorInfo("float32", (None,))},
    }

    def __init__(self, seconds=0.0):
        self.seconds = seconds
        self.calls = []

    def predict(self, inputs, signature="serving_default"):
        self.calls.append({name: len(array) for name, array in inputs.items()})
        time.sleep(self.seconds)
        if signature == "numbers":
            return {"total": inputs["waveform"].sum(axis=1) + inputs["length"]}
        images = inputs["image_bytes"]
        if b"poison" in images.tolist():
            raise RuntimeError("a secret of the inside")
        texts = np.array([[image[::-1]] for image in images], dtype=object)
        return {"text": texts, "rows": np.full(len(images), len(images), np.int32)}


@contextlib.contextmanager
def running(models, costs=None, **limits):
    """As `running_application`, with a `PredictionServer` and its limits on connections."""
    from attention_apps.serving.server import PredictionServer, ServingLimits, uvicorn_settings

    limits = ServingLimits(**limits)
    application = PredictionServer(models, limits, costs)
    with running_application(application, **uvicorn_settings(limits)) as (url, server):
        yield url, server


@contextlib.contextmanager
def running_application(application, **settings):
    """Yields the URL of a server on loopback, and the server; stops it at the end as Ctrl-C does."""
    server = uvicorn.Server(uvicorn.Config(application, host="127.0.0.1", port=0, log_level="error", **settings))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        deadline = time.monotonic() + 30
        while not server.started and time.monotonic() < deadline:
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}", server
    finally:
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive()
