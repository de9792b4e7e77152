"""The same training step and search with a plain `keras.layers.RNN`, as contenders of the benchmarks."""

from typing import Any

import keras
import tensorflow as tf
from keras_applications import KerasCaptioner, KerasRecognizer, KerasSummarizer
from parity import compare_outputs, compare_searches
from workloads import BETAS, CLIP_NORM, EPSILON, LEARNING_RATE, MAX_LENGTH, NEVER_WRITTEN, START, Workload

MODELS = {"captioner": KerasCaptioner, "recognizer": KerasRecognizer, "summarizer": KerasSummarizer}


class KerasTraining:
    """One graph for forward, backward and Keras' Adam, for batches of one size."""

    def __init__(self, workload: Workload, batch: dict, weights: dict):
        self.first_weights = weights
        self.model = MODELS[workload.application](workload)
        load_weights(self.model, weights)
        self.batch = tf.nest.map_structure(tf.constant, batch)
        self.optimizer = keras.optimizers.Adam(LEARNING_RATE, *BETAS, EPSILON, global_clipnorm=CLIP_NORM)
        self.optimizer.build(self.model.trainable_variables)
        self.train_step = tf.function(self._train_step, autograph=False)

    def run(self) -> float:
        """Makes a step and returns its loss."""
        return float(self.train_step())

    def _train_step(self):
        variables = self.model.trainable_variables
        with tf.GradientTape() as tape:
            loss = self.model.loss(**self.batch)
        gradients = tape.gradient(loss, [variable.value for variable in variables])
        self.optimizer.apply(gradients, variables)
        return loss

    def compare(self, reference: dict[str, Any]) -> dict[str, float]:
        """How far logits and gradients are from the reference's, with the first weights."""
        load_weights(self.model, self.first_weights)
        assignments = self.model.assignments(reference["gradients"])
        variables = [variable.value for variable, _ in assignments]

        @tf.function(autograph=False)
        def differentiate():
            with tf.GradientTape() as tape:
                loss = self.model.loss(**self.batch)
            logits = self.model.logits(self.batch["source"], self.batch["tokens"][..., :-1])
            return logits, [tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss, variables)]

        logits, gradients = differentiate()
        names = [f"{number} {variable.path}" for number, (variable, _) in enumerate(assignments)]
        ours = dict(zip(names, (array for _, array in assignments), strict=True))
        theirs = {name: gradient.numpy() for name, gradient in zip(names, gradients, strict=True)}
        return compare_outputs(reference["logits"], logits.numpy(), ours, theirs)


class KerasDecoding:
    """The cell's step as a graph, called from a loop in Python that keeps the beams."""

    def __init__(self, workload: Workload, batch: dict, beam_size: int, weights: dict):
        self.model = MODELS[workload.application](workload)
        load_weights(self.model, weights)
        self.beam_size = beam_size
        self.source = tf.nest.map_structure(tf.constant, batch["source"])
        self.begin = tf.function(self._begin, autograph=False)
        self.step = tf.function(self._step, autograph=False)

    def _begin(self):
        repeated = tf.nest.map_structure(lambda array: tf.repeat(array, self.beam_size, axis=0), self.source)
        states = self.model.begin(repeated)
        return repeated, self.model.decoder.cell.values, states

    def _step(self, token, source, values, states):
        self.model.decoder.cell.values = values
        return self.model.log_probs(token, states, source)

    def run(self) -> None:
        self._search()

    def compare(self, reference: dict[str, Any]) -> dict[str, float]:
        token_ids, scores = self._search()
        return compare_searches(reference, token_ids.numpy(), scores.numpy())

    def _search(self):
        """No hypothesis ends, so that there is nothing to keep but the live ones."""
        source, values, states = self.begin()
        batch, beams = len(values) // self.beam_size, self.beam_size
        totals = tf.tile([[0.0] + [-float("inf")] * (beams - 1)], (batch, 1))
        tokens = tf.zeros((batch, beams, 0), tf.int32)
        last = tf.fill((batch * beams,), START)
        for _ in range(MAX_LENGTH):
            log_probs, states = self.step(last, source, values, states)
            vocabulary = log_probs.shape[1]
            log_probs += tf.reduce_sum(tf.one_hot(NEVER_WRITTEN, vocabulary, -float("inf"), 0.0), axis=0)
            sums = totals[:, :, None] + tf.reshape(log_probs, (batch, beams, vocabulary))
            totals, index = tf.math.top_k(tf.reshape(sums, (batch, -1)), beams)
            parents, words = index // vocabulary, index % vocabulary
            tokens = tf.concat([tf.gather(tokens, parents, batch_dims=1), words[:, :, None]], axis=2)
            rows = tf.reshape(parents + tf.range(batch)[:, None] * beams, (-1,))
            states = [tf.gather(state, rows) for state in states]
            last = tf.reshape(words, (-1,))
        return tokens[:, 0], totals[:, 0]


def load_weights(model: keras.layers.Layer, weights: dict) -> None:
    for variable, array in model.assignments(weights):
        variable.assign(array)
