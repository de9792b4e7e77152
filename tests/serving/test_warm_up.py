"""The file of requests, read back field by field with protobuf's own reader."""

import pytest
import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tensorflow.core.framework import tensor_pb2

from attention_apps.serving.signature import Signature
from attention_apps.serving.warm_up import WARM_UP, write_warm_up


@pytest.fixture(scope="module")
def prediction_log():
    """TensorFlow Serving's message, as far as it goes here."""
    pool = descriptor_pool.DescriptorPool()
    for name in ("tensor_shape", "types", "resource_handle", "tensor"):
        found = descriptor_pool.Default().FindFileByName(f"tensorflow/core/framework/{name}.proto")
        pool.AddSerializedFile(found.serialized_pb)
    file = descriptor_pb2.FileDescriptorProto(name="log.proto", package="log", syntax="proto3")
    file.dependency.append("tensorflow/core/framework/tensor.proto")
    kinds = descriptor_pb2.FieldDescriptorProto
    for message, fields in {
        "ModelSpec": [("name", 1, None), ("signature_name", 3, None)],
        "Entry": [("key", 1, None), ("value", 2, ".tensorflow.TensorProto")],
        "PredictRequest": [("model_spec", 1, ".log.ModelSpec"), ("inputs", 2, ".log.Entry")],
        "PredictLog": [("request", 1, ".log.PredictRequest")],
        "PredictionLog": [("predict_log", 6, ".log.PredictLog")],
    }.items():
        described = file.message_type.add(name=message)
        for name, number, kind in fields:
            label = kinds.LABEL_REPEATED if name == "inputs" else kinds.LABEL_OPTIONAL
            field = described.field.add(name=name, number=number, label=label)
            field.type = kinds.TYPE_STRING if kind is None else kinds.TYPE_MESSAGE
            if kind is not None:
                field.type_name = kind
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("log.PredictionLog"))


def test_each_signature_is_called_alone_and_as_a_batch(prediction_log, tmp_path):
    long_text = "long " * 5000  # its length takes more than one byte to say
    signature = Signature(
        lambda text, size: {"text": text},
        {"text": tf.TensorSpec([None], tf.string), "size": tf.TensorSpec([None, 2], tf.float32)},
        {"text": [long_text], "size": [[1.5, 2.0]]},
        {},
        {},
    )
    write_warm_up(tmp_path, "mine", {"serving_default": signature, "other": signature})
    records = [record.numpy() for record in tf.data.TFRecordDataset(str(tmp_path / WARM_UP))]
    requests = [prediction_log.FromString(record).predict_log.request for record in records]
    names = [request.model_spec.signature_name for request in requests]
    assert names == ["serving_default", "serving_default", "other", "other"]
    assert {request.model_spec.name for request in requests} == {"mine"}
    for request, size in zip(requests, (1, 2, 1, 2), strict=True):
        inputs = {
            entry.key: tf.make_ndarray(tensor_pb2.TensorProto.FromString(entry.value.SerializeToString()))
            for entry in request.inputs
        }
        assert inputs["text"].tolist() == [long_text.encode()] * size
        assert inputs["size"].tolist() == [[1.5, 2.0]] * size
