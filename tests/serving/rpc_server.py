"""The gRPC interface of TensorFlow Serving for models in this process, as far as `Predict` goes."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import grpc
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Answers as `LoadedModel.predict` does."""

    def __init__(self, models):
        self.models = models

    def Predict(self, request, context):  # noqa: N802
        inputs = {name: tf.make_ndarray(tensor) for name, tensor in request.inputs.items()}
        signature = request.model_spec.signature_name or "serving_default"
        outputs = self.models[request.model_spec.name].predict(inputs, signature)
        tensors = {name: tf.make_tensor_proto(array) for name, array in outputs.items()}
        return predict_pb2.PredictResponse(outputs=tensors)


@contextlib.contextmanager
def running_rpc(models):
    """The address of a server on loopback."""
    server = grpc.server(ThreadPoolExecutor(2))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(PredictionService(models), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()
