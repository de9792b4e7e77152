"""When each word was said: graph code for a batch of texts."""

import tensorflow as tf

from attention_apps.preprocessing.audio_features import FRAME_SECONDS

# CTC tends to emit a letter in its middle: a word may begin this many seconds before its first letter, and end this
# many after its last, as far as the recording is loud there.
MAX_BEFORE, MAX_AFTER = 0.35, 0.35
_MIN_CONFIDENCE = 1e-9


def letter_spans(alignment: tf.Tensor, is_aligned: tf.Tensor, attention: tf.Tensor) -> tf.Tensor:
    """The positions of each letter, `(batch, letters, 2)`: CTC's, or attention's where CTC finds no alignment.

    Args:
        alignment: CTC's, `(batch, letters, 2)`.
        is_aligned: whether there is one, `(batch,)`.
        attention: `(batch, letters, positions)`.
    """
    return tf.where(is_aligned[:, tf.newaxis, tf.newaxis], alignment, attention_spans(attention))


def attention_spans(attention: tf.Tensor) -> tf.Tensor:
    """The position that each token attends to most, never going back, `(batch, tokens, 2)`.

    Args:
        attention: `(batch, tokens, positions)`.
    """
    looked_at = tf.argmax(attention, axis=2, output_type=tf.int32)
    is_before = tf.linalg.band_part(tf.ones([tf.shape(attention)[1]] * 2, tf.bool), -1, 0)
    middles = tf.reduce_max(tf.where(is_before, looked_at[:, tf.newaxis], 0), axis=2)
    return tf.stack([middles, middles + 1], axis=2)


def spoken_words(
    tokens: tf.Tensor,
    spans: tf.Tensor,
    confidences: tf.Tensor,
    frame_seconds: float,
    loud: tf.Tensor,
    num_frames: tf.Tensor,
    seconds: tf.Tensor,
) -> dict[str, tf.Tensor]:
    """The words among the tokens, with their times in seconds.

    Args:
        tokens: letters or sub-words with spaces between words, and empty strings after the last, `(batch, tokens)`.
        spans: the positions of each token, `(batch, tokens, 2)`.
        confidences: of each token, from 0 to 1, `(batch, tokens)`.
        frame_seconds: of one position.
        loud: whether there is sound in each `FRAME_SECONDS` of the recording, `(batch, frames)`.
        num_frames: how many of those there are, `(batch,)`.
        seconds: of each recording, `(batch,)`, float64.

    Returns:
        A dict of tensors `(batch, words)`: `words`, `start`, `end` and `word_confidence`, with empty strings and zeros
        after the last word.
    """
    spelled = tf.strings.strip(tokens)
    is_part = spelled != ""
    follows_part = tf.pad(is_part[:, :-1], [[0, 0], [1, 0]])
    begins = is_part & (tf.strings.regex_full_match(tokens, r"(?s)\s.*") | ~follows_part)
    number = tf.cumsum(tf.cast(begins, tf.int32), axis=1)  # of the word that each token is of, from 1
    counts = number[:, -1]
    batch, most = tf.shape(tokens)[0], tf.maximum(tf.reduce_max(counts), 0)
    words = tf.boolean_mask(tf.range(batch)[:, tf.newaxis] * most + number - 1, is_part)

    def over_words(reduce, of_tokens):
        return tf.reshape(reduce(tf.boolean_mask(of_tokens, is_part), words, batch * most), [batch, most])

    # Punctuation has no sound: it counts only in a word that has nothing else.
    is_sound = tf.strings.regex_full_match(tokens, r"(?s).*[\pL\pN\pM\x80-\xff].*")
    has_sound = over_words(tf.math.unsorted_segment_max, tf.cast(is_sound, tf.int32)) > 0
    has_sound = tf.pad(has_sound, [[0, 0], [1, 0]])  # by the number of the word
    is_heard = is_sound | ~tf.gather(has_sound, number, batch_dims=1)
    first = over_words(tf.math.unsorted_segment_min, tf.where(is_heard, spans[..., 0], spans.dtype.max))
    end = over_words(tf.math.unsorted_segment_max, tf.where(is_heard, spans[..., 1], spans.dtype.min))
    logs = tf.math.log(tf.maximum(confidences, _MIN_CONFIDENCE))
    is_word = tf.sequence_mask(counts, most)
    start, end = (tf.where(is_word, tf.cast(one, tf.float64) * frame_seconds, 0.0) for one in (first, end))
    start, end = _stretch(start, end, counts, _Sound(loud, num_frames), seconds[:, tf.newaxis])
    return {
        "words": tf.strings.unicode_transcode(  # sub-words may be single bytes
            over_words(tf.strings.unsorted_segment_join, spelled), "UTF-8", "UTF-8", errors="replace"
        ),
        "start": tf.where(is_word, _in_milliseconds(start), 0.0),
        "end": tf.where(is_word, _in_milliseconds(end), 0.0),
        "word_confidence": tf.where(is_word, tf.exp(over_words(tf.math.unsorted_segment_mean, logs)), 0.0),
    }


