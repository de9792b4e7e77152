"""Sequence-to-sequence models of KerasHub, behind the contract of our encoders and decoders."""

import contextlib
import inspect
from dataclasses import dataclass

import keras
import numpy as np
from keras import ops

from attention_apps.models.seq2seq import Seq2Seq
from attention_apps.models.tokens import PADDING, START, flat_targets, unflat_targets

# The logit of an id that the model has not.
_NEVER = -1e9
# What a decoder layer calls its attention over the source: of BART, T5Gemma and T5.
_CROSS_ATTENTIONS = ("_cross_attention_layer", "cross_attn", "cross_attention")


@dataclass(frozen=True)
class HubTokens:
    """Which token of a KerasHub model each of our ids is, and what stands around the tokens of a text.

    Ours begin with padding, start, end and unknown, whatever the order of the model's own.

    Attributes:
        hub_ids: for each of our ids that of the model; -1 for one that it has not.
        before_source, after_source: the model's ids around what the encoder reads.
        before_start: the model's ids before the start token, as BART's `</s>`.
    """

    hub_ids: tuple[int, ...]
    before_source: tuple[int, ...]
    after_source: tuple[int, ...]
    before_start: tuple[int, ...]

    @classmethod
    def of(cls, preprocessor):
        """Those of a preprocessor, found by looking at what it makes of a text."""
        tokenizer = preprocessor.tokenizer
        packed = preprocessor.generate_preprocess(["a"])
        source = _real(packed, "encoder")
        text = [int(index) for index in np.ravel(tokenizer("a"))]
        first = next(place for place in range(len(source)) if source[place : place + len(text)] == text)
        *before_start, start = _real(packed, "decoder")
        start = -1 if start == tokenizer.pad_token_id else start
        unknown = _unknown_id(tokenizer)
        special = [tokenizer.pad_token_id, start, tokenizer.end_token_id, unknown]
        others = (index for index in range(tokenizer.vocabulary_size()) if index not in special)
        frame = source[:first], source[first + len(text) :]
        return cls((*special, *others), *map(tuple, frame), tuple(before_start))

    @property
    def our_ids(self) -> np.ndarray:
        """For each of the model's ids ours."""
        ours = np.zeros(max(self.hub_ids) + 1, np.int32)
        for index, hub_id in reversed(list(enumerate(self.hub_ids))):
            if hub_id >= 0:
                ours[hub_id] = index
        return ours

    def to_hub(self, token_ids):
        """Our ids as the model's. One that starts a text and has no token of its own is the model's padding."""
        known = np.array(self.hub_ids, np.int32)
        return ops.take(np.where(known < 0, known[PADDING], known), token_ids, axis=0)

    def to_our_logits(self, logits):
        """Logits `(..., model's vocabulary)` in the order of our ids."""
        known = np.array(self.hub_ids, np.int32)
        ours = ops.take(ops.cast(logits, "float32"), np.maximum(known, 0), axis=-1)
        return ours + np.where(known < 0, _NEVER, 0.0).astype("float32")


class KerasHubEncoder(keras.layers.Layer):
    """The encoder of a KerasHub `Seq2SeqLM`.

    Args:
        backbone: the model's backbone.
        tokens: see `HubTokens`.

    Call arguments:
        source: dict of `token_ids` `(batch, source)`, padded with 0: the text alone, without what stands around it.

    Returns:
        The memory: `values` `(batch, source + frame, dim)` and `mask`.
    """

    def __init__(self, backbone, tokens, **kwargs):
        super().__init__(**kwargs)
        names = ("encoder_token_ids", "encoder_padding_mask")
        inputs = {name: backbone.input[name] for name in names}
        self.network = keras.Model(inputs, backbone.output["encoder_sequence_output"], name="network")
        self.tokens = tokens
        self.built = True

    def call(self, source):
        token_ids, mask = self._framed(source["token_ids"])
        inputs = {"encoder_token_ids": token_ids, "encoder_padding_mask": ops.cast(mask, "int32")}
        return {"values": self.network(inputs), "mask": mask}

    def _framed(self, token_ids):
        """The model's ids with what stands before and after a text, and which of them are real."""
        before, after = self.tokens.before_source, self.tokens.after_source
        lengths = ops.sum(ops.cast(token_ids != PADDING, "int32"), axis=1, keepdims=True) + len(before)  # (B, 1)
        ids = ops.pad(self.tokens.to_hub(token_ids), [[0, 0], [len(before), len(after)]])
        places = ops.expand_dims(ops.arange(ops.shape(ids)[1]), 0)
        for place, index in enumerate(before):
            ids = ops.where(places == place, index, ids)
        for place, index in enumerate(after):
            ids = ops.where(places == lengths + place, index, ids)
        mask = places < lengths + len(after)
        return ops.where(mask, ids, self.tokens.hub_ids[PADDING]), mask


