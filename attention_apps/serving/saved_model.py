"""Export functions as a TensorFlow SavedModel that needs neither this package nor Keras, and load it again.

An export is a folder of numbered versions, as TensorFlow Serving expects it: `NAME/1`, `NAME/2`. Each version holds the
graph, the weights, a card for people, and requests with which TensorFlow Serving warms up.
"""

import contextlib
import errno
import functools
import itertools
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from attention_apps import files
from attention_apps._version import __version__
from attention_apps.serving.batcher import require_process
from attention_apps.serving.rest import TensorInfo

DEFAULT_SIGNATURE = "serving_default"
"""Name of the signature that is used when a request names none."""
TEXT_SIGNATURE = "text"
"""Name of the signature that `text_only` is for."""
SAVED_MODEL = "saved_model.pb"
CARD = "README.md"
WARM_UP = Path("assets.extra") / "tf_serving_warmup_requests"
_TEXT_OUTPUTS = ("text", "score", "confidence", "unsure", "status")
_WARM_UP_BATCH_SIZES = (1, 2)
_VERSION = re.compile("[0-9]{1,18}")


@dataclass(frozen=True)
class Signature:
    """A function from raw input to text in graph code of core TensorFlow ops, and its documentation.

    Args:
        function: maps tensors by name to tensors by name, batch axis first. It never raises on data.
        inputs: shape and type of each input.
        example: a valid call, which a server uses to warm up.
        input_notes, output_notes: a description of each input and output.
        resources: lookup tables that the function uses.
        packages: packages that register ops outside of core TensorFlow. Import them before loading the model.
    """

    function: Callable[..., dict[str, tf.Tensor]]
    inputs: Mapping[str, tf.TensorSpec]
    example: Mapping[str, Sequence[Any]]
    input_notes: Mapping[str, str]
    output_notes: Mapping[str, str]
    resources: Sequence[Any] = ()
    packages: Sequence[str] = ()

    @functools.cached_property
    def graph(self) -> Any:
        """The concrete function, traced once."""

        def answer(**inputs):
            outputs = dict(self.function(**inputs))
            for name, tensor in outputs.items():
                if tensor.dtype.is_floating:
                    # Infinity is the score of a missing hypothesis; JSON cannot express it.
                    outputs[name] = tf.where(tf.math.is_finite(tensor), tensor, tensor.dtype.min)
            return outputs

        specs = {name: tf.TensorSpec(spec.shape, spec.dtype, name) for name, spec in self.inputs.items()}
        return tf.function(answer, autograph=False).get_concrete_function(**specs)


def text_only(signature: Signature) -> Signature:
    """Return a signature with the outputs that most callers want: text, score, confidence, unsure and status.

    It calls the graph of the given signature, so that an export with both stores graph and weights once. TensorFlow
    does not compute outputs that are left out.

    Example:
        {DEFAULT_SIGNATURE: signature, TEXT_SIGNATURE: text_only(signature)}
    """
    return replace(
        signature,
        function=lambda **inputs: {
            name: tensor for name, tensor in signature.graph(**inputs).items() if name in _TEXT_OUTPUTS
        },
        output_notes={name: note for name, note in signature.output_notes.items() if name in _TEXT_OUTPUTS},
    )


def export_saved_model(
    folder: str | os.PathLike, signatures: Mapping[str, Signature], title: str, notes: Mapping[str, str] | None = None
) -> Path:
    """Write `folder/1`, or the version after the newest.

    The version appears at once: a server that watches the folder never sees half of it. Exports that run at the same
    time get different versions.

    Args:
        folder: its name is the name of the model.
        signatures: by name; `"serving_default"` is the one used when a request names none.
        title: what the model does.
        notes: further lines of the card, by topic.

    Returns:
        The folder of the new version.
    """
    folder = Path(folder)
    next_version(folder)
    folder.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".export-", dir=folder))
    try:
        _save(signatures, temporary)
        _write_warm_up(temporary / WARM_UP, folder.name, signatures)
        card = make_card(folder.name, title, signatures, notes or {})
        files.write_file(temporary / CARD, card.encode())
        temporary.chmod(0o755)
        _sync(temporary)
        version = _rename_to_next_version(temporary, folder)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, tf.errors.OpError):  # of TensorFlow's own writes: a full disk
            raise OSError(f"{folder}: the export cannot be written: {error.message}") from error
        raise
    files.sync_folder(folder)
    return version


def _sync(folder):
    for path in folder.rglob("*"):
        if path.is_dir():
            files.sync_folder(path)
        else:
            with open(path, "rb") as file:
                files.sync(file)
    files.sync_folder(folder)


