import numpy as np
import pytest

from attention_apps.applications.recording_pieces import Piece, batch_pieces, cut_into_pieces, group_pieces
from attention_apps.preprocessing.audio import SAMPLE_RATE
from tests.applications.recognizers import say, wav_bytes


def make_piece(seconds):
    noise = np.random.default_rng(0).normal(0, 0.1, round(seconds * SAMPLE_RATE)).astype(np.float32)
    return Piece("a", True, 0.0, noise)


def test_a_recording_is_cut_and_its_last_piece_known():
    pieces = list(cut_into_pieces(np.tile(say("ABC"), 5), SAMPLE_RATE, 2.0))
    assert [piece.is_last for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert sum(piece.seconds for piece in pieces) == pytest.approx(5.0)
    assert pieces[1].start == pieces[0].seconds


def test_files_say_their_own_rate_whatever_is_said_of_arrays():
    (piece,) = cut_into_pieces(wav_bytes(say("A"), sample_rate=8000), 44_100, 5.0)
    assert piece.seconds == pytest.approx(1.2, abs=0.01)


@pytest.mark.parametrize("recording", [b"", b"text", "missing.wav", np.zeros((2, 3, 4), np.float32), 7, None])
def test_what_cannot_be_read_is_one_piece_with_an_error(recording):
    (piece,) = cut_into_pieces(recording, SAMPLE_RATE, 5.0)
    assert piece.error
    assert piece.is_last
    assert not piece.may_hold_speech


def test_damage_after_a_while_is_the_last_piece():
    waveform = np.tile(say("ABC"), 60)
    waveform[50 * SAMPLE_RATE] = np.nan
    pieces = list(cut_into_pieces(waveform, SAMPLE_RATE, 4.0))
    assert len(pieces) > 5
    assert "not finite" in pieces[-1].error
    assert all(piece.error is None for piece in pieces[:-1])


def test_short_recordings_are_looked_at_together_and_a_long_one_batch_by_batch():
    short, long = (Piece("a", is_last, 0.0, np.zeros(9, np.float32)) for is_last in (True, False))
    groups = group_pieces(iter([*[short] * 70, *[long] * 20, short, short]), max_seconds=12.0)
    assert [len(group) for group in groups] == [64, 13, 13, 2]


def test_batches_are_of_pieces_alike_in_length_and_bounded():
    pieces = [make_piece(seconds) for seconds in (12.0, 0.5, 0.05, 30.0, 1.0, *[20.0] * 9)]
    batches = list(batch_pieces(pieces))
    assert sorted(number for batch in batches for number in batch) == [0, 1, 3, 4, *range(5, 14)]
    assert batches[0][:3] == [1, 4, 0]
    for batch in batches:
        assert max(pieces[number].seconds for number in batch) * len(batch) <= 160


def test_silence_is_in_no_batch():
    silence = Piece("a", True, 0.0, np.zeros(SAMPLE_RATE, np.float32))
    assert list(batch_pieces([silence, Piece("b", True, error="broken")])) == []
