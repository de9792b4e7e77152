"""The encoder of speech."""

import keras

from attention_apps.layers.pyramidal_bidirectional_lstm import PyramidalBidirectionalLSTM
from attention_apps.layers.recurrent import Recurrent
from attention_apps.models.convolutional_front_end import ConvolutionalFrontEnd, halved

_FRONT_ENDS = ("convolutional", "pyramidal")
_HALVINGS = 2


@keras.saving.register_keras_serializable(package="attention_apps")
class Listener(keras.layers.Layer):
    """Shortens a spectrogram to a quarter of its frames and listens to them in both directions.

    The front end halves the time twice. Each bidirectional layer adds to what it was given, which is then normalised:
    x ← LayerNorm(x + BLSTM(x)). A CTC head says of each position which letter it may belong to.

    Args:
        vocabulary_size: number of letters, for the CTC head; id 0 is the blank.
        units: width of one direction.
        num_layers: number of bidirectional layers after the front end.
        front_end: `"convolutional"` for two convolutions, `"pyramidal"` for two layers of
            `PyramidalBidirectionalLSTM`.
        filters: of each convolution.
        dropout: rate on what goes into each layer and on the memory.

    Call arguments:
        source: dict of `features` `(batch, time, mels)` and `mask`, boolean `(batch, time)`.

    Returns:
        The memory: `values` `(batch, ceil(time / 4), 2 * units)`, `mask`, `state` (the last states of the last layer)
        and `ctc_logits` `(batch, ceil(time / 4), vocabulary)`.

    Example:

    >>> listener = Listener(31, units=8)
    >>> source = {"features": keras.ops.ones((2, 9, 16)), "mask": keras.ops.ones((2, 9), "bool")}
    >>> memory = listener(source)
    >>> memory["values"].shape, memory["ctc_logits"].shape
    (TensorShape([2, 3, 16]), TensorShape([2, 3, 31]))

    Reference:
        Chan et al. 2016, "Listen, Attend and Spell", section 3.1; Kim et al. 2017, "Joint CTC-Attention Based
        End-to-End Speech Recognition Using Multi-Task Learning", section 2.3.
    """

    def __init__(
        self,
        vocabulary_size,
        units=192,
        num_layers=3,
        front_end="convolutional",
        filters=32,
        dropout=0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if front_end not in _FRONT_ENDS:
            raise ValueError(f"`front_end` must be one of {_FRONT_ENDS}. Received: front_end={front_end!r}")
        if num_layers < 1:
            raise ValueError(f"`num_layers` must be a positive integer. Received: num_layers={num_layers}")
        self.vocabulary_size = vocabulary_size
        self.units = units
        self.num_layers = num_layers
        self.front_end = front_end
        self.filters = filters
        self.dropout = dropout
        policy = self.dtype_policy
        self.reductions = self._make_reductions()
        self.recurrent_layers = [
            Recurrent(units, bidirectional=True, dtype=policy, name=f"layer_{index}") for index in range(num_layers)
        ]
        self.norms = [
            keras.layers.LayerNormalization(dtype=policy, name=f"norm_{index}") for index in range(num_layers + 1)
        ]
        self.drop = keras.layers.Dropout(dropout, dtype=policy)
        self.ctc_dense = keras.layers.Dense(vocabulary_size, dtype=policy, name="ctc")

    def _make_reductions(self):
        policy = self.dtype_policy
        if self.front_end == "convolutional":
            return [ConvolutionalFrontEnd(self.filters, 2 * self.units, _HALVINGS, dtype=policy, name="convolutions")]
        return [
            PyramidalBidirectionalLSTM(self.units, dtype=policy, name=f"pyramid_{index}") for index in range(_HALVINGS)
        ]

    def build(self, source_shape):
        width = source_shape["features"][-1]
        for reduction in self.reductions:
            reduction.build((None, None, width))
            width = 2 * self.units
        for layer in (*self.norms, *self.recurrent_layers, self.ctc_dense):
            layer.build((None, None, 2 * self.units))
        self.built = True

    def call(self, source):
        values, mask = source["features"], source["mask"]
        for reduction in self.reductions:
            values, mask = reduction(values, mask=mask)
        values = self.norms[0](values)
        for layer, norm in zip(self.recurrent_layers, self.norms[1:], strict=True):
            heard, state = layer(self.drop(values), mask=mask)
            values = norm(values + heard)
        values = self.drop(values)
        return {"values": values, "mask": mask, "state": state, "ctc_logits": self.ctc_dense(values)}

    def compute_output_shape(self, source_shape):
        batch, time, _ = source_shape["features"]
        for _ in range(_HALVINGS):
            time = halved(time)
        return {
            "values": (batch, time, 2 * self.units),
            "mask": (batch, time),
            "state": [(batch, self.units)] * 4,
            "ctc_logits": (batch, time, self.vocabulary_size),
        }

    def get_config(self):
        names = ("vocabulary_size", "units", "num_layers", "front_end", "filters", "dropout")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}
