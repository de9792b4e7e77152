import numpy as np
import pytest
import tensorflow as tf

from attention_apps.preprocessing.audio import SAMPLE_RATE
from attention_apps.preprocessing.audio_features import (
    LogMelOptions,
    cut_at_pauses,
    envelope,
    is_silent,
    is_silent_in_graph,
    log_mel,
    loud_frames,
    mel_filters,
    mel_power,
    num_frames,
)

LENGTHS = (7_000, 16_001, 399, 30_000)
OPTIONS = LogMelOptions()


@pytest.fixture(scope="module")
def recordings():
    generator = np.random.default_rng(0)
    return [generator.normal(0, 0.1, length).astype("float32") for length in LENGTHS]


def batch_of(recordings, filler=0.0, size=None):
    size = size or max(map(len, recordings))
    batch = np.full((len(recordings), size), filler, "float32")
    for row, recording in zip(batch, recordings, strict=True):
        row[: len(recording)] = recording
    return batch, np.array([len(recording) for recording in recordings], "int32")


def by_hand(recording, options=OPTIONS):
    """The definition in NumPy, in float64."""
    window, hop, size = 400, 160, 512
    recording = np.pad(recording.astype("float64"), (0, max(window - len(recording), 0)))
    count = 1 + (len(recording) - window) // hop
    frames = np.stack([recording[i * hop : i * hop + window] for i in range(count)])
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    power = np.abs(np.fft.rfft(frames * hann, size)) ** 2 @ mel_filters(options).astype("float64")
    features = np.log(np.maximum(power, power.max() * 10 ** (-options.dynamic_range / 10)))
    return (features - features.mean(0)) / np.sqrt(np.maximum(features.var(0), 1e-2))


def test_features_follow_their_definition(recordings):
    features, mask = log_mel(*batch_of(recordings))
    assert features.dtype == tf.float32
    for row, real, recording in zip(features.numpy(), mask.numpy(), recordings, strict=True):
        expected = by_hand(recording)
        assert real.sum() == len(expected) == num_frames(len(recording), OPTIONS)
        np.testing.assert_allclose(row[real], expected, atol=2e-4)
        assert not row[~real].any()


def test_an_item_does_not_depend_on_its_batch_or_its_padding(recordings):
    together, _ = log_mel(*batch_of(recordings))
    noisy, _ = log_mel(*batch_of(recordings, filler=np.nan, size=33_333))
    for row, other, recording in zip(together.numpy(), noisy.numpy(), recordings, strict=True):
        alone, mask = log_mel(*batch_of([recording]))
        assert mask.numpy().all()
        count = mask.shape[1]
        np.testing.assert_allclose(row[:count], alone[0], atol=2e-6)
        np.testing.assert_allclose(other[:count], alone[0], atol=2e-6)
        assert not other[count:].any()


def test_loudness_means_nothing(recordings):
    quiet, _ = log_mel(*batch_of(recordings))
    loud, _ = log_mel(*batch_of([30_000 * recording for recording in recordings]))
    np.testing.assert_allclose(loud, quiet, atol=1e-4)


def test_silence_and_nothing_have_finite_features():
    features, mask = log_mel(np.zeros((3, 900), "float32"), np.array([900, 0, 1]))
    assert not features.numpy().any()
    np.testing.assert_array_equal(mask.numpy().sum(axis=1), [4, 0, 1])
    features, mask = log_mel(np.zeros((2, 0), "float32"), np.array([0, 0]))
    assert features.shape == (2, 1, 64)
    assert not mask.numpy().any()


def test_a_digital_pause_stays_within_the_dynamic_range(recordings):
    quiet = np.concatenate([recordings[0], np.zeros(4_000, "float32")])
    options = LogMelOptions(dynamic_range=40.0)
    features, _ = log_mel(*batch_of([quiet]), options)
    np.testing.assert_allclose(features[0], by_hand(quiet, options), atol=2e-4)
    assert np.abs(features).max() < 10


def test_one_trace_serves_every_size(recordings):
    traced = tf.function(log_mel, input_signature=[tf.TensorSpec((None, None)), tf.TensorSpec((None,), tf.int32)])
    for part in (recordings, recordings[1:2]):
        np.testing.assert_allclose(traced(*batch_of(part))[0], log_mel(*batch_of(part))[0], atol=1e-5)
    assert traced.experimental_get_tracing_count() == 1
    operations = {node.type for node in traced.get_concrete_function().graph.get_operations()}
    assert not any("py_func" in operation.lower() for operation in operations)


def test_frames_are_counted_alike_for_numbers_arrays_and_tensors():
    lengths = np.array([0, 1, 400, 559, 560, 16_000])
    expected = [0, 1, 1, 1, 2, 98]
    assert [num_frames(int(length), OPTIONS) for length in lengths] == expected
    np.testing.assert_array_equal(num_frames(lengths, OPTIONS), expected)
    np.testing.assert_array_equal(num_frames(tf.constant(lengths), OPTIONS), expected)


def test_htk_filters_are_those_of_tensorflow():
    expected = tf.signal.linear_to_mel_weight_matrix(64, 257, 16_000, 20.0, 8_000.0)
    np.testing.assert_allclose(mel_filters(OPTIONS), expected, atol=2e-4)


def test_slaney_filters_are_equally_wide_below_1_khz():
    filters = mel_filters(LogMelOptions(num_mels=20, mel_scale="slaney", lowest_frequency=0.0))
    peaks = np.argmax(filters, axis=0) * 16_000 / 512
    np.testing.assert_allclose(np.diff(peaks[peaks < 900]), 137.0, atol=32)  # 2.06 mel of 66.7 Hz
    assert (np.diff(peaks[peaks > 1500]) > 180).all()
    np.testing.assert_allclose(filters.sum(axis=1)[60:200], 1.0, atol=1e-5)


def test_a_tone_is_loudest_in_the_filter_of_its_frequency():
    tone = np.sin(2 * np.pi * 1000 * np.arange(16_000) / 16_000).astype("float32")
    power = mel_power(tone[np.newaxis], OPTIONS)[0].numpy().mean(axis=0)
    assert np.argmax(power) == np.argmax(mel_filters(OPTIONS)[32])  # bin 32 of 31.25 Hz


def test_other_sizes():
    options = LogMelOptions(sample_rate=8_000, num_mels=23, window=0.032, hop=0.016, highest_frequency=4_000.0)
    assert (options.window_size, options.hop_size, options.fft_size) == (256, 128, 256)
    features, mask = log_mel(np.ones((2, 1000), "float32"), np.array([1000, 500]), options)
    assert features.shape == (2, 6, 23)
    np.testing.assert_array_equal(mask.numpy().sum(axis=1), [6, 2])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mel_scale": "bark"}, "`mel_scale` must be one of htk, slaney"),
        ({"hop": 0.03}, "`hop` must be at least 0.001 and no more than `window`"),
        ({"hop": 1e-9}, "`hop` must be at least 0.001 and no more than `window`"),
        ({"window": 1e9}, "`window` must be at most 1.0"),
        ({"sample_rate": 10**12}, "`sample_rate` must be at most 384000"),
        ({"num_mels": 10**9}, "`num_mels` must be at most 1024"),
        ({"highest_frequency": 9_000.0}, "The frequencies must increase from 0 to half the sample rate"),
        ({"num_mels": 200}, "`num_mels` must be at least 1, and small enough that every filter"),
    ],
)
def test_wrong_options_are_explained(options, message):
    with pytest.raises(ValueError, match=message):
        LogMelOptions(**options)


# Pauses and silence

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
