"""An application as a TensorFlow SavedModel, which needs neither this package nor Keras."""

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from attention_apps.serving.model_card import make_card
from attention_apps.serving.signature import Signature
from attention_apps.serving.versions import SAVED_MODEL, next_version
from attention_apps.serving.warm_up import write_warm_up

CARD = "README.md"


def export_saved_model(
    folder: str | os.PathLike, signatures: Mapping[str, Signature], title: str, notes: Mapping[str, str] | None = None
) -> Path:
    """Writes `folder/1`, or the version after the newest, as a whole: a server that watches sees all of it or nothing.

    Args:
        folder: named as the model is to be called.
        signatures: by name; the one that is taken where none is named is `"serving_default"`.
        title: what the model does.
        notes: further lines of the card, by what they are about.

    Returns:
        The folder of the new version.
    """
    folder = Path(folder)
    version = folder / str(next_version(folder))
    folder.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{version.name}-", dir=folder))
    try:
        graphs = {name: signature.trace() for name, signature in signatures.items()}
        _save(graphs, signatures, temporary)
        write_warm_up(temporary, folder.name, signatures)
        (temporary / CARD).write_text(make_card(folder.name, title, signatures, graphs, notes or {}), encoding="utf-8")
        temporary.chmod(0o755)
        temporary.rename(version)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return version


def _save(graphs, signatures, folder):
    """Each weight is stored once: Keras' own layers, were they tracked, would bring theirs along a second time."""
    weights = {id(weight): weight for graph in graphs.values() for weight in graph.graph.variables}
    module = tf.Module()
    module.weights = list(weights.values())
    module.resources = [resource for signature in signatures.values() for resource in signature.resources]
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    tf.saved_model.save(module, str(folder), signatures=graphs, options=options)
    _tidy(folder / SAVED_MODEL)


def _tidy(path):
    """Leaves out of the graphs what only makes loading and the first call longer."""
    content = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    for graph in (meta_graph.graph_def for meta_graph in content.meta_graphs):
        _forget_custom_gradients(graph)
        for function in graph.library.function:
            _share_constants(function)
    path.write_bytes(content.SerializeToString(deterministic=True))


def _forget_custom_gradients(graph):
    """Ours are for training and are not saved; whoever loads a graph that names them is warned of that at length."""
    for node in (*graph.node, *(node for function in graph.library.function for node in function.node_def)):
        node.attr.pop("_gradient_op_type", None)


def _share_constants(function):
    """Keeps one of each constant: tracing makes another at each use, and so they are near half of all nodes."""
    first, kept = {}, {}
    for node in function.node_def:
        if node.op == "Const" and not node.input:
            kept[node.name] = first.setdefault(_constant(node), node.name)
    for number in reversed(range(len(function.node_def))):
        name = function.node_def[number].name
        if kept.get(name, name) != name:
            del function.node_def[number]
    for node in function.node_def:
        node.input[:] = [_of_kept(source, kept) for source in node.input]
    for name, source in function.ret.items():
        function.ret[name] = _of_kept(source, kept)


def _constant(node):
    """What is the same of two that are one."""
    attributes = ((name, value.SerializeToString(deterministic=True)) for name, value in node.attr.items())
    return node.device, *sorted(attributes)


def _of_kept(source, kept):
    """What a node reads, `constant:output:0`, or waits for, `^constant`, by the name of the constant that was kept."""
    if source.startswith("^"):
        return f"^{kept.get(source[1:], source[1:])}"
    name, *output = source.split(":")
    return ":".join([kept.get(name, name) if output else name, *output])
