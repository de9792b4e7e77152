"""The recurrent decoder and its output layers."""

import keras
from keras import ops

from attention_apps.constants import END, PADDING
from attention_apps.decoding.scorers import PER_ITEM
from attention_apps.layers.additive_attention import takes_single_step
from attention_apps.layers.constructor_config import ConstructorConfig
from attention_apps.layers.recurrent import DecoderCell
from attention_apps.layers.sequence_ops import scan_time
from attention_apps.models.seq2seq import Decoder, repeat_for_targets

# The entries of its state that hard attention sums over a target. Positions after the end token must not count.
_SUMS = {"log_prob", "entropy"}
_ATTEND = ("before", "after")
_GATES = (None, "scalar", "vector")
_INITIAL_STATES = ("mean", "last", "zeros")


@keras.saving.register_keras_serializable(package="attention_apps")
class RecurrentDecoder(ConstructorConfig, Decoder):
    """LSTM or GRU that writes a target while attending to a memory.

    Call it for teacher forcing; use `init_state` and `step` for a search. Several targets of one source,
    `(batch, targets, target)`, share its projected memory.

    Args:
        vocabulary_size: Number of words. Ids beyond it (copied words) are embedded as the unknown word.
        embedding_dim: Width of the embeddings.
        units: Width of the recurrent state.
        attention: An attention layer, or `None` for the plain encoder-decoder.
        cell: `"lstm"` or `"gru"`.
        num_layers: Number of recurrent layers.
        attend: `"before"` the recurrent step, with the previous state as the query and the context as an input
            (Bahdanau et al. 2015); or `"after"` it, for all steps at once, with the context used for the output only
            (Luong et al. 2015).
        input_feeding: Whether the attentional vector is an input of the next step (Luong et al. 2015, 3.3).
        context_gate: `"scalar"` multiplies the context by β = σ(W h), Xu et al. 2015, 4.2.1; `"vector"` has a β for
            each feature; `None` has no gate. Needs `attend="before"`.
        deep_output: Whether the output layer also sees the last word (Xu et al. 2015, eq. 7).
        tied_embeddings: Whether the output layer uses the embedding matrix.
        dropout: Dropout rate on embeddings, between layers, and before the output.
        variational: Whether a sequence keeps one dropout mask for all steps (Gal and Ghahramani 2016).
        initial_state: From the `"mean"` of the memory, the encoder's `"last"` state, or `"zeros"`.

    Call arguments:
        tokens: `(batch, target)` or `(batch, targets, target)`, starting with the start token.
        memory: The encoder's dict: `values` `(batch, source, dim)`, `mask` `(batch, source)`, `state` for `"last"`.
        return_dict: Whether to return a dict instead of the logits.

    Returns:
        Logits `(batch, target, vocabulary)`; or a dict of `logits`, `attention` `(batch, target, source)` (`None`
        without an attention layer), `features` of each step, and `attention_state`. They have a `targets` axis after
        the batch if the tokens have one.

    Example:

    >>> from attention_apps.layers import AdditiveAttention
    >>> decoder = RecurrentDecoder(100, 8, 16, attention=AdditiveAttention(8))
    >>> memory = {"values": keras.ops.ones((2, 5, 7)), "mask": keras.ops.ones((2, 5), "bool")}
    >>> decoder(keras.ops.ones((2, 3), "int32"), memory).shape
    TensorShape([2, 3, 100])
    """

    def __init__(
        self,
        vocabulary_size,
        embedding_dim,
        units,
        attention=None,
        cell="lstm",
        num_layers=1,
        attend="before",
        input_feeding=False,
        context_gate=None,
        deep_output=False,
        tied_embeddings=False,
        dropout=0.0,
        variational=False,
        initial_state="mean",
        **kwargs,
    ):
        super().__init__(**kwargs)
        for name, value, choices in (
            ("attend", attend, _ATTEND),
            ("context_gate", context_gate, _GATES),
            ("initial_state", initial_state, _INITIAL_STATES),
        ):
            if value not in choices:
                raise ValueError(f"`{name}` must be one of {choices}. Received: {name}={value!r}")
        if num_layers < 1:
            raise ValueError(f"`num_layers` must be at least 1. Received: num_layers={num_layers}")
        if context_gate and (attend != "before" or attention is None):
            raise ValueError("`context_gate` needs an `attention` and `attend='before'`.")
        self.vocabulary_size = vocabulary_size
        self.embedding_dim = embedding_dim
        self.units = units
        self.attention = attention
        self.cell = cell
        self.num_layers = num_layers
        self.attend = attend
        self.input_feeding = input_feeding
        self.context_gate = context_gate
        self.deep_output = deep_output
        self.tied_embeddings = tied_embeddings
        self.dropout = dropout
        self.variational = variational
        self.initial_state = initial_state
        self._make_children()

    def _make_children(self):
        policy = self.dtype_policy
        self.embedding = keras.layers.Embedding(
            self.vocabulary_size, self.embedding_dim, dtype=policy, name="embedding"
        )
        self.cells = [
            DecoderCell(self.units, self.cell, dtype=policy, name=f"cell_{i}") for i in range(self.num_layers)
        ]
        self.readout = Readout(
            self.vocabulary_size,
            self.embedding_dim,
            self.units,
            deep=self.deep_output,
            tied=self.tied_embeddings,
            dropout=self.dropout,
            variational=self.variational,
            dtype=policy,
            name="readout",
        )
        noise = (None, 1, None) if self.variational else None
        self.drop = keras.layers.Dropout(self.dropout, noise_shape=noise, dtype=policy)
        states = self.num_layers * (2 if self.cell == "lstm" else 1)
        self.state_dense = keras.layers.Dense(
            states * self.units, activation="tanh", dtype=policy, name="initial_state"
        )

    def build(self, tokens_shape, memory_shape):
        values_dim = memory_shape["values"][-1]
        context_dim = 0 if self.attention is None else values_dim
        feed_dim = context_dim * (self.attend == "before") + self.readout.width * self.input_feeding
        if not self.embedding.built:
            self.embedding.build((None, None))
        self.cells[0].build(self.embedding_dim, feed_dim)
        for cell in self.cells[1:]:
            cell.build(self.units)
        self.readout.build(self.units, context_dim)
        self.feature_dim = context_dim + self.units + self.embedding_dim
        if self.attention is not None:
            self.attention.build((None, None, self.units), (None, None, values_dim))
        if self.context_gate:
            width = 1 if self.context_gate == "scalar" else values_dim
            self.gate_dense = keras.layers.Dense(width, "sigmoid", dtype=self.dtype_policy, name="context_gate")
            self.gate_dense.build((None, self.units))
        if self.initial_state == "mean":
            self.state_dense.build((None, values_dim))
        if self.initial_state == "last":
            if "state" not in memory_shape:
                found = ", ".join(sorted(memory_shape))
                raise ValueError(f'`initial_state` "last" needs an encoder that gives its `state`. Received: {found}')
            self.state_dense.build((None, sum(shape[-1] for shape in memory_shape["state"])))
        self.built = True

    def _teacher_force(self, tokens, memory, num_targets):
        source, carry = self._begin(memory, num_targets)
        embedded = self.drop(self.embedding(self._known_ids(tokens)))  # (R, T, D)
        projected = self.cells[0].ahead_dense(embedded)
        feeds_back = self.input_feeding or (self.attention is not None and self.attend == "before")
        if feeds_back or _SUMS.intersection(carry["attention"]):
            steps, carry = self._step_by_step(tokens, projected, embedded, source, carry)
        else:
            steps, carry = self._all_at_once(projected, source, carry)
        return self._outputs(steps, embedded), carry["attention"]

    def init_state(self, memory, max_length=None):
        """The state before the first step."""
        source, carry = self._begin(memory)
        if self.attention is not None:
            carry["coverage"] = ops.zeros(ops.shape(source["values"])[:2], self.compute_dtype)
        # An attention layer with a state needs a row for each hypothesis. Otherwise hypotheses share their item's row.
        return {**carry, **source} if carry["attention"] else {**carry, PER_ITEM: source}

    def step_with_attention(self, token, state):
        """Like `step`, but return a dict with `attention` and `features` next to the `logits`."""
        names = (PER_ITEM,) if PER_ITEM in state else ("values", "mask", "prepared")
        kept = {name: state[name] for name in names if name in state}
        source = kept.get(PER_ITEM, kept)
        embedded = self.embedding(self._known_ids(token))  # (R, D)
        steps, carry = self._advance(self.cells[0].ahead_dense(embedded), embedded, source, state)
        if "coverage" in state:
            carry["coverage"] = state["coverage"] + steps["attention"]
        return self._outputs(steps, embedded), {**carry, **kept}

    def _outputs(self, steps, embedded):
        vector = self.readout(steps["hidden"], steps.get("context"), embedded)
        embeddings = self.embedding.embeddings if self.tied_embeddings else None
        context = [steps["context"]] if "context" in steps else []
        return {
            "logits": self.readout.to_logits(vector, embeddings),
            "attention": steps.get("attention"),
            "features": ops.concatenate([*context, steps["hidden"], embedded], axis=-1),
        }

    def _begin(self, memory, num_targets=None):
        """The tensors that stay the same at every step, and the initial values of those that change."""
        values, mask = memory["values"], memory.get("mask")
        source = {"values": values} if mask is None else {"values": values, "mask": mask}
        initial = self._initial_state(memory)
        states = ops.split(initial, initial.shape[-1] // self.units, axis=-1)
        per_layer = len(states) // self.num_layers
        layers = [states[i * per_layer : (i + 1) * per_layer] for i in range(self.num_layers)]
        carry = {"layers": repeat_for_targets(layers, num_targets), "attention": {}}
        if self.attention is not None:
            source["prepared"] = self.attention.prepare(values)
            if self.attention.init_state(values):  # an attention layer with a state needs a row for each target
                source = repeat_for_targets(source, num_targets)
            carry["attention"] = self.attention.init_state(source["values"])
        if self.input_feeding:
            carry["vector"] = ops.zeros((ops.shape(carry["layers"][0][0])[0], self.readout.width), self.compute_dtype)
        return source, carry

    def _initial_state(self, memory):
        values = memory["values"]
        if self.initial_state == "last":
            return self.state_dense(ops.concatenate(memory["state"], axis=-1))
        if self.initial_state == "zeros":
            width = self.state_dense.units
            return ops.zeros((ops.shape(values)[0], width), self.compute_dtype)
        mask = memory.get("mask")
        if mask is None:
            return self.state_dense(ops.mean(values, axis=1))
        real = ops.cast(ops.expand_dims(mask, -1), values.dtype)
        return self.state_dense(ops.sum(values * real, axis=1) / ops.maximum(ops.sum(real, axis=1), 1))

    def _all_at_once(self, projected, source, carry):
        layers, hidden = [], None
        for cell, state in zip(self.cells, carry["layers"], strict=True):
            hidden, state = cell.run(projected if hidden is None else cell.ahead_dense(self.drop(hidden)), state)
            layers.append(state)
        steps = {"hidden": hidden}
        if self.attention is not None:
            attended, carry["attention"] = self._attend(hidden, source, carry["attention"])
            steps.update(attended)
        return steps, {**carry, "layers": layers}

    def _step_by_step(self, tokens, projected, embedded, source, carry):
        def step(inputs, carry):
            steps, new = self._advance(
                inputs["projected"], inputs["embedded"], source, carry, inputs.get("between_layers")
            )
            for name in _SUMS.intersection(new["attention"]):
                before, after = carry["attention"][name], new["attention"][name]
                new["attention"][name] = ops.where(inputs["continues"], after, before)
            return steps, new

        continues = ops.logical_and(ops.not_equal(tokens, END), ops.not_equal(tokens, PADDING))
        inputs = {"projected": projected, "embedded": embedded, "continues": continues}
        if self.dropout and self.num_layers > 1:
            # The dropout masks between layers, drawn for all steps before the loop.
            ones = ops.ones((*ops.shape(embedded)[:2], self.units), self.compute_dtype)
            inputs["between_layers"] = [self.drop(ones) for _ in self.cells[1:]]
        return scan_time(step, inputs, carry)

    def _advance(self, projected, embedded, source, carry, between_layers=None):
        """Run one step: map gate inputs `(rows, gates)` to hidden state, context and weights, and the next carry."""
        attended, attention_state, feeds = {}, carry["attention"], []
        if self.attention is not None and self.attend == "before":
            attended, attention_state = self._attend(carry["layers"][-1][0], source, attention_state)
            feeds.append(attended["context"])
        if self.input_feeding:
            feeds.append(carry["vector"])
        feed = ops.concatenate(feeds, axis=-1) if feeds else None
        layers = [self.cells[0].step(projected, feed, carry["layers"][0])]
        for number, (cell, state) in enumerate(zip(self.cells[1:], carry["layers"][1:], strict=True)):
            hidden = layers[-1][0]
            hidden = hidden if between_layers is None else hidden * between_layers[number]
            layers.append(cell.step(cell.ahead_dense(hidden), None, state))
        hidden = layers[-1][0]
        if self.attention is not None and self.attend == "after":
            attended, attention_state = self._attend(hidden, source, attention_state)
        new = {"layers": layers, "attention": attention_state}
        if self.input_feeding:
            new["vector"] = self.readout(hidden, attended.get("context"), embedded)
        return {"hidden": hidden, **attended}, new

    def _attend(self, hidden, source, state):
        """Context and weights for hidden states `(rows, units)` or `(rows, time, units)`.

        Rows that share a source become target positions of the attention.
        """
        values = source["values"]
        is_step = len(hidden.shape) == 2
        # An attention layer with a state has a row for each hypothesis: one step is one target position.
        query = ops.reshape(hidden, (ops.shape(values)[0], 1 if state and is_step else -1, self.units))
        context, weights, state = self.attention(
            query,
            values,
            value_mask=source.get("mask"),
            prepared=source["prepared"],
            state=state or None,
            **({"single_step": True} if is_step and takes_single_step(self.attention) else {}),
        )
        if self.context_gate:
            context = context * self.gate_dense(query)
        leading = ops.shape(hidden)[:-1]
        context = ops.reshape(context, (*leading, values.shape[-1]))
        weights = ops.reshape(weights, (*leading, ops.shape(values)[1]))
        return {"context": context, "attention": weights}, state


@keras.saving.register_keras_serializable(package="attention_apps")
class Readout(ConstructorConfig, keras.layers.Layer):
    """The output layers of a recurrent decoder: from hidden state, context and last word to a vector, then to logits.

    With `deep`, the vector is tanh(E y + L_h h + L_z z), Xu et al. 2015, eq. 7. Otherwise it is tanh(W [z; h]), the
    attentional vector of Luong et al. 2015, eq. 5, or, without a context, the hidden state itself. With `tied`
    embeddings, the vector is as wide as an embedding, and the logits are its products with all embeddings.

    Args:
        vocabulary_size: Number of words.
        embedding_dim: Width of the embeddings.
        units: Width of the vector if it is neither `deep` nor `tied`.
        deep: Whether the vector depends on the last word.
        tied: Whether `to_logits` uses the embedding matrix.
        dropout: Dropout rate on the vector.
        variational: Whether the dropout mask is the same at every step.

    Call arguments:
        hidden: `(rows, time, units)`.
        context: `(rows, time, dim)` or `None`.
        embedded: `(rows, time, embedding_dim)`, the last words.

    Returns:
        The vector, `(rows, time, width)`.
    """

    def __init__(
        self,
        vocabulary_size,
        embedding_dim,
        units,
        deep=False,
        tied=False,
        dropout=0.0,
        variational=False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.vocabulary_size = vocabulary_size
        self.embedding_dim = embedding_dim
        self.units = units
        self.deep = deep
        self.tied = tied
        self.dropout = dropout
        self.variational = variational
        self.width = embedding_dim if deep or tied else units
        self.hidden_dense = keras.layers.Dense(self.width, dtype=self.dtype_policy, name="hidden")
        self.context_dense = keras.layers.Dense(self.width, use_bias=False, dtype=self.dtype_policy, name="context")
        self.output_dense = keras.layers.Dense(vocabulary_size, dtype=self.dtype_policy, name="output")

    def build(self, hidden_dim, context_dim):
        self.has_context = context_dim > 0
        self.joins = self.deep or self.has_context or self.width != hidden_dim
        if self.joins:
            self.hidden_dense.build((None, hidden_dim))
        if self.has_context:
            self.context_dense.build((None, context_dim))
        if self.tied:
            self.bias = self.add_weight(shape=(self.vocabulary_size,), initializer="zeros", name="bias")
        else:
            self.output_dense.build((None, self.width))
        shape = (None, 1, self.width) if self.variational else None
        self.drop = keras.layers.Dropout(self.dropout, noise_shape=shape, dtype=self.dtype_policy)
        self.built = True

    def call(self, hidden, context, embedded):
        if not self.joins:
            return hidden
        joined = self.hidden_dense(hidden)
        if self.has_context:
            joined = joined + self.context_dense(context)
        if self.deep:
            joined = joined + embedded
        return ops.tanh(joined)

    def to_logits(self, vector, embeddings=None):
        """Map vectors to logits `(..., vocabulary)`; `embeddings` is the matrix of tied embeddings."""
        vector = self.drop(vector) if len(vector.shape) == 3 else vector
        if not self.tied:
            return self.output_dense(vector)
        matrix = ops.cast(embeddings, self.compute_dtype)
        return ops.matmul(vector, ops.transpose(matrix)) + ops.cast(self.bias, self.compute_dtype)
