"""Requests that TensorFlow Serving answers to itself before it takes others: the first call of a graph is slow."""

from collections.abc import Mapping
from pathlib import Path

import tensorflow as tf

from attention_apps.serving.signature import Signature

WARM_UP = Path("assets.extra") / "tf_serving_warmup_requests"
_BATCH_SIZES = (1, 2)

# Numbers of fields in TensorFlow Serving's messages PredictionLog, PredictLog, PredictRequest and ModelSpec, and of
# any map's entries.
_PREDICT_LOG = 6
_REQUEST = 1
_MODEL_SPEC, _INPUTS = 1, 2
_NAME, _SIGNATURE_NAME = 1, 3
_KEY, _VALUE = 1, 2


def write_warm_up(folder: Path, model: str, signatures: Mapping[str, Signature]) -> None:
    """Writes the file into the folder of a version: each signature's example, alone and as a batch."""
    path = folder / WARM_UP
    path.parent.mkdir()
    with tf.io.TFRecordWriter(str(path)) as writer:
        for name, signature in signatures.items():
            for size in _BATCH_SIZES:
                writer.write(_prediction_log(model, name, _batch(signature, size)))


def _batch(signature, size):
    return {
        name: tf.constant(list(signature.example[name]) * size, spec.dtype) for name, spec in signature.inputs.items()
    }


def _prediction_log(model, signature, inputs):
    spec = _field(_NAME, model.encode()) + _field(_SIGNATURE_NAME, signature.encode())
    request = _field(_MODEL_SPEC, spec)
    for name, tensor in inputs.items():
        content = tf.make_tensor_proto(tensor).SerializeToString()
        request += _field(_INPUTS, _field(_KEY, name.encode()) + _field(_VALUE, content))
    return _field(_PREDICT_LOG, _field(_REQUEST, request))


def _field(number: int, content: bytes) -> bytes:
    """A field of a protocol buffer that holds bytes or another message."""
    return _number(number << 3 | 2) + _number(len(content)) + content


def _number(value: int) -> bytes:
    """Seven bits a byte, the low ones first, the eighth set on all but the last."""
    digits = []
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    return bytes([*digits, value])
