"""Sequence-to-sequence models of KerasHub as encoders and decoders of this package."""

import contextlib
import inspect
from dataclasses import dataclass

import keras
import numpy as np
from keras import ops

from attention_apps.constants import PADDING, START, VERY_NEGATIVE
from attention_apps.models.seq2seq import Decoder, Seq2Seq, repeat_for_targets

# The attribute of a decoder layer that holds its attention over the source: of BART, T5Gemma and T5.
_CROSS_ATTENTIONS = ("_cross_attention_layer", "cross_attn", "cross_attention")


@dataclass(frozen=True)
class HubTokens:
    """Translates between our token ids and those of a KerasHub model, and knows its special tokens around a text.

    Our ids start with padding, start, end and unknown, regardless of the order in the model.

    Attributes:
        hub_ids: The model's id for each of our ids; -1 if the model does not have the token.
        before_source, after_source: The model's ids around the source text.
        before_start: The model's ids before the start token, like BART's `</s>`.
    """

    hub_ids: tuple[int, ...]
    before_source: tuple[int, ...]
    after_source: tuple[int, ...]
    before_start: tuple[int, ...]

    @classmethod
    def of(cls, preprocessor):
        """The tokens of a preprocessor, found by preprocessing a short text."""
        tokenizer = preprocessor.tokenizer
        packed = preprocessor.generate_preprocess(["a"])
        source = _real(packed, "encoder")
        text = [int(index) for index in np.ravel(tokenizer("a"))]
        first = next(place for place in range(len(source)) if source[place : place + len(text)] == text)
        *before_start, start = _real(packed, "decoder")
        start = -1 if start == tokenizer.pad_token_id else start
        unknown = tokenizer.token_to_id("<unk>") if "<unk>" in tokenizer.get_vocabulary() else -1
        special = [tokenizer.pad_token_id, start, tokenizer.end_token_id, unknown]
        others = (index for index in range(tokenizer.vocabulary_size()) if index not in special)
        frame = source[:first], source[first + len(text) :]
        return cls((*special, *others), *map(tuple, frame), tuple(before_start))

    @property
    def our_ids(self) -> np.ndarray:
        """Our id for each of the model's ids."""
        ours = np.zeros(max(self.hub_ids) + 1, np.int32)
        for index, hub_id in reversed(list(enumerate(self.hub_ids))):
            if hub_id >= 0:
                ours[hub_id] = index
        return ours

    def to_hub(self, token_ids):
        """Translate our ids to the model's. A start token that the model does not have becomes its padding."""
        known = np.array(self.hub_ids, np.int32)
        return ops.take(np.where(known < 0, known[PADDING], known), token_ids, axis=0)

    def to_our_logits(self, logits):
        """Reorder logits `(..., model's vocabulary)` to our ids."""
        known = np.array(self.hub_ids, np.int32)
        ours = ops.take(ops.cast(logits, "float32"), np.maximum(known, 0), axis=-1)
        return ours + np.where(known < 0, VERY_NEGATIVE, 0.0).astype("float32")


class KerasHubEncoder(keras.layers.Layer):
    """The encoder of a KerasHub `Seq2SeqLM`.

    Args:
        backbone: The model's backbone.
        tokens: See `HubTokens`.

    Call arguments:
        source: Dict of `token_ids` `(batch, source)`, padded with 0: the text without the model's special tokens.

    Returns:
        The memory: `values` `(batch, source + special tokens, dim)` and `mask` `(batch, source + special tokens)`.
    """

    def __init__(self, backbone, tokens, **kwargs):
        super().__init__(**kwargs)
        names = ("encoder_token_ids", "encoder_padding_mask")
        inputs = {name: backbone.input[name] for name in names}
        self.network = keras.Model(inputs, backbone.output["encoder_sequence_output"], name="network")
        self.tokens = tokens
        self.built = True

    def call(self, source):
        before, after = self.tokens.before_source, self.tokens.after_source
        token_ids = source["token_ids"]
        lengths = ops.sum(ops.cast(token_ids != PADDING, "int32"), axis=1, keepdims=True) + len(before)  # (B, 1)
        # The model's ids, with its special tokens around each text.
        ids = ops.pad(self.tokens.to_hub(token_ids), [[0, 0], [len(before), len(after)]])
        places = ops.expand_dims(ops.arange(ops.shape(ids)[1]), 0)
        for place, index in enumerate(before):
            ids = ops.where(places == place, index, ids)
        for place, index in enumerate(after):
            ids = ops.where(places == lengths + place, index, ids)
        mask = places < lengths + len(after)
        ids = ops.where(mask, ids, self.tokens.hub_ids[PADDING])
        inputs = {"encoder_token_ids": ids, "encoder_padding_mask": ops.cast(mask, "int32")}
        return {"values": self.network(inputs), "mask": mask}


