"""The same frames are loud in the graph as outside of it."""

import numpy as np
import tensorflow as tf

from attention_apps.preprocessing.pauses import is_silent, loud_frames
from attention_apps.preprocessing.pauses_graph import is_silent_in_graph, loud_frames_in_graph
from tests.applications.recognizers import say

RANDOM = np.random.default_rng(0)
WAVEFORMS = [
    say("A B  C"),
    say("ABC", noise=0.2),
    say("CA  A", noise=0),
    RANDOM.normal(0, 0.1, 1_600).astype(np.float32),
    (RANDOM.normal(size=9_999) * np.linspace(0, 1, 9_999) ** 4).astype(np.float32),
    np.zeros(7_777, np.float32),
    np.full(2_000, 0.25, np.float32),
    np.float32([0.5, 0.6, 0.5] * 200),
]


def pad(waveforms, value):
    padded = np.full((len(waveforms), max(map(len, waveforms)) + 5), value, np.float32)
    for row, waveform in enumerate(waveforms):
        padded[row, : len(waveform)] = waveform
    return tf.constant(padded), tf.constant([len(waveform) for waveform in waveforms])


def test_the_same_frames_are_loud_whatever_the_padding_holds():
    for value in (0, 0.9, np.nan):
        loud, counts = loud_frames_in_graph(*pad(WAVEFORMS, value))
        kinds = set()
        for row, waveform in enumerate(WAVEFORMS):
            expected = loud_frames(waveform)
            assert counts[row] == len(expected)
            np.testing.assert_array_equal(loud[row, : len(expected)], expected)
            assert not loud[row, len(expected) :].numpy().any()
            kinds.add(expected.all())
        assert kinds == {True, False}


def test_the_same_recordings_are_silent():
    for value in (0, 0.9, np.nan):
        silent = is_silent_in_graph(*pad(WAVEFORMS, value)).numpy()
        assert silent.tolist() == [is_silent(waveform) for waveform in WAVEFORMS]
        assert 0 < silent.sum() < len(WAVEFORMS)


def test_no_samples_are_silent_and_have_no_frames():
    nothing, lengths = tf.zeros([2, 0]), tf.zeros([2], tf.int32)
    assert is_silent_in_graph(nothing, lengths).numpy().all()
    assert loud_frames_in_graph(nothing, lengths)[0].shape == (2, 0)