class KerasHubDecoder(keras.layers.Layer):
    """The decoder of a KerasHub `Seq2SeqLM`, over its cache of keys and values.

    Keeps the decoder's contract, with our ids in and logits in their order out.

    Args:
        language_model: a `Seq2SeqLM` of KerasHub: BART, T5 or T5Gemma.
        tokens: see `HubTokens`.
        max_length: the longest target that `step` has room for in its cache.

    Call arguments:
        tokens: `(batch, time)` or `(batch, targets, time)`, beginning with the start token.
        memory: of `KerasHubEncoder`.
        return_attention: whether the weights come back as well.

    Returns:
        Logits `(batch, time, vocabulary)`, and the last layer's weights over the memory `(batch, time, source)` if
        asked for, heads averaged; with a `targets` axis after the batch where the tokens have one.
    """

    def __init__(self, language_model, tokens, max_length=128, **kwargs):
        super().__init__(**kwargs)
        self.language_model = language_model
        self.network = _decoder_network(language_model.backbone)
        self.tokens = tokens
        self.max_length = max_length
        self.vocabulary_size = len(tokens.hub_ids)
        self.built = True

    def call(self, tokens, memory, return_attention=False):
        outputs = self.teacher_force(tokens, memory)
        return (outputs["logits"], outputs["attention"]) if return_attention else outputs["logits"]

    def teacher_force(self, tokens, memory):
        """All a loss can ask for: `logits` and `attention`; there is no attention state."""
        tokens, targets = flat_targets(tokens)
        source = {name: memory[name] for name in ("values", "mask")}
        if targets is not None:
            source = {name: ops.repeat(tensor, targets, axis=0) for name, tensor in source.items()}
        first = len(self.tokens.before_start)
        ids = ops.concatenate([self._before_start(tokens), self.tokens.to_hub(tokens)], axis=1)
        with _recorded_weights(_last_cross_attention(self.language_model.backbone)) as recorded:
            inputs = (source["values"], ops.cast(source["mask"], "int32"), ids, ops.ones_like(ids))
            hidden = self.network(inputs)[:, first:]
        outputs = {
            "logits": self.tokens.to_our_logits(_logits(self.language_model, hidden)),
            "attention": ops.cast(ops.mean(recorded[-1], axis=1)[:, first:], "float32"),
        }
        outputs = {name: unflat_targets(tensor, targets) for name, tensor in outputs.items()}
        return {**outputs, "attention_state": {}}

    def init_state(self, memory):
        """The state before the first step, with what comes before the start token in its cache."""
        source = {name: memory[name] for name in ("values", "mask")}
        lengths = ops.sum(ops.cast(source["mask"], "int32"), axis=1)
        start = ops.expand_dims(ops.full_like(lengths, START), 1)
        # Where nothing comes before it, the start token fills the cache of the source; `step` runs it again.
        ids = self._before_start(start) if self.tokens.before_start else self.tokens.to_hub(start)
        _, cache, cross_cache = self._run(ids, 0, source, self._empty_cache(source, self.max_length))
        position = ops.full_like(lengths, len(self.tokens.before_start))
        return {**source, "cross_cache": cross_cache, "cache": cache, "position": position}

    def step(self, token, state):
        """One token `(batch,)` and the state to logits `(batch, vocabulary)` and the next state."""
        ids, position = self.tokens.to_hub(ops.expand_dims(token, 1)), state["position"]
        logits, cache, _ = self._run(ids, position[0], state, state["cache"], state["cross_cache"])
        return self.tokens.to_our_logits(logits[:, 0]), {**state, "cache": cache, "position": position + 1}

    def _before_start(self, tokens):
        before = np.array([self.tokens.before_start], np.int32)  # (1, P)
        return ops.broadcast_to(before, (ops.shape(tokens)[0], before.shape[1]))

    def _empty_cache(self, source, length):
        layers, heads, dim = _cache_sizes(self.language_model.backbone)
        shape = (ops.shape(source["values"])[0], layers, 2, length, heads, dim)
        return ops.zeros(shape, self.language_model.compute_dtype)

    def _run(self, ids, position, source, cache, cross_cache=None):
        """Logits of some tokens from a position on, and both caches; that of the source is made if it is not given."""
        model, mask = self.language_model, ops.cast(source["mask"], "int32")
        if _has_one_cache(model):
            logits, _, caches = model.call_decoder_with_cache(
                decoder_token_ids=ids,
                decoder_padding_mask=None,
                cache=(cache, cross_cache),
                cache_update_index=position,
                encoder_output=source["values"],
                encoder_padding_mask=mask,
            )
            return logits, *caches
        is_given = cross_cache is not None
        logits, _, *caches = model.call_decoder_with_cache(
            encoder_hidden_states=source["values"],
            encoder_padding_mask=mask,
            decoder_token_ids=ids,
            self_attention_cache=cache,
            self_attention_cache_update_index=position,
            cross_attention_cache=cross_cache if is_given else self._empty_cache(source, ops.shape(mask)[1]),
            cross_attention_cache_update_index=None if is_given else 0,
        )
        return logits, *caches