def _rename_to_next_version(temporary, folder):
    """Take the next number. Another export may have taken it since we looked: then its folder is not empty."""
    while True:
        version = folder / str(next_version(folder))
        try:
            files.rename(temporary, version)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        else:
            return version


# Versions


def versions(folder: Path) -> list[int]:
    """Return the version numbers in a folder, in ascending order."""
    if not folder.is_dir():
        return []
    return sorted(int(entry.name) for entry in folder.iterdir() if _VERSION.fullmatch(entry.name) and entry.is_dir())


def next_version(folder: Path) -> int:
    """Return the number after the newest; raises an error if the folder holds something other than versions."""
    entries = list(folder.iterdir()) if folder.is_dir() else []
    is_file = folder.exists() and not folder.is_dir()
    if is_file or any(not _VERSION.fullmatch(one.name) and not one.name.startswith(".") for one in entries):
        raise ValueError(f"`folder` must be new, empty, or hold exported versions. Received: folder={str(folder)!r}")
    return max(versions(folder), default=0) + 1


def newest_version(folder: Path) -> Path:
    """Return the folder of the newest version that holds a model."""
    for number in reversed(versions(folder)):
        if (folder / str(number) / SAVED_MODEL).is_file():
            return folder / str(number)
    raise ValueError(f"{folder}: holds no exported model; `export` writes one, as {folder / '1' / SAVED_MODEL}")


# The graph


def _save(signatures, folder):
    """Save from a plain module. Tracking Keras layers would store each weight twice."""
    graphs = {name: signature.graph for name, signature in signatures.items()}
    weights = {id(weight): weight for graph in graphs.values() for weight in graph.graph.variables}
    resources = {id(one): one for signature in signatures.values() for one in signature.resources}
    module = tf.Module()
    module.weights = list(weights.values())
    module.resources = list(resources.values())
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    with _without_info_lines():
        tf.saved_model.save(module, str(folder), signatures=graphs, options=options)
    _shrink(folder / SAVED_MODEL)


@contextlib.contextmanager
def _without_info_lines():
    """Keep "Assets written to" out of notebooks: it names a temporary folder."""
    logger = tf.get_logger()
    level = logger.level
    logger.setLevel(max(level, logging.WARNING))
    try:
        yield
    finally:
        logger.setLevel(level)


def _shrink(path):
    """Remove the parts of the graphs that only slow down loading and the first call."""
    content = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    for graph in (meta_graph.graph_def for meta_graph in content.meta_graphs):
        # Custom gradients are not saved. TensorFlow logs a long warning when it loads a graph that names them.
        for node in (*graph.node, *(node for function in graph.library.function for node in function.node_def)):
            node.attr.pop("_gradient_op_type", None)
        for function in graph.library.function:
            _share_constants(function)
    files.write_file(path, content.SerializeToString(deterministic=True))


def _share_constants(function):
    """Keep one of several equal constants. Tracing creates one per use: almost half of all nodes."""
    first, kept = {}, {}
    for node in function.node_def:
        if node.op == "Const" and not node.input:
            attributes = ((name, value.SerializeToString(deterministic=True)) for name, value in node.attr.items())
            kept[node.name] = first.setdefault((node.device, *sorted(attributes)), node.name)
    for number in reversed(range(len(function.node_def))):
        name = function.node_def[number].name
        if kept.get(name, name) != name:
            del function.node_def[number]
    for node in function.node_def:
        node.input[:] = [_with_kept_name(source, kept) for source in node.input]
    for name, source in function.ret.items():
        function.ret[name] = _with_kept_name(source, kept)


def _with_kept_name(source, kept):
    """Rename the constant in a node's data input, `constant:output:0`, or control input, `^constant`."""
    if source.startswith("^"):
        return f"^{kept.get(source[1:], source[1:])}"
    name, *output = source.split(":")
    return ":".join([kept.get(name, name) if output else name, *output])


# The card


def make_card(name: str, title: str, signatures: Mapping[str, Signature], notes: Mapping[str, str]) -> str:
    """Return the text of README.md: inputs, outputs, and how to serve the model."""
    packages = sorted({package for signature in signatures.values() for package in signature.packages})
    requirements = (
        f"with ops of other packages. Before loading it, `import {', '.join(packages)}`."
        if packages
        else "of core TensorFlow ops: it needs no other package."
    )
    sections = [f"# {name}\n", f"{title} A TensorFlow SavedModel {requirements}\n"]
    for signature_name, signature in signatures.items():
        sections.append(f"## Signature `{signature_name}`\n")
        sections.append(_table("input", signature.graph.structured_input_signature[1], signature.input_notes))
        sections.append(_table("output", signature.graph.structured_outputs, signature.output_notes))
    sections.append(
        "The batch axis comes first; a batch may have any size. A bad item gets an empty text and its `status`; the "
        "other items of its batch are not affected. The `score` of a missing hypothesis is the lowest float32.\n"
    )
    sections.append("".join(f"- {topic}: {note}\n" for topic, note in notes.items()))
    sections.append(f"""## Serve it

```
docker run -p 8501:8501 -v "$PWD/{name}:/models/{name}" -e MODEL_NAME={name} tensorflow/serving
attention-apps serve {name}        # the same REST format, for trying things out
```
""")
    sections.append(f"Written by attention_apps {__version__}.\n")
    return "\n".join(section for section in sections if section)


