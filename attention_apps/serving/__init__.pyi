from .rest import Client, ServerError
from .saved_model import DEFAULT_SIGNATURE, TEXT_SIGNATURE, LoadedModel, Signature, export_saved_model, text_only
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
