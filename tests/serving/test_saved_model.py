"""The export of any function, here a small one; those of the applications are in `test_exported_*.py`."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from attention_apps.serving import LoadedModel, Signature, export_saved_model
from attention_apps.serving.warm_up import WARM_UP

WEIGHT = tf.Variable(np.full((300, 100), 0.5, np.float32))
TABLE = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2]), 0)


def answer(text):
    number = tf.cast(TABLE.lookup(text), tf.float32)
    score = tf.where(number > 0, number * tf.reduce_mean(WEIGHT), float("-inf"))
    return {"text": tf.strings.upper(text), "score": score}


def make_signature(function=answer):
    return Signature(
        function,
        {"text": tf.TensorSpec([None], tf.string)},
        {"text": ["a"]},
        {"text": "what is read"},
        {"text": "what is written", "score": "how good it is"},
        resources=[TABLE],
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exports") / "upper"
    signatures = {"serving_default": make_signature(), "again": make_signature()}
    assert export_saved_model(folder, signatures, "Writes large.", {"Search": "none"}) == folder / "1"
    return folder


def test_what_was_exported_answers(folder):
    model = LoadedModel(folder)
    outputs = model.predict({"text": ["a", "b"]})
    assert outputs["text"].tolist() == [b"A", b"B"]
    assert outputs["score"].tolist() == [0.5, 1.0]
    assert model.predict({"text": ["b"]}, "again")["score"].tolist() == [1.0]
    assert model.inputs["again"]["text"].shape == (None,)
    assert model.outputs["again"]["score"].dtype == "float32"


def test_a_score_is_always_a_number_that_json_has(folder):
    assert LoadedModel(folder).predict({"text": ["unknown"]})["score"] == tf.float32.min


def test_two_signatures_share_their_weights(folder):
    size = sum(path.stat().st_size for path in (folder / "1" / "variables").iterdir())
    assert 120_000 < size < 130_000


def test_equal_constants_of_a_function_are_stored_once(tmp_path):
    def add(text):
        halves = [tf.constant(0.5) for _ in range(4)]
        number = tf.where(text == "a", halves[0] + halves[1], halves[2] * tf.constant(3.0))
        return {"text": text, "score": tf.while_loop(lambda _: False, lambda one: one + halves[3], [number])[0]}

    folder = export_saved_model(tmp_path / "numbers", {"serving_default": make_signature(add)}, "")
    assert LoadedModel(folder).predict({"text": ["a", "b"]})["score"].tolist() == [1.0, 1.5]
    content = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    for function in content.meta_graphs[0].graph_def.library.function:
        constants = [node.attr["value"].tensor for node in function.node_def if node.op == "Const"]
        numbers = [
            float(tf.make_ndarray(one)) for one in constants if one.dtype == tf.float32 and not one.tensor_shape.dim
        ]
        assert len(numbers) == len(set(numbers))
        if "answer" in function.signature.name:
            assert {0.5, 3.0} <= set(numbers)


def test_the_next_export_is_the_next_version_and_no_half_one_is_ever_seen(folder, monkeypatch):
    def fail(text):
        raise ValueError("cannot be traced")

    with pytest.raises(ValueError, match="cannot be traced"):
        export_saved_model(folder, {"serving_default": make_signature(fail)}, "")
    assert [path.name for path in folder.iterdir()] == ["1"]
    export_saved_model(folder, {"serving_default": make_signature()}, "Writes large.")
    assert LoadedModel(folder).version == "2"
    assert LoadedModel(folder / "1").version == "1"


def test_the_card_names_inputs_and_outputs(folder):
    card = (folder / "1" / "README.md").read_text(encoding="utf-8")
    for line in (
        "# upper",
        "| `text` | string | (batch) | what is read |",
        "| `score` | float32 | (batch) | how good it is |",
        "- Search: none",
        "## Signature `again`",
    ):
        assert line in card.splitlines()


def test_the_warm_up_is_read_by_tensorflow_servings_own_messages(folder):
    logs = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    records = [record.numpy() for record in tf.data.TFRecordDataset(str(folder / "1" / WARM_UP))]
    requests = [logs.PredictionLog.FromString(record).predict_log.request for record in records]
    assert {request.model_spec.name for request in requests} == {"upper"}
    assert [request.model_spec.signature_name for request in requests] == ["serving_default"] * 2 + ["again"] * 2
    inputs = [tf.make_ndarray(request.inputs["text"]).tolist() for request in requests]
    assert inputs == [[b"a"], [b"a", b"a"]] * 2


def test_folders_that_hold_no_model_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        LoadedModel(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="holds no exported model"):
        LoadedModel(tmp_path)
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "saved_model.pb").write_bytes(b"\xff not a model")
    with pytest.raises(ValueError, match="not a SavedModel that can be loaded"):
        LoadedModel(tmp_path)
