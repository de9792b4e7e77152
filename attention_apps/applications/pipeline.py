"""The path from source tensors to outputs, shared by predictions, evaluation and export."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import tensorflow as tf

from attention_apps.applications.parts import Codec, Reader, Reading, Source, Tensors
from attention_apps.constants import START
from attention_apps.decoding import DecodingOptions, beam_search
from attention_apps.models import Seq2Seq

BATCH_SIZE = 32
# The number of sources to read ahead, so that sources of similar length can share a batch.
_GROUP_SIZE = 64

Outputs = dict[str, np.ndarray]


class Pipeline:
    """Encodes sources, searches for the best texts and computes their attention, in one graph.

    The encoder runs once. One teacher-forced pass over the best tokens gives attention and probabilities.

    Args:
        model: a built `Seq2Seq`.
        options: options of the search.
        search: `beam_search`, or a function with the same arguments.

    Call arguments:
        source: tensors with the signature `reader.signature`, or the input of the encoder.

    Returns:
        A dict of tensors with the batch axis first; see `Codec.outputs`.
    """

    def __init__(
        self,
        model: Seq2Seq,
        reader: Reader,
        codec: Codec,
        options: DecodingOptions,
        search: Callable[..., Any] = beam_search,
    ):
        self.model = model
        self.reader = reader
        self.codec = codec
        self.options = codec.search_options(options)
        self.search = search
        self._graphs: dict[str, Any] = {}

    def __call__(self, source: Tensors) -> Tensors:
        decoder = self.model.decoder
        source = {**source, **self.codec.prepare(source)}
        memory = self.model.encode(source)
        scorers = self.codec.scorers(memory, self.options)
        state = decoder.init_state(memory, self.options.max_length)
        normalized = getattr(decoder, "normalized", False)
        result = self.search(decoder.step, state, self.options, scorers=scorers, normalized=normalized)
        best = result.token_ids[:, 0, : tf.maximum(tf.reduce_max(result.lengths[:, 0]), 1)]  # (B, T)
        tokens = tf.concat([tf.fill(tf.shape(best[:, :1]), START), best[:, :-1]], axis=1)
        forced = {**decoder(tokens, memory, return_dict=True), "token_ids": best}
        if forced["attention"] is None:  # a decoder without attention
            shape = tf.concat([tf.shape(best), tf.shape(memory["mask"])[1:]], axis=0)
            forced["attention"] = tf.ensure_shape(tf.zeros(shape), (None, None, memory["mask"].shape[1]))
        return self.codec.outputs(source, memory, result, forced)

    def run(self, source: Mapping[str, np.ndarray], signature: Mapping[str, tf.TensorSpec]) -> Outputs:
        """Run the compiled graph on a batch of arrays."""
        key = str(signature)
        if key not in self._graphs:
            self._graphs[key] = tf.function(self, [dict(signature)], autograph=False)
        tensors = {name: tf.constant(array, signature[name].dtype) for name, array in source.items()}
        return {name: tensor.numpy() for name, tensor in self._graphs[key](tensors).items()}


@dataclass(eq=False)
class _Piece:
    """A source of an item on its way through the pipeline."""

    reading: Reading
    is_last: bool
    source: Any = None  # a `Source`; `None` for an item without any
    outputs: Outputs | None = None
    error: Exception | None = None


def answer_items(
    pipeline: Pipeline,
    items: Iterable[Any],
    read: Callable[[Any], Reading],
    options: Any,
    signature: Mapping[str, tf.TensorSpec],
    raise_errors: bool = False,
    on_source: Callable[[Reading, Source, bool], None] = lambda reading, source, is_last: None,
) -> Iterator[Any]:
    """Yield the result of each item, in order and in bounded memory.

    An error in one item becomes the `error` of its result and does not affect the others.

    Args:
        read: converts an item to its sources.
        options: options of the post-processing, for `Codec.join`.
        signature: the signature of the sources.
        raise_errors: whether to raise errors instead, for calls with one item.
        on_source: called after each source, with whether it is the last one of its item.
    """
    parts: list[tuple[Source, Outputs | None]] = []
    error = None
    for piece in chain.from_iterable(
        _answer_group(pipeline, group, signature) for group in _groups(_pieces(items, read), pipeline)
    ):
        error = error or piece.error
        if piece.source is not None:
            parts.append((replace(piece.source, tensors=None), piece.outputs))  # raw input is not kept
            on_source(piece.reading, piece.source, piece.is_last)
        if piece.is_last:
            try:
                if error is not None:
                    raise error
                result = pipeline.codec.join(piece.reading, parts, options)
            except Exception as problem:
                if raise_errors:
                    raise
                message = str(problem) or type(problem).__name__
                result = pipeline.codec.result(error=message, source=piece.reading.item)
            yield result
            parts, error = [], None


def _pieces(items: Iterable[Any], read: Callable[[Any], Reading]) -> Iterator[_Piece]:
    """Yield the sources of all items. Each is held back until the next one is read, to detect the last of an item."""
    for item in items:
        reading, waiting = Reading((), item), None
        try:
            reading = read(item)
            for source in reading.sources:
                if waiting is not None:
                    yield _Piece(reading, False, waiting)
                waiting = source
        except Exception as problem:
            yield _Piece(reading, True, waiting, error=problem)
        else:
            yield _Piece(reading, True, waiting)


def _groups(pieces: Iterable[_Piece], pipeline: Pipeline) -> Iterator[list[_Piece]]:
    """Yield pieces to run together. Pieces of one item fill at most one batch, so that progress shows early."""
    group: list[_Piece] = []
    length = 0.0
    for piece in pieces:
        group.append(piece)
        length += 0.0 if piece.source is None else piece.source.length
        is_full = len(group) >= BATCH_SIZE or length >= pipeline.reader.max_batch_length
        if len(group) >= _GROUP_SIZE or (is_full and not piece.is_last):
            yield group
            group, length = [], 0.0
    if group:
        yield group


def _answer_group(pipeline, group, signature):
    pieces = [piece for piece in group if piece.source is not None and piece.source.tensors is not None]
    for batch in _batches(pieces, pipeline.reader.max_batch_length):
        try:
            for piece, row in zip(batch, _run(pipeline, batch, signature), strict=True):
                piece.outputs = row
        except Exception:  # run each alone, so that only the bad one fails
            for piece in batch:
                try:
                    (piece.outputs,) = _run(pipeline, [piece], signature)
                except Exception as problem:
                    piece.error = problem
    return group


def _batches(pieces: Sequence[_Piece], max_length: float) -> Iterator[list[_Piece]]:
    """Yield batches of pieces of similar length."""
    batch: list[_Piece] = []
    for piece in sorted(pieces, key=lambda piece: piece.source.length):
        if batch and (len(batch) == BATCH_SIZE or piece.source.length * (len(batch) + 1) > max_length):
            yield batch
            batch = []
        batch.append(piece)
    if batch:
        yield batch


def _run(pipeline, batch, signature):
    source = {name: _stack([piece.source.tensors[name] for piece in batch], spec) for name, spec in signature.items()}
    outputs = pipeline.run(source, signature)
    return [{name: array[row] for name, array in outputs.items()} for row in range(len(batch))]


def _stack(arrays: Sequence[np.ndarray], spec: tf.TensorSpec) -> np.ndarray:
    """Stack arrays along a new batch axis, padded with zeros or empty strings."""
    arrays = [np.asarray(array) for array in arrays]
    if all(array.shape == arrays[0].shape for array in arrays):
        return np.stack(arrays)
    sizes = np.max([array.shape for array in arrays], axis=0)
    is_text = spec.dtype == tf.string
    padded = np.full((len(arrays), *sizes), b"" if is_text else 0, object if is_text else spec.dtype.as_numpy_dtype)
    for row, array in zip(padded, arrays, strict=True):
        row[tuple(slice(size) for size in array.shape)] = array
    return padded
