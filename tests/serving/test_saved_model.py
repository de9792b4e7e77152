"""The export of a small function; the applications' exports are in `test_exported_*.py`."""

import logging
import os
import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tensorflow.core.framework import tensor_pb2
from tensorflow.core.protobuf import saved_model_pb2

from attention_apps import files
from attention_apps.serving import (
    DEFAULT_SIGNATURE,
    TEXT_SIGNATURE,
    LoadedModel,
    Signature,
    export_saved_model,
    saved_model,
    text_only,
)
from attention_apps.serving.saved_model import WARM_UP, newest_version, next_version, versions
from tests.fault_injection import every_error, every_kill, leftovers
from tests.fuzz.lab import TEXT, Lab

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


def test_an_export_writes_no_log_lines_where_tensorflow_shows_them(tmp_path, monkeypatch, caplog):
    logger = tf.get_logger()
    monkeypatch.setattr(logger, "level", logging.INFO)  # as in a notebook
    monkeypatch.setattr(logger, "propagate", True)
    export_saved_model(tmp_path / "quiet", {"serving_default": make_signature()}, "Writes large.")
    assert caplog.records == []
    assert logger.level == logging.INFO


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


def test_the_next_export_is_the_next_version_and_a_failed_one_leaves_nothing(folder):
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


def test_the_text_signature_shares_graph_and_weights(tmp_path):
    def explain(text):
        outputs = answer(text)
        return outputs | {
            "attention": outputs["score"][:, tf.newaxis] * WEIGHT[0],
            "status": tf.fill(tf.shape(text), "ok"),
        }

    notes = {"text": "what is written", "score": "how good it is", "attention": "a large one", "status": "`ok`"}
    spec = {"text": tf.TensorSpec([None], tf.string)}
    signature = Signature(explain, spec, {"text": ["a"]}, {"text": "what is read"}, notes, resources=[TABLE])
    both = {DEFAULT_SIGNATURE: signature, TEXT_SIGNATURE: text_only(signature)}
    alone = export_saved_model(tmp_path / "alone", {DEFAULT_SIGNATURE: signature}, "")
    folder = export_saved_model(tmp_path / "both", both, "")
    model = LoadedModel(folder)
    full, short = (model.predict({"text": ["a", "b"]}, name) for name in both)
    assert set(full) == {"text", "score", "attention", "status"}
    assert set(short) == {"text", "score", "status"}
    for name, array in short.items():
        np.testing.assert_array_equal(array, full[name])
    assert "## Signature `text`" in (folder / "README.md").read_text(encoding="utf-8")
    sizes = [(one / "variables" / "variables.data-00000-of-00001").stat().st_size for one in (alone, folder)]
    assert sizes[1] - sizes[0] < 1000
    assert count_nodes(folder, "Mul") == count_nodes(alone, "Mul") > 0


def count_nodes(folder, op):
    content = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    functions = content.meta_graphs[0].graph_def.library.function
    return sum(node.op == op for function in functions for node in function.node_def)


def test_exports_at_the_same_time_get_different_versions(tmp_path):
    def export(_):
        return export_saved_model(tmp_path / "many", {DEFAULT_SIGNATURE: make_signature()}, "").name

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(export, range(4))) == ["1", "2", "3", "4"]
    assert sorted(path.name for path in (tmp_path / "many").iterdir()) == ["1", "2", "3", "4"]
    for number in "1234":
        assert LoadedModel(tmp_path / "many" / number).predict({"text": ["a"]})["score"].tolist() == [0.5]


def test_a_version_taken_by_another_process_is_left_alone(tmp_path, monkeypatch):
    rename, folder = files.rename, tmp_path / "busy"

    def rename_too_late(source, target):
        if target.name == "1":
            target.mkdir()
            (target / "saved_model.pb").write_bytes(b"of another process")
        rename(source, target)

    monkeypatch.setattr(files, "rename", rename_too_late)
    assert export_saved_model(folder, {DEFAULT_SIGNATURE: make_signature()}, "") == folder / "2"
    assert (folder / "1" / "saved_model.pb").read_bytes() == b"of another process"


