"""An exported model, loaded into this process."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from attention_apps.serving.batcher import require_process
from attention_apps.serving.rest_format import TensorInfo
from attention_apps.serving.saved_model import DEFAULT_SIGNATURE, SAVED_MODEL, newest_version


class LoadedModel:
    """A SavedModel with inputs and outputs known by name.

    The graph of a SavedModel is a program: load only models that you would run. A process forked after the model was
    loaded cannot use it, because TensorFlow hangs there; `predict` then raises a `RuntimeError`.

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
        self.inputs = {name: _infos(one.structured_input_signature[1]) for name, one in self._functions.items()}
        self.outputs = {name: _infos(one.structured_outputs) for name, one in self._functions.items()}

    def predict(self, inputs: Mapping[str, Any], signature: str = DEFAULT_SIGNATURE) -> dict[str, np.ndarray]:
        """Returns the outputs for a batch of inputs."""
        require_process(self._process, "This model")
        function = self._functions[signature]
        specs = function.structured_input_signature[1]
        tensors = {name: tf.constant(inputs[name], spec.dtype) for name, spec in specs.items()}
        return {name: tensor.numpy() for name, tensor in function(**tensors).items()}


def _infos(specs):
    return {name: TensorInfo(spec.dtype.name, tuple(spec.shape)) for name, spec in specs.items()}
