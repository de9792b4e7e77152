"""Connectionist temporal classification: learns letters without their times (Graves et al. 2006).

The blank is id 0, the padding of our tokens; start and end tokens are not letters.
"""

import numpy as np
import tensorflow as tf
from keras import ops

from attention_apps.constants import END, PADDING, UNKNOWN

BLANK = PADDING


def ctc_losses(logits: tf.Tensor, mask: tf.Tensor, tokens: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The negative log-probability of each text, summed over all its alignments with the frames.

    Args:
        logits: `(batch, source, vocabulary)`.
        mask: Boolean `(batch, source)`; `True` means real.
        tokens: `(batch, target)`: letters, with or without start and end tokens, padded with 0.

    Returns:
        The losses, `(batch,)`, and whether there are enough frames, boolean `(batch,)`. A text with too few frames has
        no finite loss; its loss is 0.
    """
    logits = tf.cast(logits, tf.float32)
    frames = tf.reduce_sum(tf.cast(mask, tf.int32), axis=1)
    fits = frames >= frames_needed(tokens)
    letters = tf.where(tokens > END, tf.cast(tokens, tf.int32), BLANK)
    is_empty = tf.reduce_all(letters == BLANK, axis=1)
    # The kernel rejects a text without letters. Such rows, and those that do not fit, get a placeholder.
    placeholder = tf.one_hot(0, tf.shape(letters)[1], on_value=UNKNOWN, off_value=BLANK, dtype=tf.int32)
    spelled = tf.where((is_empty | ~fits)[:, tf.newaxis], placeholder, letters)
    losses = tf.where(is_empty, _silence_losses(logits, mask), _kernel_losses(logits, frames, spelled))
    return tf.where(fits, losses, 0.0), fits


def frames_needed(tokens: tf.Tensor | np.ndarray) -> tf.Tensor:
    """The minimum number of frames, `(batch,)`: one for each letter, and a blank between two equal letters."""
    tokens = tf.cast(tokens, tf.int32)
    is_letter = tokens > END
    repeats = is_letter[:, 1:] & (tokens[:, 1:] == tokens[:, :-1])
    return tf.reduce_sum(tf.cast(is_letter, tf.int32), axis=1) + tf.reduce_sum(tf.cast(repeats, tf.int32), axis=1)


def ctc_greedy_search(logits, mask):
    """The letters of the most likely path, without repeats and blanks.

    Args:
        logits: `(batch, source, vocabulary)`.
        mask: Boolean `(batch, source)`; `True` means real.

    Returns:
        int32 token ids `(batch, source)`, padded with 0, without an end token.
    """
    path = ops.where(mask, ops.cast(ops.argmax(logits, axis=-1), "int32"), BLANK)  # (B, S)
    before = ops.pad(path[:, :-1], ((0, 0), (1, 0)))
    kept = ops.logical_and(path != before, path > END)
    size = ops.shape(path)[1]
    positions = ops.arange(size, dtype="int32")
    order = ops.argsort(ops.where(kept, positions, positions + size), axis=1)
    letters = ops.take_along_axis(ops.where(kept, path, BLANK), order, axis=1)
    return ops.cast(letters, "int32")


def _kernel_losses(logits, frames, letters):
    """Uses the kernel for sparse labels, several times faster than `tf.nn.ctc_loss` with dense labels."""
    indices = tf.where(letters != BLANK)
    blank_last = tf.concat([logits[..., BLANK + 1 :], logits[..., : BLANK + 1]], axis=-1)
    losses, _ = tf.raw_ops.CTCLoss(
        inputs=tf.transpose(blank_last, (1, 0, 2)),
        labels_indices=indices,
        labels_values=tf.gather_nd(letters, indices) - 1,
        sequence_length=tf.maximum(frames, 1),
        ctc_merge_repeated=True,
    )
    return losses


def _silence_losses(logits, mask):
    """The losses of the path of blanks."""
    of_frames = tf.reduce_logsumexp(logits, axis=-1) - logits[..., BLANK]
    return tf.reduce_sum(tf.where(mask, of_frames, 0.0), axis=1)