def make_keras_hub_model(language_model, tokens, max_length=128):
    """A KerasHub `Seq2SeqLM` as our one model; the weights stay shared with it."""
    backbone = language_model.backbone
    if not hasattr(language_model, "call_decoder_with_cache") or _last_cross_attention(backbone) is None:
        name = type(language_model).__name__
        raise ValueError(f"`language_model` must be a BART, T5 or T5Gemma of KerasHub. Received: {name}")
    encoder = KerasHubEncoder(backbone, tokens, name="encoder")
    model = Seq2Seq(encoder, KerasHubDecoder(language_model, tokens, max_length, name="decoder"))
    model.build({"source": {"token_ids": (None, None)}, "tokens": (None, None)})
    return model


@contextlib.contextmanager
def _recorded_weights(attention):
    """A list that gets the weights `(batch, heads, time, source)` whenever an attention layer of KerasHub is called.

    No decoder layer hands them out. They are what it makes of values that are unit vectors,
    or, in T5, what it drops out.
    """
    recorded = []
    has_values = hasattr(attention, "_compute_attention")
    owner, name = (attention, "_compute_attention") if has_values else (attention.dropout_layer, "call")
    original = getattr(owner, name)

    def record(*args, **kwargs):
        arguments = inspect.signature(original).bind(*args, **kwargs).arguments
        recorded.append(_weights_of(original, arguments) if has_values else next(iter(arguments.values())))
        return original(*args, **kwargs)

    setattr(owner, name, record)
    try:
        yield recorded
    finally:
        delattr(owner, name)


def _weights_of(compute, arguments):
    """What an attention's inner function, of query, key, value and more, makes of values that are unit vectors."""
    query, _, value = list(arguments)[:3]
    batch, length, heads = ops.shape(arguments[value])[:3]
    units = ops.one_hot(ops.arange(length), length, dtype=arguments[query].dtype)[None, :, None]  # (1, S, 1, S)
    found = compute(**{**arguments, value: ops.broadcast_to(units, (batch, length, heads, length))})
    return ops.swapaxes(found[0] if isinstance(found, tuple) else found, 1, 2)  # (B, H, T, S)


def _decoder_network(backbone):
    """From memory, its mask, tokens and their mask to hidden states, without a cache: those have no gradient."""
    names = ("encoder_padding_mask", "decoder_token_ids", "decoder_padding_mask")
    inputs = (backbone.output["encoder_sequence_output"], *(backbone.input[name] for name in names))
    return keras.Model(inputs, backbone.output["decoder_sequence_output"], name="network")


def _logits(language_model, hidden):
    if hasattr(language_model, "_logits"):  # T5, which scales them where embeddings are shared
        return language_model._logits(hidden)
    backbone = language_model.backbone
    logits = getattr(backbone, "decoder_token_embedding", backbone.token_embedding)(hidden, reverse=True)
    cap = getattr(backbone, "final_logit_softcapping", None)
    return logits if cap is None else ops.tanh(logits / cap) * cap


def _last_cross_attention(backbone):
    """The attention layer over the source of the last decoder layer, or `None`."""
    layers = getattr(backbone, "decoder_transformer_layers", None) or getattr(backbone, "decoder_layers", None)
    found = (getattr(layers[-1], name, None) for name in _CROSS_ATTENTIONS) if layers else ()
    return next((attention for attention in found if attention is not None), None)


def _cache_sizes(backbone):
    """Layers, heads and width of a head of the decoder's cache."""
    if hasattr(backbone, "decoder_num_key_value_heads"):
        return backbone.decoder_num_layers, backbone.decoder_num_key_value_heads, backbone.decoder_head_dim
    width = getattr(backbone, "key_value_dim", None) or backbone.hidden_dim // backbone.num_heads
    return backbone.num_layers, backbone.num_heads, width


def _has_one_cache(model):
    """Whether both caches are one argument, as in T5Gemma."""
    return "cache" in inspect.signature(model.call_decoder_with_cache).parameters


def _real(packed, part):
    """The ids of the first text without padding."""
    ids, mask = (np.asarray(packed[f"{part}_{name}"])[0] for name in ("token_ids", "padding_mask"))
    return [int(index) for index in ids[mask.astype(bool)]]


def _unknown_id(tokenizer):
    """The id of the unknown token, -1 if there is none."""
    vocabulary = tokenizer.get_vocabulary()
    return tokenizer.token_to_id("<unk>") if "<unk>" in vocabulary else -1