@pytest.mark.parametrize("faults", [every_error, every_kill])
def test_a_failed_export_leaves_whole_versions_only(tmp_path, monkeypatch, faults):
    folder, signatures, found = tmp_path / "model", {DEFAULT_SIGNATURE: make_signature()}, set()
    whole = export_saved_model(tmp_path / "whole", signatures, "")
    if faults is every_kill:  # TensorFlow hangs in a forked process, so a copy stands for what it writes

        def copy(signatures, temporary):
            shutil.copytree(whole, temporary, dirs_exist_ok=True)
            files.write_file(temporary / "saved_model.pb", (whole / "saved_model.pb").read_bytes())

        monkeypatch.setattr(saved_model, "_save", copy)
        monkeypatch.setattr(saved_model, "_write_warm_up", lambda *_: None)

    def prepare():
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(whole, folder / "1")

    for _ in faults(monkeypatch, lambda: export_saved_model(folder, signatures, ""), prepare):
        found.add(tuple(versions(folder)))
        assert LoadedModel(folder).predict({"text": ["a"]})["score"].tolist() == [0.5]
        assert faults is every_kill or leftovers(folder) == []
    assert found == {(1,), (1, 2)}


def test_an_export_to_a_full_disk_is_an_error_that_names_the_folder(tmp_path):
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        with pytest.raises(OSError, match="full: the export cannot be written: .*File too large"):
            export_saved_model(tmp_path / "full", {DEFAULT_SIGNATURE: make_signature()}, "")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list((tmp_path / "full").iterdir()) == []


def test_folders_that_hold_no_model_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        LoadedModel(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="holds no exported model"):
        LoadedModel(tmp_path)
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "saved_model.pb").write_bytes(b"\xff not a model")
    with pytest.raises(ValueError, match="not a SavedModel that can be loaded"):
        LoadedModel(tmp_path)


def make_versions(folder, *names):
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "saved_model.pb").touch()


def test_versions_are_numbers(tmp_path):
    make_versions(tmp_path, "2", "10", "1")
    assert versions(tmp_path) == [1, 2, 10]
    assert next_version(tmp_path) == 11
    assert newest_version(tmp_path) == tmp_path / "10"


def test_a_new_or_empty_folder_begins_with_one(tmp_path):
    assert next_version(tmp_path) == next_version(tmp_path / "new") == 1


def test_a_version_without_a_model_is_passed_over(tmp_path):
    make_versions(tmp_path, "1")
    (tmp_path / "2").mkdir()
    assert newest_version(tmp_path) == tmp_path / "1"


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(ValueError, match="`folder` must be new, empty, or hold exported versions"):
        next_version(tmp_path)
    with pytest.raises(ValueError, match="must be new, empty"):
        next_version(tmp_path / "thesis.txt")
    with pytest.raises(ValueError, match="holds no exported model"):
        newest_version(tmp_path)


@pytest.fixture(scope="module")
def prediction_log():
    """The part of TensorFlow Serving's message that is used here."""
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
        {"text": [long_text], "size": [np.array([1.5, 2.0], np.float32)]},
        {"text": "", "size": ""},
        {"text": ""},
    )
    folder = export_saved_model(tmp_path / "mine", {"serving_default": signature, "other": signature}, "")
    records = [record.numpy() for record in tf.data.TFRecordDataset(str(folder / WARM_UP))]
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


pytestmark = pytest.mark.slow

# `--fuzz-cases` asks for more calls, up to the second number.
CALLS, MOST_CALLS, WARM_UPS = 300, 2_000, 150
NAMES = {"captioner": "image_bytes", "recognizer": "audio_bytes", "summarizer": "text", "compressor": "text"}


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    return Lab(tmp_path_factory.mktemp("lab"))


def inputs_of(lab, name):
    """Good ones of several sizes, and bad ones."""
    if name == "captioner":
        return [*lab.photos.values(), b"", b"no photo", lab.photos["PNG"][:60]]
    if name == "recognizer":
        return [*lab.recordings.values(), b"", b"no recording", lab.recordings["WAV PCM_16"][:60]]
    return [TEXT.encode(), TEXT[:58].encode(), 3 * TEXT.encode(), b"", b"two words", b"broken \xff bytes are here"]


def resident_bytes():
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


@pytest.mark.parametrize("name", NAMES)
def test_many_calls_of_mixed_sizes_take_no_more_memory(name, lab, request):
    model, items, chance = lab.export(name), inputs_of(lab, name), random.Random(0)

    def call(times):
        for _ in range(times):
            model.predict({NAMES[name]: [chance.choice(items) for _ in range(chance.choice((1, 2, 3, 5)))]})

    call(WARM_UPS)
    before = resident_bytes()
    call(min(max(CALLS, request.config.getoption("--fuzz-cases")), MOST_CALLS))
    assert resident_bytes() - before < 24e6


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_fails_at_once_instead_of_hanging(lab):
    model = lab.export("summarizer")
    model.predict({"text": [TEXT]})
    child = os.fork()
    if child == 0:
        try:
            model.predict({"text": [TEXT]})
        except RuntimeError as error:
            os._exit(0 if "before this process was forked" in str(error) else 2)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
