"""This library's training step and search, as contenders of the benchmarks."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from our_models import make_input_feeding_model, make_model, make_transformer, sharpen, trainable_arrays
from presets import load
from workloads import CLIP_NORM, LEARNING_RATE, MAX_LENGTH, NEVER_WRITTEN, Workload

from attention_apps.decoding import DecodingOptions, beam_search
from attention_apps.training import TeacherForcing, TrainingConfig
from attention_apps.training.optimizer import AdamW
from attention_apps.training.train_step import TrainStep


class OurTraining:
    """The step that `fit` makes, traced for batches of any size."""

    def __init__(self, workload: Workload, batch: dict):
        keras.utils.set_random_seed(1)
        self.model = make_model(workload)
        self.first_weights = self.model.get_weights()
        self.batch = tf.nest.map_structure(tf.constant, batch)
        self.objective = TeacherForcing(self.model, TrainingConfig(label_smoothing=0.0))
        optimizer = AdamW(self.model.trainable_variables, lambda steps: LEARNING_RATE, clip_norm=CLIP_NORM)
        self.train_step = TrainStep(self.model, self.objective, optimizer, None, signature_of(batch))

    def run(self) -> float:
        """Makes a step and returns its loss."""
        figures = self.train_step([(self.batch,)], [(0, 0)])
        return float(figures[self.train_step.names.index("loss")])

    def weights(self) -> dict:
        """Those that the model began with."""
        self.model.set_weights(self.first_weights)
        return trainable_arrays(self.model)

    def outputs(self) -> dict[str, Any]:
        """Logits and the loss's gradients, with the first weights."""
        self.model.set_weights(self.first_weights)
        logits, gradients = tf.function(self._differentiate, autograph=False)()
        return {"logits": logits.numpy(), "gradients": trainable_arrays(self.model, gradients)}

    def _differentiate(self):
        with tf.GradientTape() as tape:
            losses, _, tokens = self.objective.losses(self.batch, tf.zeros(2, tf.int32), tf.constant(0))
            loss = losses["cross_entropy"] / tokens
        inputs = {"source": self.batch["source"], "tokens": self.batch["tokens"][..., :-1]}
        gradients = tape.gradient(loss, [variable.value for variable in self.model.trainable_variables])
        gradients = [None if gradient is None else tf.convert_to_tensor(gradient) for gradient in gradients]
        return self.model(inputs, training=True), gradients


class OurDecoding:
    """Encoder and beam search as one graph, traced for batches of any size."""

    make_model = staticmethod(make_model)

    def __init__(self, workload: Workload, batch: dict, beam_size: int):
        keras.utils.set_random_seed(1)
        self.model = self.make_model(workload)
        sharpen(self.model)
        self.source = tf.nest.map_structure(tf.constant, batch["source"])
        options = DecodingOptions(beam_size=beam_size, max_length=MAX_LENGTH, banned_tokens=NEVER_WRITTEN)

        def search(source):
            state = self.model.decoder.init_state(self.model.encode(source), MAX_LENGTH)
            return beam_search(self.model.decoder.step, state, options, normalized=self.model.decoder.normalized)

        self.search = tf.function(search, [signature_of(batch["source"])], autograph=False)

    def run(self) -> None:
        self.search(self.source).token_ids.numpy()

    def weights(self) -> dict:
        return trainable_arrays(self.model)

    def outputs(self) -> dict[str, Any]:
        """The best hypothesis of each item."""
        result = self.search(self.source)
        return {"token_ids": result.token_ids[:, 0].numpy(), "scores": result.scores[:, 0].numpy()}


class OurInputFeeding(OurDecoding):
    """The search with the recurrent decoder that other libraries have."""

    make_model = staticmethod(make_input_feeding_model)


class OurTransformer(OurDecoding):
    """The search with a Transformer."""

    make_model = staticmethod(make_transformer)


class OurRecognition:
    """Transcribes recordings with the Moonshine preset, greedily."""

    def __init__(self, waveforms: list[np.ndarray], sample_rate: int):
        self.recognizer = load("moonshine_tiny_english")
        self.waveforms, self.sample_rate = waveforms, sample_rate

    def run(self) -> None:
        self.outputs()

    def weights(self) -> dict:
        return {}

    def outputs(self) -> list[str]:
        inputs = [(waveform, self.sample_rate) for waveform in self.waveforms]
        return [self.recognizer.transcribe(each, beam_size=1, quiet=True).text for each in inputs]


def signature_of(arrays: Any) -> Any:
    """Any number of sources, targets and positions; only the features of a source are known."""

    def signature(array):
        known = 1 if array.dtype == "float32" else 0
        return tf.TensorSpec((None,) * (array.ndim - known) + array.shape[array.ndim - known :], array.dtype)

    return tf.nest.map_structure(signature, arrays)