class KerasHubDecoder(Decoder):
    """The decoder of a KerasHub `Seq2SeqLM`, with its cache of keys and values.

    It takes our token ids and returns logits in their order.

    Args:
        language_model: A `Seq2SeqLM` of KerasHub: BART, T5 or T5Gemma.
        tokens: See `HubTokens`.
        max_length: Size of the cache of `step` if `init_state` is not told how many steps follow.

    Call arguments:
        tokens: `(batch, target)` or `(batch, targets, target)`, starting with the start token.
        memory: The memory of `KerasHubEncoder`.
        return_dict: Whether to return a dict instead of the logits.

    Returns:
        Logits `(batch, target, vocabulary)`; or a dict of `logits`, `attention` (the weights of the last layer over
        the memory, averaged over the heads, `(batch, target, source)`) and an empty `attention_state`. They have a
        `targets` axis after the batch if the tokens have one.
    """

    def __init__(self, language_model, tokens, max_length=128, **kwargs):
        super().__init__(**kwargs)
        self.language_model = language_model
        # Maps memory, its mask, tokens and their mask to hidden states, without a cache: a cache has no gradient.
        backbone = language_model.backbone
        names = ("encoder_padding_mask", "decoder_token_ids", "decoder_padding_mask")
        inputs = (backbone.output["encoder_sequence_output"], *(backbone.input[name] for name in names))
        self.network = keras.Model(inputs, backbone.output["decoder_sequence_output"], name="network")
        self.tokens = tokens
        self.max_length = max_length
        self.vocabulary_size = len(tokens.hub_ids)
        self.built = True

    def _teacher_force(self, tokens, memory, num_targets):
        source = repeat_for_targets({name: memory[name] for name in ("values", "mask")}, num_targets)
        first = len(self.tokens.before_start)
        ids = ops.concatenate([self._before_start(tokens), self.tokens.to_hub(tokens)], axis=1)
        with _recorded_weights(_last_cross_attention(self.language_model.backbone)) as recorded:
            inputs = (source["values"], ops.cast(source["mask"], "int32"), ids, ops.ones_like(ids))
            hidden = self.network(inputs)[:, first:]
        if hasattr(self.language_model, "_logits"):  # T5 scales the logits if embeddings are shared
            logits = self.language_model._logits(hidden)
        else:
            backbone = self.language_model.backbone
            logits = getattr(backbone, "decoder_token_embedding", backbone.token_embedding)(hidden, reverse=True)
            cap = getattr(backbone, "final_logit_softcapping", None)
            logits = logits if cap is None else ops.tanh(logits / cap) * cap
        outputs = {
            "logits": self.tokens.to_our_logits(logits),
            "attention": ops.cast(ops.mean(recorded[-1], axis=1)[:, first:], "float32"),
        }
        return outputs, {}

    def init_state(self, memory, max_length=None):
        """The state before the first step; the tokens before the start token are in its cache."""
        capacity = self.max_length if max_length is None else len(self.tokens.before_start) + max_length
        source = {name: memory[name] for name in ("values", "mask")}
        lengths = ops.sum(ops.cast(source["mask"], "int32"), axis=1)
        start = ops.expand_dims(ops.full_like(lengths, START), 1)
        # If nothing comes before the start token, it fills the cache of the source here and runs again in `step`.
        ids = self._before_start(start) if self.tokens.before_start else self.tokens.to_hub(start)
        _, cache, cross_cache = self._run(ids, 0, source, self._empty_cache(source, capacity))
        position = ops.full_like(lengths, len(self.tokens.before_start))
        return {**source, "cross_cache": cross_cache, "cache": cache, "position": position}

    def step(self, token, state):
        """Map one token `(batch,)` and the state to logits `(batch, vocabulary)` and the next state."""
        ids, position = self.tokens.to_hub(ops.expand_dims(token, 1)), state["position"]
        logits, cache, _ = self._run(ids, position[0], state, state["cache"], state["cross_cache"])
        return self.tokens.to_our_logits(logits[:, 0]), {**state, "cache": cache, "position": position + 1}

    def _before_start(self, tokens):
        before = np.array([self.tokens.before_start], np.int32)  # (1, P)
        return ops.broadcast_to(before, (ops.shape(tokens)[0], before.shape[1]))

    def _empty_cache(self, source, length):
        backbone = self.language_model.backbone
        if hasattr(backbone, "decoder_num_key_value_heads"):
            layers, heads = backbone.decoder_num_layers, backbone.decoder_num_key_value_heads
            width = backbone.decoder_head_dim
        else:
            layers, heads = backbone.num_layers, backbone.num_heads
            width = getattr(backbone, "key_value_dim", None) or backbone.hidden_dim // heads
        shape = (ops.shape(source["values"])[0], layers, 2, length, heads, width)
        return ops.zeros(shape, self.language_model.compute_dtype)

    def _run(self, ids, position, source, cache, cross_cache=None):
        """The logits of tokens from a position on, and both caches; computes the cache of the source if not given."""
        model, mask = self.language_model, ops.cast(source["mask"], "int32")
        if "cache" in inspect.signature(model.call_decoder_with_cache).parameters:  # one argument, as in T5Gemma
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
    """Wrap a KerasHub `Seq2SeqLM` in a `Seq2Seq`, which shares its weights."""
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
    """Yield a list that collects the weights `(batch, heads, target, source)` of a KerasHub attention layer.

    The decoder layers do not return them. They are the attention's output for values that are unit vectors or, in T5,
    the input of its dropout.
    """
    recorded = []
    has_values = hasattr(attention, "_compute_attention")
    owner, name = (attention, "_compute_attention") if has_values else (attention.dropout_layer, "call")
    original = getattr(owner, name)

    def record(*args, **kwargs):
        arguments = inspect.signature(original).bind(*args, **kwargs).arguments
        if has_values:
            query, _, value = list(arguments)[:3]
            batch, length, heads = ops.shape(arguments[value])[:3]
            units = ops.one_hot(ops.arange(length), length, dtype=arguments[query].dtype)[None, :, None]  # (1, S, 1, S)
            units = ops.broadcast_to(units, (batch, length, heads, length))
            weights = original(**{**arguments, value: units})
            weights = ops.swapaxes(weights[0] if isinstance(weights, tuple) else weights, 1, 2)  # (B, H, T, S)
        else:
            weights = next(iter(arguments.values()))
        recorded.append(weights)
        return original(*args, **kwargs)

    setattr(owner, name, record)
    try:
        yield recorded
    finally:
        delattr(owner, name)


def _last_cross_attention(backbone):
    """The attention over the source in the last decoder layer, or `None`."""
    layers = getattr(backbone, "decoder_transformer_layers", None) or getattr(backbone, "decoder_layers", None)
    found = (getattr(layers[-1], name, None) for name in _CROSS_ATTENTIONS) if layers else ()
    return next((attention for attention in found if attention is not None), None)


def _real(packed, part):
    """The ids of the first text without padding."""
    ids, mask = (np.asarray(packed[f"{part}_{name}"])[0] for name in ("token_ids", "padding_mask"))
    return [int(index) for index in ids[mask.astype(bool)]]
