import numpy as np
import pytest
import tensorflow as tf

from attention_apps.preprocessing.audio import SAMPLE_RATE
from attention_apps.preprocessing.pauses import cut_at_pauses, envelope, is_silent, is_silent_in_graph, loud_frames

RANDOM = np.random.default_rng(0)


def noise(seconds, level):
    return RANDOM.normal(0, level, round(seconds * SAMPLE_RATE)).astype(np.float32)


def pad(waveforms, value=0.0):
    padded = np.full((len(waveforms), max(map(len, waveforms)) + 5), value, np.float32)
    for row, waveform in enumerate(waveforms):
        padded[row, : len(waveform)] = waveform
    return tf.constant(padded), tf.constant([len(waveform) for waveform in waveforms])


def find_loud(waveform):
    loud, counts = loud_frames(*pad([waveform]))
    return loud[0, : counts[0]].numpy()


# Cutting


def test_a_short_recording_is_one_piece():
    waveform = noise(2.0, 0.1)
    (piece,) = cut_at_pauses([waveform[:9000], waveform[9000:]], 3.0)
    assert piece[0] == 0
    np.testing.assert_array_equal(piece[1], waveform)


def test_cuts_are_in_the_pauses_and_nothing_is_lost():
    talk = np.concatenate([np.concatenate([noise(1.6, 0.2), noise(0.4, 0.001)]) for _ in range(6)])
    pieces = list(cut_at_pauses(np.array_split(talk, 11), 5.0))
    np.testing.assert_array_equal(np.concatenate([samples for _, samples in pieces]), talk)
    assert [start for start, _ in pieces] == pytest.approx(
        np.cumsum([0, *(len(samples) / SAMPLE_RATE for _, samples in pieces[:-1])])
    )
    assert len(pieces) > 2
    for start, samples in pieces:
        assert len(samples) <= 5 * SAMPLE_RATE
        assert start == 0 or start % 2 > 1.6


def test_an_endless_recording_is_read_only_as_far_as_needed():
    def blocks():
        while True:
            yield noise(1.0, 0.1)

    pieces = cut_at_pauses(blocks(), 2.0)
    assert all(len(next(pieces)[1]) <= 2 * SAMPLE_RATE for _ in range(5))


# Silence


@pytest.mark.parametrize("samples", [np.zeros(0), np.zeros(50), np.full(50, 0.3), np.resize([0, 5e-5], 50)])
def test_what_does_not_move_is_silent(samples):
    assert is_silent(samples.astype(np.float32))


def test_quiet_noise_is_not_silent():
    assert not is_silent(noise(0.1, 0.001))


@pytest.mark.parametrize("value", [0.0, 0.9, np.nan])
def test_the_same_recordings_are_silent_in_a_graph_whatever_the_padding_holds(value):
    waveforms = [noise(0.1, 0.001), np.zeros(777), np.full(200, 0.25), np.float32([0.5, 0.6] * 9), np.zeros(0)]
    silent = is_silent_in_graph(*pad(waveforms, value)).numpy()
    assert silent.tolist() == [is_silent(waveform) for waveform in waveforms] == [False, True, True, False, True]


# Loudness


def test_loud_frames_are_where_the_sound_is():
    loud = find_loud(np.concatenate([noise(0.5, 0.001), noise(0.5, 0.2), noise(0.5, 0.001)]))
    assert len(loud) == 150
    assert not loud[:48].any()
    assert loud[52:98].all()
    assert not loud[102:].any()


def test_where_all_is_alike_all_is_loud():
    assert find_loud(noise(0.5, 0.1)).all()
    assert find_loud(np.zeros(10, np.float32)).shape == (0,)


def test_hiss_is_not_loud_because_there_is_digital_silence_around_it():
    silence, voice = np.zeros(SAMPLE_RATE // 4, np.float32), noise(1.0, 0.001)
    voice[4_800:11_200] += 0.3 * np.sin(0.2 * np.arange(6_400))
    loud = np.flatnonzero(find_loud(np.concatenate([silence, voice, silence])))
    assert 53 <= loud[0] <= 56
    assert 93 <= loud[-1] <= 96


@pytest.mark.parametrize("value", [0.0, 0.9, np.nan])
def test_a_recording_has_the_same_loud_frames_in_any_company(value):
    ramp = noise(0.6, 0.3) * np.linspace(0, 1, round(0.6 * SAMPLE_RATE)) ** 4
    waveforms = [np.concatenate([noise(0.2, 0.001), noise(0.3, 0.2)]), ramp, noise(0.1, 0.1), np.zeros(7_777)]
    loud, counts = loud_frames(*pad(waveforms, value))
    for row, waveform in enumerate(waveforms):
        np.testing.assert_array_equal(loud[row, : counts[row]], find_loud(waveform))
        assert not loud[row, counts[row] :].numpy().any()


def test_no_samples_are_silent_and_have_no_frames():
    nothing, lengths = tf.zeros([2, 0]), tf.zeros([2], tf.int32)
    assert is_silent_in_graph(nothing, lengths).numpy().all()
    assert loud_frames(nothing, lengths)[0].shape == (2, 0)


def test_an_envelope_has_the_lowest_and_the_highest_sample_of_each_hundredth_of_a_second():
    waveform = np.zeros((2, 400), np.float32)
    waveform[0, 10], waveform[1, 170], waveform[1, 399] = -0.5, 0.75, 1.0  # the last is in no whole frame
    assert envelope(waveform).numpy().tolist() == [[[-0.5, 0], [0, 0]], [[0, 0], [0, 0.75]]]
