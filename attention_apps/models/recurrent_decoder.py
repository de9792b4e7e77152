"""The recurrent decoder of all three applications."""

import contextlib

import keras
from keras import ops, tree

from attention_apps.decoding.state import PER_ITEM
from attention_apps.layers.additive_scores import few_targets
from attention_apps.layers.time_loop import time_loop
from attention_apps.models.decoder_cell import DecoderCell
from attention_apps.models.readout import Readout
from attention_apps.models.serialization import serialize_unbuilt
from attention_apps.models.tokens import END, PADDING, embeddable, flat_targets, unflat_targets

# What hard attention sums up over a target for its estimator: nothing is written after the end token.
_SUMS = {"log_prob", "entropy"}
_ATTEND = ("before", "after")
_GATES = (None, "scalar", "vector")
_INITIAL_STATES = ("mean", "last", "zeros")


@keras.saving.register_keras_serializable(package="attention_apps")
class RecurrentDecoder(keras.layers.Layer):
    """LSTM or GRU that writes a target while attending to a memory.

    Keeps the decoder's contract: call it for teacher forcing, `init_state` and `step` for a search. Several targets of
    one source, `(batch, targets, time)`, share its projected memory.

    Args:
        vocabulary_size: number of words. Ids beyond it (copied words) are embedded as the unknown word.
        embedding_dim: width of the embeddings.
        units: width of the recurrent state.
        attention: an attention layer, or `None` for the plain encoder-decoder.
        cell: `"lstm"` or `"gru"`.
        num_layers: number of recurrent layers.
        attend: `"before"` the recurrent step, from the state before, the context being its input (Bahdanau et al.
            2015); or `"after"` it, the context going into the output only (Luong et al. 2015), for all steps at once.
        input_feeding: whether the attentional vector goes into the next step (Luong et al. 2015, 3.3).
        context_gate: `"scalar"` weighs the context by β = σ(W h), Xu et al. 2015, 4.2.1; `"vector"` has a β for each
            feature; `None` for none. For `attend="before"`.
        deep_output: whether the last word goes into the output layer as well (Xu et al. 2015, eq. 7).
        tied_embeddings: whether the output layer uses the embedding matrix.
        dropout: rate on embeddings, between layers, and before the output.
        variational: whether a sequence keeps one dropout mask for all its steps (Gal and Ghahramani 2016).
        initial_state: from the `"mean"` of the memory, the encoder's `"last"` state, or `"zeros"`.

    Call arguments:
        tokens: `(batch, time)` or `(batch, targets, time)`, beginning with the start token.
        memory: the encoder's dict: `values` `(batch, source, dim)`, `mask` `(batch, source)`, `state` for `"last"`.
        return_attention: whether the weights come back as well.

    Returns:
        Logits `(batch, time, vocabulary)`, and the weights `(batch, time, source)` if asked for; with a `targets` axis
        after the batch where the tokens have one.

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

    def share_embedding(self, embedding):
        """Uses a word embedding of an encoder in place of its own; to be called before anything is built."""
        wanted, given = (
            (self.vocabulary_size, self.embedding_dim),
            (embedding.input_dim, embedding.output_dim),
        )
        if wanted != given:
            raise ValueError(f"A shared embedding must be of shape {wanted}. Received: shape={given}")
        self.embedding = embedding

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

    def call(self, tokens, memory, return_attention=False):
        outputs = self.teacher_force(tokens, memory)
        return (outputs["logits"], outputs["attention"]) if return_attention else outputs["logits"]

    def teacher_force(self, tokens, memory):
        """All a loss can ask for: `logits`, `attention`, the attention's last state, `features` of each step."""
        tokens, targets = flat_targets(tokens)  # (R, T), R = B * N
        source, carry = self._begin(memory, targets)
        embedded = self.drop(self._embed(tokens))  # (R, T, E)
        projected = self.cells[0].project(embedded)
        if self._feeds_back() or _SUMS.intersection(carry["attention"]):
            steps, carry = self._step_by_step(tokens, projected, embedded, source, carry)
        else:
            steps, carry = self._all_at_once(projected, source, carry)
        vector = self.readout(steps["hidden"], steps.get("context"), embedded)
        outputs = {
            "logits": self._logits(vector),
            "attention": steps.get("attention"),
            "features": self._features(steps, embedded),
        }
        outputs = {name: unflat_targets(tensor, targets) for name, tensor in outputs.items()}
        return {**outputs, "attention_state": carry["attention"]}

    def init_state(self, memory):
        """The state before the first step."""
        source, carry = self._begin(memory)
        if self.attention is not None:
            carry["coverage"] = ops.zeros(ops.shape(source["values"])[:2], self.compute_dtype)
        # An attention that remembers needs a row for each hypothesis; all others can share their item's.
        return {**carry, **source} if carry["attention"] else {**carry, PER_ITEM: source}

    def step(self, token, state):
        """One token `(batch,)` and the state to logits `(batch, vocabulary)` and the next state."""
        outputs, state = self.step_in_full(token, state)
        return outputs["logits"], state

    def step_in_full(self, token, state):
        """As `step`, with `attention` and `features` next to the `logits`."""
        names = (PER_ITEM,) if PER_ITEM in state else ("values", "mask", "prepared")
        kept = {name: state[name] for name in names if name in state}
        source = kept.get(PER_ITEM, kept)
        embedded = self._embed(token)
        steps, carry = self._advance(self.cells[0].project(embedded), embedded, source, state)
        logits = self._logits(self.readout(steps["hidden"], steps.get("context"), embedded))
        if "coverage" in state:
            carry["coverage"] = state["coverage"] + steps["attention"]
        outputs = {
            "logits": logits,
            "attention": steps.get("attention"),
            "features": self._features(steps, embedded),
        }
        return outputs, {**carry, **kept}

    def _embed(self, tokens):
        return self.embedding(embeddable(tokens, self.vocabulary_size))

    def _logits(self, vector):
        return self.readout.to_logits(vector, self.embedding.embeddings if self.tied_embeddings else None)

    def _features(self, steps, embedded):
        parts = [steps[name] for name in ("context", "hidden") if name in steps]
        return ops.concatenate([*parts, embedded], axis=-1)

    def _feeds_back(self):
        return self.input_feeding or (self.attention is not None and self.attend == "before")

    def _begin(self, memory, targets=None):
        """What stays the same over the steps, and what changes, before the first one."""
        values, mask = memory["values"], memory.get("mask")
        source = {"values": values} if mask is None else {"values": values, "mask": mask}
        first = self._first_state(memory)
        states = ops.split(first, first.shape[-1] // self.units, axis=-1)
        per_layer = len(states) // self.num_layers
        carry = {"layers": [states[i * per_layer : (i + 1) * per_layer] for i in range(self.num_layers)]}
        if targets is not None:
            carry = tree.map_structure(lambda x: ops.repeat(x, targets, axis=0), carry)
        carry["attention"] = {}
        if self.attention is not None:
            source["prepared"] = self.attention.prepare(values)
            if targets is not None and self.attention.init_state(values):
                # An attention that remembers needs a row for each target.
                source = tree.map_structure(lambda x: ops.repeat(x, targets, axis=0), source)
            carry["attention"] = self.attention.init_state(source["values"])
        if self.input_feeding:
            carry["vector"] = ops.zeros((ops.shape(carry["layers"][0][0])[0], self.readout.width), self.compute_dtype)
        return source, carry

    def _first_state(self, memory):
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
            hidden, state = cell.run(projected if hidden is None else cell.project(self.drop(hidden)), state)
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
                new["attention"][name] = ops.where(inputs["goes_on"], after, before)
            return steps, new

        goes_on = ops.logical_and(ops.not_equal(tokens, END), ops.not_equal(tokens, PADDING))
        inputs = {"projected": projected, "embedded": embedded, "goes_on": goes_on}
        if self.dropout and self.num_layers > 1:
            # Drawn for all steps ahead of the loop: what each layer hands on is multiplied by it.
            ones = ops.ones((*ops.shape(embedded)[:2], self.units), self.compute_dtype)
            inputs["between_layers"] = [self.drop(ones) for _ in self.cells[1:]]
        return time_loop(step, inputs, carry)

    def _advance(self, projected, embedded, source, carry, between_layers=None):
        """One step of all rows: `(rows, gates)` and the carry to hidden state, context and weights, and the carry."""
        attended, attention_state, feeds = {}, carry["attention"], []
        if self.attention is not None and self.attend == "before":
            attended, attention_state = self._attend(carry["layers"][-1][0], source, attention_state)
            feeds.append(attended["context"])
        if self.input_feeding:
            feeds.append(carry["vector"])
        feed = ops.concatenate(feeds, axis=-1) if feeds else None
        layers = self._step_cells(projected, feed, carry["layers"], between_layers)
        hidden = layers[-1][0]
        if self.attention is not None and self.attend == "after":
            attended, attention_state = self._attend(hidden, source, attention_state)
        new = {"layers": layers, "attention": attention_state}
        if self.input_feeding:
            new["vector"] = self.readout(hidden, attended.get("context"), embedded)
        return {"hidden": hidden, **attended}, new

    def _step_cells(self, projected, feed, states, between_layers):
        layers = [self.cells[0].step(projected, feed, states[0])]
        for number, (cell, state) in enumerate(zip(self.cells[1:], states[1:], strict=True)):
            hidden = layers[-1][0]
            hidden = hidden if between_layers is None else hidden * between_layers[number]
            layers.append(cell.step(cell.project(hidden), None, state))
        return layers

    def _attend(self, hidden, source, state):
        """Context and weights for hidden states `(rows, units)` or `(rows, time, units)`.

        Rows that share a source are laid along the attention's target axis.
        """
        values = source["values"]
        # An attention that remembers has a row for each hypothesis: one step of it is one target position.
        is_step = len(hidden.shape) == 2
        query = ops.reshape(hidden, (ops.shape(values)[0], 1 if state and is_step else -1, self.units))
        with few_targets() if is_step else contextlib.nullcontext():
            context, weights, state = self.attention(
                query, values, value_mask=source.get("mask"), prepared=source["prepared"], state=state or None
            )
        if self.context_gate:
            context = context * self.gate_dense(query)
        leading = ops.shape(hidden)[:-1]
        context = ops.reshape(context, (*leading, values.shape[-1]))
        weights = ops.reshape(weights, (*leading, ops.shape(values)[1]))
        return {"context": context, "attention": weights}, state

    def get_config(self):
        names = (
            "vocabulary_size",
            "embedding_dim",
            "units",
            "cell",
            "num_layers",
            "attend",
            "input_feeding",
            "context_gate",
            "deep_output",
            "tied_embeddings",
            "dropout",
            "variational",
            "initial_state",
        )
        config = {**super().get_config(), **{name: getattr(self, name) for name in names}}
        return {**config, "attention": serialize_unbuilt(self.attention)}

    @classmethod
    def from_config(cls, config):
        config = {**config, "attention": keras.saving.deserialize_keras_object(config["attention"])}
        return cls(**config)
