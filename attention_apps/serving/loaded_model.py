"""An exported model in this process."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from attention_apps.serving.rest_format import TensorInfo
from attention_apps.serving.versions import SAVED_MODEL, newest_version


class LoadedModel:
    """A SavedModel that answers, its inputs and outputs known by name.

    The graph of a SavedModel is a program; load only those that you would run.

    Args:
        folder: what `export` wrote, of which the newest version is taken, or one version of it.

    Attributes:
        version: its number as a string.
        inputs, outputs: for each signature, a `TensorInfo` by name.
    """

    def __init__(self, folder: str | os.PathLike):
        folder = Path(folder)
        if not folder.is_dir():
            raise FileNotFoundError(f"No folder of an exported model at {str(folder)!r}")
        self.folder = folder if (folder / SAVED_MODEL).is_file() else newest_version(folder)
        self.version = self.folder.name if self.folder.name.isdecimal() else "1"
        try:
            # Kept, for the weights go when it does.
            self._model = tf.saved_model.load(str(self.folder))
        except (tf.errors.OpError, OSError, ValueError) as error:
            raise ValueError(f"{self.folder}: not a SavedModel that can be loaded: {error}") from None
        self._functions = dict(self._model.signatures)
        self.inputs = {name: _infos(one.structured_input_signature[1]) for name, one in self._functions.items()}
        self.outputs = {name: _infos(one.structured_outputs) for name, one in self._functions.items()}

    def predict(self, inputs: Mapping[str, Any], signature: str = "serving_default") -> dict[str, np.ndarray]:
        """The outputs for a batch of inputs."""
        function = self._functions[signature]
        specs = function.structured_input_signature[1]
        tensors = {name: tf.constant(inputs[name], spec.dtype) for name, spec in specs.items()}
        return {name: tensor.numpy() for name, tensor in function(**tensors).items()}


def _infos(specs):
    return {name: TensorInfo(spec.dtype.name, tuple(spec.shape)) for name, spec in specs.items()}
