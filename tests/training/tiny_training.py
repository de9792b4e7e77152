"""A model and data so small that training takes a second: spell the source backwards."""

import csv

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from attention_apps.data.batches import Batches
from attention_apps.layers.sequence_ops import masked_softmax
from attention_apps.models.seq2seq import Seq2Seq
from attention_apps.training.config import TrainingConfig
from attention_apps.training.objectives import TeacherForcing
from attention_apps.training.trainer import Trainer

VOCABULARY = 9
SIGNATURE = {
    "source": {"token_ids": tf.TensorSpec((None,), tf.int32)},
    "tokens": tf.TensorSpec((None,), tf.int32),
}


class TinyEncoder(keras.layers.Layer):
    """Embeds the source, with dropout and batch normalization: what has a state next to the weights."""

    def __init__(self, vocabulary, dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        self.embedding = keras.layers.Embedding(vocabulary, 5, dtype=self.dtype_policy, name="embedding")
        self.drop = keras.layers.Dropout(dropout, dtype=self.dtype_policy)
        self.normalize = keras.layers.BatchNormalization(dtype=self.dtype_policy, name="normalize")
        self.normalizes = dropout > 0

    def build(self, source_shape):
        self.embedding.build((None, None))
        self.normalize.build((None, None, 5))
        self.built = True

    def call(self, source):
        values = self.drop(self.embedding(source["token_ids"]))
        values = self.normalize(values) if self.normalizes else values
        return {"values": values, "mask": source["token_ids"] != 0}

    def compute_output_shape(self, source_shape):
        batch, length = source_shape["token_ids"]
        return {"values": (batch, length, 5), "mask": (batch, length)}


class TinyAttention(keras.layers.Layer):
    """The attention layer's contract in a few operations."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.query_dense = keras.layers.Dense(5, dtype=self.dtype_policy, name="query")

    def build(self, query_shape, value_shape):
        self.query_dense.build(query_shape)
        self.built = True

    def prepare(self, value):
        return value

    def init_state(self, value):
        return {}

    def call(self, query, value, value_mask=None, prepared=None, state=None):
        scores = ops.matmul(self.query_dense(query), ops.swapaxes(value, 1, 2))
        weights = masked_softmax(scores, None if value_mask is None else value_mask[:, None])
        return ops.matmul(weights, value), weights, state or {}


class TinyDecoder(keras.layers.Layer):
    """Attends with the last token alone: the decoder's contract without a recurrence, quick to trace."""

    def __init__(self, vocabulary, attention=None, **kwargs):
        super().__init__(**kwargs)
        self.vocabulary_size = vocabulary
        self.embedding = keras.layers.Embedding(vocabulary, 6, dtype=self.dtype_policy, name="embedding")
        self.attention = attention or TinyAttention(dtype=self.dtype_policy, name="attention")
        self.output_dense = keras.layers.Dense(vocabulary, dtype=self.dtype_policy, name="output")

    def build(self, tokens_shape, memory_shape):
        self.embedding.build((None, None))
        self.attention.build((None, None, 6), memory_shape["values"])
        self.output_dense.build((None, None, 11))
        self.built = True

    def call(self, tokens, memory, return_dict=False):
        rows, shape = ops.reshape(tokens, (ops.shape(memory["values"])[0], -1)), ops.shape(tokens)
        query = self.embedding(rows)
        context, weights, state = self.attention(query, memory["values"], value_mask=memory["mask"])
        logits = self.output_dense(ops.concatenate([query, context], axis=-1))
        logits = ops.reshape(logits, (*shape, self.vocabulary_size))
        weights = ops.reshape(weights, (*shape, ops.shape(weights)[-1]))
        return {"logits": logits, "attention": weights, "attention_state": state} if return_dict else logits

    def init_state(self, memory, max_length=None):
        return {"values": memory["values"], "mask": memory["mask"]}

    def step(self, token, state):
        return self(token[:, None], state)[:, 0], state


def make_examples(count=30, seed=5):
    random = np.random.default_rng(seed)
    examples = []
    for _ in range(count):
        letters = random.integers(4, VOCABULARY, random.integers(2, 6))
        examples.append({"source": {"token_ids": letters}, "tokens": np.array([1, *letters[::-1], 2])})
    return examples


def make_batches(examples=None, batch_size=8, **options):
    examples = make_examples() if examples is None else examples
    lengths = [len(example["tokens"]) for example in examples]
    return Batches(examples, SIGNATURE, batch_size=batch_size, lengths=lengths, threads=1, **options)


def make_model(seed=1, dropout=0.0, vocabulary=VOCABULARY, dtype=None, attention=None):
    keras.utils.set_random_seed(seed)
    encoder = TinyEncoder(vocabulary, dropout, dtype=dtype)
    model = Seq2Seq(encoder, TinyDecoder(vocabulary, attention, dtype=dtype), dtype=dtype)
    model.build({"source": {"token_ids": (None, None)}, "tokens": (None, None)})
    return model


def make_config(**changes):
    defaults = {"epochs": 3, "learning_rate": 0.01, "schedule": "constant", "label_smoothing": 0.0}
    return TrainingConfig(**{**defaults, **changes})


def weights_of(model):
    return [keras.ops.convert_to_numpy(weight) for weight in model.weights]


def teacher_forced_accuracy(model):
    """A validation that generates nothing: the share of right tokens."""
    batch = next(iter(make_batches(batch_size=30).batches(0)))
    logits = model({"source": batch["source"], "tokens": batch["tokens"][:, :-1]})
    targets = batch["tokens"][:, 1:]
    right = tf.boolean_mask(tf.argmax(logits, -1, tf.int32) == targets, targets != 0)
    accuracy = float(tf.reduce_mean(tf.cast(right, tf.float32)))
    return {"metrics": {"accuracy": accuracy}, "samples": [("a source", "a reference", "a text")]}


def fit(folder, config=None, model=None, batches=None, restart=False, extra_loss=None, validate=None, **options):
    model = make_model() if model is None else model
    config = make_config() if config is None else config
    batches = make_batches() if batches is None else batches
    objective = TeacherForcing(model, config, extra_loss)
    trainer = Trainer(model, batches, config, folder, objective, validate, quiet=True, **options)
    return trainer.fit(restart), model, trainer


def read_table(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def assert_equal_weights(one, other):
    for a, b in zip(weights_of(one), weights_of(other), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def given_values(name, values):
    """A validation that returns these values one after the other, and the weights it has seen."""
    seen = []

    def validate(model):
        seen.append(weights_of(model))
        return {"metrics": {name: values[len(seen) - 1]}}

    return validate, seen