def _stretch(start, end, counts, sound, seconds):
    """Words from where the sound begins to where it ends; two words without a pause share the time between them."""
    start, end = tf.minimum(start, seconds), tf.minimum(end, seconds)
    places = tf.range(tf.shape(start)[1])
    has_next = places < counts[:, tf.newaxis] - 1
    before = tf.where(places > 0, tf.roll(end, 1, axis=1), 0.0)
    after = tf.where(has_next, tf.roll(start, -1, axis=1), seconds)
    onset = sound.onset(start, tf.maximum(before, start - MAX_BEFORE), end)
    offset = sound.offset(end, tf.minimum(after, end + MAX_AFTER), start)
    next_onset = tf.roll(onset, -1, axis=1)
    shared = tf.where(has_next & (offset > next_onset), (offset + next_onset) / 2, 0.0)
    shared_before = tf.roll(shared, 1, axis=1)
    return tf.where(shared_before > 0, shared_before, onset), tf.where(shared > 0, shared, offset)


class _Sound:
    """The loud and the quiet stretches of recordings.

    Args:
        loud: boolean `(batch, frames)`.
        num_frames: how many of them are real, `(batch,)`.
    """

    def __init__(self, loud, num_frames):
        self.num_frames = num_frames[:, tf.newaxis]
        is_real = tf.sequence_mask(num_frames, tf.shape(loud)[1])
        self.loud = _places(loud & is_real)
        self.quiet = _places(~loud & is_real)

    def onset(self, start, earliest, latest):
        """Where the sound that is on at `start` began, or, where none is on, where the next one does."""
        frame = _to_frame(start)
        coming = _around(self.loud, frame)[1]
        is_off = (frame < self.num_frames) & (coming != frame)
        later = tf.where(coming < _to_frame(latest), _to_seconds(coming), start)
        began = tf.where(frame <= self.num_frames, _around(self.quiet, frame)[0] + 1, frame)
        return tf.where(is_off, later, tf.minimum(tf.maximum(_to_seconds(began), earliest), start))

    def offset(self, end, latest, earliest):
        """Where the sound that is on at `end` stops, or, where none is on, where the one before did."""
        frame = _to_frame(end)
        gone = _around(self.loud, frame)[0]
        is_off = (frame > 0) & (frame <= self.num_frames) & (gone != frame - 1)
        earlier = tf.where(gone >= _to_frame(earliest), _to_seconds(gone + 1), end)
        stops = tf.minimum(_around(self.quiet, frame)[1], self.num_frames)
        stops = tf.where(frame < self.num_frames, stops, frame)
        return tf.where(is_off, earlier, tf.maximum(tf.minimum(_to_seconds(stops), latest), end))


def _places(is_there):
    """The numbers of the frames where something is, between -1 and numbers beyond all frames, `(batch, frames + 2)`."""
    places = tf.sort(tf.where(is_there, tf.range(tf.shape(is_there)[1]), tf.int32.max), axis=1)
    return tf.pad(tf.pad(places, [[0, 0], [1, 0]], constant_values=-1), [[0, 0], [0, 1]], constant_values=tf.int32.max)


def _around(places, frame):
    """The last of the places before each frame, and the first that is not before it."""
    found = tf.searchsorted(places, frame, side="left")
    return tf.gather(places, found - 1, batch_dims=1), tf.gather(places, found, batch_dims=1)


def _to_frame(seconds):
    return tf.cast(tf.round(seconds / FRAME_SECONDS), tf.int32)


def _to_seconds(frame):
    return tf.cast(frame, tf.float64) * FRAME_SECONDS


def _in_milliseconds(seconds):
    """Rounded to these."""
    return tf.cast(tf.round(seconds * 1000) / 1000, tf.float32)
