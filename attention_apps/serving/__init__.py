"""Exported models: written as TensorFlow SavedModels, served over REST, and called.

Each name is imported when it is first asked for: the client needs no TensorFlow.
"""

import importlib

_HOMES = {
    "Client": "client",
    "ServerError": "client",
    "LoadedModel": "loaded_model",
    "PredictionServer": "server",
    "ServingLimits": "server",
    "Signature": "signature",
    "export_saved_model": "saved_model",
}

__all__ = list(_HOMES)


def __getattr__(name: str):
    if name in _HOMES:
        return getattr(importlib.import_module(f"attention_apps.serving.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'attention_apps.serving' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
