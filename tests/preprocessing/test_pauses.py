import numpy as np
import pytest

from attention_apps.preprocessing.audio import SAMPLE_RATE
from attention_apps.preprocessing.pauses import cut_at_pauses, is_silent, loud_frames

RANDOM = np.random.default_rng(0)


def noise(seconds, level):
    return RANDOM.normal(0, level, round(seconds * SAMPLE_RATE)).astype(np.float32)


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


@pytest.mark.parametrize("samples", [np.zeros(0), np.zeros(50), np.full(50, 0.3), np.resize([0, 5e-5], 50)])
def test_what_does_not_move_is_silent(samples):
    assert is_silent(samples.astype(np.float32))


def test_quiet_noise_is_not_silent():
    assert not is_silent(noise(0.1, 0.001))


def test_loud_frames_are_where_the_sound_is():
    loud = loud_frames(np.concatenate([noise(0.5, 0.001), noise(0.5, 0.2), noise(0.5, 0.001)]))
    assert len(loud) == 150
    assert not loud[:48].any()
    assert loud[52:98].all()
    assert not loud[102:].any()


def test_where_all_is_alike_all_is_loud():
    assert loud_frames(noise(0.5, 0.1)).all()
    assert loud_frames(np.zeros(10, np.float32)).shape == (0,)


def test_the_hiss_of_a_recording_is_not_loud_because_there_is_digital_silence_around_it():
    silence, voice = np.zeros(SAMPLE_RATE // 4, np.float32), noise(1.0, 0.001)
    voice[4_800:11_200] += 0.3 * np.sin(0.2 * np.arange(6_400))
    loud = np.flatnonzero(loud_frames(np.concatenate([silence, voice, silence])))
    assert 53 <= loud[0] <= 56
    assert 93 <= loud[-1] <= 96