def _table(kind, specs, notes):
    lines = [f"| {kind} | type | shape | |", "|---|---|---|---|"]
    for name, spec in sorted(specs.items()):
        shape = ", ".join(["batch", *("*" if size is None else str(size) for size in spec.shape[1:])])
        lines.append(f"| `{name}` | {spec.dtype.name} | ({shape}) | {notes[name]} |")
    return "\n".join(lines) + "\n"


# The warm-up requests

# Field numbers of TensorFlow Serving's messages PredictionLog, PredictLog, PredictRequest and ModelSpec, and of map
# entries.
_PREDICT_LOG = 6
_REQUEST = 1
_MODEL_SPEC, _INPUTS = 1, 2
_NAME, _SIGNATURE_NAME = 1, 3
_KEY, _VALUE = 1, 2


def _write_warm_up(path, model, signatures):
    """Write each signature's example, alone and as a batch of two: the first call of a graph is slow."""
    path.parent.mkdir()
    with tf.io.TFRecordWriter(str(path)) as writer:
        for (name, signature), size in itertools.product(signatures.items(), _WARM_UP_BATCH_SIZES):
            model_spec = _field(_NAME, model.encode()) + _field(_SIGNATURE_NAME, name.encode())
            request = _field(_MODEL_SPEC, model_spec)
            for key, spec in signature.inputs.items():
                value = tf.make_tensor_proto(tf.constant(list(signature.example[key]) * size, spec.dtype))
                request += _field(_INPUTS, _field(_KEY, key.encode()) + _field(_VALUE, value.SerializeToString()))
            writer.write(_field(_PREDICT_LOG, _field(_REQUEST, request)))


def _field(number: int, content: bytes) -> bytes:
    """Encode a protocol buffer field that holds bytes or a message."""
    encoded = bytearray()
    for value in (number << 3 | 2, len(content)):
        # Seven bits per byte, low bits first; the eighth bit is set on all bytes but the last.
        while value > 127:
            encoded.append(value & 127 | 128)
            value >>= 7
        encoded.append(value)
    return bytes(encoded) + content


# Loading


class LoadedModel:
    """A SavedModel with inputs and outputs known by name.

    The graph of a SavedModel is a program: load only models that you would run. A process forked after the model was
    loaded cannot use it, because TensorFlow hangs there: `predict` raises a `RuntimeError`.

    Args:
        folder: a folder that `export` wrote, of which the newest version is loaded, or the folder of one version.

    Attributes:
        version: number of the version, as a string.
        inputs, outputs: for each signature, a `TensorInfo` by name.
    """

    def __init__(self, folder: str | os.PathLike):
        folder = Path(folder)
        if not folder.is_dir():
            raise FileNotFoundError(f"No folder of an exported model at {str(folder)!r}")
        self.folder = folder if (folder / SAVED_MODEL).is_file() else newest_version(folder)
        self.version = self.folder.name if self.folder.name.isdecimal() else "1"
        try:
            # The functions do not keep the variables alive; the model does.
            self._model = tf.saved_model.load(str(self.folder))
        except (tf.errors.OpError, OSError, ValueError) as error:
            raise ValueError(f"{self.folder}: not a SavedModel that can be loaded: {error}") from None
        self._process = os.getpid()
        self._functions = dict(self._model.signatures)
        self.inputs: dict[str, dict[str, TensorInfo]] = {}
        self.outputs: dict[str, dict[str, TensorInfo]] = {}
        for name, one in self._functions.items():
            described = (self.inputs, one.structured_input_signature[1]), (self.outputs, one.structured_outputs)
            for infos, specs in described:
                infos[name] = {key: TensorInfo(spec.dtype.name, tuple(spec.shape)) for key, spec in specs.items()}

    def predict(self, inputs: Mapping[str, Any], signature: str = DEFAULT_SIGNATURE) -> dict[str, np.ndarray]:
        """Return the outputs for a batch of inputs."""
        require_process(self._process, "This model")
        function = self._functions[signature]
        specs = function.structured_input_signature[1]
        tensors = {name: tf.constant(inputs[name], spec.dtype) for name, spec in specs.items()}
        return {name: tensor.numpy() for name, tensor in function(**tensors).items()}
