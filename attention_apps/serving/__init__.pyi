from .client import Client, ServerError
from .loaded_model import LoadedModel
from .saved_model import DEFAULT_SIGNATURE, TEXT_SIGNATURE, Signature, export_saved_model, text_only
from .server import PredictionServer, ServingLimits

__all__ = [
    "DEFAULT_SIGNATURE",
    "TEXT_SIGNATURE",
    "Client",
    "LoadedModel",
    "PredictionServer",
    "ServerError",
    "ServingLimits",
    "Signature",
    "export_saved_model",
    "text_only",
]
